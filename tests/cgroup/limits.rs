//! Limits bite, are read back, and change.

use super::rooms::{NEEDS_ROOT, Room, can, is_root, place, resources, unified};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use saggar::cgroup::oom::OomEvent;
use saggar::cgroup::{CgroupDriver, CgroupHandle, CgroupLayout, CgroupLocation, CgroupRequest, OomWatch};
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;

macro_rules! needs_cgroups {
    ($($controller:literal)*) => {
        if let Err(why) = can() {
            skip!("{why}");
        }
        $(if CgroupLayout::discover().unwrap().hierarchy_of($controller).is_none() {
            skip!("this host has no {} controller", $controller);
        })*
    };
}

const MIB: u64 = 1 << 20;

#[test]
fn process_above_the_memory_limit_is_killed_and_reported() {
    needs_cgroups!("memory");
    let mut room = Room::with(serde_json::json!({ "memory": { "limit": 32 * MIB, "swap": 32 * MIB } }));
    let mut watch = room.group().watch_oom().unwrap();
    assert_eq!(watch.next_event().unwrap(), OomEvent::NoChange);
    // tail keeps a line of 200 MB in memory.
    let mut member = room.run("head -c 200000000 /dev/zero | exec tail");
    assert_eq!(next(&mut watch), OomEvent::OutOfMemory);
    let status = member.wait();
    assert!(!status.success() || status.signal().is_some(), "{status}");
    let stats = room.group().stats().unwrap();
    assert_eq!(stats.memory.usage.limit, 32 * MIB);
    // The most that it was: not every kernel counts in `failcnt` what it kills for.
    assert!((31 * MIB..=32 * MIB).contains(&stats.memory.usage.max), "{:?}", stats.memory);
}

/// What the watch tells next.
fn next(watch: &mut OomWatch) -> OomEvent {
    loop {
        let mut fds = [PollFd::new(watch.as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut fds, PollTimeout::from(30_000u16)).unwrap(), 1, "nobody told");
        match watch.next_event().unwrap() {
            OomEvent::NoChange => {}
            event => return event,
        }
    }
}

#[test]
fn oom_watch_reports_the_end_of_the_cgroup() {
    needs_cgroups!("memory");
    let mut room = Room::with(serde_json::json!({}));
    let _member = room.run("read end");
    let mut watch = room.group().watch_oom().unwrap();
    drop(room);
    assert_eq!(next(&mut watch), OomEvent::Ended);
}

#[test]
fn forks_end_at_the_limit() {
    needs_cgroups!("pids");
    let mut room = Room::with(serde_json::json!({ "pids": { "limit": 5 } }));
    let script = "i=0; while [ $i -lt 20 ]; do sleep 100 >/dev/null & i=$((i + 1)); done; echo all";
    let mut member = room.run(script);
    assert_eq!(member.line(), "", "twenty programs in a cgroup for five");
    assert!(!member.wait().success());
    let stats = room.group().stats().unwrap();
    assert_eq!(stats.pids.limit, 5);
    assert!(stats.pids.current <= 5);
}

#[test]
fn a_quota_throttles() {
    needs_cgroups!("cpu");
    let mut room =
        Room::with(serde_json::json!({ "cpu": { "quota": 5000, "period": 50000, "shares": 512 } }));
    // Until it used 0.3 s: three hundred milliseconds are sixty periods of this quota.
    let script = "while :; do i=0; while [ $i -lt 1000 ]; do i=$((i + 1)); done; echo round; done";
    let mut member = room.run(script);
    let throttled = loop {
        assert_eq!(member.line(), "round");
        let stats = room.group().stats().unwrap();
        if stats.cpu.throttling.throttled_periods > 2 || stats.cpu.usage.total > 3_000_000_000 {
            break stats;
        }
    };
    assert!(throttled.cpu.throttling.throttled_periods > 2, "{throttled:?}");
    assert!(throttled.cpu.usage.total > 0);
}

#[test]
fn a_program_runs_on_its_cpus_alone() {
    needs_cgroups!("cpuset");
    let mut room = Room::with(serde_json::json!({ "cpu": { "cpus": "0", "mems": "0" } }));
    let mut member = room.run("grep -h s_allowed_list /proc/self/status; read end");
    assert_eq!([member.line(), member.line()], ["Cpus_allowed_list:\t0", "Mems_allowed_list:\t0"]);
    assert_eq!(room.group().stats().unwrap().cpuset.cpus, [0]);
}

const DEVICES: &str =
    "for d in /dev/null /dev/zero /dev/kmsg; do head -c 0 $d && echo yes || echo no; done; read end";

#[test]
fn a_device_that_is_not_allowed_cannot_be_opened() {
    if !is_root() {
        skip!("{NEEDS_ROOT}");
    }
    let mut room = Room::with(serde_json::json!({ "devices": [{ "allow": false, "access": "rwm" }] }));
    let mut member = room.run(DEVICES);
    assert_eq!([member.line(), member.line(), member.line()], ["yes", "yes", "no"]);
    let kmsg = serde_json::json!({ "devices": [
        { "allow": false, "access": "rwm" },
        { "allow": true, "type": "c", "major": 1, "minor": 11, "access": "r" },
    ] });
    room.group().apply(&resources(kmsg)).unwrap();
    let mut member = room.run(DEVICES);
    assert_eq!([member.line(), member.line(), member.line()], ["yes", "yes", "yes"]);
}

#[test]
fn in_cgroup_v2_devices_are_a_program_in_the_kernel_that_can_be_replaced() {
    if !is_root() {
        skip!("{NEEDS_ROOT}");
    }
    let layout = match unified() {
        Some(layout) => layout,
        // There it has nothing to prove.
        None if std::env::var("SAGGAR_GUEST").is_ok_and(|guest| guest == "cgroup-v1") => return,
        None => skip!("there is no cgroup v2 hierarchy"),
    };
    let deny = serde_json::json!({ "devices": [{ "allow": false, "access": "rwm" }] });
    let mut room = match Room::at(place(&layout), deny.clone()) {
        Err(error) if error.to_string().contains("bpf") && std::env::var_os("SAGGAR_TEST_ALL").is_none() => {
            skip!("{error}")
        }
        room => room.unwrap(),
    };
    let answers = |room: &mut Room| {
        let mut member = room.run(DEVICES);
        [member.line(), member.line(), member.line()]
    };
    assert_eq!(answers(&mut room), ["yes", "yes", "no"]);
    let kmsg = serde_json::json!({ "devices": [
        { "allow": false, "access": "rwm" },
        { "allow": true, "type": "c", "major": 1, "minor": 11, "access": "r" },
    ] });
    room.group().apply(&resources(kmsg)).unwrap();
    assert_eq!(answers(&mut room), ["yes", "yes", "yes"]);
    room.group().apply(&resources(deny)).unwrap();
    assert_eq!(answers(&mut room), ["yes", "yes", "no"], "the old program must be gone, the new one there");
    room.group().apply(&resources(serde_json::json!({ "devices": [{ "allow": true }] }))).unwrap();
    assert_eq!(answers(&mut room), ["yes", "yes", "yes"]);
}

#[test]
fn limits_change_while_it_runs() {
    needs_cgroups!("memory" "cpu" "pids");
    let mut room = Room::with(serde_json::json!({
        "memory": { "limit": 64 * MIB, "swap": 128 * MIB, "reservation": 32 * MIB },
        "cpu": { "quota": 20000, "period": 100_000, "burst": 1000, "shares": 1024 },
        "pids": { "limit": 10 },
    }));
    let _member = room.run("read end");
    let limits = |room: &mut Room| {
        let stats = room.group().stats().unwrap();
        (stats.memory.usage.limit, stats.memory.swap.limit, stats.pids.limit)
    };
    assert_eq!(limits(&mut room), (64 * MIB, 128 * MIB, 10));
    // Up, past both of the old numbers; down again; and away.
    let steps = [
        (serde_json::json!({ "limit": 256 * MIB, "swap": 512 * MIB }), (256 * MIB, 512 * MIB, 10)),
        (serde_json::json!({ "limit": 32 * MIB, "swap": 48 * MIB }), (32 * MIB, 48 * MIB, 10)),
    ];
    for (memory, expected) in steps {
        room.group().apply(&resources(serde_json::json!({ "memory": memory }))).unwrap();
        assert_eq!(limits(&mut room), expected);
    }
    let away = serde_json::json!({ "memory": { "limit": -1, "swap": -1 }, "pids": { "limit": -1 } });
    room.group().apply(&resources(away)).unwrap();
    let (memory, swap, pids) = limits(&mut room);
    assert!(memory > u64::MAX / 4 && swap > u64::MAX / 4 && pids == 0);
    // Quota, period and burst bound one another, whichever way they go.
    for cpu in [
        serde_json::json!({ "quota": 200_000, "period": 100_000, "burst": 100_000 }),
        serde_json::json!({ "quota": 5000, "period": 10000, "burst": 2000 }),
        serde_json::json!({ "quota": 50000, "period": 500_000, "burst": 0 }),
        serde_json::json!({ "quota": -1 }),
    ] {
        room.group().apply(&resources(serde_json::json!({ "cpu": cpu }))).unwrap();
    }
}

/// What is carried out before the devices is taken back when those are refused.
#[test]
fn limits_beside_devices_that_are_refused_do_not_change() {
    needs_cgroups!("pids");
    let mut room = Room::with(serde_json::json!({ "pids": { "limit": 10 } }));
    let wrong = serde_json::json!({
        "pids": { "limit": 20 },
        "devices": [{ "allow": true, "type": "c", "major": -2, "access": "r" }],
    });
    let error = room.group().apply(&resources(wrong)).unwrap_err();
    assert!(error.to_string().starts_with("linux.resources.devices[0]"), "{error}");
    assert_eq!(room.group().stats().unwrap().pids.limit, 10);
}

#[test]
fn a_limit_below_what_is_used_is_refused_when_that_is_asked_for() {
    needs_cgroups!("memory");
    let mut room = Room::with(serde_json::json!({ "memory": { "limit": 64 * MIB } }));
    // A megabyte in a variable of the shell.
    let mut member = room.run("x=$(head -c 1000000 /dev/zero | tr '\\0' x); echo ${#x}; read end");
    assert_eq!(member.line(), "1000000");
    let tiny = serde_json::json!({ "memory": { "limit": 8192, "checkBeforeUpdate": true } });
    let error = room.group().apply(&resources(tiny)).unwrap_err();
    assert!(error.to_string().contains("memory.limit = 8192 cannot hold"), "{error}");
    assert_eq!(room.group().stats().unwrap().memory.usage.limit, 64 * MIB);
}

#[test]
fn the_error_of_a_limit_names_file_value_and_cure() {
    needs_cgroups!("cpuset" "pids");
    let mut room = Room::with(serde_json::json!({}));
    for (limit, file, value) in [
        (serde_json::json!({ "cpu": { "cpus": "4000" } }), "cpuset.cpus", "4000"),
        (serde_json::json!({ "cpu": { "quota": 1, "period": 100_000 } }), "cpu.", "1"),
        (serde_json::json!({ "cpu": { "shares": 1, "period": 1 } }), "cpu.", "1"),
    ] {
        let error = room.group().apply(&resources(limit)).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(file) && text.contains(value), "{text}");
        assert!(error.hint_text().is_some_and(|hint| !hint.is_empty()), "{text}");
    }
}

#[test]
fn statistics_have_the_format_of_runc_events() {
    needs_cgroups!("memory");
    let mut room =
        Room::with(serde_json::json!({ "memory": { "limit": 64 * MIB }, "pids": { "limit": 10 } }));
    let mut member = room.run("i=0; while [ $i -lt 2000 ]; do i=$((i + 1)); done; echo done; read end");
    assert_eq!(member.line(), "done");
    let stats = serde_json::to_value(room.group().stats().unwrap()).unwrap();
    for pointer in ["/cpu/usage/total", "/memory/usage/usage", "/memory/usage/limit", "/pids/current"] {
        assert!(
            stats.pointer(pointer).is_some_and(|value| value.as_u64().is_some_and(|n| n > 0)),
            "{pointer} of {stats}"
        );
    }
    assert_eq!(stats.pointer("/pids/limit").unwrap(), &serde_json::json!(10));
    assert!(stats.pointer("/memory/raw").unwrap().is_object());
    assert!(stats.pointer("/network_interfaces").unwrap().is_null());
}

#[test]
fn a_limit_without_its_controller_is_refused_by_name() {
    needs_cgroups!();
    let layout = CgroupLayout::discover().unwrap();
    let mut refused = 0;
    for (controller, limit) in [
        ("net_cls", serde_json::json!({ "network": { "classID": 1_048_577 } })),
        ("rdma", serde_json::json!({ "rdma": { "mlx5_1": { "hcaHandles": 3 } } })),
        ("io", serde_json::json!({ "unified": { "io.max": "8:0 rbps=1000" } })),
    ] {
        if layout.hierarchy_of(controller).is_some() {
            continue;
        }
        refused += 1;
        let error = Room::at(place(&layout), limit).unwrap_err();
        assert!(error.to_string().contains("cannot hold"), "{error}");
        assert!(error.hint_text().is_some());
    }
    assert!(refused > 0, "this host has every controller: {}", fs::read_to_string("/proc/cgroups").unwrap());
}

#[test]
fn an_ordinary_user_without_cgroups_may_ask_for_no_limits() {
    let annotations = std::collections::BTreeMap::new();
    let wanted = CgroupRequest {
        id: "nowhere",
        cgroups_path: None,
        driver: CgroupDriver::Cgroupfs,
        rootless: true,
        annotations: &annotations,
    };
    // A host whose cgroups are not the user's.
    let place = CgroupLocation::choose(&CgroupLayout::default(), &wanted).unwrap();
    let mut group = CgroupHandle::create(&place, None).unwrap();
    assert!(group.dirfd_for_clone().is_none());
    group.enter(std::process::id().cast_signed()).unwrap();
    assert_eq!(group.pids().unwrap().len(), 0);
    group.remove().unwrap();
    let limits = resources(serde_json::json!({ "memory": { "limit": 1 << 20 } }));
    let error = CgroupHandle::create(&place, Some(&limits)).unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with("rootless needs no limits + no cgrouppath when no permission is granted"),
        "{text}"
    );
    assert!(error.hint_text().unwrap().contains("Delegate=yes"));
    let mut off = place;
    off.driver = CgroupDriver::Disabled;
    let error = CgroupHandle::create(&off, Some(&limits)).unwrap_err();
    assert!(error.to_string().starts_with("cgroups are switched off"), "{error}");
}
