//! Tests that random filters match the semantics of their profiles.

use super::SeccompData;
use super::meaning::{self, numbers};
use super::{machine, parse};
use crate::plan::container::seccomp::{Arch, compile};
use proptest::prelude::*;
use saggar_sys::testing::cases;
use serde_json::{Value, json};

/// Calls of all architectures, in adjacent pairs, and calls that exist on one architecture only.
const NAMES: [&str; 14] = [
    "read",
    "write",
    "open",
    "ioctl",
    "clone",
    "getcwd",
    "personality",
    "clone3",
    "openat2",
    "waitpid",
    "llistxattr",
    "arm_fadvise64_64",
    "set_tls",
    "rt_sigaction",
];

fn value() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..8u64, 1 => Just(0xffff_ffff), 1 => (0..3u64).prop_map(|n| (1 << 32) + n), 1 => any::<u64>()]
}

fn args() -> impl Strategy<Value = Value> {
    let ops = prop::sample::select(vec!["NE", "LT", "LE", "EQ", "GE", "GT", "MASKED_EQ"]);
    let arg = (0..3u8, ops, value(), value()).prop_map(|(index, op, value, two)| {
        let two = if op == "MASKED_EQ" { two } else { 0 };
        json!({"index": index, "op": format!("SCMP_CMP_{op}"), "value": value, "valueTwo": two})
    });
    prop::collection::vec(arg, 0..4).prop_map(Value::from)
}

fn action() -> impl Strategy<Value = (String, Option<u16>)> {
    let plain = ["KILL", "KILL_THREAD", "KILL_PROCESS", "TRAP", "LOG", "ALLOW"];
    let plain = prop::sample::select(plain.to_vec()).prop_map(|name| (format!("SCMP_ACT_{name}"), None));
    let errno = (prop::bool::ANY, prop::option::of(0..4096u16))
        .prop_map(|(trace, errno)| (format!("SCMP_ACT_{}", if trace { "TRACE" } else { "ERRNO" }), errno));
    prop_oneof![plain, errno]
}

fn architectures() -> impl Strategy<Value = Vec<&'static str>> {
    let all = [
        "SCMP_ARCH_X86_64",
        "SCMP_ARCH_X86",
        "SCMP_ARCH_X32",
        "SCMP_ARCH_ARM",
        "SCMP_ARCH_AARCH64",
        "SCMP_ARCH_MIPS",
    ];
    prop::sample::subsequence(all.to_vec(), 0..=6)
}

/// Generates a profile in which each call has one action besides the default one, so that rules never conflict; or, if
/// `mixed`, any profile.
fn profile(mixed: bool) -> impl Strategy<Value = Value> {
    let entry = (prop::sample::subsequence(NAMES.to_vec(), 1..4), action(), args());
    let entries = prop::collection::vec(entry, 0..8);
    (entries, action(), architectures()).prop_map(move |(entries, default, architectures)| {
        let mut actions = std::collections::BTreeMap::new();
        let mut syscalls = Vec::new();
        for (names, own, args) in entries {
            for name in names {
                let action = if mixed { &own } else { &*actions.entry(name).or_insert_with(|| own.clone()) };
                let mut entry = json!({"names": [name], "action": action.0, "args": args});
                if let Some(errno) = action.1 {
                    entry["errnoRet"] = errno.into();
                }
                syscalls.push(entry);
            }
        }
        let mut profile =
            json!({"defaultAction": default.0, "architectures": architectures, "syscalls": syscalls});
        if let Some(errno) = default.1 {
            profile["defaultErrnoRet"] = errno.into();
        }
        profile
    })
}

fn call() -> impl Strategy<Value = SeccompData> {
    let named = (prop::sample::select(Arch::ALL.to_vec()), prop::sample::select(NAMES.to_vec()), -1..2i64);
    let named = named.prop_map(|(arch, name, off)| {
        let number = numbers(arch)
            .get(name)
            .map_or(7, |number| number.wrapping_add_signed(i32::try_from(off).unwrap()));
        (arch.audit(), number)
    });
    let odd =
        [0, 479, 1023, 1024, 0xf_0000, 0xf_0002, 0xf_0006, 0x10_0000, 0x3fff_ffff, 0x4000_0000, u32::MAX];
    let odd = (prop::sample::select(Arch::ALL.to_vec()), prop::sample::select(odd.to_vec()))
        .prop_map(|(a, n)| (a.audit(), n));
    let any = (any::<u32>(), any::<u32>());
    let call = prop_oneof![20 => named, 3 => odd, 1 => any];
    (call, prop::array::uniform6(value())).prop_map(|((arch, number), args)| SeccompData {
        arch,
        number,
        args,
    })
}

/// Case tests cover the multiplexed calls of x86 and the numbers between the two; here all others.
fn check(profile: &Value, calls: &[SeccompData]) -> Result<(), TestCaseError> {
    for native in [Arch::X86_64, Arch::Aarch64] {
        let Ok(filter) = compile(&parse(profile), native) else { continue };
        for call in calls {
            let answers = meaning::answers(profile, native, call);
            let answer = machine::run(&filter.instructions, call).0;
            prop_assert!(answers.contains(&answer), "{call:x?} on {native:?}: {answer:#x}, not {answers:x?}");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(250), max_shrink_iters: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_filter_means_what_its_profile_says(profile in profile(false), calls in prop::collection::vec(call(), 60)) {
        for native in [Arch::X86_64, Arch::Aarch64] {
            prop_assert!(compile(&parse(&profile), native).is_ok());
        }
        check(&profile, &calls)?;
    }

    #[test]
    fn of_rules_that_overlap_one_decides(profile in profile(true), calls in prop::collection::vec(call(), 60)) {
        check(&profile, &calls)?;
    }
}
