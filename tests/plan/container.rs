//! The plan of a container: what it is for a fixed host, and that its order protects.

use std::fmt::Write;
use std::path::Path;

use insta::assert_snapshot;
use saggar::plan::container::mount::MountOperation;
use saggar::plan::container::step::{ContainerPhase, ContainerStep, ContainerSteps};
use saggar::plan::container::{
    self, ContainerFacts, ContainerFilter, ContainerHierarchy, ContainerOptions, ContainerPlan,
};
use saggar::spec::container::{ContainerSpec, Namespace};
use saggar::spec::oci;
use serde_json::{Value, json};

/// What `saggar spec` prints, changed.
fn container(change: impl FnOnce(&mut Value)) -> ContainerSpec {
    let mut config: Value =
        serde_json::from_slice(include_bytes!("../../crates/sandbox/src/spec/oci/example.json")).unwrap();
    change(&mut config);
    oci::parse_config(config.to_string().into_bytes(), Path::new("/srv/bundle")).unwrap().container
}

fn facts() -> ContainerFacts {
    let hierarchy =
        ContainerHierarchy { name: String::new(), directory: "/sys/fs/cgroup/box".into(), links: Vec::new() };
    ContainerFacts {
        privileged: true,
        setgroups: true,
        known_capabilities: 0x1ff_ffff_ffff,
        bounding: 0x1ff_ffff_ffff,
        hierarchies: vec![hierarchy],
        ..ContainerFacts::default()
    }
}

fn filter() -> ContainerFilter {
    ContainerFilter { program: Vec::new(), flags: 0, listener: None }
}

fn words(plan: &ContainerPlan) -> String {
    let mut text = format!(
        "namespaces {:#x}, by an intermediate process: {}\n",
        plan.namespaces, plan.needs_intermediate
    );
    for (index, step) in plan.steps.as_slice().iter().enumerate() {
        writeln!(text, "{:3} {:?}: {step}", index + 1, step.phase()).unwrap();
    }
    plan.warnings.iter().for_each(|warning| writeln!(text, "warning: {warning}").unwrap());
    text
}

fn plan(change: impl FnOnce(&mut Value)) -> ContainerPlan {
    container::build(&container(change), &facts(), ContainerOptions::default(), Some(&filter())).unwrap()
}

#[test]
fn the_plan_of_the_example() {
    assert_snapshot!(words(&plan(|_| {})));
}

#[test]
fn the_plan_of_one_in_a_user_namespace_that_joins_a_pod() {
    assert_snapshot!(words(&plan(|config| {
        config["linux"]["namespaces"] = json!([
            { "type": "user" }, { "type": "mount" }, { "type": "pid", "path": "/proc/7/ns/pid" },
            { "type": "network", "path": "/run/netns/pod" }, { "type": "cgroup" }, { "type": "time" },
        ]);
        let map = json!([{ "containerID": 0, "hostID": 100_000, "size": 65536 }]);
        config["linux"]["uidMappings"] = map.clone();
        config["linux"]["gidMappings"] = map;
        config["linux"]["rootfsPropagation"] = json!("shared");
        config.as_object_mut().unwrap().remove("hostname");
        config["process"]["noNewPrivileges"] = json!(false);
        config["process"]["capabilities"]["ambient"] = json!(["CAP_SYS_TIME"]);
    })));
}

#[test]
fn the_plan_of_exec() {
    let container = container(|_| {});
    let process = container.process.as_ref().unwrap();
    let plan =
        container::build_exec(&container, process, &facts(), ContainerOptions::default(), Some(&filter()))
            .unwrap();
    assert_snapshot!(words(&plan));
}

/// user_namespaces(7), /proc/PID/setgroups: who maps its own group alone has no other.
#[test]
fn groups_that_cannot_be_had_are_left_out_with_a_warning_or_refused() {
    let denied = ContainerFacts { setgroups: false, ..facts() };
    let build = |groups: &[u32], new: bool| {
        let container = container(|config| {
            config["process"]["user"] = json!({ "uid": 0, "gid": 7, "additionalGids": groups });
            if new {
                config["linux"]["namespaces"].as_array_mut().unwrap().push(json!({ "type": "user" }));
                let map = json!([{ "containerID": 0, "hostID": 1000, "size": 10 }]);
                config["linux"]["uidMappings"] = map.clone();
                config["linux"]["gidMappings"] = map;
            }
        });
        container::build(&container, &denied, ContainerOptions::default(), Some(&filter()))
    };
    let groups = |plan: &ContainerPlan| {
        let found = plan.steps.as_slice().iter().find_map(|step| match step {
            ContainerStep::SetUser { groups, .. } => groups.clone(),
            _ => None,
        });
        found.unwrap()
    };
    for new in [false, true] {
        let plan = build(&[7], new).unwrap();
        assert_eq!((groups(&plan), plan.warnings.len()), (vec![], 0));
    }
    let plan = build(&[7, 8], false).unwrap();
    assert!(groups(&plan).is_empty());
    assert!(plan.warnings[0].contains("additionalGids: [8]"), "{:?}", plan.warnings);
    let error = build(&[7, 8], true).unwrap_err();
    assert!(error.to_string().contains("additionalGids"), "{error}");
}

/// No two steps of different phases can change places.
#[test]
fn an_order_that_does_not_protect_is_refused() {
    let steps = plan(|_| {}).steps.as_slice().to_vec();
    assert!(ContainerSteps::new(steps.clone()).is_ok());
    for first in 0..steps.len() {
        for second in first + 1..steps.len() {
            if steps[first].phase() == steps[second].phase() {
                continue;
            }
            let mut wrong = steps.clone();
            wrong.swap(first, second);
            assert!(ContainerSteps::new(wrong).is_err(), "{} and {}", steps[first], steps[second]);
        }
    }
    for missing in [ContainerPhase::Bounding, ContainerPhase::Capabilities] {
        let without = steps.iter().filter(|step| step.phase() != missing).cloned().collect();
        assert!(ContainerSteps::new(without).is_err(), "{missing:?}");
    }
    let open = steps.iter().filter(|step| !matches!(step, ContainerStep::CloseDescriptors { .. })).cloned();
    assert!(ContainerSteps::new(open.collect()).is_err());
}

/// Between the filter and the program there is nothing that the filter could stop.
#[test]
fn the_filter_is_the_last_thing_before_the_program() {
    for terminal in [true, false] {
        let plan = plan(|config| config["process"]["terminal"] = json!(terminal));
        let steps = plan.steps.as_slice();
        assert_eq!(steps[steps.len() - 2..], [ContainerStep::Seccomp, ContainerStep::Execute]);
        assert_eq!(steps[steps.len() - 3], ContainerStep::AwaitStart);
    }
}

/// The plan holds by itself, whoever made the model.
#[test]
fn container_settings_that_would_change_the_host_are_refused() {
    let refused = |without: Namespace, says: &str| {
        let mut container = container(|_| {});
        container.namespaces.new.retain(|namespace| *namespace != without);
        let error = container::build(&container, &facts(), ContainerOptions::default(), None).unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    };
    refused(Namespace::Mount, "linux.maskedPaths or linux.readonlyPaths needs a mount namespace");
    refused(Namespace::Uts, "hostname needs a UTS namespace");
    for (name, without) in [("net.ipv4.ip_forward", Namespace::Network), ("kernel.shmmax", Namespace::Ipc)] {
        let mut container = container(|_| {});
        container.namespaces.new.retain(|namespace| *namespace != without);
        container.sysctl = [(name.to_owned(), "1".to_owned())].into();
        let error = container::build(&container, &facts(), ContainerOptions::default(), None).unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
    }
}

/// linux.mountLabel is for file systems that take one: procfs and sysfs have labels of the kernel's own, and a message
/// queue file system is labelled at its root.
#[test]
fn mount_labels_are_for_those_that_take_them() {
    let label = "system_u:object_r:container_file_t:s0:c1,c2";
    let long = "/l".repeat(200);
    let labelled = container(|config| {
        config["linux"]["mountLabel"] = json!(label);
        let overlay =
            json!({ "destination": "/o", "type": "overlay", "options": [format!("lowerdir={long}")] });
        config["mounts"].as_array_mut().unwrap().push(overlay);
    });
    let facts = ContainerFacts { selinux: true, ..facts() };
    let plan = container::build(&labelled, &facts, ContainerOptions::default(), None).unwrap();
    let mut seen = Vec::new();
    for step in plan.steps.as_slice() {
        let ContainerStep::Mount(mount) = step else { continue };
        let MountOperation::New { fstype, options, legacy: classic, .. } = &mount.operation else { continue };
        let context = options.iter().find(|(name, _)| name.as_c_str() == c"context");
        let by_option = context.is_some_and(|(_, value)| value.as_ref().unwrap().to_str() == Ok(label));
        let by_root = mount.label.as_ref().is_some_and(|own| own.to_str() == Ok(label));
        if let Some(classic) = classic {
            assert!(
                classic.data.to_str().unwrap().ends_with(&format!(",context=\"{label}\"")),
                "{classic:?}"
            );
        }
        seen.push((fstype.to_str().unwrap().to_owned(), by_option, by_root));
    }
    seen.sort();
    seen.dedup();
    let expected = [
        ("cgroup2", false, false),
        ("devpts", true, false),
        ("mqueue", false, true),
        ("overlay", true, false),
        ("proc", false, false),
        ("sysfs", false, false),
        ("tmpfs", true, false),
    ];
    assert_eq!(seen, expected.map(|(fstype, option, root)| (fstype.to_owned(), option, root)));
    let error = container::build(&labelled, &self::facts(), ContainerOptions::default(), None).unwrap_err();
    assert_eq!(error.to_string(), "linux.mountLabel is given, and SELinux is not enabled on this host");
}

/// What cannot be given is told, and nothing else is left out with it.
#[test]
fn capabilities_that_cannot_be_had_are_left_out_with_a_warning() {
    let facts = ContainerFacts { bounding: 1 << 5, ..facts() };
    let plan = container::build(&container(|_| {}), &facts, ContainerOptions::default(), None).unwrap();
    assert!(
        plan.warnings.iter().any(|warning| warning.contains("CAP_NET_BIND_SERVICE")),
        "{:?}",
        plan.warnings
    );
    let kept = plan.steps.as_slice().iter().find_map(|step| match step {
        ContainerStep::LimitBoundingSet { keep } => Some(*keep),
        _ => None,
    });
    assert_eq!(kept, Some(1 << 5));
}
