//! DECISIONS 29: which means bound what programs write, and how an overlay is laid.

use std::path::PathBuf;

use saggar::plan::agent::disk::{DiskBound, DiskFacts, DiskLimit, HomeLocation as HomeIs, choose_disk_limit};
use saggar::plan::agent::step::{AgentStep, BindSource, EMPTY_DIRECTORY};
use saggar::plan::agent::{self as plan, TreeMode};
use saggar::spec::policy::{ByteSize, EffectivePolicy, HomeSource, PolicyLayer, SandboxProfile, Setting};
use saggar::spec::{HostIdMapping, MountKind, OverlayUpper, Protection, ProtectionStrength};

use super::{ROOT, USER, WORK, host, spec};

const NOTHING: DiskFacts<'_> = DiskFacts {
    overlay: false,
    copy: false,
    home: HomeIs::Memory,
    no_quota: Some("no quota"),
    no_image: Some("no image"),
    has_image: false,
    memory: true,
    keep_changes: false,
};

fn built_in(question: &DiskFacts<'_>) -> DiskLimit {
    choose_disk_limit(&EffectivePolicy::built_in(HomeSource::Tmp), question)
}

#[test]
fn the_means_are_chosen_in_their_order() {
    let quota = DiskFacts { no_quota: None, ..NOTHING };
    let session = HomeIs::Session;
    for (question, workspace, home, holds) in [
        (NOTHING, DiskBound::Unbounded, DiskBound::Memory, false),
        // A project id would change somebody's real tree.
        (quota.clone(), DiskBound::Unbounded, DiskBound::Memory, false),
        (DiskFacts { overlay: true, ..NOTHING }, DiskBound::Memory, DiskBound::Memory, true),
        (
            DiskFacts { overlay: true, memory: false, ..NOTHING },
            DiskBound::Unbounded,
            DiskBound::Memory,
            false,
        ),
        (
            DiskFacts { overlay: true, home: session, ..NOTHING },
            DiskBound::Memory,
            DiskBound::Unbounded,
            false,
        ),
        (
            DiskFacts { overlay: true, keep_changes: true, ..NOTHING },
            DiskBound::Unbounded,
            DiskBound::Memory,
            false,
        ),
        (
            DiskFacts { overlay: true, keep_changes: true, ..quota.clone() },
            DiskBound::Quota,
            DiskBound::Memory,
            true,
        ),
        (
            DiskFacts { overlay: true, home: HomeIs::Host, ..quota.clone() },
            DiskBound::Quota,
            DiskBound::Unbounded,
            false,
        ),
        (
            DiskFacts { overlay: true, home: session, ..quota.clone() },
            DiskBound::Quota,
            DiskBound::Quota,
            true,
        ),
        (
            DiskFacts { copy: true, home: session, ..NOTHING },
            DiskBound::Unbounded,
            DiskBound::Unbounded,
            false,
        ),
        (DiskFacts { copy: true, home: session, ..quota.clone() }, DiskBound::Quota, DiskBound::Quota, true),
        (DiskFacts { home: session, ..quota }, DiskBound::Unbounded, DiskBound::Quota, false),
    ] {
        let disk = built_in(&question);
        let found = (disk.workspace, disk.home, disk.missing.is_none());
        assert_eq!(found, (workspace, home, holds), "{question:?}");
        assert_eq!(disk.degraded_protections().count() == 0, holds);
        disk.check().expect("what nobody named stops nothing");
    }
}

/// An image holds what nothing else does, and only what must hold; one that is there is gone on with.
#[test]
fn an_image_is_for_a_limit_that_must_hold() {
    let session = HomeIs::Session;
    let image = DiskFacts { no_image: None, home: session, ..NOTHING };
    let copy = DiskFacts { copy: true, ..image.clone() };
    let overlay = DiskFacts { overlay: true, ..image.clone() };
    let mut policy = EffectivePolicy::built_in(HomeSource::Tmp);
    policy.limits.disk = Setting::new(ByteSize::from_mebibytes(64), &PolicyLayer::CommandLine);
    policy
        .protections
        .insert(Protection::Disk, Setting::new(ProtectionStrength::Require, &PolicyLayer::CommandLine));
    let both = (DiskBound::Image, DiskBound::Image);
    let found = |question: &DiskFacts| {
        let disk = choose_disk_limit(&policy, question);
        disk.check().map(|()| (disk.workspace, disk.home)).ok()
    };
    assert_eq!(found(&copy), Some(both));
    assert_eq!(found(&overlay), Some(both), "with the home");
    let tmp = |question: &DiskFacts<'static>| DiskFacts { home: HomeIs::Memory, ..question.clone() };
    assert_eq!(found(&tmp(&copy)), Some((DiskBound::Image, DiskBound::Memory)));
    assert_eq!(found(&tmp(&overlay)), Some((DiskBound::Memory, DiskBound::Memory)));
    assert_eq!(
        found(&DiskFacts { memory: false, ..tmp(&overlay) }),
        Some((DiskBound::Image, DiskBound::Memory))
    );
    assert_eq!(
        found(&DiskFacts { no_quota: None, ..copy.clone() }),
        Some((DiskBound::Quota, DiskBound::Quota))
    );
    // What is a directory of the host cannot be in one.
    assert_eq!(found(&image), None);
    assert_eq!(found(&DiskFacts { home: HomeIs::Host, ..copy.clone() }), None);
    let error = choose_disk_limit(&policy, &DiskFacts { no_image: Some("no loop devices"), ..copy.clone() })
        .check()
        .unwrap_err();
    assert!(error.to_string().contains("no loop devices"), "{error}");

    assert_eq!(built_in(&copy).workspace, DiskBound::Unbounded, "nobody asked");
    let again = DiskFacts { has_image: true, ..copy };
    assert_eq!((built_in(&again).workspace, built_in(&again).home), both);
    assert_eq!(built_in(&DiskFacts { no_quota: None, ..again }).home, DiskBound::Image);
    let disk = choose_disk_limit(&policy, &overlay);
    assert_eq!((disk.bytes, disk.inodes), (64 << 20, 16 << 10), "as many as there are blocks");
}

#[test]
fn limits_of_file_systems_in_memory_are_below_the_available_memory() {
    let overlay = DiskFacts { overlay: true, ..NOTHING };
    let disk = built_in(&overlay);
    assert_eq!((disk.bytes, disk.inodes), (512 << 20, 131_072), "a quarter of the memory");
    let named = |disk: u32, inodes: u32| {
        let mut policy = EffectivePolicy::built_in(HomeSource::Tmp);
        policy.limits.disk = Setting::new(ByteSize::from_mebibytes(disk), &PolicyLayer::CommandLine);
        policy.limits.inodes = Setting::new(inodes, &PolicyLayer::CommandLine);
        // What is named holds, also where changes are to be kept.
        choose_disk_limit(&policy, &DiskFacts { keep_changes: true, ..overlay.clone() })
    };
    let disk = named(1500, 200_000);
    assert_eq!((disk.bytes, disk.inodes, disk.missing), (1500 << 20, 200_000, None), "as it was named");
    let (why, cure) = named(2048, 100).missing.expect("all of the memory");
    assert!(why.contains("2G") && cure.contains("--memory"), "{why}; {cure}");
}

/// The steps of an overlay over the workspace, with the pins that come after it.
fn overlay(map: HostIdMapping, changes: OverlayUpper) -> plan::AgentPlan {
    let mut spec = spec(SandboxProfile::Strict, map);
    let workspace = spec.mounts.iter_mut().find(|mount| mount.destination.as_os_str() == WORK).unwrap();
    workspace.kind = MountKind::Overlay { lower: WORK.into(), changes };
    plan::build(&spec, &host()).unwrap()
}

#[test]
fn an_overlay_is_laid_over_a_read_only_tree_before_anything_is_pinned_in_it() {
    for map in [ROOT, USER] {
        let memory = OverlayUpper::Memory { size: 4096, inodes: 7 };
        for changes in [memory, OverlayUpper::Directory(PathBuf::from("/state/upper"))] {
            let plan = overlay(map, changes.clone());
            let steps = plan.steps.as_slice();
            let at = steps.iter().position(|step| matches!(step, AgentStep::Overlay { .. })).unwrap();
            assert!(
                matches!(&steps[at], AgentStep::Overlay { path } if path.as_bytes() == &WORK.as_bytes()[1..])
            );
            let lower = matches!(&steps[at - 2], AgentStep::Bind { writable: false, path, .. } if path.as_bytes() == &WORK.as_bytes()[1..]);
            let upper = match (&steps[at - 1], changes) {
                (AgentStep::Tmpfs { path, size, inodes, .. }, OverlayUpper::Memory { .. }) => {
                    path.as_c_str() == EMPTY_DIRECTORY
                        && size.as_bytes() == b"4096"
                        && inodes.as_bytes() == b"7"
                }
                (
                    AgentStep::Bind { path, writable: true, source, .. },
                    OverlayUpper::Directory(directory),
                ) => {
                    path.as_c_str() == EMPTY_DIRECTORY
                        && source.to_string() == directory.display().to_string()
                        && matches!(source, BindSource::Tree { .. } | BindSource::Checked { .. })
                }
                _ => false,
            };
            assert!(lower && upper, "{:?}", &steps[at - 2..=at]);
            let first_pin = steps.iter().position(
                |step| matches!(step, AgentStep::Pin { path, .. } if path.as_bytes().starts_with(b"srv")),
            );
            assert!(first_pin.unwrap() > at);
            let tree = if map == ROOT { TreeMode::Mapped } else { TreeMode::None };
            assert!(plan.slots.iter().all(|slot| slot.tree == tree));
        }
    }
}
