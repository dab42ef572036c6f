//! Converts values of cgroup v1, which `config.json` uses, to values of cgroup v2.

/// Converts `cpu.shares` (2 to 262144, default 1024) to `cpu.weight` (1 to 10000, default 100). The curve maps the
/// minimum, default and maximum to each other: the one of crun since 1.23, runc since 1.4, and Kubernetes.
pub(crate) fn cpu_weight(shares: u64) -> u64 {
    if shares <= 2 {
        return 1;
    }
    if shares >= 262_144 {
        return 10_000;
    }
    // The value has at most 18 bits, so the conversion to a double is exact.
    #[allow(clippy::cast_precision_loss)]
    let l = (shares as f64).log2();
    let exponent = (l * l + 125.0 * l) / 612.0 - 7.0 / 34.0;
    // The result is between 1 and 10000.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let weight = 10f64.powf(exponent).ceil() as u64;
    weight.clamp(1, 10_000)
}

/// Converts a weight of `blkio` (10 to 1000) to `io.weight` (1 to 10000), as runc and crun do.
pub(crate) fn io_weight(weight: u16) -> u64 {
    1 + (u64::from(weight).saturating_sub(10)) * 9999 / 990
}

/// Converts `pids.limit`. A negative number stays: no limit. 0 becomes 1, as in runc and crun, since with 0 not even the
/// program could be created in the cgroup, and 1 permits no further process either.
pub(crate) fn pids_limit(limit: i64) -> i64 {
    if limit == 0 { 1 } else { limit }
}

/// Converts a limit of memory plus swap to a limit of swap alone: `Ok(None)` leaves swap unchanged, -1 means no limit.
///
/// # Errors
/// The reason why the two numbers contradict each other.
pub(crate) fn swap(memory_and_swap: Option<i64>, memory: Option<i64>) -> Result<Option<i64>, &'static str> {
    let memory = memory.unwrap_or(0);
    match memory_and_swap.unwrap_or(0) {
        0 if memory == -1 => Ok(Some(-1)),
        0 => Ok(None),
        -1 => Ok(Some(-1)),
        both if both < 0 => Err("is negative"),
        _ if memory <= 0 => Err("needs memory.limit, of which it is a part"),
        both if both < memory => Err("is memory and swap together, and less than memory.limit"),
        both => Ok(Some(both - memory)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_ends_and_the_default_of_shares_are_those_of_weight() {
        assert_eq!([0, 2, 1024, 262_144, u64::MAX].map(cpu_weight), [1, 1, 100, 10_000, 10_000]);
        assert_eq!([3, 512, 2048, 50_000].map(cpu_weight), [2, 59, 174, 2402], "of the formula, by hand");
    }

    #[test]
    fn the_ends_of_a_blkio_weight_are_those_of_io_weight() {
        assert_eq!([10, 1000, 100].map(io_weight), [1, 10_000, 910]);
    }

    #[test]
    fn swap_is_what_memory_and_swap_have_above_memory() {
        assert_eq!(swap(Some(300), Some(100)), Ok(Some(200)));
        assert_eq!(swap(Some(100), Some(100)), Ok(Some(0)));
        assert_eq!(swap(Some(-1), Some(100)), Ok(Some(-1)));
        assert_eq!(swap(None, Some(100)), Ok(None));
        assert_eq!(swap(None, Some(-1)), Ok(Some(-1)));
        assert_eq!(swap(Some(-1), None), Ok(Some(-1)));
        for (both, memory) in
            [(Some(99), Some(100)), (Some(100), None), (Some(100), Some(-1)), (Some(-2), Some(1))]
        {
            assert!(swap(both, memory).is_err(), "{both:?} {memory:?}");
        }
    }

    proptest! {
        #[test]
        fn more_shares_never_weigh_less(a in 0u64..300_000, b in 0u64..300_000) {
            let (low, high) = (a.min(b), a.max(b));
            prop_assert!(cpu_weight(low) <= cpu_weight(high));
            prop_assert!((1..=10_000).contains(&cpu_weight(a)));
        }

        #[test]
        fn more_blkio_weight_never_weighs_less(a in 10u16..=1000, b in 10u16..=1000) {
            prop_assert!(io_weight(a.min(b)) <= io_weight(a.max(b)));
            prop_assert!((1..=10_000).contains(&io_weight(a)));
        }

        #[test]
        fn memory_and_its_swap_are_the_whole(memory in 1i64..i64::MAX / 2, swap_alone in 0i64..i64::MAX / 2) {
            prop_assert_eq!(swap(Some(memory + swap_alone), Some(memory)), Ok(Some(swap_alone)));
        }
    }
}
