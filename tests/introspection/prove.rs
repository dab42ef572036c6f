//! `saggar doctor --prove`: the default sandbox holds here, and what a policy gives is reported, and nothing else.

use super::{around, json, saggar};
use crate::support::caller::Caller;
use crate::support::own_mounts::own_mounts;
use crate::support::place::Place;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;

/// The proof with these options, in a directory of the caller's; its temporary directory is empty again afterwards.
fn proof(place: &Place, options: &[&str]) -> Value {
    let mut command = saggar(place, &["doctor", "--prove", "--json"]);
    command.args(options).env("TMPDIR", place.join("tmp"));
    let output = command.output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!(output.status.code(), Some(i32::from(report["ok"] != true)), "the exit status is the verdict");
    let left: Vec<_> = fs::read_dir(place.join("tmp")).unwrap().flatten().collect();
    assert!(left.is_empty(), "left behind: {left:?}");
    report
}

/// Names of the attempts that this is so of.
fn names(report: &Value, wanted: impl Fn(&Value) -> bool) -> BTreeSet<&str> {
    let attempts = report["attempts"].as_array().unwrap();
    attempts.iter().filter(|row| wanted(row)).map(|row| row["attempt"].as_str().unwrap()).collect()
}

/// What the policy is said to give.
fn given(report: &Value) -> BTreeSet<&str> {
    names(report, |row| row["reason"].as_str().is_some_and(|reason| reason.starts_with("policy: ")))
}

/// What must hold and does not. The quotas of the starter depend on the host as well.
fn broken(report: &Value) -> BTreeSet<&str> {
    names(report, |row| row["status"] == "not-held" && row["required"] == true && row["class"] != "quotas")
}

as_each_caller! {
    /// Every required boundary of the default sandbox answers; none is given away.
    fn the_default_sandbox_holds(caller) {
        let place = Place::new(caller);
        let report = proof(&place, &[]);
        assert_eq!((broken(&report), given(&report)), Default::default(), "{report:#}");
        let held = report["held"].as_u64().unwrap();
        assert!(held > 200, "{held} held");
        let rows = report["attempts"].as_array().unwrap();
        for row in rows {
            let keys: Vec<&str> = row.as_object().unwrap().keys().map(String::as_str).collect();
            assert_eq!(keys, ["answer", "attempt", "boundary", "class", "does", "reason", "required", "status"]);
        }
        let counted = ["held", "notHeld", "notThere"].map(|name| report[name].as_u64().unwrap());
        assert_eq!(counted.iter().sum::<u64>(), rows.len() as u64, "every attempt has an outcome");
    }

    /// The profile `nesting` gives namespaces and an unmasked /proc, by its own word, and nothing else.
    fn prove_names_the_grants_of_the_nesting_profile(caller) {
        let place = Place::new(caller);
        let report = proof(&place, &["--profile", "nesting"]);
        assert_eq!(broken(&report), BTreeSet::new(), "{report:#}");
        let all = BTreeSet::from([
            "clone-user", "clone-user-high", "kernel-interrupts", "kernel-keys", "nested-mount",
            "unshare-user", "unshare-user-network",
        ]);
        // Whether /proc says something to strangers is the kernel's business.
        let of_proc = BTreeSet::from(["kernel-interrupts", "kernel-keys"]);
        assert_eq!(given(&report).union(&of_proc).copied().collect::<BTreeSet<_>>(), all, "{report:#}");
    }

    /// In a container with a masked /proc, the profile `container` gives the list of its processes; elsewhere nothing.
    fn prove_names_the_grants_of_the_container_profile(caller) {
        let place = Place::new(caller);
        let report = proof(&place, &["--profile", "container"]);
        assert_eq!((broken(&report), given(&report)), Default::default(), "{report:#}");
        let script = "mount --bind /dev/null /proc/version && \"$0\" doctor --prove --json --profile container; true";
        let mut command = around(&place, own_mounts(caller), script);
        command.env("TMPDIR", place.join("tmp"));
        let report = json(command, 0);
        assert_eq!(broken(&report), BTreeSet::new(), "{report:#}");
        let held = names(&report, |row| row["status"] == "held");
        for name in ["environment", "memory", "root", "directory", "file", "write"] {
            assert!(held.contains(format!("host-process-{name}").as_str()), "{name}: {report:#}");
        }
        let all = BTreeSet::from(["host-proc", "host-process-seen", "quota-inotify"]);
        // Where the user has too few instances, the attempt is not made.
        let of_host = BTreeSet::from(["quota-inotify"]);
        assert_eq!(given(&report).union(&of_host).copied().collect::<BTreeSet<_>>(), all, "{report:#}");
    }

    /// A network and a directory of the host that a policy gives.
    fn prove_names_the_grants_of_a_policy(caller) {
        let place = Place::new(caller);
        let shown = place.join("tmp").canonicalize().unwrap();
        let text = format!("[network]\nmode = \"host\"\n[files]\nrw = [{shown:?}]\n");
        let file = place.make_file("given.toml", &text);
        let report = proof(&place, &["--policy", file.to_str().unwrap()]);
        assert_eq!(broken(&report), BTreeSet::new(), "{report:#}");
        let found = given(&report);
        for name in ["own-network-namespace", "host-loopback", "outside-file", "outside-file-link", "host-unix-socket"] {
            assert!(found.contains(name), "{name} is not reported: {report:#}");
        }
        // The file of standard error lies in that directory too.
        let shown = |name: &str| {
            name.starts_with("host-") || name.starts_with("outside-file") || name == "reopen-stream"
        };
        let others = found.iter().filter(|name| !shown(name));
        assert_eq!(others.collect::<Vec<_>>(), [&"own-network-namespace"], "{report:#}");
    }
}

/// A program that is in no sandbox gets through nearly everywhere: the attempts attempt something.
#[test]
fn without_a_sandbox_next_to_nothing_holds() {
    let place = match Caller::ordinary() {
        Ok(caller) => Place::new(caller),
        Err(why) => skip!("{why}"),
    };
    let mut command = saggar(&place, &["__probe-in", "{probe}"]);
    command.env("TMPDIR", place.join("tmp"));
    let report = json(command, 1);
    for name in [
        "outside-file",
        "secret-variable",
        "loader-variables",
        "descriptors",
        "own-mount-namespace",
        "host-loopback",
        "host-abstract-socket",
        "host-process-seen",
        "host-process-signal",
        "host-process-environment",
        "host-process-memory",
        "host-process-root",
        "host-process-directory",
        "host-process-file",
        "host-process-write",
        "git-hook",
        "git-config",
        "git-rename",
        "seccomp-filter",
        "no-new-privs",
        "landlock-domain",
        "set-uid-file",
        "kcmp",
        "clone3",
        "memory",
    ] {
        assert!(names(&report, |row| row["status"] == "not-held").contains(name), "{name}: {report:#}");
    }
}
