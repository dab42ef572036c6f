//! What holds the processes of a sandbox where its cgroup cannot hold a limit: resource limits, CPU affinity, niceness.
//!
//! | limit | instead | difference |
//! |---|---|---|
//! | memory | RLIMIT_DATA (getrlimit(2)) | of each process alone; not of shared memory |
//! | pids | RLIMIT_NPROC | none: it counts the processes of a user namespace (Linux 5.14) |
//! | cpu | CPU affinity; niceness if that leaves no CPU to others | whole CPUs |
//!
//! Only limits that are not required get this far: a limit that a layer names is refused.

use super::DegradedProtection;
use crate::spec::LimitsSpec;

/// Added to the niceness of a sandbox that has every CPU of the host. Other programs get three times its share.
const NICENESS: i32 = 5;

/// Limits of the processes of one sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessLimits {
    /// Most bytes of data of each process (RLIMIT_DATA).
    pub data: Option<u64>,
    /// Most processes and threads (RLIMIT_NPROC).
    pub processes: Option<u64>,
    /// Number of CPUs.
    pub cpus: Option<usize>,
}

impl ProcessLimits {
    /// Limits in place of those that are `missing` in a cgroup. `counts_processes` says that RLIMIT_NPROC counts those of a
    /// sandbox alone.
    pub fn in_place_of(missing: &[DegradedProtection], limits: &LimitsSpec, counts_processes: bool) -> Self {
        let lacks = |name: &str| missing.iter().any(|one| one.name == name);
        let memory = limits.memory.as_ref().filter(|_| lacks("memory"));
        let pids = limits.pids.as_ref().filter(|_| lacks("pids") && counts_processes);
        let cpus = limits.cpu_milli.as_ref().filter(|_| lacks("cpu"));
        ProcessLimits {
            data: memory.map(|limit| limit.value),
            processes: pids.map(|limit| limit.value),
            cpus: cpus.and_then(|limit| usize::try_from(limit.value.div_ceil(1000)).ok()),
        }
    }

    /// Adds to the reasons what there is instead.
    pub fn explain(&self, missing: &mut [DegradedProtection]) {
        for one in missing {
            let words = match (one.name.as_str(), self) {
                ("memory", ProcessLimits { data: Some(_), .. }) => "each process is limited alone",
                ("pids", ProcessLimits { processes: Some(_), .. }) => "RLIMIT_NPROC holds it",
                ("cpu", ProcessLimits { cpus: Some(_), .. }) => "whole CPUs are given",
                _ => continue,
            };
            one.reason = format!("{}; {words}", one.reason);
        }
    }
}

/// The CPUs and the niceness of a sandbox that has this number of CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CpuShare {
    /// The CPUs as a bit mask; `None` for all that there are.
    pub mask: Option<Vec<u64>>,
    /// What is added to the niceness.
    pub niceness: i32,
}

impl CpuShare {
    /// Chooses `count` of the `allowed` CPUs, a bit mask, on a host with `online` CPUs. Sandboxes with different numbers
    /// `spread` over the CPUs.
    pub(crate) fn choose(allowed: &[u64], count: usize, online: usize, spread: usize) -> Self {
        let is_set = |cpu: &usize| allowed.get(cpu / 64).is_some_and(|word| word & (1 << (cpu % 64)) != 0);
        let all: Vec<usize> = (0..allowed.len() * 64).filter(is_set).collect();
        let niceness = if count.min(all.len()) >= online { NICENESS } else { 0 };
        if count >= all.len() {
            return CpuShare { mask: None, niceness };
        }
        let mut mask = vec![0; allowed.len()];
        for cpu in all.iter().cycle().skip(spread % all.len()).take(count.max(1)) {
            if let Some(word) = mask.get_mut(cpu / 64) {
                *word |= 1_u64 << (cpu % 64);
            }
        }
        CpuShare { mask: Some(mask), niceness }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{LimitSpec, Origin};
    use proptest::prelude::*;

    fn limits() -> LimitsSpec {
        let limit = |value| Some(LimitSpec { value, required: false, origin: Origin::BUILT_IN });
        LimitsSpec {
            memory: limit(1 << 30),
            cpu_milli: limit(1500),
            pids: limit(512),
            ..LimitsSpec::default()
        }
    }

    fn missing(names: &[&str]) -> Vec<DegradedProtection> {
        let one = |name: &&str| DegradedProtection { name: (*name).to_owned(), reason: "no cgroup".into() };
        names.iter().map(one).collect()
    }

    #[test]
    fn a_limit_that_no_cgroup_holds_is_one_of_processes() {
        let mut lacks = missing(&["cgroup", "memory", "cpu", "pids", "swap"]);
        let all = ProcessLimits { data: Some(1 << 30), processes: Some(512), cpus: Some(2) };
        assert_eq!(ProcessLimits::in_place_of(&lacks, &limits(), true), all);
        all.explain(&mut lacks);
        let reasons: Vec<_> = lacks.iter().map(|one| one.reason.as_str()).collect();
        assert_eq!(
            reasons,
            [
                "no cgroup",
                "no cgroup; each process is limited alone",
                "no cgroup; whole CPUs are given",
                "no cgroup; RLIMIT_NPROC holds it",
                "no cgroup"
            ]
        );
        let only = ProcessLimits { cpus: Some(2), ..ProcessLimits::default() };
        assert_eq!(ProcessLimits::in_place_of(&missing(&["cpu"]), &limits(), true), only);
        assert_eq!(ProcessLimits::in_place_of(&[], &limits(), true), ProcessLimits::default());
    }

    /// Where the kernel counts the processes of a user in the whole system, that is no limit of a sandbox.
    #[test]
    fn processes_of_others_are_not_counted() {
        let mut lacks = missing(&["pids"]);
        let none = ProcessLimits::in_place_of(&lacks, &limits(), false);
        assert_eq!(none, ProcessLimits::default());
        none.explain(&mut lacks);
        assert_eq!(lacks, missing(&["pids"]));
    }

    #[test]
    fn cpus_are_chosen_around_the_allowed_ones() {
        let mask = |allowed: u64, count, spread| CpuShare::choose(&[allowed], count, 8, spread).mask;
        assert_eq!(mask(0b1111, 1, 0), Some(vec![0b0001]));
        assert_eq!(mask(0b1111, 1, 6), Some(vec![0b0100]));
        assert_eq!(mask(0b1010_0011, 2, 3), Some(vec![0b1000_0001]));
        assert_eq!(mask(0b11, 2, 0), None);
        assert_eq!(CpuShare::choose(&[0, 6], 1, 8, 1).mask, Some(vec![0, 4]));
    }

    #[test]
    fn who_has_every_cpu_is_nice() {
        assert_eq!(CpuShare::choose(&[1], 1, 1, 0), CpuShare { mask: None, niceness: NICENESS });
        assert_eq!(CpuShare::choose(&[0b11], 3, 2, 0), CpuShare { mask: None, niceness: NICENESS });
        // The caller has left the other CPU to others.
        assert_eq!(CpuShare::choose(&[0b01], 1, 2, 0), CpuShare { mask: None, niceness: 0 });
    }

    proptest! {
        #[test]
        fn no_more_cpus_than_asked_for_and_only_allowed_ones(
            allowed in prop::collection::vec(any::<u64>(), 0..4), count in 1_usize..300, spread: usize,
        ) {
            let number = |mask: &[u64]| mask.iter().map(|word| word.count_ones() as usize).sum::<usize>();
            match CpuShare::choose(&allowed, count, 8, spread).mask {
                None => prop_assert!(number(&allowed) <= count),
                Some(mask) => {
                    prop_assert_eq!(number(&mask), count);
                    prop_assert!(mask.iter().zip(&allowed).all(|(chosen, allowed)| chosen & !allowed == 0));
                }
            }
        }
    }
}
