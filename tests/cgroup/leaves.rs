//! What is left when a container's cgroups are removed: what was there before, and nothing else.

use super::member::Member;
use super::rooms::{NEEDS_ROOT, Room, can, id, is_root, place};
use crate::support::rounds;
use saggar::cgroup::{CgroupDriver, CgroupHandle, CgroupLayout, CgroupLocation, CgroupRequest};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

macro_rules! needs_cgroups {
    () => {
        if let Err(why) = can() {
            skip!("{why}");
        }
    };
}

#[test]
fn cycles_leave_nothing() {
    needs_cgroups!();
    for _ in 0..rounds(10, 200) {
        let place = place(&CgroupLayout::discover().unwrap());
        let mut room = Room::at(place, serde_json::json!({ "pids": { "limit": 32 } })).unwrap();
        let member = room.run("read end");
        let directories = room.place.directories.clone();
        assert!(directories.iter().all(|one| one.path.exists()));
        drop(room);
        drop(member);
        for directory in directories {
            assert!(!directory.path.exists(), "{} is left", directory.path.display());
        }
    }
}

fn at(cgroups_path: &str) -> CgroupLocation {
    let annotations = BTreeMap::new();
    let wanted = CgroupRequest {
        id: "unused",
        cgroups_path: Some(Path::new(cgroups_path)),
        driver: CgroupDriver::Cgroupfs,
        rootless: false,
        annotations: &annotations,
    };
    CgroupLocation::choose(&CgroupLayout::discover().unwrap(), &wanted).unwrap()
}

#[test]
fn a_cgroup_that_was_there_stays() {
    if !is_root() {
        skip!("{NEEDS_ROOT}");
    }
    let name = id();
    let there = at(&format!("/{name}"));
    there.directories.iter().for_each(|one| fs::create_dir(&one.path).unwrap());
    // One container in it, one below it.
    let inside = CgroupHandle::create(&at(&format!("/{name}")), None).unwrap();
    let below = CgroupHandle::create(&at(&format!("/{name}/a/b")), None).unwrap();
    below.remove().unwrap();
    for one in &there.directories {
        assert!(one.path.exists() && !one.path.join("a").exists(), "{}", one.path.display());
    }
    inside.remove().unwrap();
    for one in &there.directories {
        fs::remove_dir(&one.path).unwrap();
    }
}

#[test]
fn cgroups_made_by_the_container_are_removed_with_it() {
    needs_cgroups!();
    let room = Room::with(serde_json::json!({}));
    for one in &room.place.directories {
        fs::create_dir_all(one.path.join("x/y")).unwrap();
        fs::create_dir(one.path.join("z")).unwrap();
    }
    let place = room.place.clone();
    drop(room);
    assert!(place.directories.iter().all(|one| !one.path.exists()));
}

#[test]
fn the_state_of_a_dead_runtime_is_enough_to_remove_everything() {
    needs_cgroups!();
    let mut room = Room::with(serde_json::json!({}));
    let mut member = room.run("sleep 100");
    let state = serde_json::to_string(&room.place).unwrap();
    room.group = None;
    let place: CgroupLocation = serde_json::from_str(&state).unwrap();
    assert_eq!(place, room.place);
    let group = CgroupHandle::open(&place).unwrap();
    group.kill_all(libc::SIGKILL).unwrap();
    group.remove().unwrap();
    assert!(!member.wait().success());
    assert!(place.directories.iter().all(|one| !one.path.exists()));
    // And once more, for a delete that was interrupted.
    CgroupHandle::open(&place).unwrap().remove().unwrap();
}

#[test]
fn refused_limit_leaves_no_cgroup() {
    needs_cgroups!();
    let place = place(&CgroupLayout::discover().unwrap());
    let bad = serde_json::json!({ "unified": { "no_such.file": "1" } });
    let error = Room::at(place.clone(), bad).unwrap_err();
    assert!(error.to_string().contains("unified.no_such.file"), "{error}");
    assert!(place.directories.iter().all(|one| !one.path.exists()));
}

#[test]
fn a_busy_cgroup_is_named_with_its_processes() {
    needs_cgroups!();
    let mut room = Room::with(serde_json::json!({}));
    let member: Member = room.run("read end");
    let error = CgroupHandle::open(&room.place).unwrap().remove().unwrap_err();
    assert!(error.to_string().contains(&member.pid().to_string()), "{error}");
}
