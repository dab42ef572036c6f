//! DECISIONS 2: who the inner user is where owners cannot be mapped.

use std::path::Path;

use saggar::error::Code;
use saggar::host::idmap_support::UnmappableTree;
use saggar::host::{HostFacts, PathKind};
use saggar::plan::agent::{self as plan, TreeMode};
use saggar::spec::policy::SandboxProfile;
use saggar::spec::{MountKind, MountSpec, Origin, SandboxSpec};

use super::{ROOT, USER, WORK, host, spec};

fn on_9p(uid: u32, gid: u32) -> UnmappableTree {
    UnmappableTree { filesystem: "9p".into(), reason: "Invalid argument".into(), uid, gid }
}

/// The usual sandbox of root with one more tree.
fn with_another(writable: bool) -> (SandboxSpec, HostFacts) {
    let (mut spec, mut host) = (spec(SandboxProfile::Strict, ROOT), host());
    spec.mounts.push(MountSpec {
        destination: "/srv/other".into(),
        kind: MountKind::Named { source: "/srv/other".into() },
        writable,
        origin: Origin::COMMAND_LINE,
        purpose: "asked for".into(),
    });
    host.paths.insert("/srv/other".into(), PathKind::Directory);
    host.unmappable_trees.insert(WORK.into(), on_9p(4321, 4322));
    (spec, host)
}

#[test]
fn the_owner_of_a_tree_that_cannot_be_mapped_is_the_inner_user() {
    let (spec, host) = with_another(true);
    let plan = plan::build(&spec, &host).unwrap();
    let tree = |path: &str| plan.slots.iter().find(|slot| slot.path == Path::new(path)).unwrap().tree;
    assert_eq!(tree(WORK), TreeMode::Plain { owner: Some((4321, 4322)) });
    assert_eq!(tree("/srv/other"), TreeMode::Mapped);
    let block = plan.block.unwrap();
    assert_eq!((block.host_uid, block.host_gid), (4321, 4322));
    assert!(
        plan.maps.uid.starts_with("1000 4321 1\n") && plan.maps.gid.starts_with("1000 4322 1\n"),
        "{plan:?}"
    );
}

#[test]
fn two_owners_in_one_sandbox_are_refused() {
    let (spec, mut host) = with_another(true);
    host.unmappable_trees.insert("/srv/other".into(), on_9p(4321, 9));
    let error = plan::build(&spec, &host).unwrap_err();
    assert_eq!(error.code(), Code::Unsupported);
    assert!(error.to_string().contains("owners differ"), "{error}");
    host.unmappable_trees.insert("/srv/other".into(), on_9p(4321, 4322));
    plan::build(&spec, &host).unwrap();
}

/// What programs only read gives nobody an id, whoever owns it.
#[test]
fn a_read_only_tree_that_cannot_be_mapped_is_shown_as_it_is() {
    let (spec, mut host) = with_another(false);
    host.unmappable_trees.clear();
    host.unmappable_trees.insert("/srv/other".into(), on_9p(0, 0));
    let plan = plan::build(&spec, &host).unwrap();
    assert_eq!(plan.slots.last().unwrap().tree, TreeMode::Plain { owner: None });
    assert!(!plan.block.unwrap().uses_host_ids());
}

#[test]
fn ids_of_root_and_of_sandboxes_are_never_given() {
    for owner in [(0, 0), (0, 5), (5, 0), (1_000_013_824 + 5, 5)] {
        let (spec, mut host) = with_another(false);
        host.unmappable_trees.insert(WORK.into(), on_9p(owner.0, owner.1));
        let error = plan::build(&spec, &host).unwrap_err();
        assert_eq!(error.code(), Code::Refused, "{owner:?}");
        assert!(error.to_string().contains("9p"), "{error}");
    }
}

/// An ordinary user's own ids are mapped: there is nothing to ask.
#[test]
fn an_ordinary_user_is_not_concerned() {
    let (_, host) = with_another(false);
    let plan = plan::build(&spec(SandboxProfile::Strict, USER), &host).unwrap();
    assert!(plan.slots.iter().all(|slot| slot.tree == TreeMode::None) && plan.block.is_none());
}
