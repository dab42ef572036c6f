//! What a profile says of each call of one architecture.

use super::checks::{Check, half};
use super::names::Call;
use super::order::Rule;
use super::shared::arch::{Arch, X32_BIT};
use oci_spec::runtime::LinuxSeccompOperator as Operator;

/// What a call gets.
#[derive(Debug, Clone)]
pub(super) enum Verdict {
    /// The default action.
    Unlisted,
    /// This action, whatever the arguments; and the entry that says so.
    Always(u32, usize),
    /// What the rule that matches says, else the default action; and the call's name.
    Checked(&'static str, Vec<Rule>),
}

/// An entry of `linux.seccomp.syscalls`.
#[derive(Debug)]
pub(super) struct Entry {
    /// Its place in the list.
    pub(super) index: usize,
    /// SECCOMP_RET_* with its data.
    pub(super) action: u32,
    /// One of these must hold, each wholly; none means that the arguments do not matter.
    pub(super) rules: Vec<Vec<Check>>,
}

/// The calls of one architecture.
#[derive(Debug)]
pub(super) struct Calls {
    /// The architecture.
    pub(super) arch: Arch,
    /// By number, without the bit of x32.
    verdicts: Vec<Verdict>,
    /// Calls far above all others (the private ones of Arm), in order.
    far: Vec<(u32, Verdict)>,
    /// The highest number that the profile names, [`Calls::far`] aside.
    newest: Option<u32>,
}

/// Where far numbers begin.
const FAR: u32 = 1024;

/// The private calls of Arm, which are old whatever their numbers (arch/arm/include/uapi/asm/unistd.h): first, past.
const PRIVATE: (u32, u32) = (0xf_0000, 0xf_0800);

impl Calls {
    /// Nothing is listed yet.
    pub(super) fn new(arch: Arch) -> Self {
        Calls { arch, verdicts: Vec::new(), far: Vec::new(), newest: None }
    }

    /// Takes up what `entry` says of `call`; `skip` when it says no more than the default action.
    pub(super) fn add(&mut self, call: &'static Call, entry: &Entry, skip: bool, warnings: &mut Vec<String>) {
        if let Some(number) = call.number(self.arch) {
            let index = number & !self.base();
            self.newest = self.newest.max(Some(index).filter(|index| *index < FAR));
            if !skip {
                self.say(index, call.name(), entry, &entry.rules, warnings);
            }
        }
        if self.arch == Arch::X86 && !skip {
            self.add_multiplexed(call, entry, warnings);
        }
    }

    /// 32-bit programs make the calls of sockets and of System V IPC through two calls that take the real
    /// call's number as their first argument, and its arguments by a pointer, which no filter can follow. As
    /// libseccomp does, a rule speaks of those too: its check of the first argument, if any, gives way.
    fn add_multiplexed(&mut self, call: &'static Call, entry: &Entry, warnings: &mut Vec<String>) {
        let Some((through, which)) = multiplexed(call.name()) else { return };
        let Some(number) = Call::find(through).and_then(|through| through.number(self.arch)) else { return };
        let which = Check { arg: 0, operator: Operator::ScmpCmpEq, mask: u64::MAX, value: which };
        let others = |checks: &Vec<Check>| checks.iter().filter(|check| check.arg != 0).copied().collect();
        let mut rules: Vec<Vec<Check>> = entry.rules.iter().map(others).collect();
        if rules.is_empty() {
            rules.push(Vec::new());
        } else if !matches!(self.slot(number), Verdict::Always(..)) {
            warnings.push(format!(
                "linux.seccomp.syscalls[{}]: the arguments of {} cannot be checked in 32-bit programs, which \
                 make it through {through}",
                entry.index,
                call.name()
            ));
        }
        rules.iter_mut().for_each(|checks| checks.insert(0, which));
        self.newest = self.newest.max(Some(number));
        self.say(number, through, entry, &rules, warnings);
    }

    /// Adds what `entry` says. What holds whatever the arguments is stronger than what depends on them, and of
    /// two that hold so the first, as with libseccomp.
    fn say(
        &mut self,
        index: u32,
        name: &'static str,
        entry: &Entry,
        rules: &[Vec<Check>],
        warnings: &mut Vec<String>,
    ) {
        let wide = self.wide();
        let compares = |check: &&Check| half(check.mask, false) != 0 || wide && check.mask != 0;
        let slot = self.slot(index);
        match slot {
            Verdict::Always(action, by) if *action != entry.action => {
                warnings.push(unreachable(name, entry.index, *by));
            }
            Verdict::Always(..) => {}
            _ if rules.is_empty()
                || rules.iter().any(|checks| !checks.iter().any(|check| compares(&check))) =>
            {
                if let Verdict::Checked(_, rules) = slot {
                    let others = rules.iter().filter(|rule| rule.action != entry.action);
                    warnings.extend(others.map(|rule| unreachable(name, rule.entry, entry.index)));
                }
                *slot = Verdict::Always(entry.action, entry.index);
            }
            _ => {
                let rules = rules.iter().map(|checks| Rule {
                    action: entry.action,
                    checks: checks.iter().filter(compares).copied().collect(),
                    entry: entry.index,
                });
                match slot {
                    Verdict::Checked(_, before) => before.extend(rules),
                    _ => *slot = Verdict::Checked(name, rules.collect()),
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

    fn slot(&mut self, index: u32) -> &mut Verdict {
        if index >= FAR {
            let place = self.far.binary_search_by_key(&index, |(number, _)| *number);
            let place = place.unwrap_or_else(|place| {
                self.far.insert(place, (index, Verdict::Unlisted));
                place
            });
            return &mut self.far[place].1;
        }
        let index = index as usize;
        if index >= self.verdicts.len() {
            self.verdicts.resize(index + 1, Verdict::Unlisted);
        }
        &mut self.verdicts[index]
    }

    /// Numbers as the kernel has them, in order, each with what it and those up to the next one get: a verdict,
    /// or `None` for numbers that are newer than all that the profile names.
    pub(super) fn starts(&self) -> impl Iterator<Item = (u32, Option<&Verdict>)> {
        let base = self.base();
        let end = self.newest.map(|newest| base + newest + 1);
        let listed = (base..).zip(self.verdicts.iter().map(Some));
        // After the last that is listed: numbers up to the newest, where only the default action was named.
        let unlisted = base + self.verdicts.iter().map(|_| 1_u32).sum::<u32>();
        let rest = (end.is_none_or(|end| unlisted < end)).then_some((unlisted, Some(&Verdict::Unlisted)));
        let newer = end.map(|end| (end, None));
        let own = self
            .far
            .iter()
            .flat_map(|(number, verdict)| [(*number, verdict), (number + 1, &Verdict::Unlisted)]);
        let private = std::iter::once((PRIVATE.0, &Verdict::Unlisted)).chain(own);
        let private =
            private.map(|(number, verdict)| (number, Some(verdict))).chain(end.map(|_| (PRIVATE.1, None)));
        let far = private.filter(|_| self.arch == Arch::Arm);
        listed.chain(rest).chain(newer).chain(far)
    }
}

/// The warning that the entry `index` decides on no call of `name`, as the entry `by` does on all that it names.
pub(super) fn unreachable(name: &str, index: usize, by: usize) -> String {
    format!(
        "linux.seccomp.syscalls[{index}]: its action for {name} is never taken, as linux.seccomp.syscalls[{by}] \
         decides on all its calls"
    )
}

/// How a 32-bit program of x86 makes this call otherwise (linux/net.h, linux/ipc.h).
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
