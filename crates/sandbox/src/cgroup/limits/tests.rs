//! Tests every limit against a fake kernel: the limit holds, its write fails, its file is missing, or it reads back a
//! different value.

use super::*;
use nix::errno::Errno;
use serde_json::json;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// The fault of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InjectedFault {
    Refused(Errno),
    Missing,
    Other,
    /// The file keeps this content whatever is written.
    Keeps(&'static str),
}

/// Fake control files with the behavior of the kernel's.
struct FakeControlFiles {
    version: CgroupVersion,
    without: Vec<&'static str>,
    files: RefCell<BTreeMap<String, BTreeMap<String, String>>>,
    fault: Option<(String, InjectedFault)>,
    /// Files whose first write fails.
    stubborn: RefCell<BTreeSet<String>>,
}

impl FakeControlFiles {
    fn new(version: CgroupVersion) -> Self {
        let (files, stubborn) = (RefCell::default(), RefCell::default());
        FakeControlFiles { version, without: Vec::new(), files, fault: None, stubborn }
    }

    fn fault(&self, file: &str) -> Option<InjectedFault> {
        self.fault.as_ref().filter(|(at, _)| at == file).map(|(_, fault)| *fault)
    }

    fn apply(&self, limits: &serde_json::Value) -> Result<CgroupSettings> {
        let settings = lower(&serde_json::from_value(limits.clone()).unwrap(), self)?;
        apply(&settings, self)?;
        Ok(settings)
    }
}

/// Whether the file has a line for each device.
fn is_keyed(file: &str) -> bool {
    let whole = ["io.max", "rdma.max", "net_prio.ifpriomap"];
    whole.contains(&file) || file.ends_with("_device") || file == "io.weight" || file == "io.bfq.weight"
}

impl ControlFiles for FakeControlFiles {
    fn version(&self, controller: &str) -> Option<CgroupVersion> {
        let v1 = ["blkio", "net_cls", "net_prio"].contains(&controller);
        let fits = match self.version {
            CgroupVersion::V1 => controller != "io" && controller != "cgroup",
            CgroupVersion::V2 => !v1,
        };
        let known =
            ["memory", "cpu", "cpuset", "pids", "io", "hugetlb", "rdma", "cgroup"].contains(&controller);
        (fits && (known || v1) && !self.without.contains(&controller)).then_some(self.version)
    }

    fn read(&self, _: &str, file: &str) -> Result<String, Errno> {
        let missing = ["io.bfq.weight", "blkio.leaf_weight", "blkio.leaf_weight_device"].contains(&file);
        if missing || self.fault(file) == Some(InjectedFault::Missing) {
            return Err(Errno::ENOENT);
        }
        if let Some(InjectedFault::Keeps(text)) = self.fault(file) {
            return Ok(text.to_owned());
        }
        let other = self.fault(file) == Some(InjectedFault::Other);
        let lines = self.files.borrow().get(file).cloned().unwrap_or_default();
        let lines = lines.into_iter().map(|(key, value)| {
            let value = if other { "7".to_owned() } else { value };
            if key.is_empty() { value } else { format!("{key} {value}") }
        });
        Ok(lines.collect::<Vec<_>>().join("\n"))
    }

    fn write(&self, _: &str, file: &str, value: &str) -> Result<(), Errno> {
        match self.fault(file) {
            Some(InjectedFault::Refused(errno)) => return Err(errno),
            Some(InjectedFault::Missing) => return Err(Errno::ENOENT),
            _ => {}
        }
        if self.stubborn.borrow_mut().remove(file) {
            return Err(Errno::EINVAL);
        }
        let mut files = self.files.borrow_mut();
        let lines = files.entry(file.to_owned()).or_default();
        let (key, value) = match (is_keyed(file), value.split_once(' ')) {
            (true, Some((device, rest))) => (device, rest),
            (true, None) => ("default", value),
            (false, _) if file == "memory.oom_control" => ("oom_kill_disable", value),
            (false, _) => ("", value),
        };
        match lines.get_mut(key) {
            Some(before) if file == "io.max" => *before = format!("{before} {value}"),
            _ if value == "0" && file.starts_with("blkio.throttle") => drop(lines.remove(key)),
            _ => drop(lines.insert(key.to_owned(), value.to_owned())),
        }
        Ok(())
    }

    fn path(&self, _: &str, file: &str) -> PathBuf {
        PathBuf::from("/fake").join(file)
    }
}

/// All fields that both versions support.
fn common() -> serde_json::Value {
    json!({
        "memory": { "limit": 64 << 20, "swap": 96 << 20, "reservation": 32 << 20 },
        "cpu": {
            "shares": 512, "quota": 50_000, "period": 100_000, "burst": 10_000, "cpus": "0-1,3", "mems": "0",
        },
        "pids": { "limit": 100 },
        "blockIO": {
            "weight": 100,
            "weightDevice": [{ "major": 8, "minor": 0, "weight": 200 }],
            "throttleReadBpsDevice": [{ "major": 8, "minor": 0, "rate": 1000 }, { "major": 8, "minor": 16, "rate": 0 }],
            "throttleWriteBpsDevice": [{ "major": 8, "minor": 0, "rate": 2000 }],
            "throttleReadIOPSDevice": [{ "major": 8, "minor": 0, "rate": 30 }],
            "throttleWriteIOPSDevice": [{ "major": 8, "minor": 0, "rate": 40 }],
        },
        "hugepageLimits": [{ "pageSize": "2MB", "limit": 4 << 20 }],
        "rdma": { "mlx5_1": { "hcaHandles": 3, "hcaObjects": 10000 } },
    })
}

fn all(version: CgroupVersion) -> serde_json::Value {
    let mut all = common();
    match version {
        CgroupVersion::V1 => {
            for (part, key, value) in [
                ("memory", "swappiness", json!(10)),
                ("memory", "disableOOMKiller", json!(true)),
                ("memory", "kernelTCP", json!(1 << 20)),
                ("cpu", "realtimeRuntime", json!(950_000)),
                ("cpu", "realtimePeriod", json!(1_000_000)),
            ] {
                all[part][key] = value;
            }
            all["network"] =
                json!({ "classID": 1_048_577, "priorities": [{ "name": "eth0", "priority": 500 }] });
        }
        CgroupVersion::V2 => {
            all["unified"] = json!({
                "memory.high": "50331648", "memory.oom.group": "1", "cgroup.max.depth": "3", "cpu.max.burst": "10000",
                "io.max": "8:32 rbps=5 wiops=max\n8:48 wbps=6",
            });
        }
    }
    all
}

const VERSIONS: [CgroupVersion; 2] = [CgroupVersion::V1, CgroupVersion::V2];

#[test]
fn every_limit_becomes_writes() {
    for version in VERSIONS {
        let settings = FakeControlFiles::new(version).apply(&all(version)).unwrap();
        let lines: Vec<_> = settings
            .list
            .iter()
            .map(|one| {
                let tentative = if one.tentative { " (may fail)" } else { "" };
                format!("{}: {:?} to {}{tentative}", one.field, one.value, one.file)
            })
            .collect();
        insta::assert_snapshot!(format!("{version:?}"), lines.join("\n"));
        assert!(settings.warnings.is_empty(), "{:?}", settings.warnings);
    }
}

/// Injects a fault into each file that the limits write, and checks the error.
fn each(fault: InjectedFault, check: impl Fn(&str, &str, &str)) {
    for version in VERSIONS {
        let settings = FakeControlFiles::new(version).apply(&all(version)).unwrap();
        let firm = settings.list.iter().filter(|one| !one.tentative);
        let files: BTreeSet<_> = firm.clone().map(|one| one.file.clone()).collect();
        for file in files {
            let mut fake = FakeControlFiles::new(version);
            fake.fault = Some((file.clone(), fault));
            let error = fake.apply(&all(version)).map(|_| ()).expect_err(&file);
            let text = error.to_string();
            let hint = error.hint_text().unwrap_or_default();
            assert!(text.starts_with("linux.resources."), "{file}: {text}");
            assert!(text.contains("cannot hold"), "{file}: {text}");
            let values = firm.clone().filter(|one| one.file == file).map(|one| format!("{:?}", one.value));
            let names_value = values.into_iter().any(|value| text.contains(&value));
            assert!(names_value, "{file}: no value in {text}");
            assert!(text.contains(&format!("/fake/{file}")), "{file}: {text}");
            assert!(hint.len() > 20, "{file}: {text}: hint {hint:?}");
            check(&file, &text, hint);
        }
    }
}

#[test]
fn a_write_that_fails_is_told_with_its_cure() {
    for errno in [Errno::EINVAL, Errno::EIO, Errno::ENODEV, Errno::ERANGE, Errno::EBUSY] {
        each(InjectedFault::Refused(errno), |_, text, _| assert!(text.contains(errno.desc()), "{text}"));
    }
    for errno in [Errno::EACCES, Errno::EPERM] {
        each(InjectedFault::Refused(errno), |file, _, hint| {
            // A cpuset of version 1 says so of what the one above does not have.
            let is_above =
                errno == Errno::EACCES && file.starts_with("cpuset.") && hint.contains("cgroup above");
            assert!(hint.contains("Delegate=") || is_above, "{file}: {hint}");
        });
    }
}

#[test]
fn what_reads_back_different_does_not_hold() {
    each(InjectedFault::Other, |file, text, _| {
        assert!(text.contains("reads") && text.contains(file), "{text}")
    });
}

/// A value from `unified` may be rounded to pages if it is a number of bytes; no other difference is accepted.
#[test]
fn a_unified_limit_that_reads_back_different_does_not_hold() {
    for (value, keeps, holds) in [
        ("1", "0", false),
        ("50", "20", false),
        ("50331650", "50331648", true),
        ("50331648", "50327552", false),
        ("50331648", "50331647", false),
        ("max", "4096", false),
    ] {
        let mut fake = FakeControlFiles::new(CgroupVersion::V2);
        fake.fault = Some(("memory.some".to_owned(), InjectedFault::Keeps(keeps)));
        let result = fake.apply(&json!({ "unified": { "memory.some": value } }));
        assert_eq!(result.is_ok(), holds, "{value} and {keeps}: {result:?}");
    }
}

/// Whichever write fails, all other files are restored to their previous content.
#[test]
fn what_fails_half_way_leaves_everything_as_it_was() {
    let limits = |n: u64| {
        json!({
            "memory": { "limit": n << 20, "swap": n << 21, "reservation": n << 19 },
            "cpu": { "shares": n * 10, "quota": n * 1000, "period": 100_000, "cpus": format!("0-{n}"), "mems": "0" },
            "pids": { "limit": n },
            "hugepageLimits": [{ "pageSize": "2MB", "limit": n << 21 }],
            "rdma": { "mlx5_1": { "hcaHandles": n, "hcaObjects": n } },
        })
    };
    for version in VERSIONS {
        let mut fake = FakeControlFiles::new(version);
        fake.apply(&limits(20)).unwrap();
        let before = fake.files.borrow().clone();
        let files: Vec<String> = before.keys().cloned().collect();
        assert!(files.len() > 8, "{files:?}");
        for file in files {
            fake.fault = Some((file.clone(), InjectedFault::Refused(Errno::EINVAL)));
            if fake.apply(&limits(30)).is_err() {
                assert_eq!(*fake.files.borrow(), before, "{file}");
            }
            fake.fault = None;
            fake.apply(&limits(20)).unwrap();
            assert_eq!(*fake.files.borrow(), before, "{file}");
        }
        fake.apply(&limits(30)).unwrap();
        assert_ne!(*fake.files.borrow(), before);
    }
}

#[test]
fn a_missing_controller_is_told_before_anything_is_written() {
    for version in VERSIONS {
        for controller in ["memory", "cpu", "cpuset", "pids", "io", "blkio", "hugetlb", "rdma", "net_cls"] {
            let mut fake = FakeControlFiles::new(version);
            if fake.version(controller).is_none() {
                continue;
            }
            fake.without = vec![controller];
            let error = fake.apply(&all(version)).map(|_| ()).expect_err(controller);
            let says = if controller == "blkio" { "blockIO" } else { controller };
            assert!(error.to_string().contains(says), "{error}");
            assert!(error.hint_text().is_some());
            assert!(fake.files.borrow().is_empty(), "{:?}", fake.files);
        }
    }
}

#[test]
fn a_controller_that_could_not_be_switched_on_is_told_with_the_reason() {
    struct Refusing(FakeControlFiles);
    impl ControlFiles for Refusing {
        fn version(&self, controller: &str) -> Option<CgroupVersion> {
            self.0.version(controller)
        }
        fn read(&self, _: &str, _: &str) -> Result<String, Errno> {
            Err(Errno::ENOENT)
        }
        fn write(&self, _: &str, _: &str, _: &str) -> Result<(), Errno> {
            Err(Errno::ENOENT)
        }
        fn path(&self, controller: &str, file: &str) -> PathBuf {
            self.0.path(controller, file)
        }
        fn refusal(&self, controller: &str) -> Option<(PathBuf, String, Errno)> {
            Some((PathBuf::from("/fake/cgroup.subtree_control"), format!("+{controller}"), Errno::EBUSY))
        }
    }
    let tree = Refusing(FakeControlFiles::new(CgroupVersion::V2));
    let limits = serde_json::from_value(json!({ "pids": { "limit": 5 } })).unwrap();
    let settings = lower(&limits, &tree).unwrap();
    let error = apply(&settings, &tree).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("write \"+pids\" to /fake/cgroup.subtree_control: Device or resource busy"),
        "{text}"
    );
    assert!(error.hint_text().unwrap().contains("a cgroup of its own"), "{:?}", error.hint_text());
}

/// The parent has no realtime budget unless an administrator gave it one.
#[test]
fn a_realtime_limit_that_the_parent_cannot_give_says_so() {
    let mut fake = FakeControlFiles::new(CgroupVersion::V1);
    fake.fault = Some(("cpu.rt_runtime_us".to_owned(), InjectedFault::Refused(Errno::EINVAL)));
    let error = fake.apply(&json!({ "cpu": { "realtimeRuntime": 5 } })).map(drop).unwrap_err();
    let hint = error.hint_text().unwrap();
    assert!(
        hint.contains("no such realtime budget") && hint.contains("write one to its cpu.rt_runtime_us"),
        "{hint}"
    );
}

#[test]
fn what_bounds_one_another_is_tried_in_both_orders() {
    for version in VERSIONS {
        for file in ["cpu.max.burst", "cpu.cfs_period_us", "cpu.cfs_burst_us", "cpu.cfs_quota_us"] {
            let fake = FakeControlFiles::new(version);
            fake.stubborn.borrow_mut().insert(file.to_owned());
            let limits = json!({ "cpu": { "quota": 50_000, "period": 100_000, "burst": 10_000 } });
            fake.apply(&limits).unwrap();
        }
    }
}

#[test]
fn in_v1_memory_and_swap_grow_from_the_outside_and_shrink_from_the_inside() {
    let fake = FakeControlFiles::new(CgroupVersion::V1);
    fake.write("memory", "memory.memsw.limit_in_bytes", "1000000").unwrap();
    let order = |limit: i64, swap: i64| {
        let limits = serde_json::from_value(json!({ "memory": { "limit": limit, "swap": swap } })).unwrap();
        lower(&limits, &fake).unwrap().list.into_iter().map(|one| one.file).collect::<Vec<_>>()
    };
    let (inside, outside) = ("memory.limit_in_bytes".to_owned(), "memory.memsw.limit_in_bytes".to_owned());
    assert_eq!(order(1_500_000, 2_000_000), [outside.clone(), inside.clone()]);
    assert_eq!(order(1_500_000, -1), [outside.clone(), inside.clone()]);
    assert_eq!(order(500_000, 800_000), [inside, outside]);
}

#[test]
fn what_means_nothing_is_refused_by_its_name() {
    let (v1, v2) = (CgroupVersion::V1, CgroupVersion::V2);
    for (version, limits, says) in [
        (v2, json!({ "memory": { "swappiness": 10 } }), "memory.swappiness"),
        (v2, json!({ "memory": { "disableOOMKiller": true } }), "memory.disableOOMKiller"),
        (v2, json!({ "cpu": { "realtimeRuntime": 5 } }), "cpu.realtimeRuntime"),
        (v2, json!({ "network": { "classID": 5 } }), "network.classID"),
        (v2, json!({ "network": { "priorities": [{ "name": "a", "priority": 1 }] } }), "network.priorities"),
        (v2, json!({ "blockIO": { "leafWeight": 50 } }), "blockIO.leafWeight"),
        (v1, json!({ "blockIO": { "leafWeight": 50 } }), "blockIO.leafWeight"),
        (v1, json!({ "unified": { "memory.high": "1" } }), "unified.memory.high"),
        (v2, json!({ "unified": { "cgroup.procs": "1" } }), "cgroup.procs is no limit"),
        (v2, json!({ "unified": { "../memory.max": "1" } }), "unified"),
        (v2, json!({ "unified": { "nothing": "1" } }), "unified"),
        (v2, json!({ "unified": { "nosuch.max": "1" } }), "unified.nosuch.max"),
        (v2, json!({ "memory": { "swap": 5 } }), "memory.swap"),
        (v2, json!({ "memory": { "limit": 5, "swap": 4 } }), "memory.swap"),
        (v1, json!({ "memory": { "limit": 5, "swap": 4 } }), "memory.swap"),
        (v1, json!({ "memory": { "limit": -5 } }), "memory.limit"),
        (v1, json!({ "memory": { "swappiness": 101 } }), "memory.swappiness"),
        (v2, json!({ "cpu": { "idle": 2 } }), "cpu.idle"),
        (v2, json!({ "cpu": { "cpus": "a-b" } }), "cpu.cpus"),
        (v2, json!({ "cpu": { "mems": "3-1" } }), "cpu.mems"),
        (v2, json!({ "blockIO": { "weight": 9 } }), "blockIO.weight"),
        (v2, json!({ "hugepageLimits": [{ "pageSize": "2mb", "limit": 1 }] }), "hugepageLimits.pageSize"),
        (v2, json!({ "rdma": { "a b": { "hcaHandles": 3 } } }), "rdma"),
    ] {
        let error = FakeControlFiles::new(version).apply(&limits).map(|_| ()).expect_err(says);
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[test]
fn zeros_are_how_callers_leave_fields_out() {
    let zeros = json!({
        "memory": { "limit": 0, "swap": 0, "reservation": 0, "kernel": 0, "kernelTCP": 0 },
        "cpu": { "shares": 0, "quota": 0, "period": 0, "realtimeRuntime": 0, "realtimePeriod": 0, "cpus": "", "mems": "" },
        "blockIO": { "weight": 0 },
        "network": { "classID": 0 },
    });
    for version in VERSIONS {
        let mut fake = FakeControlFiles::new(version);
        // Not even the controllers are needed.
        fake.without = vec!["memory", "cpu", "cpuset", "pids", "io", "blkio", "net_cls"];
        assert_eq!(fake.apply(&zeros).unwrap(), CgroupSettings::default());
    }
}

#[test]
fn no_processes_are_the_program_alone_and_fewer_are_no_limit() {
    for version in VERSIONS {
        for (limit, written) in [(0, "1"), (1, "1"), (2, "2"), (-1, "max"), (-5, "max")] {
            let settings =
                FakeControlFiles::new(version).apply(&json!({ "pids": { "limit": limit } })).unwrap();
            let setting = settings.list.last().unwrap();
            assert_eq!((setting.file.as_str(), setting.value.as_str()), ("pids.max", written), "{limit}");
        }
    }
}

#[test]
fn a_quota_alone_keeps_the_period_and_a_period_alone_the_quota() {
    let fake = FakeControlFiles::new(CgroupVersion::V2);
    fake.write("cpu", "cpu.max", "30000 60000").unwrap();
    let max = |cpu: serde_json::Value| {
        let settings = fake.apply(&json!({ "cpu": cpu })).unwrap();
        settings.list.last().unwrap().value.clone()
    };
    assert_eq!(max(json!({ "quota": 20_000 })), "20000 60000");
    assert_eq!(max(json!({ "period": 80_000 })), "20000 80000");
    assert_eq!(max(json!({ "quota": -1 })), "max 80000");
}

#[test]
fn a_kernel_that_does_not_count_swap_has_none_to_limit() {
    let mut fake = FakeControlFiles::new(CgroupVersion::V2);
    fake.fault = Some(("memory.swap.max".to_owned(), InjectedFault::Missing));
    let settings = fake.apply(&json!({ "memory": { "limit": 4096, "swap": 4096 } })).unwrap();
    assert_eq!(settings.list.len(), 1);
    assert_eq!(settings.warnings.len(), 1);
    fake.apply(&json!({ "memory": { "limit": 4096, "swap": 8192 } })).map(|_| ()).unwrap_err();
}
