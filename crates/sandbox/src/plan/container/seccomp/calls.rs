//! Collects the actions of a profile for each call of one architecture.

use super::checks::{ArgCheck, half};
use super::names::Call;
use super::order::CallRule;
use oci_spec::runtime::LinuxSeccompOperator as Operator;
use saggar_seccomp::arch::{Arch, X32_BIT};

/// The action for a call.
#[derive(Debug, Clone)]
pub(super) enum CallAction {
    /// The default action.
    Unlisted,
    /// This action for all arguments; and the entry that sets it.
    Always(u32, usize),
    /// The action of the matching rule, else the default action; and the call's name.
    Checked(&'static str, Vec<CallRule>),
}

/// An entry of `linux.seccomp.syscalls`.
#[derive(Debug)]
pub(super) struct SyscallEntry {
    /// Its index in the list.
    pub(super) index: usize,
    /// SECCOMP_RET_* with its data.
    pub(super) action: u32,
    /// Rules of which one must hold, with all its checks; none means that the arguments do not matter.
    pub(super) rules: Vec<Vec<ArgCheck>>,
}

/// The calls of one architecture.
#[derive(Debug)]
pub(super) struct ArchCalls {
    /// The architecture.
    pub(super) arch: Arch,
    /// By number, without the bit of x32.
    verdicts: Vec<CallAction>,
    /// Calls with numbers far above all others (the private ones of Arm), in order.
    far: Vec<(u32, CallAction)>,
    /// The highest number that the profile names, except those of `far`.
    newest: Option<u32>,
}

/// The first far number.
const FAR: u32 = 1024;

/// The private calls of Arm, which are old regardless of their numbers (arch/arm/include/uapi/asm/unistd.h): first
/// number, and the number after the last.
const PRIVATE: (u32, u32) = (0xf_0000, 0xf_0800);

impl ArchCalls {
    /// Starts without any listed call.
    pub(super) fn new(arch: Arch) -> Self {
        ArchCalls { arch, verdicts: Vec::new(), far: Vec::new(), newest: None }
    }

    /// Adds the rules of `entry` for `call`; `skip` when their action is the default action.
    pub(super) fn add(
        &mut self,
        call: &'static Call,
        entry: &SyscallEntry,
        skip: bool,
        warnings: &mut Vec<String>,
    ) {
        if let Some(number) = call.number(self.arch) {
            let index = number & !self.base();
            self.newest = self.newest.max(Some(index).filter(|index| *index < FAR));
            if !skip {
                self.record(index, call.name(), entry, &entry.rules, warnings);
            }
        }
        if self.arch == Arch::X86 && !skip {
            self.add_multiplexed(call, entry, warnings);
        }
    }

    /// 32-bit programs can make socket and System V IPC calls through two multiplexed calls, which take the real call's
    /// number as first argument and its arguments by a pointer, which no filter can follow. As in libseccomp, a rule
    /// applies to those calls too, and drops its check of the first argument, if any.
    fn add_multiplexed(&mut self, call: &'static Call, entry: &SyscallEntry, warnings: &mut Vec<String>) {
        let Some((through, which)) = multiplexed(call.name()) else { return };
        let Some(number) = Call::find(through).and_then(|through| through.number(self.arch)) else { return };
        let which = ArgCheck { arg: 0, operator: Operator::ScmpCmpEq, mask: u64::MAX, value: which };
        let others = |checks: &Vec<ArgCheck>| checks.iter().filter(|check| check.arg != 0).copied().collect();
        let mut rules: Vec<Vec<ArgCheck>> = entry.rules.iter().map(others).collect();
        if rules.is_empty() {
            rules.push(Vec::new());
        } else if !matches!(self.slot(number), CallAction::Always(..)) {
            warnings.push(format!(
                "linux.seccomp.syscalls[{}]: the arguments of {} cannot be checked in 32-bit programs, which \
                 make it through {through}",
                entry.index,
                call.name()
            ));
        }
        rules.iter_mut().for_each(|checks| checks.insert(0, which));
        self.newest = self.newest.max(Some(number));
        self.record(number, through, entry, &rules, warnings);
    }

    /// Adds the rules of `entry`. An action for all arguments overrides rules that check them, and of two actions for
    /// all arguments the first wins, as in libseccomp.
    fn record(
        &mut self,
        index: u32,
        name: &'static str,
        entry: &SyscallEntry,
        rules: &[Vec<ArgCheck>],
        warnings: &mut Vec<String>,
    ) {
        let wide = self.wide();
        let compares = |check: &&ArgCheck| half(check.mask, false) != 0 || wide && check.mask != 0;
        let slot = self.slot(index);
        match slot {
            CallAction::Always(action, by) if *action != entry.action => {
                warnings.push(unreachable(name, entry.index, *by));
            }
            CallAction::Always(..) => {}
            _ if rules.is_empty()
                || rules.iter().any(|checks| !checks.iter().any(|check| compares(&check))) =>
            {
                if let CallAction::Checked(_, rules) = slot {
                    let others = rules.iter().filter(|rule| rule.action != entry.action);
                    warnings.extend(others.map(|rule| unreachable(name, rule.entry, entry.index)));
                }
                *slot = CallAction::Always(entry.action, entry.index);
            }
            _ => {
                let rules = rules.iter().map(|checks| CallRule {
                    action: entry.action,
                    checks: checks.iter().filter(compares).copied().collect(),
                    entry: entry.index,
                });
                match slot {
                    CallAction::Checked(_, before) => before.extend(rules),
                    _ => *slot = CallAction::Checked(name, rules.collect()),
                }
            }
        }
    }

    /// Whether arguments have 64 bits.
    pub(super) fn wide(&self) -> bool {
        matches!(self.arch, Arch::X86_64 | Arch::Aarch64)
    }

    fn base(&self) -> u32 {
        if self.arch == Arch::X32 { X32_BIT } else { 0 }
    }

    fn slot(&mut self, index: u32) -> &mut CallAction {
        if index >= FAR {
            let place = self.far.binary_search_by_key(&index, |(number, _)| *number);
            let place = place.unwrap_or_else(|place| {
                self.far.insert(place, (index, CallAction::Unlisted));
                place
            });
            return &mut self.far[place].1;
        }
        let index = index as usize;
        if index >= self.verdicts.len() {
            self.verdicts.resize(index + 1, CallAction::Unlisted);
        }
        &mut self.verdicts[index]
    }

    /// Returns numbers as the kernel has them, in order, each with the action from there up to the next number; `None`
    /// for numbers newer than all that the profile names.
    pub(super) fn starts(&self) -> impl Iterator<Item = (u32, Option<&CallAction>)> {
        let base = self.base();
        let end = self.newest.map(|newest| base + newest + 1);
        let listed = (base..).zip(self.verdicts.iter().map(Some));
        // After the last listed call: numbers up to the newest, which the profile names with the default action only.
        let unlisted = base + self.verdicts.iter().map(|_| 1_u32).sum::<u32>();
        let rest = (end.is_none_or(|end| unlisted < end)).then_some((unlisted, Some(&CallAction::Unlisted)));
        let newer = end.map(|end| (end, None));
        let own = self
            .far
            .iter()
            .flat_map(|(number, verdict)| [(*number, verdict), (number + 1, &CallAction::Unlisted)]);
        let private = std::iter::once((PRIVATE.0, &CallAction::Unlisted)).chain(own);
        let private =
            private.map(|(number, verdict)| (number, Some(verdict))).chain(end.map(|_| (PRIVATE.1, None)));
        let far = private.filter(|_| self.arch == Arch::Arm);
        listed.chain(rest).chain(newer).chain(far)
    }
}

/// Returns the warning that the entry `index` never decides on a call of `name`, because the entry `by` decides on all
/// of them.
pub(super) fn unreachable(name: &str, index: usize, by: usize) -> String {
    format!(
        "linux.seccomp.syscalls[{index}]: its action for {name} {NEVER_TAKEN} linux.seccomp.syscalls[{by}] decides on all \
         its calls"
    )
}

const NEVER_TAKEN: &str = "is never taken, as";

/// Whether a warning is one of [`unreachable()`].
pub(super) fn is_unreachable(warning: &str) -> bool {
    warning.contains(NEVER_TAKEN)
}

/// Returns the multiplexed form of this call in 32-bit x86 programs (linux/net.h, linux/ipc.h).
fn multiplexed(name: &str) -> Option<(&'static str, u64)> {
    let socket = match name {
        "socket" => 1,
        "bind" => 2,
        "connect" => 3,
        "listen" => 4,
        "accept" => 5,
        "getsockname" => 6,
        "getpeername" => 7,
        "socketpair" => 8,
        "send" => 9,
        "recv" => 10,
        "sendto" => 11,
        "recvfrom" => 12,
        "shutdown" => 13,
        "setsockopt" => 14,
        "getsockopt" => 15,
        "sendmsg" => 16,
        "recvmsg" => 17,
        "accept4" => 18,
        "recvmmsg" => 19,
        "sendmmsg" => 20,
        _ => 0,
    };
    let ipc = match name {
        "semop" => 1,
        "semget" => 2,
        "semctl" => 3,
        "semtimedop" => 4,
        "msgsnd" => 11,
        "msgrcv" => 12,
        "msgget" => 13,
        "msgctl" => 14,
        "shmat" => 21,
        "shmdt" => 22,
        "shmget" => 23,
        "shmctl" => 24,
        _ => 0,
    };
    match (socket, ipc) {
        (1.., _) => Some(("socketcall", socket)),
        (_, 1..) => Some(("ipc", ipc)),
        _ => None,
    }
}
