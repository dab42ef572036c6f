//! Validates `linux.seccomp`: the rules between its fields. The plan compiles the filter (config-linux.md,
//! Seccomp).

use super::field_path::FieldPath;
use super::text::non_empty;
use oci_spec::runtime::{
    Arch, LinuxSeccomp, LinuxSeccompAction as Action, LinuxSeccompFilterFlag as Flag,
    LinuxSeccompOperator as Operator,
};
use saggar_sys::error::Result;
use std::path::PathBuf;

/// Every action, for `features`.
pub(super) const ACTIONS: [Action; 9] = [
    Action::ScmpActAllow,
    Action::ScmpActErrno,
    Action::ScmpActKill,
    Action::ScmpActKillProcess,
    Action::ScmpActKillThread,
    Action::ScmpActLog,
    Action::ScmpActNotify,
    Action::ScmpActTrace,
    Action::ScmpActTrap,
];

/// Every operator, for `features`.
pub(super) const OPERATORS: [Operator; 7] = [
    Operator::ScmpCmpEq,
    Operator::ScmpCmpGe,
    Operator::ScmpCmpGt,
    Operator::ScmpCmpLe,
    Operator::ScmpCmpLt,
    Operator::ScmpCmpMaskedEq,
    Operator::ScmpCmpNe,
];

/// Every flag, for `features`.
pub(super) const FLAGS: [(Flag, u64); 4] = [
    (Flag::SeccompFilterFlagLog, libc::SECCOMP_FILTER_FLAG_LOG),
    (Flag::SeccompFilterFlagSpecAllow, libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW),
    (Flag::SeccompFilterFlagTsync, libc::SECCOMP_FILTER_FLAG_TSYNC),
    (Flag::SeccompFilterFlagWaitKillableRecv, libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV),
];

/// Every architecture, for `features`.
pub(super) const ARCHITECTURES: [Arch; 23] = [
    Arch::ScmpArchAarch64,
    Arch::ScmpArchArm,
    Arch::ScmpArchLoongarch64,
    Arch::ScmpArchM68k,
    Arch::ScmpArchMips,
    Arch::ScmpArchMips64,
    Arch::ScmpArchMips64n32,
    Arch::ScmpArchMipsel,
    Arch::ScmpArchMipsel64,
    Arch::ScmpArchMipsel64n32,
    Arch::ScmpArchParisc,
    Arch::ScmpArchParisc64,
    Arch::ScmpArchPpc,
    Arch::ScmpArchPpc64,
    Arch::ScmpArchPpc64le,
    Arch::ScmpArchRiscv64,
    Arch::ScmpArchS390,
    Arch::ScmpArchS390x,
    Arch::ScmpArchSh,
    Arch::ScmpArchSheb,
    Arch::ScmpArchX32,
    Arch::ScmpArchX86,
    Arch::ScmpArchX86_64,
];

/// The highest error number (MAX_ERRNO); the kernel reduces a larger one to it.
const MAX_ERRNO: u32 = 4095;
/// The data of SECCOMP_RET_TRACE has 16 bits.
const MAX_TRACE: u32 = 0xffff;
/// The number of arguments of a system call.
const SYSCALL_ARGUMENTS: usize = 6;

/// Checks rules that the JSON types do not express.
pub(super) fn check_seccomp(seccomp: Option<LinuxSeccomp>) -> Result<Option<LinuxSeccomp>> {
    let Some(mut seccomp) = seccomp else { return Ok(None) };
    let linux = FieldPath::root("linux");
    let field = linux.key("seccomp");
    let path = seccomp.listener_path().as_ref().map(|path| path.to_string_lossy().into_owned());
    let path = non_empty(path).map(PathBuf::from);
    if let Some(path) = path.as_ref().filter(|path| !path.is_absolute()) {
        return Err(field.key("listenerPath").invalid(format_args!("must be an absolute path, is {path:?}")));
    }
    let has_listener = path.is_some();
    seccomp.set_listener_path(path);
    seccomp.set_listener_metadata(non_empty(seccomp.listener_metadata().clone()));
    if seccomp.listener_metadata().is_some() && !has_listener {
        return Err(field.key("listenerMetadata").invalid("must not be given without listenerPath"));
    }
    // Any call may notify: the runtime makes none between loading the filter and execve.
    check_notify(seccomp.default_action(), has_listener, field.key("defaultAction"))?;
    check_errno(seccomp.default_errno_ret(), seccomp.default_action(), field.key("defaultErrnoRet"))?;
    let list = field.key("syscalls");
    for (index, rule) in seccomp.syscalls().iter().flatten().enumerate() {
        let field = list.index(index);
        if rule.names().is_empty() {
            return Err(field.key("names").invalid("must hold at least one name"));
        }
        check_notify(rule.action(), has_listener, field.key("action"))?;
        check_errno(rule.errno_ret(), rule.action(), field.key("errnoRet"))?;
        let arguments = field.key("args");
        for (index, argument) in rule.args().iter().flatten().enumerate() {
            if argument.index() >= SYSCALL_ARGUMENTS {
                let field = arguments.index(index);
                return Err(field
                    .key("index")
                    .invalid(format_args!("must be from 0 to 5, is {}", argument.index())));
            }
        }
    }
    Ok(Some(seccomp))
}

/// SCMP_ACT_NOTIFY requires a listener, which must respond.
fn check_notify(action: Action, has_listener: bool, field: FieldPath<'_>) -> Result<()> {
    if action != Action::ScmpActNotify || has_listener {
        return Ok(());
    }
    let error = field.invalid("is SCMP_ACT_NOTIFY, and there is no listenerPath");
    Err(error.hint("name the socket of the agent that answers: linux.seccomp.listenerPath"))
}

/// An error number is allowed only with an action that returns one.
fn check_errno(value: Option<u32>, action: Action, field: FieldPath<'_>) -> Result<()> {
    let Some(value) = value else { return Ok(()) };
    let max = match action {
        Action::ScmpActErrno => MAX_ERRNO,
        Action::ScmpActTrace => MAX_TRACE,
        _ => {
            let error = field.invalid("is given for an action that has no error number");
            return Err(error.hint("only SCMP_ACT_ERRNO and SCMP_ACT_TRACE have one; remove it"));
        }
    };
    if value > max { Err(field.invalid(format_args!("must be at most {max}, is {value}"))) } else { Ok(()) }
}
