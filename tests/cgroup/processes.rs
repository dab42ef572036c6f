//! Entering, listing, freezing and killing.

use super::member::Member;
use super::rooms::{Room, can, place, unified};
use saggar::cgroup::CgroupHandle;
use std::fs;
use std::os::unix::process::ExitStatusExt;

/// Ends the test where cgroups cannot be made.
macro_rules! needs_cgroups {
    () => {
        if let Err(why) = can() {
            skip!("{why}");
        }
    };
}

#[test]
fn a_process_is_in_every_hierarchy_and_so_are_its_children() {
    needs_cgroups!();
    let mut room = Room::with(serde_json::json!({}));
    let mut member = room.run("cat /proc/self/cgroup; echo; read end");
    let lines: Vec<_> = std::iter::from_fn(|| Some(member.line()).filter(|line| !line.is_empty())).collect();
    for directory in room.place.directories.clone() {
        let is_in = |line: &&String| line.ends_with(&format!(":{}", directory.cgroup.display()));
        let count = lines.iter().filter(is_in).count();
        assert_eq!(count, room.place.directories.len(), "{directory:?} of {lines:?}");
    }
    assert_eq!(room.group().pids().unwrap(), [member.pid()]);
}

#[test]
fn a_process_that_joins_is_in_every_hierarchy() {
    needs_cgroups!();
    let mut room = Room::with(serde_json::json!({}));
    let init = room.run("read end");
    let joins = Member::waiting("read end");
    let opened = CgroupHandle::open(&room.place).unwrap();
    opened.enter_exec(joins.pid(), init.pid()).unwrap();
    let mut expected = [init.pid(), joins.pid()];
    expected.sort_unstable();
    assert_eq!(opened.pids().unwrap(), expected);
}

#[test]
fn frozen_processes_do_not_run_until_thawed() {
    needs_cgroups!();
    let mut room = Room::with(serde_json::json!({}));
    let mut member = room.run("while read line; do echo \"$line\"; done");
    member.tell("before");
    assert_eq!(member.line(), "before");
    assert!(!room.group().is_frozen().unwrap());
    room.group().freeze().unwrap();
    assert!(room.group().is_frozen().unwrap());
    let state = |directory: &str, file: &str| {
        let directory =
            room.place.directories.iter().find(|one| one.path.join(file).exists() && !directory.is_empty());
        directory.map(|one| fs::read_to_string(one.path.join(file)).unwrap())
    };
    let v2 = state("v2", "cgroup.events").is_some_and(|text| text.contains("frozen 1"));
    let v1 = state("v1", "freezer.state").is_some_and(|text| text.trim() == "FROZEN");
    assert!(v1 || v2, "the kernel says that nothing is frozen");
    member.tell("after");
    room.group().thaw().unwrap();
    assert!(!room.group().is_frozen().unwrap());
    assert_eq!(member.line(), "after");
}

#[test]
fn kill_all_reaches_processes_that_fork_meanwhile() {
    needs_cgroups!();
    let mut room = Room::with(serde_json::json!({ "pids": { "limit": 64 } }));
    // Each of them starts another for as long as it lives.
    let mut member =
        room.run("echo begun; f() { while :; do (exec sleep 100) & (exec true); done; }; f & f & wait");
    assert_eq!(member.line(), "begun");
    room.group().kill_all(libc::SIGKILL).unwrap();
    assert!(room.group().pids().unwrap().is_empty());
    assert_eq!(member.wait().signal(), Some(libc::SIGKILL));
}

#[test]
fn frozen_processes_die_of_sigkill() {
    needs_cgroups!();
    let mut room = Room::with(serde_json::json!({}));
    let mut member = room.run("sleep 100");
    room.group().freeze().unwrap();
    room.group().kill_all(libc::SIGKILL).unwrap();
    assert_eq!(member.wait().signal(), Some(libc::SIGKILL));
}

#[test]
fn kill_all_sends_any_signal_to_all_processes() {
    needs_cgroups!();
    let mut room = Room::with(serde_json::json!({}));
    let script = "(trap 'echo got; exit' USR1; echo begun; while :; do :; done) & \
                  trap 'echo got' USR1; echo begun; wait; wait; echo waited";
    let mut member = room.run(script);
    assert_eq!([member.line(), member.line()], ["begun", "begun"]);
    room.group().kill_all(libc::SIGUSR1).unwrap();
    assert!(!room.group().is_frozen().unwrap());
    assert_eq!([member.line(), member.line(), member.line()], ["got", "got", "waited"]);
}

#[test]
fn a_container_with_processes_is_not_made_again_at_the_same_place() {
    needs_cgroups!();
    let mut room = Room::with(serde_json::json!({}));
    let _member = room.run("read end");
    let error = CgroupHandle::create(&room.place, None).unwrap_err();
    assert_eq!(error.code().name(), "exists", "{error}");
    // A place that is chosen when it is there already.
    let again = {
        let mut again = room.place.clone();
        again.directories.iter_mut().for_each(|directory| directory.created.clear());
        again
    };
    let error = CgroupHandle::create(&again, None).unwrap_err();
    assert!(error.to_string().starts_with("container's cgroup is not empty: 1 process(es)"), "{error}");
}

#[test]
fn in_cgroup_v2_alone_a_process_is_born_inside() {
    needs_cgroups!();
    let layout = match unified() {
        Some(layout) => layout,
        // There it has nothing to prove.
        None if std::env::var("SAGGAR_GUEST").is_ok_and(|guest| guest == "cgroup-v1") => return,
        None => skip!("there is no cgroup v2 hierarchy"),
    };
    let place = place(&layout);
    let allow_all = serde_json::json!({ "devices": [{ "allow": true, "access": "rwm" }] });
    let room = Room::at(place, allow_all).unwrap();
    let group = room.group.as_ref().unwrap();
    assert!(group.dirfd_for_clone().is_some());
    let joins = group.dirfd_for_exec(std::process::id().cast_signed()).unwrap();
    assert!(joins.is_some());
}
