//! Tests selected cases: actions, orders, architectures, and rejected profiles.

use super::meaning::numbers;
use super::{filter, parse, run};
use crate::plan::container::seccomp::{Arch, CompiledFilter, compile};
use libc::{SECCOMP_RET_ALLOW as ALLOW, SECCOMP_RET_ERRNO as ERRNO, SECCOMP_RET_KILL_THREAD as KILL};
use serde_json::{Value, json};

fn profile(default: &str, syscalls: Value) -> Value {
    json!({"defaultAction": format!("SCMP_ACT_{default}"), "architectures": ["SCMP_ARCH_X86", "SCMP_ARCH_X32"],
        "syscalls": syscalls})
}

fn ask(filter: &CompiledFilter, arch: Arch, name: &str, args: &[u64]) -> u32 {
    run(filter, arch.audit(), numbers(arch)[name], args)
}

fn arg(index: u64, op: &str, value: u64) -> Value {
    json!({"index": index, "op": format!("SCMP_CMP_{op}"), "value": value})
}

#[test]
fn every_action_is_the_kernels() {
    let syscalls = json!([
        {"names": ["read"], "action": "SCMP_ACT_KILL"},
        {"names": ["write"], "action": "SCMP_ACT_KILL_THREAD"},
        {"names": ["open"], "action": "SCMP_ACT_KILL_PROCESS"},
        {"names": ["close"], "action": "SCMP_ACT_TRAP"},
        {"names": ["stat"], "action": "SCMP_ACT_ERRNO"},
        {"names": ["fstat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38},
        {"names": ["lstat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 0},
        {"names": ["poll"], "action": "SCMP_ACT_TRACE"},
        {"names": ["lseek"], "action": "SCMP_ACT_TRACE", "errnoRet": 65535},
        {"names": ["mmap"], "action": "SCMP_ACT_LOG"},
        {"names": ["mprotect"], "action": "SCMP_ACT_NOTIFY"},
        {"names": ["munmap"], "action": "SCMP_ACT_ALLOW"},
    ]);
    let mut profile = profile("ALLOW", syscalls);
    profile["listenerPath"] = json!("/run/agent.sock");
    let filter = filter(&profile);
    let answers = [0, 0, 0x8000_0000, 0x3_0000, ERRNO | 1, ERRNO | 38, ERRNO, 0x7ff0_0001, 0x7ff0_ffff];
    for (number, answer) in (0..).zip(answers.into_iter().chain([0x7ffc_0000, 0x7fc0_0000, ALLOW, ALLOW])) {
        assert_eq!(run(&filter, Arch::X86_64.audit(), number, &[]), answer, "{number}");
    }
    assert!(filter.notify);
    assert_ne!(filter.flags & libc::SECCOMP_FILTER_FLAG_NEW_LISTENER, 0);
}

#[test]
fn a_rule_without_arguments_is_stronger_than_one_with_them() {
    let always = json!({"names": ["personality"], "action": "SCMP_ACT_ALLOW"});
    let sometimes = json!({"names": ["personality"], "action": "SCMP_ACT_TRAP", "args": [arg(0, "EQ", 7)]});
    for (order, ignored) in [([&always, &sometimes], 1), ([&sometimes, &always], 0)] {
        let filter = filter(&profile("ERRNO", json!(order)));
        assert_eq!(ask(&filter, Arch::X86_64, "personality", &[7]), ALLOW);
        let warning = format!("linux.seccomp.syscalls[{ignored}]: its action for personality is never taken");
        assert!(filter.warnings.iter().any(|w| w.starts_with(&warning)), "{:?}", filter.warnings);
    }
    let later = json!({"names": ["personality"], "action": "SCMP_ACT_LOG"});
    let filter = filter(&profile("ERRNO", json!([always, later])));
    assert_eq!(ask(&filter, Arch::X86_64, "personality", &[]), ALLOW, "the first of two");
}

#[test]
fn rules_are_tried_the_last_argument_first_and_the_exact_ones_before_ranges() {
    let rule = |arg: Value, errno: u32| json!({"names": ["ioctl"], "action": "SCMP_ACT_ERRNO", "errnoRet": errno, "args": [arg]});
    let rules = [
        rule(arg(0, "GE", 1), 10),
        rule(arg(0, "LE", 5), 11),
        rule(arg(0, "EQ", 3), 12),
        rule(arg(1, "EQ", 4), 13),
    ];
    for turn in 0..4 {
        let mut rules = rules.clone();
        rules.rotate_left(turn);
        let filter = filter(&profile("ALLOW", json!(rules)));
        for (args, errno) in [([3, 4], 13), ([3, 0], 12), ([2, 0], 11), ([6, 0], 10)] {
            assert_eq!(ask(&filter, Arch::X86_64, "ioctl", &args), ERRNO | errno, "{args:?}");
        }
    }
}

#[test]
fn an_argument_that_is_named_twice_makes_rules_of_its_own() {
    let rule = json!({"names": ["ioctl"], "action": "SCMP_ACT_ALLOW",
        "args": [arg(1, "EQ", 5), arg(0, "EQ", 1), arg(0, "EQ", 2)]});
    let filter = filter(&profile("ERRNO", json!([rule])));
    for (args, answer) in [([1, 0], ALLOW), ([2, 0], ALLOW), ([3, 5], ALLOW), ([3, 0], ERRNO | 1)] {
        assert_eq!(ask(&filter, Arch::X86_64, "ioctl", &args), answer);
    }
}

#[test]
fn a_rule_with_the_default_action_says_nothing() {
    let filter = filter(&profile(
        "ERRNO",
        json!([
            {"names": ["clone"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1},
            {"names": ["clone"], "action": "SCMP_ACT_ALLOW"},
            {"names": ["listns"], "action": "SCMP_ACT_ERRNO"},
        ]),
    ));
    assert_eq!(ask(&filter, Arch::X86_64, "clone", &[]), ALLOW);
    // But it names a call: up to its number the profile's denials are deliberate.
    assert_eq!(ask(&filter, Arch::X86_64, "statmount", &[]), ERRNO | 1);
    assert_eq!(run(&filter, Arch::X86_64.audit(), 471, &[]), ERRNO | 38);
}

#[test]
fn only_refusals_are_softened_for_newer_calls() {
    for (default, answer) in [
        ("ERRNO", ERRNO | 38),
        ("KILL", ERRNO | 38),
        ("KILL_PROCESS", ERRNO | 38),
        ("TRAP", ERRNO | 38),
        ("ALLOW", ALLOW),
        ("LOG", libc::SECCOMP_RET_LOG),
        ("TRACE", libc::SECCOMP_RET_TRACE | 1),
    ] {
        let rules = json!([{"names": ["listns"], "action": "SCMP_ACT_ERRNO", "errnoRet": 5}]);
        let filter = filter(&profile(default, rules));
        for (arch, number) in [
            (Arch::X86_64, 471),
            (Arch::X86_64, 0x3fff_ffff),
            (Arch::X86_64, u32::MAX),
            (Arch::X32, 0x4000_0000 | 471),
            (Arch::X86, 471),
        ] {
            assert_eq!(run(&filter, arch.audit(), number, &[]), answer, "{default} {number:#x}");
        }
    }
}

#[test]
fn unlisted_architectures_end_the_thread_and_foreign_ones_need_nothing() {
    let rules = json!([{"names": ["read"], "action": "SCMP_ACT_ALLOW"}]);
    let mut profile = profile("ERRNO", rules);
    profile["architectures"] =
        json!(["SCMP_ARCH_S390X", "SCMP_ARCH_RISCV64", "SCMP_ARCH_AARCH64", "SCMP_ARCH_NATIVE"]);
    let filter = filter(&profile);
    assert_eq!(run(&filter, Arch::X86_64.audit(), 0, &[]), ALLOW);
    assert_eq!(run(&filter, Arch::X86.audit(), 3, &[]), KILL);
    assert_eq!(run(&filter, Arch::X86_64.audit(), 0x4000_0000, &[]), KILL);
    assert_eq!(run(&filter, Arch::Aarch64.audit(), 63, &[]), KILL);
    let arm = compile(&parse(&profile), Arch::Aarch64).unwrap();
    assert_eq!(run(&arm, Arch::Aarch64.audit(), 63, &[]), ALLOW);
    assert_eq!(run(&arm, Arch::Arm.audit(), 3, &[]), KILL);
}

#[test]
fn old_32_bit_calls_of_sockets_follow_the_rules_as_far_as_they_can() {
    let rules = json!([
        {"names": ["bind"], "action": "SCMP_ACT_ALLOW"},
        {"names": ["socket"], "action": "SCMP_ACT_ALLOW", "args": [arg(0, "EQ", 1)]},
        {"names": ["shmat"], "action": "SCMP_ACT_ALLOW"},
    ]);
    let filter = filter(&profile("ERRNO", rules));
    let ask = |name: &str, args: &[u64]| ask(&filter, Arch::X86, name, args);
    assert_eq!(ask("socket", &[1]), ALLOW);
    assert_eq!(ask("socket", &[2]), ERRNO | 1);
    assert_eq!(ask("socketcall", &[1]), ALLOW, "socket");
    assert_eq!(ask("socketcall", &[2]), ALLOW, "bind");
    assert_eq!(ask("socketcall", &[3]), ERRNO | 1, "connect");
    assert_eq!(ask("ipc", &[21]), ALLOW);
    assert_eq!(ask("ipc", &[22]), ERRNO | 1);
    assert_eq!(filter.warnings.len(), 1);
    assert!(
        filter.warnings[0].contains("the arguments of socket cannot be checked"),
        "{:?}",
        filter.warnings
    );
}

#[test]
fn flags_are_those_of_the_profile() {
    use libc::{
        SECCOMP_FILTER_FLAG_LOG as LOG, SECCOMP_FILTER_FLAG_NEW_LISTENER as LISTENER,
        SECCOMP_FILTER_FLAG_SPEC_ALLOW as SPEC, SECCOMP_FILTER_FLAG_TSYNC as TSYNC,
        SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV as WAIT,
    };
    let with = |flags: Value, notify: bool| {
        let action = if notify { "SCMP_ACT_NOTIFY" } else { "SCMP_ACT_TRAP" };
        let mut profile = profile("ALLOW", json!([{"names": ["read"], "action": action}]));
        profile["listenerPath"] = json!("/run/agent.sock");
        profile["flags"] = flags;
        filter(&profile)
    };
    let name = |flag: &str| format!("SECCOMP_FILTER_FLAG_{flag}");
    assert_eq!(with(Value::Null, false).flags, SPEC);
    assert_eq!(with(json!([]), false).flags, 0);
    assert_eq!(
        with(json!([name("LOG"), name("TSYNC"), name("SPEC_ALLOW")]), false).flags,
        LOG | TSYNC | SPEC
    );
    assert_eq!(with(json!([name("WAIT_KILLABLE_RECV")]), true).flags, WAIT | LISTENER);
    // The kernel accepts it with a listener only.
    let without = with(json!([name("WAIT_KILLABLE_RECV")]), false);
    assert_eq!(without.flags, 0);
    assert!(without.warnings[0].starts_with("linux.seccomp.flags: SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV"));
}

#[test]
fn what_makes_no_sense_is_refused_by_its_path() {
    let refused = |text: &str, change: &dyn Fn(&mut Value)| {
        let mut profile = profile(
            "ERRNO",
            json!([{"names": ["read"], "action": "SCMP_ACT_ALLOW"},
                {"names": ["write"], "action": "SCMP_ACT_TRAP", "args": [arg(0, "EQ", 1)]}]),
        );
        change(&mut profile);
        let error = compile(&parse(&profile), Arch::X86_64).unwrap_err();
        assert!(error.to_string().contains(text), "{error} does not say {text:?}");
    };
    refused("linux.seccomp.defaultErrnoRet is 4096", &|p| p["defaultErrnoRet"] = json!(4096));
    refused("linux.seccomp.syscalls[0].errnoRet is 5, but the action SCMP_ACT_ALLOW", &|p| {
        p["syscalls"][0]["errnoRet"] = json!(5);
    });
    refused("linux.seccomp.syscalls[1].args[0].index is 6", &|p| {
        p["syscalls"][1]["args"][0]["index"] = json!(6)
    });
    refused("linux.seccomp.syscalls[1].names is empty", &|p| p["syscalls"][1]["names"] = json!([]));
    refused("linux.seccomp.listenerPath is missing", &|p| p["defaultAction"] = json!("SCMP_ACT_NOTIFY"));
    refused("linux.seccomp.listenerMetadata", &|p| p["listenerMetadata"] = json!("x"));
    refused(
        "linux.seccomp.syscalls[1] and linux.seccomp.syscalls[2] want different actions for write",
        &|p| {
            let rule = json!({"names": ["write"], "action": "SCMP_ACT_LOG", "args": [arg(0, "EQ", 1)]});
            p["syscalls"].as_array_mut().unwrap().push(rule);
        },
    );
    let many = |count: u64| {
        let rule = |n| json!({"names": ["write"], "action": "SCMP_ACT_TRAP", "args": [arg(0, "EQ", n * 2)]});
        move |p: &mut Value| p["syscalls"] = (0..count).map(rule).collect()
    };
    refused("more than 4096 instructions", &many(3000));
    refused("more than 4096 instructions", &many(20_000));
}

#[test]
fn what_is_said_in_vain_is_told() {
    let filter = filter(&profile(
        "ERRNO",
        json!([
            {"names": ["read", "frobnicate"], "action": "SCMP_ACT_ALLOW"},
            {"names": ["s390_pci_mmio_read", "cacheflush", "waitpid"], "action": "SCMP_ACT_ALLOW"},
            {"names": ["write"], "action": "SCMP_ACT_ALLOW",
                "args": [{"index": 0, "op": "SCMP_CMP_EQ", "value": 1, "valueTwo": 3}]},
        ]),
    ));
    // Names of other architectures are not an error.
    let expected = [
        "linux.seccomp.syscalls[0].names[1]: there is no system call \"frobnicate\"",
        "linux.seccomp.syscalls[2].args[0].valueTwo: SCMP_CMP_EQ compares with value alone",
    ];
    assert_eq!(filter.warnings, expected);
}

#[test]
fn an_empty_profile_is_its_default_action() {
    let filter = filter(&json!({"defaultAction": "SCMP_ACT_ALLOW"}));
    assert_eq!(run(&filter, Arch::X86_64.audit(), 0, &[]), ALLOW);
    assert_eq!(run(&filter, Arch::X86.audit(), 0, &[]), KILL);
    assert!(filter.instructions.len() <= 8);
}
