//! config.md: process.

use super::*;

fn process_with(change: impl FnOnce(&mut Value)) -> ProcessSpec {
    process_of(changed(|document| change(&mut document["process"])).unwrap())
}

fn process_refused(change: impl FnOnce(&mut Value)) -> String {
    let error = refused(|document| change(&mut document["process"]));
    error.strip_prefix("config.json: process").unwrap().to_owned()
}

#[test]
fn args_must_hold_at_least_one_entry() {
    assert_eq!(
        process_refused(|process| process["args"] = json!([])),
        ".args must hold at least the program"
    );
    assert_eq!(
        process_refused(|process| process["args"] = Value::Null),
        ".args must hold at least the program"
    );
}

#[test]
fn cwd_must_be_an_absolute_path() {
    assert_eq!(
        process_refused(|process| process["cwd"] = "tmp".into()),
        ".cwd must be an absolute path, is \"tmp\""
    );
    assert_eq!(process_refused(|process| process["cwd"] = "".into()), ".cwd is missing");
}

#[test]
fn console_size_must_be_ignored_without_a_terminal() {
    for size in [json!({ "height": 1, "width": 99999 }), json!(7), json!({})] {
        assert_eq!(process_with(|process| process["consoleSize"] = size).console_size, None);
    }
}

#[test]
fn console_size_is_that_of_the_terminal() {
    let size = json!({ "height": 25, "width": 80 });
    let process = process_with(|process| {
        process["terminal"] = true.into();
        process["consoleSize"] = size;
    });
    assert_eq!((process.terminal, process.console_size), (true, Some((80, 25))));
    let error = process_refused(|process| {
        process["terminal"] = true.into();
        process["consoleSize"] = json!({ "height": 1, "width": 65536 });
    });
    assert_eq!(error, ".consoleSize.width must be at most 65535, is 65536");
}

#[test]
fn env_holds_names_and_values() {
    let process = process_with(|process| process["env"] = json!(["A=1=2", "B=", "A=3"]));
    assert_eq!(process.program.env, [("A".into(), "3".into()), ("B".into(), "".into())]);
    for entry in ["A", "=1", ""] {
        let error = process_refused(|process| process["env"] = json!(["X=1", entry]));
        assert_eq!(error, format!(".env[1] must be NAME=value, is {entry:?}"));
    }
}

#[test]
fn user_has_ids_groups_and_a_umask() {
    let user = json!({ "uid": 1, "gid": 2, "umask": 0o77, "additionalGids": [3, 4] });
    let process = process_with(|process| process["user"] = user);
    assert_eq!((process.uid, process.gid, process.umask, process.groups), (1, 2, Some(0o77), vec![3, 4]));
    assert_eq!(process_with(|_| {}).umask, None);
    assert!(
        process_refused(|process| process["user"]["uid"] = (-1).into())
            .starts_with(".user.uid: invalid value")
    );
    let last = process_refused(|process| process["user"]["gid"] = u32::MAX.into());
    assert_eq!(last, ".user.gid is not an id");
    let umask = process_refused(|process| process["user"]["umask"] = 512.into());
    assert_eq!(umask, ".user.umask must be at most 511 (0777), is 512");
    let group = process_refused(|process| process["user"]["additionalGids"] = json!([1, u32::MAX]));
    assert_eq!(group, ".user.additionalGids[1] is not an id");
}

#[test]
fn rlimits_are_exact() {
    let list = json!([
        { "type": "RLIMIT_NOFILE", "soft": 1024, "hard": 4096 },
        { "type": "RLIMIT_CORE", "soft": 0, "hard": u64::MAX },
    ]);
    let process = process_with(|process| process["rlimits"] = list);
    assert_eq!(process.rlimits, [(7, 1024, 4096), (4, 0, u64::MAX)]);
}

#[test]
fn every_rlimit_of_getrlimit_is_known() {
    let names = [
        "CPU",
        "FSIZE",
        "DATA",
        "STACK",
        "CORE",
        "RSS",
        "NPROC",
        "NOFILE",
        "MEMLOCK",
        "AS",
        "LOCKS",
        "SIGPENDING",
        "MSGQUEUE",
        "NICE",
        "RTPRIO",
        "RTTIME",
    ];
    let list = names.map(|name| json!({ "type": format!("RLIMIT_{name}"), "soft": 1, "hard": 2 }));
    let process = process_with(|process| process["rlimits"] = json!(list));
    let numbers: Vec<i32> = process.rlimits.iter().map(|(number, ..)| *number).collect();
    assert_eq!(numbers, (0..16).collect::<Vec<_>>());
}

#[test]
fn duplicated_rlimits_must_be_an_error() {
    let entry = json!({ "type": "RLIMIT_NOFILE", "soft": 1, "hard": 1 });
    let error = process_refused(|process| process["rlimits"] = json!([entry, entry]));
    assert_eq!(error, ".rlimits[1].type is RLIMIT_NOFILE for the second time");
}

#[test]
fn unknown_rlimits_must_be_an_error() {
    let error =
        process_refused(|process| process["rlimits"] = json!([{ "type": "RLIMIT_X", "soft": 1, "hard": 1 }]));
    assert!(error.starts_with(".rlimits[0].type: unknown variant `RLIMIT_X`"), "{error}");
}

#[test]
fn rlimits_that_cannot_be_are_errors() {
    let of = |entry: Value| process_refused(|process| process["rlimits"] = json!([entry]));
    let error = of(json!({ "type": "RLIMIT_CPU", "soft": 2, "hard": 1 }));
    assert_eq!(error, ".rlimits[0].soft must be at most the hard limit 1, is 2");
    assert_eq!(of(json!({ "type": "RLIMIT_CPU", "soft": 2 })), ".rlimits[0].hard is missing");
    assert!(
        of(json!({ "type": "RLIMIT_CPU", "soft": -1, "hard": 1 }))
            .starts_with(".rlimits[0].soft: invalid value")
    );
}

#[test]
fn capabilities_are_exact() {
    let process = process_with(|process| {
        process["capabilities"] = json!({
            "bounding": ["CAP_CHOWN", "CAP_KILL"], "permitted": ["CAP_KILL"], "effective": ["CAP_KILL"],
            "inheritable": ["CAP_KILL"], "ambient": ["CAP_KILL"],
        });
    });
    let sets = process.capabilities;
    assert_eq!(
        (sets.bounding, sets.permitted, sets.effective, sets.inheritable, sets.ambient),
        (33, 32, 32, 32, 32)
    );
    assert_eq!(process_with(|_| {}).capabilities, Default::default());
}

#[test]
fn unknown_capabilities_must_be_a_warning() {
    let names = json!(["CAP_CHOWN", "CAP_FLY", "kill"]);
    let config = changed(|document| document["process"]["capabilities"]["bounding"] = names).unwrap();
    let warnings: Vec<String> = config.warnings.iter().map(ConfigWarning::to_string).collect();
    let said = "is cut: ignoring unknown or unavailable capabilities: [CAP_FLY kill]";
    assert_eq!(warnings, [format!("process.capabilities.bounding {said}")]);
    assert_eq!(process_of(config).capabilities.bounding, 1);
}

#[test]
fn capabilities_that_cannot_be_granted_must_be_a_warning() {
    let config = changed(|document| {
        let sets = json!({ "permitted": ["CAP_KILL"], "effective": ["CAP_KILL", "CAP_CHOWN"], "ambient": ["CAP_KILL"] });
        document["process"]["capabilities"] = sets;
    });
    let config = config.unwrap();
    let warnings: Vec<String> = config.warnings.iter().map(ConfigWarning::to_string).collect();
    let expected = [
        "process.capabilities.effective loses CAP_CHOWN, which cannot be granted without permitted",
        "process.capabilities.ambient loses CAP_KILL, which cannot be granted without permitted and inheritable",
    ];
    assert_eq!(warnings, expected);
    let sets = process_of(config).capabilities;
    assert_eq!((sets.effective, sets.ambient), (32, 0));
}

#[test]
fn oom_score_adj_must_not_change_when_it_is_not_set() {
    assert_eq!(process_with(|_| {}).oom_score_adj, None);
    assert_eq!(process_with(|process| process["oomScoreAdj"] = 0.into()).oom_score_adj, Some(0));
    for value in [-1001, 1001, i64::MAX] {
        let error = process_refused(|process| process["oomScoreAdj"] = value.into());
        assert_eq!(error, format!(".oomScoreAdj must be from -1000 to 1000, is {value}"));
    }
}

#[test]
fn labels_and_profiles_are_taken_and_empty_ones_are_none() {
    let process = process_with(|process| {
        process["apparmorProfile"] = "p".into();
        process["selinuxLabel"] = "u:r:t:s0".into();
        process["noNewPrivileges"] = true.into();
    });
    assert_eq!(process.apparmor_profile.as_deref(), Some("p"));
    assert_eq!((process.selinux_label.as_deref(), process.no_new_privs), (Some("u:r:t:s0"), true));
    let process = process_with(|process| {
        process["apparmorProfile"] = "".into();
        process["selinuxLabel"] = "".into();
    });
    assert_eq!((process.apparmor_profile, process.selinux_label, process.no_new_privs), (None, None, false));
}

#[test]
fn every_scheduler_policy_and_flag_is_known() {
    let policies = ["OTHER", "FIFO", "RR", "BATCH", "ISO", "IDLE", "DEADLINE"];
    for (number, name) in (0..).zip(policies) {
        let mut entry = json!({ "policy": format!("SCHED_{name}") });
        match name {
            "FIFO" | "RR" => entry["priority"] = 10.into(),
            "DEADLINE" => {
                (entry["runtime"], entry["deadline"], entry["period"]) =
                    (5000.into(), 6000.into(), 7000.into())
            }
            _ => entry["nice"] = (-20).into(),
        }
        let scheduler = process_with(|process| process["scheduler"] = entry).scheduler.unwrap();
        assert_eq!(scheduler.policy, number, "{name}");
    }
    let flags = [
        "RESET_ON_FORK",
        "RECLAIM",
        "DL_OVERRUN",
        "KEEP_POLICY",
        "KEEP_PARAMS",
        "UTIL_CLAMP_MIN",
        "UTIL_CLAMP_MAX",
    ];
    let entry = json!({ "policy": "SCHED_BATCH", "flags": flags.map(|flag| format!("SCHED_FLAG_{flag}")) });
    assert_eq!(process_with(|process| process["scheduler"] = entry).scheduler.unwrap().flags, 0x7f);
}

#[test]
fn schedulers_that_cannot_be_are_errors() {
    for (entry, expected) in [
        (json!({}), ": missing field `policy`"),
        (json!({ "policy": "SCHED_X" }), ".policy: unknown variant `SCHED_X`"),
        (json!({ "policy": "SCHED_OTHER", "nice": 20 }), ".nice must be from -20 to 19, is 20"),
        (
            json!({ "policy": "SCHED_OTHER", "priority": 1 }),
            ".priority is for SCHED_FIFO and SCHED_RR alone, is 1",
        ),
        (json!({ "policy": "SCHED_FIFO", "priority": 100 }), ".priority must be from 1 to 99, is 100"),
        (json!({ "policy": "SCHED_RR" }), ".priority must be from 1 to 99, is 0"),
        (json!({ "policy": "SCHED_OTHER", "period": 1 }), ".period is for SCHED_DEADLINE alone, is 1"),
        (
            json!({ "policy": "SCHED_DEADLINE", "runtime": 2, "deadline": 1 }),
            " has runtime 2, deadline 1, period 1",
        ),
        (
            json!({ "policy": "SCHED_OTHER", "flags": ["X"] }),
            ".flags[0] is not a flag of the scheduler: \"X\"",
        ),
    ] {
        let error = process_refused(|process| process["scheduler"] = entry);
        assert!(error.starts_with(&format!(".scheduler{expected}")), "{error}");
    }
}

#[test]
fn io_priority_has_a_class_and_a_priority() {
    for (number, class) in [(1, "RT"), (2, "BE"), (3, "IDLE")] {
        let entry = json!({ "class": format!("IOPRIO_CLASS_{class}"), "priority": 4 });
        assert_eq!(process_with(|process| process["ioPriority"] = entry).io_priority, Some(number << 13 | 4));
    }
    for (entry, expected) in [
        (json!({ "priority": 4 }), ": missing field `class`"),
        (json!({ "class": "X", "priority": 4 }), ".class: unknown variant `X`"),
        (json!({ "class": "IOPRIO_CLASS_RT" }), ".priority is missing"),
        (json!({ "class": "IOPRIO_CLASS_RT", "priority": 8 }), ".priority must be from 0 to 7, is 8"),
        (json!({ "class": "IOPRIO_CLASS_RT", "priority": -1 }), ".priority must be from 0 to 7, is -1"),
    ] {
        let error = process_refused(|process| process["ioPriority"] = entry);
        assert!(error.starts_with(&format!(".ioPriority{expected}")), "{error}");
    }
}

#[test]
fn exec_cpu_affinity_is_two_lists() {
    let lists = json!({ "initial": "0-3,7", "final": "64" });
    let affinity = process_with(|process| process["execCPUAffinity"] = lists).cpu_affinity;
    assert_eq!((affinity.initial, affinity.at_exec), (Some(vec![0x8f]), Some(vec![0, 1])));
    let empty = process_with(|process| process["execCPUAffinity"] = json!({ "final": "" })).cpu_affinity;
    assert_eq!(empty, Default::default());
    for list in ["a", "3-1", "0,", "8192"] {
        let error = process_refused(|process| process["execCPUAffinity"] = json!({ "final": list }));
        assert!(error.starts_with(".execCPUAffinity.final "), "{error}");
    }
}
