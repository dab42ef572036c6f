//! Lowers the `[limits]` of a policy that a cgroup enforces to the model.

use super::agent::layer_origin;
use super::policy::effective::{self, DiskRatePolicy, EffectivePolicy};
use super::policy::{Protection, ProtectionStrength, Setting};
use super::{DiskName, LimitSpec, LimitsSpec};
use saggar_sys::error::{Code, Error, Result};

/// The period of the CPU quota in microseconds: the kernel's default.
pub const CPU_PERIOD_US: u64 = 100_000;

/// Lowers the limits that need a cgroup.
///
/// # Errors
/// [`Code::Invalid`] for values of different layers that contradict each other.
pub fn lower(policy: &EffectivePolicy) -> Result<LimitsSpec> {
    let limits = &policy.limits;
    check_burst(limits)?;
    let built_in = |protection| policy.strength(protection) == ProtectionStrength::Require;
    let others = built_in(Protection::Limits);
    let memory = lower_limit(&limits.memory, built_in(Protection::Memory), |size| size.bytes());
    Ok(LimitsSpec {
        memory_high: lower_optional_limit(others, &limits.memory_high, |size| size.bytes()),
        swap: lower_optional_limit(others, &limits.swap, |size| size.bytes()),
        hugetlb: limits
            .hugetlb
            .iter()
            .map(|(page, size)| (*page, lower_limit(size, others, |size| size.bytes())))
            .collect(),
        memory: Some(memory),
        cpu_milli: Some(lower_limit(&limits.cpus, built_in(Protection::Cpu), |cpus| {
            cpus.thousandths().into()
        })),
        cpu_burst: lower_optional_limit(others, &limits.cpu_burst, |span| microseconds(*span)),
        cpu_weight: lower_optional_limit(others, &limits.cpu_weight, |weight| u64::from(*weight)),
        cpu_idle: lower_optional_limit(others, &limits.cpu_idle, |idle| *idle),
        cpuset_cpus: lower_optional_limit(others, &limits.cpuset_cpus, Clone::clone),
        cpuset_mems: lower_optional_limit(others, &limits.cpuset_mems, Clone::clone),
        io: limits.io.iter().flat_map(|(disk, held)| lower_rates(others, disk, held)).collect(),
        io_weight: lower_optional_limit(others, &limits.io_weight, |weight| u64::from(*weight)),
        pids: Some(lower_limit(&limits.pids, built_in(Protection::Pids), |pids| u64::from(*pids))),
        cpu_time: lower_optional_limit(others, &limits.cpu_time, |span| span.milliseconds()),
        disk: Some(lower_limit(&limits.disk, built_in(Protection::Disk), |size| size.bytes())),
        inodes: Some(lower_limit(&limits.inodes, built_in(Protection::Disk), |inodes| u64::from(*inodes))),
    })
}

/// A limit with a built-in value. It is required if its protection is, or if a layer set it.
fn lower_limit<T, U>(setting: &Setting<T>, required: bool, value: impl Fn(&T) -> U) -> LimitSpec<U> {
    LimitSpec { value: value(&setting.value), required, origin: layer_origin(&setting.layer) }
}

/// A limit without a built-in value, of a layer that set it.
fn lower_optional_limit<T, U>(
    required: bool,
    setting: &Option<Setting<T>>,
    value: impl Fn(&T) -> U,
) -> Option<LimitSpec<U>> {
    setting.as_ref().map(|setting| lower_limit(setting, required, value))
}

/// The rates of one disk, by the keys of io.max.
fn lower_rates(
    required: bool,
    disk: &DiskName,
    held: &DiskRatePolicy,
) -> Vec<(DiskName, &'static str, LimitSpec<u64>)> {
    let DiskRatePolicy { read_bps, write_bps, read_iops, write_iops } = held;
    let rates = [
        ("rbps", lower_optional_limit(required, read_bps, |size| size.bytes())),
        ("wbps", lower_optional_limit(required, write_bps, |size| size.bytes())),
        ("riops", lower_optional_limit(required, read_iops, |count| u64::from(*count))),
        ("wiops", lower_optional_limit(required, write_iops, |count| u64::from(*count))),
    ];
    rates.into_iter().filter_map(|(key, rate)| Some((disk.clone(), key, rate?))).collect()
}

fn microseconds(span: super::policy::TimeSpan) -> u64 {
    u64::try_from(span.duration().as_micros()).unwrap_or(u64::MAX)
}

/// The kernel refuses a burst above the quota with EINVAL (Documentation/scheduler/sched-bwc.rst).
fn check_burst(limits: &effective::LimitPolicy) -> Result<()> {
    let Some(burst) = &limits.cpu_burst else { return Ok(()) };
    let quota = u64::from(limits.cpus.value.thousandths()) * CPU_PERIOD_US / 1000;
    if microseconds(burst.value) <= quota {
        return Ok(());
    }
    let message = format!(
        "limits.cpu_burst = {}, from {}, is more than limits.cpus = {}, from {}, gives in a period: {quota} us in {CPU_PERIOD_US} us",
        burst.value, burst.layer, limits.cpus.value, limits.cpus.layer
    );
    Err(Error::new(Code::Invalid, message).hint("give a shorter burst, or more cpus"))
}

#[cfg(test)]
mod tests {
    use super::super::policy::{HomeSource, PolicyLayer};
    use super::*;

    fn policy(text: &str) -> EffectivePolicy {
        let mut policy = EffectivePolicy::built_in(HomeSource::Tmp);
        saggar_policy::testing::merge(&mut policy, toml::from_str(text).unwrap(), &PolicyLayer::CommandLine);
        policy
    }

    #[test]
    fn what_must_hold_is_what_was_named_or_whose_protection_is_required() {
        let lowered = |text: &str| lower(&policy(text)).unwrap();
        let must = |limits: &LimitsSpec| {
            [&limits.memory, &limits.cpu_milli, &limits.pids].map(|l| l.as_ref().unwrap().required)
        };
        assert_eq!(must(&lowered("")), [false; 3]);
        assert_eq!(must(&lowered("limits.pids = 9\nlimits.memory = '1G'")), [true, false, true]);
        assert_eq!(must(&lowered("protections.require = ['memory', 'cpu']")), [true, true, false]);
        assert_eq!(must(&lowered("limits.memory = '1G'\nprotections.prefer = ['memory']")), [false; 3]);
        let preferred = "limits = { pids = 9, swap = 0, cpu_weight = 50 }\nprotections.prefer = ['limits']";
        assert_eq!(must(&lowered(preferred)), [false; 3]);
        for (text, required) in [("limits = { swap = 0, cpu_weight = 50 }", true), (preferred, false)] {
            let limits = lowered(text);
            assert_eq!(
                (limits.swap.unwrap().required, limits.cpu_weight.unwrap().required),
                (required, required)
            );
        }
        assert_eq!(must(&lowered("protections.require = ['limits']")), [true; 3]);
        let but_memory = "protections.require = ['memory']\nprotections.prefer = ['limits']";
        assert_eq!(must(&lowered(but_memory)), [true, false, false]);
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
