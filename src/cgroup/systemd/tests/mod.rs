//! Units on a real message bus, dbus-daemon(1), with a manager that the test plays; and without a bus, on the
//! manager's own socket.

mod manager;

use super::*;
use crate::cgroup::place::{Directory, Driver};
use crate::host::cgroups::Version;
use manager::{Daemon, Manager, Plays};

fn place() -> Place {
    let unit = Unit {
        name: "saggar-web.scope".to_owned(),
        slice: "system.slice".to_owned(),
        user: false,
        properties: [("TimeoutStopSec".to_owned(), "2".to_owned())].into(),
    };
    let path = PathBuf::from("/nowhere/system.slice/saggar-web.scope");
    let directory = Directory {
        version: Version::V2,
        controllers: ["memory", "cpu", "pids"].map(str::to_owned).to_vec(),
        mount: PathBuf::from("/nowhere"),
        cgroup: PathBuf::from("/system.slice/saggar-web.scope"),
        made: vec![path.clone()],
        path,
    };
    Place {
        driver: Driver::Systemd,
        rootless: false,
        directories: vec![directory],
        unit: Some(unit),
        shelter: None,
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

/// Runs the test on a bus, unless there is no daemon for it, and on the manager's own socket.
fn on_both(plays: &Plays, test: impl Fn(&mut Bus, &Manager)) {
    let direct = Manager::direct(plays.clone());
    test(&mut Bus::connect(&direct.address).unwrap(), &direct);
    let Some(daemon) = Daemon::start() else {
        assert!(std::env::var_os("SAGGAR_TEST_ALL").is_none(), "dbus-daemon is not installed");
        eprintln!("skipped in part: dbus-daemon is not installed");
        return;
    };
    let on_bus = Manager::on(&daemon, plays.clone());
    test(&mut Bus::connect(&on_bus.address).unwrap(), &on_bus);
}

fn value<'a>(properties: &'a [(String, Value)], name: &str) -> Option<&'a Value> {
    properties.iter().find(|(one, _)| one == name).map(|(_, value)| value)
}

#[test]
fn a_scope_is_started_with_its_process_its_limits_and_what_annotations_say() {
    on_both(&Plays::default(), |bus, manager| {
        let place = place();
        start_on(bus, &place, place.unit.as_ref().unwrap(), &resources(), 4242).unwrap();
        let (unit, properties) = manager.started();
        assert_eq!(unit, "saggar-web.scope");
        let bytes = |bytes: &[u8]| Value::Array("y".into(), bytes.iter().copied().map(Value::Byte).collect());
        for (name, expected) in [
            ("Slice", Value::text("system.slice")),
            ("Delegate", Value::Bool(true)),
            ("DefaultDependencies", Value::Bool(false)),
            ("PIDs", Value::Array("u".into(), vec![Value::U32(4242)])),
            ("MemoryMax", Value::U64(64 << 20)),
            ("MemorySwapMax", Value::U64(32 << 20)),
            ("MemoryLow", Value::U64(u64::MAX)),
            ("CPUWeight", Value::U64(100)),
            ("CPUQuotaPerSecUSec", Value::U64(500_000)),
            ("CPUQuotaPeriodUSec", Value::U64(50_000)),
            ("TasksMax", Value::U64(u64::MAX)),
            ("AllowedCPUs", bytes(&[0b11, 0b10])),
            ("TimeoutStopUSec", Value::U64(2_000_000)),
        ] {
            assert_eq!(value(&properties, name), Some(&expected), "{name}");
        }
    });
}

#[test]
fn an_old_systemd_is_not_told_what_it_does_not_know() {
    let old = Plays { version: "v239".to_owned(), ..Plays::default() };
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
    let taken = Plays { taken: true, ..Plays::default() };
    on_both(&taken, |bus, manager| {
        let place = place();
        start_on(bus, &place, place.unit.as_ref().unwrap(), &resources(), 1).unwrap();
        let calls = manager.calls();
        assert!(calls.iter().any(|call| call == "ResetFailedUnit"), "{calls:?}");
    });
}

#[test]
fn a_job_that_fails_is_an_error() {
    let fails = Plays { result: "failed".to_owned(), ..Plays::default() };
    on_both(&fails, |bus, _| {
        let place = place();
        let error = start_on(bus, &place, place.unit.as_ref().unwrap(), &resources(), 1).unwrap_err();
        assert_eq!(error.to_string(), "start unit saggar-web.scope: systemd says failed");
        assert!(error.hint_text().is_some());
    });
}

#[test]
fn a_property_that_systemd_refuses_is_told_as_it_says_it() {
    let refuses = Plays { refuses: Some("MemoryMax".to_owned()), ..Plays::default() };
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
    on_both(&Plays::default(), |bus, manager| {
        let place = place();
        let unit = place.unit.as_ref().unwrap();
        update_on(bus, &place, unit, &resources()).unwrap();
        let (_, properties) = manager.started();
        assert_eq!(value(&properties, "MemoryMax"), Some(&Value::U64(64 << 20)));
        stop_on(bus, unit).unwrap();
        assert!(manager.calls().iter().any(|call| call == "StopUnit"));
    });
}

#[test]
fn a_process_that_joins_is_moved_by_systemd() {
    on_both(&Plays::default(), |bus, manager| {
        attach_on(bus, place().unit.as_ref().unwrap(), Path::new("/below"), 7).unwrap();
        let pids = Value::Array("u".to_owned(), vec![Value::U32(7)]);
        let expected = vec![Value::text("saggar-web.scope"), Value::text("/below"), pids];
        assert_eq!(manager.body_of("AttachProcessesToUnit"), Some(expected));
    });
}

#[test]
fn a_unit_that_is_gone_is_stopped() {
    on_both(&Plays { gone: true, ..Plays::default() }, |bus, _| {
        stop_on(bus, place().unit.as_ref().unwrap()).unwrap();
    });
}

#[test]
fn the_peer_going_away_is_an_error_and_no_wait() {
    let manager = Manager::direct(Plays { hangs_up: true, ..Plays::default() });
    let mut bus = Bus::connect(&manager.address).unwrap();
    let place = place();
    let error = start_on(&mut bus, &place, place.unit.as_ref().unwrap(), &resources(), 1).unwrap_err();
    assert!(error.to_string().contains("the connection was closed"), "{error}");
}
