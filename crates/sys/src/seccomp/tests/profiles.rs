//! Profiles that the build rejects, descriptions in `explain`, and correctness of the tables.

use super::properties::{AGENT, TABLE, compile, native, x86_64};
use crate::seccomp::{FilterProfile, HostNetworkFilter, describe, program};
use crate::testing::machine::{SeccompData, run};
use saggar_seccomp::arch::Arch;
use saggar_seccomp::names;
use saggar_seccomp::table;
use serde_json::{Value, json};

#[test]
fn a_bad_profile_is_refused_with_the_reason() {
    let refused = |change: &dyn Fn(&mut Value)| {
        let mut profile: Value = serde_json::from_str(AGENT).unwrap();
        change(&mut profile);
        compile(&profile.to_string(), TABLE, Arch::X86_64).unwrap_err()
    };
    let check = |text: &str, change: &dyn Fn(&mut Value)| {
        let error = refused(change);
        assert!(error.contains(text), "{error:?} does not say {text:?}");
    };
    check("unknown field `why`", &|p| p["groups"][0]["why"] = json!("x"));
    check("\"raed\" is not a call", &|p| p["groups"][0]["calls"][0] = json!("raed"));
    check("no group says what read gets", &|p| {
        drop(p["groups"][0]["calls"].as_array_mut().unwrap().remove(0))
    });
    check("poll stands in group \"reading and writing\" and again", &|p| {
        p["groups"][0]["calls"][0] = json!("poll")
    });
    check("answer \"EWHAT\" is not", &|p| p["groups"][0]["answer"] = json!("EWHAT"));
    check("\"newer\" is missing", &|p| p["newer"] = Value::Null);
    let rules = |when: Value| {
        move |p: &mut Value| p["groups"][0]["rules"] = json!([{"when": when, "answer": "EPERM"}])
    };
    check("without conditions", &rules(json!([])));
    check("\"SOCK_STRAEM\" is neither", &rules(json!([{"arg": 0, "is": "SOCK_STRAEM"}])));
    check("six arguments", &rules(json!([{"arg": 6, "is": 0}])));
    check("say \"bits\": 64", &rules(json!([{"arg": 0, "is": 1u64 << 32}])));
    check("say 32 or 64", &rules(json!([{"arg": 0, "bits": 16, "is": 0}])));
    check("exactly one of", &rules(json!([{"arg": 0, "is": 0, "not": 1}])));
    check("exactly one of", &rules(json!([{"arg": 0, "mask": 1, "clear": 1}])));
    check("outside the mask", &rules(json!([{"arg": 0, "mask": 1, "is": 2}])));
    assert!(table::from_cargo("riscv64").unwrap_err().contains("no system call numbers for riscv64"));
}

#[test]
fn a_load_stays_cheap() {
    // The kernel translates each instruction once and walks the tree for each number: see tree.rs.
    let narrowings = [HostNetworkFilter::Tcp, HostNetworkFilter::Offline, HostNetworkFilter::Pairs]
        .map(HostNetworkFilter::program);
    for program in FilterProfile::ALL.map(program).into_iter().chain(narrowings) {
        assert!(program.len() <= 208, "{} instructions", program.len());
        let steps = |number| run(program, &SeccompData { arch: native().audit, number, args: [0; 6] }).1;
        let worst = (0..472).map(steps).max().unwrap();
        assert!(worst <= 24, "{worst} steps");
    }
}

#[test]
fn explain_lists_what_is_refused_and_why() {
    let agent = describe(FilterProfile::Agent);
    assert_eq!(agent.name, "agent");
    let find = |call: &str| agent.refusals.iter().find(|refusal| refusal.calls.contains(&call));
    assert!(find("bpf").is_some_and(|refusal| !refusal.in_part && !refusal.comment.is_empty()));
    assert!(find("socket").is_some_and(|refusal| refusal.in_part));
    assert!(find("read").is_none());
    assert!(describe(FilterProfile::Nesting).allowed > agent.allowed);
    assert!(
        describe(FilterProfile::Nesting).refusals.iter().all(|refusal| !refusal.calls.contains(&"mount"))
    );
}

#[test]
fn the_numbers_are_those_of_the_installed_headers() {
    let header = "/usr/include/x86_64-linux-gnu/asm/unistd_64.h";
    let Ok(text) = std::fs::read_to_string(header) else {
        eprintln!("skipped: {header} is not there");
        return;
    };
    let defines = text.lines().filter_map(|line| line.strip_prefix("#define __NR_")?.split_once(' '));
    for (name, number) in defines {
        assert_eq!(x86_64().number(name).to_string(), number, "{name}");
    }
}

#[test]
fn the_constants_are_those_of_libc() {
    let ours = |name: &str| names::value(name).unwrap();
    let signed = [
        ("CLONE_NEWNS", libc::CLONE_NEWNS),
        ("CLONE_NEWCGROUP", libc::CLONE_NEWCGROUP),
        ("CLONE_NEWUTS", libc::CLONE_NEWUTS),
        ("CLONE_NEWIPC", libc::CLONE_NEWIPC),
        ("CLONE_NEWUSER", libc::CLONE_NEWUSER),
        ("CLONE_NEWPID", libc::CLONE_NEWPID),
        ("CLONE_NEWNET", libc::CLONE_NEWNET),
        ("CLONE_NEWTIME", libc::CLONE_NEWTIME),
        ("O_CREAT", libc::O_CREAT),
        ("__O_TMPFILE", libc::O_TMPFILE & !libc::O_DIRECTORY),
        ("F_SETLEASE", libc::F_SETLEASE),
        ("F_NOTIFY", libc::F_NOTIFY),
        ("AF_UNIX", libc::AF_UNIX),
        ("AF_INET", libc::AF_INET),
        ("AF_INET6", libc::AF_INET6),
        ("AF_NETLINK", libc::AF_NETLINK),
        ("SOCK_STREAM", libc::SOCK_STREAM),
        ("SOCK_DGRAM", libc::SOCK_DGRAM),
        ("SOCK_RAW", libc::SOCK_RAW),
        ("IPPROTO_TCP", libc::IPPROTO_TCP),
        ("IPPROTO_UDP", libc::IPPROTO_UDP),
        ("IPPROTO_MPTCP", libc::IPPROTO_MPTCP),
        ("TCP_ULP", libc::TCP_ULP),
        ("MSG_FASTOPEN", libc::MSG_FASTOPEN),
        ("NETLINK_ROUTE", libc::NETLINK_ROUTE),
        ("NETLINK_SOCK_DIAG", libc::NETLINK_SOCK_DIAG),
        ("PR_SET_MM", libc::PR_SET_MM),
        ("PR_SCHED_CORE", libc::PR_SCHED_CORE),
        ("PR_SET_VMA", libc::PR_SET_VMA),
        ("PR_SET_PTRACER", libc::PR_SET_PTRACER),
    ];
    for (name, value) in signed {
        assert_eq!(ours(name), u64::try_from(value).unwrap(), "{name}");
    }
    assert_eq!(ours("S_ISUID"), u64::from(libc::S_ISUID));
    assert_eq!(ours("S_ISGID"), u64::from(libc::S_ISGID));
    assert_eq!(ours("TIOCSTI"), libc::TIOCSTI);
    assert_eq!(ours("TIOCLINUX"), libc::TIOCLINUX);
    assert_eq!(ours("SECCOMP_FILTER_FLAG_NEW_LISTENER"), libc::SECCOMP_FILTER_FLAG_NEW_LISTENER);
    // "done" is not an error.
    for (name, number) in names::ERRORS.iter().filter(|(_, number)| *number != 0) {
        let kernel = nix::errno::Errno::from_raw(i32::from(*number));
        assert_eq!(format!("{kernel:?}"), *name);
    }
}
