//! The plan of a container: what it is for a fixed host, and that its order protects.

use std::fmt::Write;
use std::path::Path;

use insta::assert_snapshot;
use saggar::plan::container::step::{Phase, Step, Steps};
use saggar::plan::container::{self, Facts, Filter, Hierarchy, Options, Plan};
use saggar::spec::container::{Container, Namespace};
use saggar::spec::oci;
use serde_json::{Value, json};

/// What `saggar spec` prints, changed.
fn container(change: impl FnOnce(&mut Value)) -> Container {
    let mut config: Value =
        serde_json::from_slice(include_bytes!("../../src/spec/oci/example.json")).unwrap();
    change(&mut config);
    oci::parse(config.to_string().into_bytes(), Path::new("/srv/bundle")).unwrap().container
}

fn facts() -> Facts {
    let hierarchy = Hierarchy { name: String::new(), own: "/sys/fs/cgroup/box".into(), links: Vec::new() };
    Facts {
        privileged: true,
        setgroups: true,
        known_capabilities: 0x1ff_ffff_ffff,
        bounding: 0x1ff_ffff_ffff,
        hierarchies: vec![hierarchy],
        ..Facts::default()
    }
}

fn filter() -> Filter {
    Filter { program: Vec::new(), flags: 0, listener: None }
}

fn words(plan: &Plan) -> String {
    let mut text =
        format!("namespaces {:#x}, by an intermediate process: {}\n", plan.namespaces, plan.intermediate);
    for (index, step) in plan.steps.as_slice().iter().enumerate() {
        writeln!(text, "{:3} {:?}: {step}", index + 1, step.phase()).unwrap();
    }
    plan.warnings.iter().for_each(|warning| writeln!(text, "warning: {warning}").unwrap());
    text
}

fn plan(change: impl FnOnce(&mut Value)) -> Plan {
    container::build(&container(change), &facts(), Options::default(), Some(&filter())).unwrap()
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
        container::build_exec(&container, process, &facts(), Options::default(), Some(&filter())).unwrap();
    assert_snapshot!(words(&plan));
}

/// No two steps of different phases can change places.
#[test]
fn an_order_that_does_not_protect_is_refused() {
    let steps = plan(|_| {}).steps.as_slice().to_vec();
    assert!(Steps::new(steps.clone()).is_ok());
    for first in 0..steps.len() {
        for second in first + 1..steps.len() {
            if steps[first].phase() == steps[second].phase() {
                continue;
            }
            let mut wrong = steps.clone();
            wrong.swap(first, second);
            assert!(Steps::new(wrong).is_err(), "{} and {}", steps[first], steps[second]);
        }
    }
    for missing in [Phase::Bounding, Phase::Capabilities] {
        let without = steps.iter().filter(|step| step.phase() != missing).cloned().collect();
        assert!(Steps::new(without).is_err(), "{missing:?}");
    }
    let open = steps.iter().filter(|step| !matches!(step, Step::CloseDescriptors { .. })).cloned();
    assert!(Steps::new(open.collect()).is_err());
}

/// Between the filter and the program there is nothing that the filter could stop.
#[test]
fn the_filter_is_the_last_thing_before_the_program() {
    for terminal in [true, false] {
        let plan = plan(|config| config["process"]["terminal"] = json!(terminal));
        let steps = plan.steps.as_slice();
        assert_eq!(steps[steps.len() - 2..], [Step::Seccomp, Step::Execute]);
        assert_eq!(steps[steps.len() - 3], Step::AwaitStart);
    }
}

/// The plan holds by itself, whoever made the model.
#[test]
fn what_would_reach_the_host_is_refused() {
    let refused = |without: Namespace, says: &str| {
        let mut container = container(|_| {});
        container.namespaces.new.retain(|namespace| *namespace != without);
        let error = container::build(&container, &facts(), Options::default(), None).unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    };
    refused(Namespace::Mount, "mounts needs a mount namespace");
    refused(Namespace::Uts, "hostname needs a UTS namespace");
    for (name, without) in [("net.ipv4.ip_forward", Namespace::Network), ("kernel.shmmax", Namespace::Ipc)] {
        let mut container = container(|_| {});
        container.namespaces.new.retain(|namespace| *namespace != without);
        container.sysctl = [(name.to_owned(), "1".to_owned())].into();
        let error = container::build(&container, &facts(), Options::default(), None).unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
    }
}

/// What cannot be given is told, and nothing else is left out with it.
#[test]
fn capabilities_that_cannot_be_had_are_left_out_with_a_warning() {
    let facts = Facts { bounding: 1 << 5, ..facts() };
    let plan = container::build(&container(|_| {}), &facts, Options::default(), None).unwrap();
    assert!(
        plan.warnings.iter().any(|warning| warning.contains("CAP_NET_BIND_SERVICE")),
        "{:?}",
        plan.warnings
    );
    let kept = plan.steps.as_slice().iter().find_map(|step| match step {
        Step::BoundingSet { keep } => Some(*keep),
        _ => None,
    });
    assert_eq!(kept, Some(1 << 5));
}
