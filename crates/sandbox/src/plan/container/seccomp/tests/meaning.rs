//! Evaluates a profile straight from its JSON, as simply as possible, and independent of the compiler.

use super::SeccompData;
use crate::plan::container::seccomp::Arch;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::LazyLock;

const TABLE: &str = include_str!("../../../../../../../seccomp/syscalls.tbl");

/// The numbers of an architecture by name.
pub(super) fn numbers(arch: Arch) -> BTreeMap<&'static str, u32> {
    let column = match arch {
        Arch::X86_64 => 1,
        Arch::Aarch64 => 2,
        Arch::X86 => 3,
        Arch::X32 => 4,
        Arch::Arm => 5,
    };
    let bit = if arch == Arch::X32 { 1 << 30 } else { 0 };
    let rows = TABLE.lines().filter(|line| !line.starts_with('#'));
    let entry = |line: &'static str| {
        let fields: Vec<_> = line.split(' ').collect();
        Some((fields[0], fields[column].parse::<u32>().ok()? | bit))
    };
    rows.filter_map(entry).collect()
}

/// The same, made once: a test asks for each of thousands of calls.
fn known_numbers(arch: Arch) -> &'static BTreeMap<&'static str, u32> {
    static ALL: LazyLock<Vec<(Arch, BTreeMap<&'static str, u32>)>> = LazyLock::new(|| {
        [Arch::X86_64, Arch::Aarch64, Arch::X86, Arch::X32, Arch::Arm]
            .map(|arch| (arch, numbers(arch)))
            .into()
    });
    let of_arch = ALL.iter().find(|(known, _)| *known == arch);
    &of_arch.expect("each architecture has numbers").1
}

/// Returns the results that the profile allows for this call: several if rules with different actions match it.
pub(super) fn answers(profile: &Value, native: Arch, call: &SeccompData) -> Vec<u32> {
    let default = code(&profile["defaultAction"], &profile["defaultErrnoRet"]);
    let Some(arch) = arch(profile, native, call) else { return vec![libc::SECCOMP_RET_KILL_THREAD] };
    let numbers = known_numbers(arch);
    let entries = || profile["syscalls"].as_array().into_iter().flatten();
    let named = |entry: &Value| {
        let mut names = entry["names"].as_array().unwrap().iter();
        names.any(|name| numbers.get(name.as_str().unwrap()) == Some(&call.number))
    };
    let newest = entries().flat_map(|entry| entry["names"].as_array().unwrap());
    let newest = newest
        .filter_map(|name| numbers.get(name.as_str().unwrap()))
        .filter(|n| **n & 0x3fff_ffff < 1024)
        .max();
    let private = (0xf_0000..0xf_0800).contains(&call.number) && arch == Arch::Arm;
    if !private && newest.is_some_and(|newest| call.number > *newest) {
        let passes = [libc::SECCOMP_RET_ALLOW, libc::SECCOMP_RET_LOG].contains(&default)
            || default & libc::SECCOMP_RET_ACTION_FULL == libc::SECCOMP_RET_TRACE
            || default == libc::SECCOMP_RET_USER_NOTIF;
        return vec![if passes { default } else { libc::SECCOMP_RET_ERRNO | 38 }];
    }
    let wide = matches!(arch, Arch::X86_64 | Arch::Aarch64);
    let mut matching = Vec::new();
    for entry in entries().filter(|entry| named(entry)) {
        let action = code(&entry["action"], &entry["errnoRet"]);
        if action == default {
            continue;
        }
        let none = Vec::new();
        let args = entry["args"].as_array().unwrap_or(&none);
        let mut indexes: Vec<u64> = args.iter().map(|arg| arg["index"].as_u64().unwrap()).collect();
        indexes.sort_unstable();
        indexes.dedup();
        let all = |holds: &dyn Fn(&Value) -> bool| {
            if indexes.len() < args.len() { args.iter().any(holds) } else { args.iter().all(holds) }
        };
        // Without arguments, or with an empty mask, the rule applies to all calls; the first such rule decides.
        if all(&|arg| arg["op"] == "SCMP_CMP_MASKED_EQ" && cut(&arg["value"], wide) == 0) {
            return vec![action];
        }
        let matches = all(&|arg| holds(arg, &call.args, wide));
        if matches {
            matching.push(action);
        }
    }
    if matching.is_empty() { vec![default] } else { matching }
}

/// Returns the architecture whose rules apply to the call.
fn arch(profile: &Value, native: Arch, call: &SeccompData) -> Option<Arch> {
    let listed =
        |name: &str| profile["architectures"].as_array().is_some_and(|list| list.contains(&name.into()));
    match call.arch {
        0xc000_003e if native == Arch::X86_64 => match call.number {
            u32::MAX => Some(Arch::X86_64),
            number if number & 0xc000_0000 == 0 => Some(Arch::X86_64),
            _ => listed("SCMP_ARCH_X32").then_some(Arch::X32),
        },
        0x4000_0003 if native == Arch::X86_64 => listed("SCMP_ARCH_X86").then_some(Arch::X86),
        0xc000_00b7 if native == Arch::Aarch64 => Some(Arch::Aarch64),
        0x4000_0028 if native == Arch::Aarch64 => listed("SCMP_ARCH_ARM").then_some(Arch::Arm),
        _ => None,
    }
}

fn holds(arg: &Value, args: &[u64; 6], wide: bool) -> bool {
    let argument = cut(&args[usize::try_from(arg["index"].as_u64().unwrap()).unwrap()].into(), wide);
    let value = cut(&arg["value"], wide);
    match arg["op"].as_str().unwrap() {
        "SCMP_CMP_NE" => argument != value,
        "SCMP_CMP_LT" => argument < value,
        "SCMP_CMP_LE" => argument <= value,
        "SCMP_CMP_EQ" => argument == value,
        "SCMP_CMP_GE" => argument >= value,
        "SCMP_CMP_GT" => argument > value,
        "SCMP_CMP_MASKED_EQ" => argument & value == cut(&arg["valueTwo"], wide) & value,
        other => panic!("{other}"),
    }
}

fn cut(value: &Value, wide: bool) -> u64 {
    let value = value.as_u64().unwrap_or(0);
    if wide { value } else { value % (1 << 32) }
}

fn code(action: &Value, errno: &Value) -> u32 {
    let errno = errno.as_u64().map_or(1, |errno| u32::try_from(errno).unwrap());
    match action.as_str().unwrap() {
        "SCMP_ACT_KILL" | "SCMP_ACT_KILL_THREAD" => libc::SECCOMP_RET_KILL_THREAD,
        "SCMP_ACT_KILL_PROCESS" => libc::SECCOMP_RET_KILL_PROCESS,
        "SCMP_ACT_TRAP" => libc::SECCOMP_RET_TRAP,
        "SCMP_ACT_ERRNO" => libc::SECCOMP_RET_ERRNO | errno,
        "SCMP_ACT_TRACE" => libc::SECCOMP_RET_TRACE | errno,
        "SCMP_ACT_LOG" => libc::SECCOMP_RET_LOG,
        "SCMP_ACT_ALLOW" => libc::SECCOMP_RET_ALLOW,
        "SCMP_ACT_NOTIFY" => libc::SECCOMP_RET_USER_NOTIF,
        other => panic!("{other}"),
    }
}
