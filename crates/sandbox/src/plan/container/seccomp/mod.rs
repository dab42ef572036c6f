//! Compiles `linux.seccomp` of a bundle to one classic BPF program. Pure: no I/O.
//!
//! ```text
//! names ─names─> numbers of each architecture ─calls─> number → verdict ─program─> graph → instructions
//! args ─> rules ─────────────────────────────────────┘    order: which rule first │ checks: 64 bits as words
//! ```
//!
//! Where the specification (config-linux.md, "Seccomp") is ambiguous, the semantics are those that users of runc and
//! crun know: libseccomp's, with two additions of these runtimes:
//!
//! - A rule without `args` decides on all calls of its name, regardless of other rules; the first such rule wins.
//! - The `args` of a rule must all match. When they name an argument twice, each becomes a rule of its own.
//! - Of several matching rules with `args` the first decides; [`order`] defines which is first.
//! - A rule whose action is the default action has no effect.
//! - A call with a number above all that the profile names fails with ENOSYS when unlisted calls are denied, as on an
//!   older kernel. (A C library tries new calls first, and treats EPERM as a real result.)
//! - The architecture of the machine is always included; a call of another architecture that is not listed ends the
//!   thread.

mod action;
mod calls;
mod checks;
mod names;
mod order;
mod program;
#[cfg(test)]
mod tests;

pub use saggar_seccomp::arch::Arch;

use calls::{ArchCalls, SyscallEntry};
use checks::ArgCheck;
use names::Call;
use oci_spec::runtime::{
    Arch as Listed, LinuxSeccomp, LinuxSeccompAction as Action, LinuxSeccompArg,
    LinuxSeccompOperator as Operator, LinuxSyscall,
};
use saggar_seccomp::bpf::Instruction;
use saggar_sys::error::{Code, Error, Result};
use saggar_sys::seccomp::SockFilter;

/// A system call filter, ready for [`saggar_sys::seccomp::load_with`].
#[derive(Debug, Clone)]
pub struct CompiledFilter {
    /// The program: at least one instruction, at most 4096.
    pub instructions: Vec<SockFilter>,
    /// SECCOMP_FILTER_FLAG_* of seccomp(2), including SECCOMP_FILTER_FLAG_NEW_LISTENER when `notify` is set.
    pub flags: u64,
    /// Whether the filter needs a listener, for seccomp notify; loading returns the listener's descriptor.
    pub notify: bool,
    /// Warnings for the log about entries without effect, one sentence each that begins with the JSON path.
    pub warnings: Vec<String>,
}

impl CompiledFilter {
    /// Whether the profiles of engines usually cause this warning: they list calls twice.
    pub fn is_usual(warning: &str) -> bool {
        calls::is_unreachable(warning)
    }

    /// Checks that the kernel supports the filter's flags; `knows` is [`saggar_sys::seccomp::knows_flag`].
    ///
    /// # Errors
    /// [`Code::Unsupported`] with the flag that the kernel does not know.
    pub fn check(&self, knows: impl Fn(u64) -> bool) -> Result<()> {
        match action::FLAGS.iter().find(|(flag, ..)| self.flags & flag != 0 && !knows(*flag)) {
            None => Ok(()),
            Some((_, name, since)) => {
                let message =
                    format!("linux.seccomp: this kernel has no {name}, which came with Linux {since}");
                Err(Error::new(Code::Unsupported, message)
                    .hint("leave out what asks for it, or take a newer kernel"))
            }
        }
    }
}

/// Compiles `seccomp` for a kernel of the architecture `native`: [`Arch::X86_64`] or [`Arch::Aarch64`].
///
/// # Errors
/// [`Code::Invalid`] with the JSON path of an invalid value, or for a program of more than 4096 instructions.
pub fn compile(seccomp: &LinuxSeccomp, native: Arch) -> Result<CompiledFilter> {
    let notify = check_listener(seccomp)?;
    let default = action::code(
        seccomp.default_action(),
        seccomp.default_errno_ret(),
        "linux.seccomp",
        "defaultErrnoRet",
    )?;
    let mut warnings = Vec::new();
    let mut all: Vec<ArchCalls> = architectures(seccomp, native).into_iter().map(ArchCalls::new).collect();
    for (index, syscall) in seccomp.syscalls().iter().flatten().enumerate() {
        let entry = syscall_entry(index, syscall, &mut warnings)?;
        for (place, name) in syscall.names().iter().enumerate() {
            let Some(call) = Call::find(name) else {
                warnings.push(format!(
                    "linux.seccomp.syscalls[{index}].names[{place}]: there is no system call {name:?}"
                ));
                continue;
            };
            for calls in &mut all {
                calls.add(call, &entry, entry.action == default, &mut warnings);
            }
        }
    }
    let program = program::build(&all, default, action::newer(default), &mut warnings);
    let program = program.map_err(|why| Error::new(Code::Invalid, format!("linux.seccomp: {why}")))?;
    let flags = action::flags(seccomp.flags().as_deref(), notify, &mut warnings);
    // Each architecture repeats the same warnings.
    let mut seen = std::collections::HashSet::new();
    warnings.retain(|warning| seen.insert(warning.clone()));
    let instruction = |&Instruction { code, jt, jf, k }: &Instruction| SockFilter { code, jt, jf, k };
    Ok(CompiledFilter { instructions: program.iter().map(instruction).collect(), flags, notify, warnings })
}

/// Whether a call of `seccomp` needs a listener: the value of [`CompiledFilter::notify`] after compilation.
pub fn wants_listener(seccomp: &LinuxSeccomp) -> bool {
    let mut actions = seccomp.syscalls().iter().flatten().map(LinuxSyscall::action);
    seccomp.default_action() == Action::ScmpActNotify || actions.any(|a| a == Action::ScmpActNotify)
}

/// Returns whether a listener is needed, after checking its settings.
fn check_listener(seccomp: &LinuxSeccomp) -> Result<bool> {
    let notify = wants_listener(seccomp);
    let error = |what: &str, hint: &str| Err(Error::new(Code::Invalid, what).hint(hint));
    match (seccomp.listener_path(), seccomp.listener_metadata()) {
        (None, _) if notify => error(
            "linux.seccomp.listenerPath is missing, and SCMP_ACT_NOTIFY asks whoever listens there",
            "give the path of the agent's unix socket, or another action",
        ),
        (None, Some(_)) => error(
            "linux.seccomp.listenerMetadata is for whoever listens at linux.seccomp.listenerPath, which is missing",
            "give listenerPath, or leave listenerMetadata out",
        ),
        _ => Ok(notify),
    }
}

/// Returns the architectures that the filter decides on, the native one first. Architectures that this kernel can never
/// run are left out, since their calls cannot occur.
fn architectures(seccomp: &LinuxSeccomp, native: Arch) -> Vec<Arch> {
    let others: &[(Listed, Arch)] = match native {
        Arch::Aarch64 | Arch::Arm => &[(Listed::ScmpArchArm, Arch::Arm)],
        _ => &[(Listed::ScmpArchX86, Arch::X86), (Listed::ScmpArchX32, Arch::X32)],
    };
    let listed = |arch: &Listed| seccomp.architectures().iter().flatten().any(|other| other == arch);
    let others = others.iter().filter(|(name, _)| listed(name)).map(|(_, arch)| *arch);
    std::iter::once(native).chain(others).collect()
}

fn syscall_entry(index: usize, syscall: &LinuxSyscall, warnings: &mut Vec<String>) -> Result<SyscallEntry> {
    let path = || format!("linux.seccomp.syscalls[{index}]");
    let action = action::code(syscall.action(), syscall.errno_ret(), &path(), "errnoRet")?;
    if syscall.names().is_empty() {
        let message = format!("{}.names is empty", path());
        return Err(Error::new(Code::Invalid, message).hint("name at least one system call"));
    }
    let mut checks = Vec::new();
    for (place, arg) in syscall.args().iter().flatten().enumerate() {
        checks.push(arg_check(arg, || format!("{}.args[{place}]", path()), warnings)?);
    }
    checks.sort_by_key(|check| check.arg);
    let rules = if checks.is_empty() {
        Vec::new()
    } else if checks.is_sorted_by(|one, next| one.arg < next.arg) {
        vec![checks]
    } else {
        checks.into_iter().map(|check| vec![check]).collect()
    };
    Ok(SyscallEntry { index, action, rules })
}

fn arg_check(
    arg: &LinuxSeccompArg,
    path: impl Fn() -> String,
    warnings: &mut Vec<String>,
) -> Result<ArgCheck> {
    let place = u32::try_from(arg.index()).ok().filter(|index| *index < 6).ok_or_else(|| {
        let message = format!("{}.index is {}, and a system call has six arguments", path(), arg.index());
        Error::new(Code::Invalid, message).hint("count them from 0 to 5")
    })?;
    let second = arg.value_two().unwrap_or(0);
    let (mask, value) = match arg.op() {
        Operator::ScmpCmpMaskedEq => (arg.value(), second),
        operator => {
            if second != 0 {
                warnings.push(format!("{}.valueTwo: {operator} compares with value alone", path()));
            }
            (u64::MAX, arg.value())
        }
    };
    Ok(ArgCheck { arg: place, operator: arg.op(), mask, value })
}
