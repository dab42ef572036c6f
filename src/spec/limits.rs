//! `[limits]` of a policy, as far as a cgroup holds them: from the layers to the model.

use super::agent::origin;
use super::policy::effective::{self, Effective, HeldRates};
use super::policy::{Protection, Setting, Strength};
use super::{Disk, Limit, Limits};
use crate::error::{Code, Error, Result};

/// The period of a quota of processor time, in microseconds: the kernel's own default.
pub const PERIOD: u64 = 100_000;

/// Lowers the limits that need a cgroup.
///
/// # Errors
/// [`Code::Invalid`] when values of different layers do not go together.
pub fn lower(policy: &Effective) -> Result<Limits> {
    let limits = &policy.limits;
    check_burst(limits)?;
    let built_in = |protection| policy.strength(protection) == Strength::Require;
    let memory = required(&limits.memory, built_in(Protection::Memory), |size| size.bytes());
    Ok(Limits {
        memory_high: named(&limits.memory_high, |size| size.bytes()),
        swap: named(&limits.swap, |size| size.bytes()),
        hugetlb: limits
            .hugetlb
            .iter()
            .map(|(page, size)| (*page, required(size, true, |size| size.bytes())))
            .collect(),
        memory: Some(memory),
        cpu_milli: Some(required(&limits.cpus, built_in(Protection::Cpu), |cpus| cpus.thousandths().into())),
        cpu_burst: named(&limits.cpu_burst, |span| microseconds(*span)),
        cpu_weight: named(&limits.cpu_weight, |weight| u64::from(*weight)),
        cpu_idle: named(&limits.cpu_idle, |idle| *idle),
        cpuset_cpus: named(&limits.cpuset_cpus, Clone::clone),
        cpuset_mems: named(&limits.cpuset_mems, Clone::clone),
        io: limits.io.iter().flat_map(|(disk, held)| rates(disk, held)).collect(),
        io_weight: named(&limits.io_weight, |weight| u64::from(*weight)),
        pids: Some(required(&limits.pids, built_in(Protection::Pids), |pids| u64::from(*pids))),
        cpu_time: named(&limits.cpu_time, |span| span.milliseconds()),
        disk: Some(required(&limits.disk, built_in(Protection::Disk), |size| size.bytes())),
        inodes: Some(required(&limits.inodes, built_in(Protection::Disk), |inodes| u64::from(*inodes))),
    })
}

/// A limit that has a built-in value: whether it must hold is the strength of its protection.
fn required<T, U>(setting: &Setting<T>, required: bool, value: impl Fn(&T) -> U) -> Limit<U> {
    Limit { value: value(&setting.value), named: required, origin: origin(&setting.layer) }
}

/// A limit that is there only when somebody names it, and then must hold.
fn named<T, U>(setting: &Option<Setting<T>>, value: impl Fn(&T) -> U) -> Option<Limit<U>> {
    setting.as_ref().map(|setting| required(setting, true, value))
}

/// The rates of one disk, by the keys of io.max.
fn rates(disk: &Disk, held: &HeldRates) -> Vec<(Disk, &'static str, Limit<u64>)> {
    let HeldRates { read_bps, write_bps, read_iops, write_iops } = held;
    let rates = [
        ("rbps", named(read_bps, |size| size.bytes())),
        ("wbps", named(write_bps, |size| size.bytes())),
        ("riops", named(read_iops, |count| u64::from(*count))),
        ("wiops", named(write_iops, |count| u64::from(*count))),
    ];
    rates.into_iter().filter_map(|(key, rate)| Some((disk.clone(), key, rate?))).collect()
}

fn microseconds(span: super::policy::TimeSpan) -> u64 {
    u64::try_from(span.duration().as_micros()).unwrap_or(u64::MAX)
}

/// The kernel takes no burst above the quota (Documentation/scheduler/sched-bwc.rst), and would say EINVAL.
fn check_burst(limits: &effective::Limits) -> Result<()> {
    let Some(burst) = &limits.cpu_burst else { return Ok(()) };
    let quota = u64::from(limits.cpus.value.thousandths()) * PERIOD / 1000;
    if microseconds(burst.value) <= quota {
        return Ok(());
    }
    let message = format!(
        "limits.cpu_burst = {}, from {}, is more than limits.cpus = {}, from {}, gives in a period: {quota} us in {PERIOD} us",
        burst.value, burst.layer, limits.cpus.value, limits.cpus.layer
    );
    Err(Error::new(Code::Invalid, message).hint("give a shorter burst, or more cpus"))
}

#[cfg(test)]
mod tests {
    use super::super::policy::{Home, Layer};
    use super::*;

    fn policy(text: &str) -> Effective {
        let mut policy = Effective::built_in(Home::Tmp);
        policy.merge(toml::from_str(text).unwrap(), &Layer::CommandLine);
        policy
    }

    #[test]
    fn what_must_hold_is_what_was_named_or_whose_protection_is_required() {
        let lowered = |text: &str| lower(&policy(text)).unwrap();
        let must = |limits: &Limits| {
            [&limits.memory, &limits.cpu_milli, &limits.pids].map(|l| l.as_ref().unwrap().named)
        };
        assert_eq!(must(&lowered("")), [false; 3]);
        assert_eq!(must(&lowered("limits.pids = 9\nlimits.memory = '1G'")), [true, false, true]);
        assert_eq!(must(&lowered("protections.require = ['memory', 'cpu']")), [true, true, false]);
        assert_eq!(must(&lowered("limits.memory = '1G'\nprotections.prefer = ['memory']")), [false; 3]);
        assert!(lowered("limits.swap = 0").swap.unwrap().named);
    }

    #[test]
    fn a_burst_fits_into_the_quota() {
        let refusal = |text: &str| lower(&policy(text)).unwrap_err().to_string();
        lower(&policy("limits.cpu_burst = '100ms'")).unwrap();
        insta::assert_snapshot!(refusal("limits.cpu_burst = '101ms'"), @"limits.cpu_burst = 101ms, from command line, is more than limits.cpus = 1, from built-in, gives in a period: 100000 us in 100000 us");
        assert!(
            refusal("limits.cpu_burst = '60ms'\nlimits.cpus = 0.5").contains("cpus = 0.5, from command line")
        );
    }
}
