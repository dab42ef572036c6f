//! config-linux.md: seccomp, memory policy, intelRdt, personality, cgroups path, labels.

use super::*;

fn refused_with(key: &str, value: Value) -> String {
    let error = refused(|document| document["linux"][key] = value);
    error.strip_prefix(&format!("config.json: linux.{key}")).unwrap().to_owned()
}

fn container_with(key: &str, value: Value) -> ContainerSpec {
    changed(|document| document["linux"][key] = value).unwrap().container
}

fn filter(rule: Value) -> Value {
    json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{ "names": ["getpid"], "action": "SCMP_ACT_LOG" }, rule] })
}

#[test]
fn the_default_action_is_required() {
    assert!(refused_with("seccomp", json!({})).starts_with(": missing field `defaultAction`"));
    let unknown = refused_with("seccomp", json!({ "defaultAction": "SCMP_ACT_X" }));
    assert!(unknown.starts_with(".defaultAction: unknown variant `SCMP_ACT_X`"), "{unknown}");
}

#[test]
fn names_must_contain_at_least_one_entry() {
    let error = refused_with("seccomp", filter(json!({ "names": [], "action": "SCMP_ACT_LOG" })));
    assert_eq!(error, ".syscalls[1].names must hold at least one name");
}

#[test]
fn an_errno_for_an_action_without_one_must_be_an_error() {
    for action in ["ALLOW", "KILL", "KILL_PROCESS", "KILL_THREAD", "LOG", "TRAP"] {
        let action = format!("SCMP_ACT_{action}");
        let error =
            refused_with("seccomp", filter(json!({ "names": ["a"], "action": action, "errnoRet": 1 })));
        assert_eq!(error, ".syscalls[1].errnoRet is given for an action that has no error number");
        let error = refused_with("seccomp", json!({ "defaultAction": action, "defaultErrnoRet": 1 }));
        assert_eq!(error, ".defaultErrnoRet is given for an action that has no error number");
    }
    for (action, max) in [("ERRNO", 4095), ("TRACE", 65535)] {
        let action = format!("SCMP_ACT_{action}");
        container_with("seccomp", json!({ "defaultAction": action, "defaultErrnoRet": max }));
        let error = refused_with("seccomp", json!({ "defaultAction": action, "defaultErrnoRet": max + 1 }));
        assert_eq!(error, format!(".defaultErrnoRet must be at most {max}, is {}", max + 1));
    }
}

#[test]
fn listener_metadata_must_not_be_set_without_a_listener_path() {
    let error =
        refused_with("seccomp", json!({ "defaultAction": "SCMP_ACT_ALLOW", "listenerMetadata": "x" }));
    assert_eq!(error, ".listenerMetadata must not be given without listenerPath");
}

#[test]
fn notify_needs_a_listener_path() {
    let notify = filter(json!({ "names": ["mkdir", "sendmsg"], "action": "SCMP_ACT_NOTIFY" }));
    let error = refused_with("seccomp", notify.clone());
    assert_eq!(error, ".syscalls[1].action is SCMP_ACT_NOTIFY, and there is no listenerPath");
    let error = refused_with("seccomp", json!({ "defaultAction": "SCMP_ACT_NOTIFY", "listenerPath": "" }));
    assert_eq!(error, ".defaultAction is SCMP_ACT_NOTIFY, and there is no listenerPath");
    let mut listened = notify;
    listened["listenerPath"] = "/run/agent.sock".into();
    listened["listenerMetadata"] = "m".into();
    let seccomp = container_with("seccomp", listened).seccomp.unwrap();
    assert_eq!(seccomp.listener_metadata().as_deref(), Some("m"));
    let error = refused_with("seccomp", json!({ "defaultAction": "SCMP_ACT_ALLOW", "listenerPath": "l" }));
    assert_eq!(error, ".listenerPath must be an absolute path, is \"l\"");
}

#[test]
fn the_words_of_a_filter_must_be_known() {
    for (key, value, field) in [
        ("architectures", json!(["SCMP_ARCH_X"]), ".architectures[0]"),
        ("flags", json!(["SECCOMP_FILTER_FLAG_X"]), ".flags[0]"),
    ] {
        let error = refused_with("seccomp", json!({ "defaultAction": "SCMP_ACT_ALLOW", key: value }));
        assert!(error.starts_with(&format!("{field}: unknown variant")), "{error}");
    }
    let rule = |arg: Value| filter(json!({ "names": ["a"], "action": "SCMP_ACT_LOG", "args": [arg] }));
    let error = refused_with("seccomp", rule(json!({ "index": 0, "value": 1, "op": "SCMP_CMP_X" })));
    assert!(error.starts_with(".syscalls[1].args[0].op: unknown variant"), "{error}");
    let error = refused_with("seccomp", rule(json!({ "index": 6, "value": 1, "op": "SCMP_CMP_EQ" })));
    assert_eq!(error, ".syscalls[1].args[0].index must be from 0 to 5, is 6");
    let whole =
        container_with("seccomp", rule(json!({ "index": 0, "value": u64::MAX, "op": "SCMP_CMP_EQ" })));
    let rules = whole.seccomp.unwrap().syscalls().clone().unwrap();
    assert_eq!(rules[1].args().as_ref().unwrap()[0].value(), u64::MAX);
}

#[test]
fn memory_policy_is_a_mode_with_flags_and_nodes() {
    let entry = json!({ "mode": "MPOL_INTERLEAVE", "nodes": "2-3", "flags": ["MPOL_F_STATIC_NODES"] });
    let policy = container_with("memoryPolicy", entry).memory_policy.unwrap();
    assert_eq!((policy.mode, policy.nodes), (3 | 1 << 15, vec![0b1100]));
}

#[test]
fn memory_policies_that_cannot_be_are_errors() {
    for (entry, expected) in [
        (json!({}), ": missing field `mode`"),
        (json!({ "mode": "MPOL_X" }), ".mode: unknown variant `MPOL_X`"),
        (json!({ "mode": "MPOL_DEFAULT", "nodes": "0" }), ".nodes must be empty with the mode"),
        (json!({ "mode": "MPOL_LOCAL", "nodes": "0" }), ".nodes must be empty with the mode"),
        (json!({ "mode": "MPOL_BIND" }), ".nodes must name a node with the mode"),
        (json!({ "mode": "MPOL_BIND", "nodes": "1024" }), ".nodes holds 1024; the highest number is 1023"),
        (json!({ "mode": "MPOL_BIND", "nodes": "0", "flags": ["X"] }), ".flags[0]: unknown variant `X`"),
        (
            json!({ "mode": "MPOL_BIND", "nodes": "0", "flags": ["MPOL_F_STATIC_NODES", "MPOL_F_RELATIVE_NODES"] }),
            ".flags must not hold both",
        ),
        (
            json!({ "mode": "MPOL_DEFAULT", "flags": ["MPOL_F_STATIC_NODES"] }),
            ".flags are given without nodes",
        ),
    ] {
        let error = refused_with("memoryPolicy", entry);
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn the_schemata_of_intel_rdt_must_not_contain_newlines() {
    for (entry, expected) in [
        (json!({ "memBwSchema": "L3:0=1" }), ".memBwSchema must start with MB:, is \"L3:0=1\""),
        (json!({ "memBwSchema": "MB:0=1\n" }), ".memBwSchema must be one line"),
        (json!({ "l3CacheSchema": "L3:0=1\nMB:0=1" }), ".l3CacheSchema must be one line"),
        (json!({ "schemata": ["MB:0=1", "a\nb"] }), ".schemata[1] must be one line"),
        (json!({ "closID": ".." }), ".closID must be the name of a directory or /, is \"..\""),
        (json!({ "closID": "a/b" }), ".closID must be the name of a directory or /, is \"a/b\""),
    ] {
        assert_eq!(refused_with("intelRdt", entry), expected);
    }
    let entry =
        json!({ "closID": "/", "schemata": ["L3:0=7f0"], "enableMonitoring": true, "memBwSchema": "" });
    let rdt = container_with("intelRdt", entry).intel_rdt.unwrap();
    assert_eq!((rdt.clos_id().as_deref(), rdt.mem_bw_schema().as_deref()), (Some("/"), None));
}

#[test]
fn a_schema_of_the_cache_should_start_with_its_name() {
    let config = changed(|document| document["linux"]["intelRdt"] = json!({ "l3CacheSchema": "x" })).unwrap();
    assert_eq!(config.warnings[0].to_string(), "linux.intelRdt.l3CacheSchema should start with L3:");
}

#[test]
fn personality_has_a_domain_and_no_flags() {
    for (domain, number) in [("LINUX", 0), ("LINUX32", 8)] {
        let container = container_with("personality", json!({ "domain": domain, "flags": [] }));
        assert_eq!(container.process.unwrap().personality, Some(number));
    }
    assert!(refused_with("personality", json!({})).starts_with(": missing field `domain`"));
    assert!(
        refused_with("personality", json!({ "domain": "BSD" })).starts_with(".domain: unknown variant `BSD`")
    );
    let error = refused_with("personality", json!({ "domain": "LINUX", "flags": ["X"] }));
    assert_eq!(error, ".flags must be empty");
}

#[test]
fn the_cgroups_path_is_taken_as_it_is() {
    for path in ["/a/b", "a", "user.slice:libpod:1"] {
        assert_eq!(container_with("cgroupsPath", path.into()).cgroups_path, Some(path.into()));
    }
    assert_eq!(container_with("cgroupsPath", "".into()).cgroups_path, None);
}

#[test]
fn resources_are_taken_as_they_are() {
    let entry = json!({ "pids": { "limit": -1 }, "memory": { "limit": 1u64 << 40 }, "unified": { "memory.high": "1" } });
    let resources = container_with("resources", entry.clone()).resources.unwrap();
    assert_eq!(serde_json::to_value(&resources).unwrap(), entry);
    assert_eq!(parse_resources(entry.to_string().as_bytes()).unwrap(), resources);
    let error = refused_with("resources", json!({ "memory": { "limit": "1g" } }));
    assert!(error.starts_with(".memory.limit: invalid type: string \"1g\", expected i64"), "{error}");
}

#[test]
fn an_empty_mount_label_is_none() {
    assert_eq!(container_with("mountLabel", "".into()).mount_label, None);
    assert_eq!(container_with("mountLabel", "u:r:t".into()).mount_label.as_deref(), Some("u:r:t"));
}
