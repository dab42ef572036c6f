//! `linux.seccomp` of a bundle to one program of the kernel's packet filter machine. Pure.
//!
//! ```text
//! names ─names─> numbers of each architecture ─calls─> number → verdict ─program─> graph → instructions
//! args ─> rules ─────────────────────────────────────┘    order: which rule first │ checks: 64 bits as words
//! ```
//!
//! The meaning is the one that users of runc and crun know, which is libseccomp's with two additions of
//! theirs, where the specification (config-linux.md, "Seccomp") leaves it open:
//!
//! - A rule without `args` decides on all calls of its name, whatever other rules say; the first such rule does.
//! - The `args` of a rule must all match. When they name an argument twice, each of them is a rule of its own.
//! - Of several rules with `args` the first that matches decides; [`order`] says which is first.
//! - A rule whose action is the default action says nothing.
//! - A call with a number above all that the profile names answers ENOSYS when unlisted calls are refused, as
//!   from an older kernel. (A C library tries new calls first, and takes EPERM for a real answer.)
//! - The architecture of the machine is always included; a call by another one that is not ends the thread.

mod action;
mod calls;
mod checks;
mod names;
mod order;
mod program;
mod shared;
#[cfg(test)]
mod tests;

pub use shared::arch::Arch;

use crate::error::{Code, Error, Result};
use crate::sys::seccomp::SockFilter;
use calls::{Calls, Entry};
use checks::Check;
use names::Call;
use oci_spec::runtime::{
    Arch as Listed, LinuxSeccomp, LinuxSeccompAction as Action, LinuxSeccompArg,
    LinuxSeccompOperator as Operator, LinuxSyscall,
};
use shared::bpf::Instruction;

/// A system call filter, ready for [`crate::sys::seccomp::load_with`].
#[derive(Debug, Clone)]
pub struct Filter {
    /// The program: at least one instruction, at most 4096.
    pub instructions: Vec<SockFilter>,
    /// SECCOMP_FILTER_FLAG_* of seccomp(2), SECCOMP_FILTER_FLAG_NEW_LISTENER among them when `notify` is set.
    pub flags: u64,
    /// Whether some call waits for a listener; the load returns the listener's descriptor.
    pub notify: bool,
    /// What the profile says in vain, one sentence each that begins with the JSON path, for the log.
    pub warnings: Vec<String>,
}

impl Filter {
    /// Checks that the kernel has what the filter needs; `knows` is [`crate::sys::seccomp::knows_flag`].
    ///
    /// # Errors
    /// [`Code::Unsupported`] naming a flag that the kernel does not know.
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

impl Arch {
    /// The one that this binary was built for.
    #[cfg(target_arch = "x86_64")]
    pub const NATIVE: Arch = Arch::X86_64;
    /// The one that this binary was built for.
    #[cfg(target_arch = "aarch64")]
    pub const NATIVE: Arch = Arch::Aarch64;
}

/// Compiles `seccomp` for a kernel of the architecture `native`: [`Arch::X86_64`] or [`Arch::Aarch64`].
///
/// # Errors
/// [`Code::Invalid`] naming the JSON path of what makes no sense or does not fit in 4096 instructions.
pub fn compile(seccomp: &LinuxSeccomp, native: Arch) -> Result<Filter> {
    let notify = check_listener(seccomp)?;
    let default = action::code(
        seccomp.default_action(),
        seccomp.default_errno_ret(),
        "linux.seccomp",
        "defaultErrnoRet",
    )?;
    let mut warnings = Vec::new();
    let mut all: Vec<Calls> = architectures(seccomp, native).into_iter().map(Calls::new).collect();
    for (index, syscall) in seccomp.syscalls().iter().flatten().enumerate() {
        let entry = entry(index, syscall, &mut warnings)?;
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
    // Each architecture says the same again.
    let mut said = std::collections::HashSet::new();
    warnings.retain(|warning| said.insert(warning.clone()));
    let instruction = |&Instruction { code, jt, jf, k }: &Instruction| SockFilter { code, jt, jf, k };
    Ok(Filter { instructions: program.iter().map(instruction).collect(), flags, notify, warnings })
}

/// Whether some call of `seccomp` waits for a listener: [`Filter::notify`] of what it is compiled to.
pub fn wants_listener(seccomp: &LinuxSeccomp) -> bool {
    let mut actions = seccomp.syscalls().iter().flatten().map(LinuxSyscall::action);
    seccomp.default_action() == Action::ScmpActNotify || actions.any(|a| a == Action::ScmpActNotify)
}

/// Whether a listener is wanted, and its settings make sense.
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

/// The architectures that the filter decides on, the native one first. Those that this kernel can never run
/// need nothing: their calls cannot come.
fn architectures(seccomp: &LinuxSeccomp, native: Arch) -> Vec<Arch> {
    let others: &[(Listed, Arch)] = match native {
        Arch::Aarch64 | Arch::Arm => &[(Listed::ScmpArchArm, Arch::Arm)],
        _ => &[(Listed::ScmpArchX86, Arch::X86), (Listed::ScmpArchX32, Arch::X32)],
    };
    let listed = |arch: &Listed| seccomp.architectures().iter().flatten().any(|other| other == arch);
    let others = others.iter().filter(|(name, _)| listed(name)).map(|(_, arch)| *arch);
    std::iter::once(native).chain(others).collect()
}

fn entry(index: usize, syscall: &LinuxSyscall, warnings: &mut Vec<String>) -> Result<Entry> {
    let path = || format!("linux.seccomp.syscalls[{index}]");
    let action = action::code(syscall.action(), syscall.errno_ret(), &path(), "errnoRet")?;
    if syscall.names().is_empty() {
        let message = format!("{}.names is empty", path());
        return Err(Error::new(Code::Invalid, message).hint("name at least one system call"));
    }
    let mut checks = Vec::new();
    for (place, arg) in syscall.args().iter().flatten().enumerate() {
        checks.push(check(arg, || format!("{}.args[{place}]", path()), warnings)?);
    }
    checks.sort_by_key(|check| check.arg);
    let rules = if checks.is_empty() {
        Vec::new()
    } else if checks.is_sorted_by(|one, next| one.arg < next.arg) {
        vec![checks]
    } else {
        checks.into_iter().map(|check| vec![check]).collect()
    };
    Ok(Entry { index, action, rules })
}

fn check(arg: &LinuxSeccompArg, path: impl Fn() -> String, warnings: &mut Vec<String>) -> Result<Check> {
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
    Ok(Check { arg: place, operator: arg.op(), mask, value })
}
