//! Property tests: compiled programs match their profiles, for random calls, for every architecture, and for random
//! profiles too.

use super::meaning::{self, Machine};
use crate::seccomp::{FilterProfile, HostNetworkFilter, HostProcessFilter, SockFilter, program};
use crate::testing::cases;
use crate::testing::machine::{SeccompData, run};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use saggar_seccomp::arch::Arch;
use saggar_seccomp::bpf::Instruction;
use saggar_seccomp::policy::Policy;
use saggar_seccomp::profile::Profile as Source;
use saggar_seccomp::table::Table;
use saggar_seccomp::tree;
use serde_json::{Value, json};

pub(super) const TABLE: &str = include_str!("../../../../../seccomp/syscalls.tbl");
pub(super) const AGENT: &str = include_str!("../../../../../seccomp/agent.json");
const MCP: &str = include_str!("../../../../../seccomp/mcp.json");
const NESTING: &str = include_str!("../../../../../seccomp/nesting.json");
const INIT: &str = include_str!("../../../../../seccomp/init.json");
const NARROWINGS: [(HostNetworkFilter, &str); 3] = [
    (HostNetworkFilter::Tcp, include_str!("../../../../../seccomp/tcp.json")),
    (HostNetworkFilter::Offline, include_str!("../../../../../seccomp/offline.json")),
    (HostNetworkFilter::Pairs, include_str!("../../../../../seccomp/pairs.json")),
];

const OUTSIDE: [(HostProcessFilter, &str); 8] = [
    (HostProcessFilter::Supervisor, include_str!("../../../../../seccomp/supervisor.json")),
    (HostProcessFilter::Launcher, include_str!("../../../../../seccomp/launcher.json")),
    (HostProcessFilter::Keeper, include_str!("../../../../../seccomp/keeper.json")),
    (HostProcessFilter::FileWorker, include_str!("../../../../../seccomp/files.json")),
    (HostProcessFilter::Relay, include_str!("../../../../../seccomp/relay.json")),
    (HostProcessFilter::Attribution, include_str!("../../../../../seccomp/attribution.json")),
    (HostProcessFilter::Mcp, MCP),
    (HostProcessFilter::Mailbox, include_str!("../../../../../seccomp/mailbox.json")),
];

fn text(profile: FilterProfile) -> &'static str {
    match profile {
        FilterProfile::Agent => AGENT,
        FilterProfile::Nesting => NESTING,
        FilterProfile::Init => INIT,
        FilterProfile::AgentNotified | FilterProfile::InitAsk | FilterProfile::InitNotify => {
            unreachable!("not of those that answer by themselves")
        }
    }
}

/// The files of a profile: itself, then its base.
fn files(profile: FilterProfile) -> Vec<Value> {
    files_of(text(profile))
}

/// A profile that others extend.
fn base(name: &str) -> &'static str {
    if name == "mcp" { MCP } else { AGENT }
}

fn files_of(text: &str) -> Vec<Value> {
    let own: Value = serde_json::from_str(text).unwrap();
    let base = own["extends"].as_str().map(|name| serde_json::from_str(base(name)).unwrap());
    [own].into_iter().chain(base).collect()
}

pub(super) fn x86_64() -> Machine {
    Machine::new(TABLE, 1, 0xc000_003e, true)
}

fn aarch64() -> Machine {
    Machine::new(TABLE, 2, 0xc000_00b7, false)
}

/// The machine that the tests run on.
pub(super) fn native() -> Machine {
    if cfg!(target_arch = "x86_64") { x86_64() } else { aarch64() }
}

pub(super) fn compile(profile: &str, table: &str, arch: Arch) -> Result<Vec<SockFilter>, String> {
    let source =
        Source::load("test", &|name| Ok(if name == "test" { profile } else { base(name) }.to_owned()))?;
    let policy = Policy::resolve(&source, &Table::parse(table, arch)?, arch)?;
    let instruction = |i: &Instruction| SockFilter { code: i.code, jt: i.jt, jf: i.jf, k: i.k };
    Ok(tree::compile(&policy)?.iter().map(instruction).collect())
}

/// Arguments near the values that profiles compare, with and without garbage in the high half.
fn argument() -> impl Strategy<Value = u64> {
    let values: Vec<u64> = saggar_seccomp::names::VALUES.iter().map(|(_, value)| *value).collect();
    let near = (proptest::sample::select(values.clone()), proptest::sample::select(values), 0..4u8);
    let near = near.prop_map(|(one, other, how)| match how {
        0 => one,
        1 => one | other,
        2 => one.wrapping_add(1),
        _ => one.wrapping_sub(1),
    });
    let low = prop_oneof![4 => near, 2 => 0..20u64, 1 => any::<u64>()];
    (low, prop_oneof![2 => Just(0), 1 => any::<u32>()]).prop_map(|(low, high)| low ^ (u64::from(high) << 32))
}

fn call(audit: u32) -> impl Strategy<Value = SeccompData> {
    let arch = prop_oneof![30 => Just(audit), 1 => Just(0x4000_0003), 1 => any::<u32>()];
    let number = prop_oneof![
        60 => 0..480u32,
        4 => 0x4000_0000..0x4000_0230u32,
        1 => Just(u32::MAX),
        1 => Just(0x3fff_ffff),
        2 => any::<u32>()
    ];
    (arch, number, prop::array::uniform6(argument())).prop_map(|(arch, number, args)| SeccompData {
        arch,
        number,
        args,
    })
}

/// Runs `check` on many random calls.
fn for_calls(audit: u32, check: impl Fn(&SeccompData) -> Result<(), TestCaseError>) {
    let mut runner = TestRunner::new(ProptestConfig::with_cases(cases(40_000)));
    runner.run(&call(audit), |call| check(&call)).unwrap();
}

fn means_what_they_say(files: &[Value], machine: &Machine, program: &[SockFilter]) {
    for_calls(machine.audit, |call| {
        let comment = &files[0]["comment"];
        prop_assert_eq!(run(program, call).0, meaning::answer(files, machine, call), "{}", comment);
        Ok(())
    });
}

#[test]
fn the_embedded_programs_mean_what_the_profiles_say() {
    for profile in FilterProfile::ALL {
        means_what_they_say(&files(profile), &native(), program(profile));
    }
    for (narrowing, text) in NARROWINGS {
        means_what_they_say(&[serde_json::from_str(text).unwrap()], &native(), narrowing.program());
    }
    for (filter, text) in OUTSIDE {
        means_what_they_say(&files_of(text), &native(), filter.program());
    }
}

#[test]
fn the_aarch64_programs_mean_what_the_profiles_say() {
    for profile in FilterProfile::ALL {
        let program = compile(text(profile), TABLE, Arch::Aarch64).unwrap();
        means_what_they_say(&files(profile), &aarch64(), &program);
    }
    for (_, text) in NARROWINGS {
        let program = compile(text, TABLE, Arch::Aarch64).unwrap();
        means_what_they_say(&[serde_json::from_str(text).unwrap()], &aarch64(), &program);
    }
}

#[test]
fn nesting_and_init_allow_all_that_agent_allows() {
    // A program under its own filter and that of pid 1 gets exactly the results of its own filter.
    for_calls(native().audit, |call| {
        let agent = run(program(FilterProfile::Agent), call).0;
        for profile in [FilterProfile::Nesting, FilterProfile::Init] {
            let answer = run(program(profile), call).0;
            prop_assert!(answer == agent || answer == libc::SECCOMP_RET_ALLOW, "{:?}", profile);
        }
        Ok(())
    });
}

#[test]
fn what_is_asked_is_what_would_be_refused_and_calls() {
    let sockets = [native().number("socket"), native().number("socketpair")];
    let [connect, sendto] = ["connect", "sendto"].map(|name| native().number(name));
    // Each call with the argument that is its mode.
    let modes = [("chmod", 1), ("fchmod", 1), ("fchmodat", 2), ("fchmodat2", 2)];
    let modes = modes.map(|(name, at)| (native().number(name), at));
    for_calls(native().audit, |call| {
        let of = |profile| run(program(profile), call).0;
        let is_native = call.arch == native().audit;
        let is_socket = is_native && sockets.contains(&call.number);
        let is_error = of(FilterProfile::Init) & libc::SECCOMP_RET_ACTION_FULL == libc::SECCOMP_RET_ERRNO;
        // No address, netlink, IPv4 and IPv6.
        let is_quick = [0, 12, 16, 28].contains(&(call.args[5] & u64::from(u32::MAX)));
        let is_call = is_native && (call.number == connect || call.number == sendto && !is_quick);
        let mode = modes.iter().find(|(number, _)| is_native && *number == call.number);
        let is_mode = mode.is_some_and(|(_, at)| call.args[*at] & u64::from(libc::S_ISUID) == 0);
        let asking = |is_asked| if is_asked { libc::SECCOMP_RET_USER_NOTIF } else { of(FilterProfile::Init) };
        prop_assert_eq!(of(FilterProfile::InitAsk), asking(is_mode && is_error));
        let is_asked = (is_socket || is_mode) && is_error || is_call;
        prop_assert_eq!(of(FilterProfile::InitNotify), asking(is_asked));
        let is_left = is_socket || is_mode;
        let told = if is_left { libc::SECCOMP_RET_ALLOW } else { of(FilterProfile::Agent) };
        prop_assert_eq!(of(FilterProfile::AgentNotified), told);
        Ok(())
    });
}

fn condition() -> impl Strategy<Value = Value> {
    let word = || prop_oneof![0..6u64, any::<u32>().prop_map(u64::from)];
    let wide = || prop_oneof![0..6u64, any::<u64>()];
    prop_oneof![
        (0..6u8, prop::collection::vec(word(), 1..4)).prop_map(|(arg, is)| json!({"arg": arg, "is": is})),
        (0..6u8, word()).prop_map(|(arg, not)| json!({"arg": arg, "not": not})),
        (0..6u8, word()).prop_map(|(arg, above)| json!({"arg": arg, "above": above})),
        (0..6u8, word()).prop_map(|(arg, clear)| json!({"arg": arg, "clear": clear})),
        (0..6u8, wide()).prop_map(|(arg, is)| json!({"arg": arg, "bits": 64, "is": is})),
        (0..6u8, wide()).prop_map(|(arg, above)| json!({"arg": arg, "bits": 64, "above": above})),
        (0..6u8, wide(), wide())
            .prop_map(|(arg, mask, is)| json!({"arg": arg, "bits": 64, "mask": mask, "is": is & mask})),
    ]
}

fn answer() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!("allow")),
        Just(json!("EPERM")),
        Just(json!("ENOSYS")),
        Just(json!("kill_process"))
    ]
}

/// A table of as many calls as there are groups, with gaps, and a profile for it.
fn profile() -> impl Strategy<Value = (String, Value)> {
    let rule = (prop::collection::vec(condition(), 1..4), answer())
        .prop_map(|(when, answer)| json!({"when": when, "answer": answer}));
    let rules = prop_oneof![1 => Just(vec![]), 1 => prop::collection::vec(rule, 1..5)];
    let group = (1..4u32, rules, answer());
    (prop::collection::vec(group, 1..120), answer(), answer(), answer()).prop_map(|(groups, unlisted, newer, foreign)| {
        let (mut table, mut number) = (String::new(), 0);
        let mut list = Vec::new();
        for (gap, rules, answer) in groups {
            number += gap;
            table += &format!("c{number} {number} - - - -\n");
            list.push(json!({"name": "g", "comment": "", "calls": [format!("c{number}")],
                "rules": rules, "answer": answer}));
        }
        let profile = json!({"comment": "", "unlisted": unlisted, "newer": newer, "foreign": foreign, "groups": list});
        (table, profile)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(150), max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_profile_compiles_to_what_it_says(
        (table, profile) in profile(),
        calls in prop::collection::vec((0..400u32, prop::array::uniform6(argument())), 400),
    ) {
        let program = compile(&profile.to_string(), &table, Arch::X86_64).unwrap();
        let machine = Machine::new(&table, 1, 0xc000_003e, true);
        for (number, args) in calls {
            let call = SeccompData { arch: machine.audit, number, args };
            let expected = meaning::answer(std::slice::from_ref(&profile), &machine, &call);
            prop_assert_eq!(run(&program, &call).0, expected, "{:?}", call);
        }
    }
}

#[test]
fn jumps_longer_than_255_instructions_arrive() {
    // 400 calls with a check of their own each, so that no two share code: about 1200 instructions.
    let table: String = (0..400).map(|n| format!("c{n} {n} - - - -\n")).collect();
    let group = |n: u32| {
        let rules =
            json!([{"when": [{"arg": 0, "is": 1000 + n}, {"arg": 5, "above": n}], "answer": "EINVAL"}]);
        json!({"name": "g", "comment": "", "calls": [format!("c{n}")], "rules": rules, "answer": "allow"})
    };
    let groups: Vec<Value> = (0..400).map(group).collect();
    let profile = json!({"comment": "", "unlisted": "EPERM", "newer": "ENOSYS", "foreign": "kill_process",
        "groups": groups});
    let program = compile(&profile.to_string(), &table, Arch::X86_64).unwrap();
    assert!(program.iter().any(|instruction| instruction.code == 0x05), "no stepping stone was needed");
    let machine = Machine::new(&table, 1, 0xc000_003e, true);
    for number in 0..410 {
        for args in [[1000 + u64::from(number), 0, 0, 0, 0, 500], [7; 6]] {
            let call = SeccompData { arch: machine.audit, number, args };
            assert_eq!(
                run(&program, &call).0,
                meaning::answer(std::slice::from_ref(&profile), &machine, &call)
            );
        }
    }
}
