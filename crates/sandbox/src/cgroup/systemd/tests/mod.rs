//! Tests units on a real message bus, dbus-daemon(1), with a fake manager; and without a bus, on the manager's own
//! socket.

mod manager;

use super::*;
use crate::cgroup::location::{CgroupDirectory, CgroupDriver};
use crate::host::cgroups::CgroupVersion;
use manager::{BusDaemon, FakeBehavior, FakeManager};

fn place() -> CgroupLocation {
    let unit = SystemdUnit {
        name: "saggar-web.scope".to_owned(),
        slice: "system.slice".to_owned(),
        user: false,
        properties: [("TimeoutStopSec".to_owned(), "2".to_owned())].into(),
    };
    let path = PathBuf::from("/nowhere/system.slice/saggar-web.scope");
    let directory = CgroupDirectory {
        version: CgroupVersion::V2,
        controllers: ["memory", "cpu", "pids"].map(str::to_owned).to_vec(),
        mount: PathBuf::from("/nowhere"),
        cgroup: PathBuf::from("/system.slice/saggar-web.scope"),
        created: vec![path.clone()],
        path,
    };
    CgroupLocation {
        driver: CgroupDriver::Systemd,
        rootless: false,
        directories: vec![directory],
        unit: Some(unit),
        runtime_cgroup: None,
    }
}

fn resources() -> LinuxResources {
    serde_json::from_value(serde_json::json!({
        "memory": { "limit": 64 << 20, "swap": 96 << 20, "reservation": -1 },
        "cpu": { "shares": 1024, "quota": 25_000, "period": 50_000, "cpus": "0-1,9" },
        "pids": { "limit": -1 },
    }))
    .unwrap()
}

/// Runs the test on a bus, unless dbus-daemon is not installed, and on the manager's own socket.
fn on_both(behavior: &FakeBehavior, test: impl Fn(&mut SystemdBus, &FakeManager)) {
    let direct = FakeManager::direct(behavior.clone());
    test(&mut SystemdBus::connect(&direct.address).unwrap(), &direct);
    let Some(daemon) = BusDaemon::start() else {
        assert!(std::env::var_os("SAGGAR_TEST_ALL").is_none(), "dbus-daemon is not installed");
        eprintln!("skipped in part: dbus-daemon is not installed");
        return;
    };
    let on_bus = FakeManager::on(&daemon, behavior.clone());
    test(&mut SystemdBus::connect(&on_bus.address).unwrap(), &on_bus);
}

fn value<'a>(properties: &'a [(String, DbusValue)], name: &str) -> Option<&'a DbusValue> {
    properties.iter().find(|(one, _)| one == name).map(|(_, value)| value)
}

#[test]
fn a_scope_is_started_with_its_process_its_limits_and_what_annotations_say() {
    on_both(&FakeBehavior::default(), |bus, manager| {
        let place = place();
        start_on(bus, &place, place.unit.as_ref().unwrap(), &resources(), 4242).unwrap();
        let (unit, properties) = manager.started();
        assert_eq!(unit, "saggar-web.scope");
        let bytes =
            |bytes: &[u8]| DbusValue::Array("y".into(), bytes.iter().copied().map(DbusValue::Byte).collect());
        for (name, expected) in [
            ("Slice", DbusValue::text("system.slice")),
            ("Delegate", DbusValue::Bool(true)),
            ("DefaultDependencies", DbusValue::Bool(false)),
            ("PIDs", DbusValue::Array("u".into(), vec![DbusValue::U32(4242)])),
            ("MemoryMax", DbusValue::U64(64 << 20)),
            ("MemorySwapMax", DbusValue::U64(32 << 20)),
            ("MemoryLow", DbusValue::U64(u64::MAX)),
            ("CPUWeight", DbusValue::U64(100)),
            ("CPUQuotaPerSecUSec", DbusValue::U64(500_000)),
            ("CPUQuotaPeriodUSec", DbusValue::U64(50_000)),
            ("TasksMax", DbusValue::U64(u64::MAX)),
            ("AllowedCPUs", bytes(&[0b11, 0b10])),
            ("TimeoutStopUSec", DbusValue::U64(2_000_000)),
        ] {
            assert_eq!(value(&properties, name), Some(&expected), "{name}");
        }
    });
}

/// The supervisor of a container's bridge calls systemd too, with its filter loaded.
#[test]
fn limits_are_set_with_the_filter_of_a_keeper() {
    let manager = FakeManager::direct(FakeBehavior::default());
    let address = manager.address.clone();
    // A filter applies only to its thread.
    let supervisor = std::thread::spawn(move || {
        saggar_sys::process::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0).unwrap();
        saggar_sys::seccomp::load(saggar_sys::seccomp::HostProcessFilter::Keeper.program()).unwrap();
        let place = place();
        let mut bus = SystemdBus::connect(&address).unwrap();
        update_on(&mut bus, &place, place.unit.as_ref().unwrap(), &resources()).unwrap();
    });
    supervisor.join().unwrap();
    let calls = manager.calls();
    assert!(calls.iter().any(|call| call == "SetUnitProperties"), "{calls:?}");
}

#[test]
fn an_old_systemd_is_not_told_what_it_does_not_know() {
    let old = FakeBehavior { version: "v239".to_owned(), ..FakeBehavior::default() };
    on_both(&old, |bus, manager| {
        let place = place();
        start_on(bus, &place, place.unit.as_ref().unwrap(), &resources(), 1).unwrap();
        let (_, properties) = manager.started();
        assert_eq!(value(&properties, "AllowedCPUs"), None);
        assert_eq!(value(&properties, "CPUQuotaPeriodUSec"), None);
        assert!(value(&properties, "MemoryMax").is_some());
    });
}

#[test]
fn the_name_of_a_failed_unit_is_taken_over() {
    let taken = FakeBehavior { unit_exists: true, ..FakeBehavior::default() };
    on_both(&taken, |bus, manager| {
        let place = place();
        start_on(bus, &place, place.unit.as_ref().unwrap(), &resources(), 1).unwrap();
        let calls = manager.calls();
        assert!(calls.iter().any(|call| call == "ResetFailedUnit"), "{calls:?}");
    });
}

#[test]
fn a_job_that_fails_is_an_error() {
    let fails = FakeBehavior { result: "failed".to_owned(), ..FakeBehavior::default() };
    on_both(&fails, |bus, _| {
        let place = place();
        let error = start_on(bus, &place, place.unit.as_ref().unwrap(), &resources(), 1).unwrap_err();
        assert_eq!(error.to_string(), "start unit saggar-web.scope: systemd reports failed");
        assert!(error.hint_text().is_some());
    });
}

#[test]
fn a_property_that_systemd_refuses_is_told_as_it_says_it() {
    let refuses = FakeBehavior { rejected_property: Some("MemoryMax".to_owned()), ..FakeBehavior::default() };
    on_both(&refuses, |bus, _| {
        let place = place();
        let unit = place.unit.as_ref().unwrap();
        for error in [
            start_on(bus, &place, unit, &resources(), 1).unwrap_err(),
            update_on(bus, &place, unit, &resources()).unwrap_err(),
        ] {
            let text = error.to_string();
            assert!(
                text.contains("Cannot set property MemoryMax") && text.contains("saggar-web.scope"),
                "{text}"
            );
        }
    });
}

#[test]
fn limits_are_changed_at_run_time_and_the_unit_is_stopped() {
    on_both(&FakeBehavior::default(), |bus, manager| {
        let place = place();
        let unit = place.unit.as_ref().unwrap();
        update_on(bus, &place, unit, &resources()).unwrap();
        let (_, properties) = manager.started();
        assert_eq!(value(&properties, "MemoryMax"), Some(&DbusValue::U64(64 << 20)));
        stop_on(bus, unit).unwrap();
        assert!(manager.calls().iter().any(|call| call == "StopUnit"));
    });
}

#[test]
fn a_process_that_joins_is_moved_by_systemd() {
    on_both(&FakeBehavior::default(), |bus, manager| {
        attach_on(bus, place().unit.as_ref().unwrap(), Path::new("/below"), 7).unwrap();
        let pids = DbusValue::Array("u".to_owned(), vec![DbusValue::U32(7)]);
        let expected = vec![DbusValue::text("saggar-web.scope"), DbusValue::text("/below"), pids];
        assert_eq!(manager.body_of("AttachProcessesToUnit"), Some(expected));
    });
}

#[test]
fn a_unit_that_is_gone_is_stopped() {
    on_both(&FakeBehavior { no_such_unit: true, ..FakeBehavior::default() }, |bus, _| {
        stop_on(bus, place().unit.as_ref().unwrap()).unwrap();
    });
}

#[test]
fn the_peer_going_away_is_an_error_and_no_wait() {
    let manager = FakeManager::direct(FakeBehavior { disconnects: true, ..FakeBehavior::default() });
    let mut bus = SystemdBus::connect(&manager.address).unwrap();
    let place = place();
    let error = start_on(&mut bus, &place, place.unit.as_ref().unwrap(), &resources(), 1).unwrap_err();
    assert!(error.to_string().contains("the connection was closed"), "{error}");
}
