//! `features` lists what the parser accepts.

use super::*;

fn all() -> Value {
    features("1.2.3", Some("abcdef"), |_| true)
}

fn words(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
}

#[test]
fn it_is_the_structure_of_the_specification() {
    let typed: oci_spec::runtime::Features = serde_json::from_value(all()).unwrap();
    assert_eq!((typed.oci_version_min().as_str(), typed.oci_version_max().as_str()), ("1.0.0", "1.3.0"));
    let annotations = typed.annotations().clone().unwrap();
    assert_eq!(annotations["org.saggar.version"], "1.2.3");
    assert_eq!(annotations["org.saggar.commit"], "abcdef");
    // The typed document loses nothing.
    let again = serde_json::to_value(&typed).unwrap();
    assert_eq!(again, all());
}

#[test]
fn its_versions_are_taken() {
    for version in ["ociVersionMin", "ociVersionMax"] {
        let config = changed(|document| document["ociVersion"] = all()[version].clone()).unwrap();
        assert_eq!(config.warnings, []);
    }
}

#[test]
fn its_hooks_are_taken() {
    for name in words(&all()["hooks"]) {
        let hooks =
            changed(|document| document["hooks"][&name] = json!([{ "path": "/h" }])).unwrap().container.hooks;
        let Hooks { prestart, create_runtime, create_container, start_container, poststart, poststop } =
            hooks;
        let total =
            [prestart, create_runtime, create_container, start_container, poststart, poststop].concat();
        assert_eq!(total.len(), 1, "{name}");
    }
}

/// Mount options of crun(1), of bind mounts alone.
const OF_CRUN: [&str; 3] = ["copy-symlink", "dest-nofollow", "src-nofollow"];

/// An unknown option would be passed to the file system.
#[test]
fn its_mount_options_are_taken() {
    for word in words(&all()["mountOptions"]) {
        let maps = ["idmap", "ridmap"].contains(&word.as_str());
        let bind = maps || OF_CRUN.contains(&word.as_str());
        let options = if bind { json!(["rbind", word]) } else { json!([word]) };
        let entry = json!({
            "destination": "/m", "type": "tmpfs", "source": "/s", "options": options,
            "uidMappings": if maps { json!([{ "containerID": 0, "hostID": 1, "size": 1 }]) } else { Value::Null },
            "gidMappings": if maps { json!([{ "containerID": 0, "hostID": 1, "size": 1 }]) } else { Value::Null },
        });
        match mount(entry).unwrap().kind {
            ContainerMountKind::Filesystem { options, .. }
            | ContainerMountKind::Reconfigure { options, .. } => {
                assert_eq!(options, [], "{word}")
            }
            ContainerMountKind::Bind { .. } => {}
            other => panic!("{word}: {other:?}"),
        }
    }
}

#[test]
fn its_namespaces_are_taken() {
    for name in words(&all()["linux"]["namespaces"]) {
        let config = changed(|document| {
            document["linux"] = json!({ "namespaces": [{ "type": name }] });
            if name == "user" {
                document["linux"]["uidMappings"] = json!([{ "containerID": 0, "hostID": 1, "size": 1 }]);
            }
        });
        assert_eq!(config.unwrap().container.namespaces.new.len(), 1, "{name}");
    }
}

#[test]
fn its_capabilities_are_taken() {
    let names = words(&all()["linux"]["capabilities"]);
    let config = changed(|document| document["process"]["capabilities"]["bounding"] = json!(names)).unwrap();
    assert_eq!(config.warnings, []);
    assert_eq!(process_of(config).capabilities.bounding, (1 << names.len()) - 1);
}

#[test]
fn its_words_of_seccomp_are_taken() {
    let seccomp = &all()["linux"]["seccomp"];
    for action in words(&seccomp["actions"]) {
        let rule = json!({ "names": ["getpid"], "action": action });
        let filter = json!({ "defaultAction": "SCMP_ACT_ALLOW", "listenerPath": "/l", "syscalls": [rule] });
        changed(|document| document["linux"]["seccomp"] = filter).unwrap();
    }
    for op in words(&seccomp["operators"]) {
        let rule = json!({ "names": ["getpid"], "action": "SCMP_ACT_LOG", "args": [{ "index": 5, "value": 1, "op": op }] });
        let filter = json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": [rule] });
        changed(|document| document["linux"]["seccomp"] = filter).unwrap();
    }
    for (key, list) in [("architectures", "archs"), ("flags", "knownFlags"), ("flags", "supportedFlags")] {
        let words = words(&seccomp[list]);
        let filter = json!({ "defaultAction": "SCMP_ACT_ALLOW", key: words });
        changed(|document| document["linux"]["seccomp"] = filter).unwrap();
    }
}

/// features-linux.md: supportedFlags may be a subset of knownFlags, depending on the kernel.
#[test]
fn only_flags_that_the_kernel_has_are_supported() {
    let without = features("1", None, |flag| flag != libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV);
    let seccomp = &without["linux"]["seccomp"];
    let mut known = words(&seccomp["knownFlags"]);
    assert_eq!(known.pop().unwrap(), "SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV");
    assert_eq!(words(&seccomp["supportedFlags"]), known);
}

#[test]
fn its_memory_policies_are_taken() {
    let policy = &all()["linux"]["memoryPolicy"];
    for mode in words(&policy["modes"]) {
        let nodes = if matches!(mode.as_str(), "MPOL_DEFAULT" | "MPOL_LOCAL") { "" } else { "0-1" };
        let entry = json!({ "mode": mode, "nodes": nodes });
        changed(|document| document["linux"]["memoryPolicy"] = entry).unwrap();
    }
    for flag in words(&policy["flags"]) {
        let entry = json!({ "mode": "MPOL_BIND", "nodes": "0", "flags": [flag] });
        let config = changed(|document| document["linux"]["memoryPolicy"] = entry).unwrap();
        assert!(config.container.memory_policy.unwrap().mode > libc::MPOL_BIND, "{flag}");
    }
}

/// Every option that config.md lists with MUST, SHOULD or MAY, and those of crun for links.
#[test]
fn its_mount_options_are_those_of_the_specification_and_of_crun() {
    const SPECIFIED: &str = "async atime bind defaults dev diratime dirsync exec iversion lazytime loud mand noatime \
        nodev nodiratime noexec noiversion nolazytime nomand norelatime nostrictatime nosuid nosymfollow private \
        ratime rbind rdev rdiratime relatime remount rexec rnoatime rnodev rnodiratime rnoexec rnorelatime \
        rnostrictatime rnosuid rnosymfollow ro rprivate rrelatime rro rrw rshared rslave rstrictatime rsuid rsymfollow \
        runbindable rw shared silent slave strictatime suid symfollow sync tmpcopyup unbindable idmap ridmap";
    let mut specified: Vec<&str> = SPECIFIED.split_whitespace().chain(OF_CRUN).collect();
    specified.sort_unstable();
    assert_eq!(words(&all()["mountOptions"]), specified);
}

/// An annotation that changes behaviour is listed, and one without effect is a warning.
#[test]
fn annotations_of_other_runtimes_are_warned_of_unless_they_are_listed() {
    let listed = words(&all()["potentiallyUnsafeConfigAnnotations"]);
    for (name, is_taken) in [
        ("run.oci.keep_original_groups", true),
        ("org.systemd.property.TimeoutStopUSec", true),
        ("run.oci.handler", false),
        ("io.kubernetes.cri.container-type", true),
    ] {
        let config = changed(|document| document["annotations"] = json!({ name: "1" })).unwrap();
        let warnings: Vec<String> = config.warnings.iter().map(ToString::to_string).collect();
        let expected = format!("annotations.{name} is an annotation of crun and has no effect");
        assert_eq!(warnings, if is_taken { Vec::new() } else { vec![expected] });
        let is_listed = listed.iter().any(|prefix| name.starts_with(prefix.as_str()));
        assert_eq!(is_listed, is_taken && !name.starts_with("io."), "{name}");
    }
}
