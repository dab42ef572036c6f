//! DECISIONS 29: which means bound what programs write, and how an overlay is laid.

use std::path::PathBuf;

use saggar::plan::disk::{Bound, Disk, Home as HomeIs, Question, choose};
use saggar::plan::step::{EMPTY, Source, Step};
use saggar::plan::{self, Tree};
use saggar::spec::policy::{Effective, Home, Layer, Profile, Setting, Size};
use saggar::spec::{Changes, IdMap, MountKind, Protection, Strength};

use super::{ROOT, USER, WORK, host, spec};

const NOTHING: Question<'_> = Question {
    overlay: false,
    copy: false,
    home: HomeIs::Memory,
    no_quota: Some("no quota"),
    no_image: Some("no image"),
    has_image: false,
    memory: true,
    keep: false,
};

fn built_in(question: &Question<'_>) -> Disk {
    choose(&Effective::built_in(Home::Tmp), question)
}

#[test]
fn the_means_are_chosen_in_their_order() {
    let quota = Question { no_quota: None, ..NOTHING };
    let session = HomeIs::Session;
    for (question, workspace, home, holds) in [
        (NOTHING, Bound::Nothing, Bound::Memory, false),
        // A project id would change somebody's real tree.
        (quota.clone(), Bound::Nothing, Bound::Memory, false),
        (Question { overlay: true, ..NOTHING }, Bound::Memory, Bound::Memory, true),
        (Question { overlay: true, memory: false, ..NOTHING }, Bound::Nothing, Bound::Memory, false),
        (Question { overlay: true, home: session, ..NOTHING }, Bound::Memory, Bound::Nothing, false),
        (Question { overlay: true, keep: true, ..NOTHING }, Bound::Nothing, Bound::Memory, false),
        (Question { overlay: true, keep: true, ..quota.clone() }, Bound::Quota, Bound::Memory, true),
        (
            Question { overlay: true, home: HomeIs::Host, ..quota.clone() },
            Bound::Quota,
            Bound::Nothing,
            false,
        ),
        (Question { overlay: true, home: session, ..quota.clone() }, Bound::Quota, Bound::Quota, true),
        (Question { copy: true, home: session, ..NOTHING }, Bound::Nothing, Bound::Nothing, false),
        (Question { copy: true, home: session, ..quota.clone() }, Bound::Quota, Bound::Quota, true),
        (Question { home: session, ..quota }, Bound::Nothing, Bound::Quota, false),
    ] {
        let disk = built_in(&question);
        let found = (disk.workspace, disk.home, disk.lack.is_none());
        assert_eq!(found, (workspace, home, holds), "{question:?}");
        assert_eq!(disk.degraded().count() == 0, holds);
        disk.check().expect("what nobody named stops nothing");
    }
}

/// An image holds what nothing else does, and only what must hold; one that is there is gone on with.
#[test]
fn an_image_is_for_a_limit_that_must_hold() {
    let session = HomeIs::Session;
    let image = Question { no_image: None, home: session, ..NOTHING };
    let copy = Question { copy: true, ..image.clone() };
    let overlay = Question { overlay: true, ..image.clone() };
    let mut policy = Effective::built_in(Home::Tmp);
    policy.limits.disk = Setting::new(Size::mebibytes(64), &Layer::CommandLine);
    policy.protections.insert(Protection::Disk, Setting::new(Strength::Require, &Layer::CommandLine));
    let both = (Bound::Image, Bound::Image);
    let found = |question: &Question| {
        let disk = choose(&policy, question);
        disk.check().map(|()| (disk.workspace, disk.home)).ok()
    };
    assert_eq!(found(&copy), Some(both));
    assert_eq!(found(&overlay), Some(both), "with the home");
    let tmp = |question: &Question<'static>| Question { home: HomeIs::Memory, ..question.clone() };
    assert_eq!(found(&tmp(&copy)), Some((Bound::Image, Bound::Memory)));
    assert_eq!(found(&tmp(&overlay)), Some((Bound::Memory, Bound::Memory)));
    assert_eq!(found(&Question { memory: false, ..tmp(&overlay) }), Some((Bound::Image, Bound::Memory)));
    assert_eq!(found(&Question { no_quota: None, ..copy.clone() }), Some((Bound::Quota, Bound::Quota)));
    // What is a directory of the host cannot be in one.
    assert_eq!(found(&image), None);
    assert_eq!(found(&Question { home: HomeIs::Host, ..copy.clone() }), None);
    let error =
        choose(&policy, &Question { no_image: Some("no loop devices"), ..copy.clone() }).check().unwrap_err();
    assert!(error.to_string().contains("no loop devices"), "{error}");

    assert_eq!(built_in(&copy).workspace, Bound::Nothing, "nobody asked");
    let again = Question { has_image: true, ..copy };
    assert_eq!((built_in(&again).workspace, built_in(&again).home), both);
    assert_eq!(built_in(&Question { no_quota: None, ..again }).home, Bound::Image);
    let disk = choose(&policy, &overlay);
    assert_eq!((disk.bytes, disk.inodes), (64 << 20, 16 << 10), "as many as there are blocks");
}

#[test]
fn what_lies_in_memory_is_below_the_memory_that_there_is() {
    let overlay = Question { overlay: true, ..NOTHING };
    let disk = built_in(&overlay);
    assert_eq!((disk.bytes, disk.inodes), (512 << 20, 131_072), "a quarter of the memory");
    let named = |disk: u32, inodes: u32| {
        let mut policy = Effective::built_in(Home::Tmp);
        policy.limits.disk = Setting::new(Size::mebibytes(disk), &Layer::CommandLine);
        policy.limits.inodes = Setting::new(inodes, &Layer::CommandLine);
        // What is named holds, also where changes are to be kept.
        choose(&policy, &Question { keep: true, ..overlay.clone() })
    };
    let disk = named(1500, 200_000);
    assert_eq!((disk.bytes, disk.inodes, disk.lack), (1500 << 20, 200_000, None), "as it was named");
    let (why, cure) = named(2048, 100).lack.expect("all of the memory");
    assert!(why.contains("2G") && cure.contains("--memory"), "{why}; {cure}");
}

/// The steps of an overlay over the workspace, with the pins that come after it.
fn overlay(map: IdMap, changes: Changes) -> plan::Plan {
    let mut spec = spec(Profile::Strict, map);
    let workspace = spec.mounts.iter_mut().find(|mount| mount.at.as_os_str() == WORK).unwrap();
    workspace.kind = MountKind::Overlay { lower: WORK.into(), changes };
    plan::build(&spec, &host()).unwrap()
}

#[test]
fn an_overlay_is_laid_over_a_read_only_tree_before_anything_is_pinned_in_it() {
    for map in [ROOT, USER] {
        let memory = Changes::Memory { size: 4096, inodes: 7 };
        for changes in [memory, Changes::Directory(PathBuf::from("/state/upper"))] {
            let plan = overlay(map, changes.clone());
            let steps = plan.steps.as_slice();
            let at = steps.iter().position(|step| matches!(step, Step::Overlay { .. })).unwrap();
            assert!(matches!(&steps[at], Step::Overlay { path } if path.as_bytes() == &WORK.as_bytes()[1..]));
            let lower = matches!(&steps[at - 2], Step::Bind { writable: false, path, .. } if path.as_bytes() == &WORK.as_bytes()[1..]);
            let upper = match (&steps[at - 1], changes) {
                (Step::Tmpfs { path, size, inodes, .. }, Changes::Memory { .. }) => {
                    path.as_c_str() == EMPTY && size.as_bytes() == b"4096" && inodes.as_bytes() == b"7"
                }
                (Step::Bind { path, writable: true, source, .. }, Changes::Directory(directory)) => {
                    path.as_c_str() == EMPTY
                        && source.to_string() == directory.display().to_string()
                        && matches!(source, Source::Tree { .. } | Source::Checked { .. })
                }
                _ => false,
            };
            assert!(lower && upper, "{:?}", &steps[at - 2..=at]);
            let first_pin = steps.iter().position(
                |step| matches!(step, Step::Pin { path, .. } if path.as_bytes().starts_with(b"srv")),
            );
            assert!(first_pin.unwrap() > at);
            let tree = if map == ROOT { Tree::Mapped } else { Tree::None };
            assert!(plan.slots.iter().all(|slot| slot.tree == tree));
        }
    }
}
