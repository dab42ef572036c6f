//! The systemd driver before a real systemd (`--variant systemd`): as root its system manager, as an ordinary user,
//! whose processes are in a session that root owns, the user's own.
//!
//! What is asserted stands in the files of cgroups, and in what `systemctl show` says of the unit.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::bundle::{Bench, Said, end_of};
use crate::in_guest_of;
use crate::support::caller::Caller;
use crate::support::process::Watch;
use crate::support::wait::until_gone;

const CGROUPS: &str = "/sys/fs/cgroup";

/// A bench whose containers are units of systemd.
struct Units {
    bench: Bench,
    caller: Caller,
}

impl Units {
    fn new(caller: Caller) -> Self {
        in_guest_of("systemd");
        Units { bench: Bench::new(caller), caller }
    }

    /// As somebody calls who has logged in.
    fn logged_in(&self, mut command: Command) -> Command {
        if !self.caller.is_root() {
            command.env("XDG_RUNTIME_DIR", format!("/run/user/{}", self.caller.uid()));
        }
        command
    }

    fn say(&self, args: &[&str]) -> Said {
        let command = self.bench.command(&[&["--systemd-cgroup"], args].concat());
        self.bench.finish(self.logged_in(command))
    }

    /// `systemctl` of the manager that has the units.
    fn systemctl(&self, args: &[&str]) -> Said {
        let mut command = self.bench.place.command(Path::new("/usr/bin/systemctl"));
        if !self.caller.is_root() {
            command.arg("--user");
        }
        command.args(args);
        self.bench.finish(self.logged_in(command))
    }

    #[track_caller]
    fn show(&self, unit: &str, property: &str) -> String {
        self.systemctl(&["show", "--value", "--property", property, unit]).ok().stdout.trim().to_owned()
    }

    #[track_caller]
    fn shows(&self, unit: &str, properties: &[(&str, &str)]) {
        for (property, value) in properties {
            assert_eq!(self.show(unit, property), *value, "{property} of {unit}");
        }
    }

    /// Where the slices of the manager are.
    fn root(&self) -> PathBuf {
        match self.caller.is_root() {
            true => PathBuf::from(CGROUPS),
            false => {
                let uid = self.caller.uid();
                Path::new(CGROUPS).join(format!("user.slice/user-{uid}.slice/user@{uid}.service"))
            }
        }
    }

    /// The slice that a container is in when none is named.
    fn slice(&self) -> &'static str {
        if self.caller.is_root() { "system.slice" } else { "user.slice" }
    }

    fn create(&self, id: &str) -> Said {
        self.say(&["create", "--bundle", &self.bench.bundle().to_string_lossy(), id])
    }

    /// A container with these members of `linux`, in unit `test-ID.scope`.
    #[track_caller]
    fn start(&self, linux: &Value) -> Container<'_> {
        let id = self.bench.id();
        let path = format!("{}:test:{id}", self.slice());
        self.bench.configure(|config| {
            let members = config["linux"].as_object_mut().unwrap();
            members.extend(linux.as_object().unwrap().clone());
            members.insert("cgroupsPath".to_owned(), json!(path));
        });
        self.create(&id).ok();
        self.say(&["start", &id]).ok();
        let unit = format!("test-{id}.scope");
        let cgroup = self.root().join(self.slice()).join(&unit);
        Container { units: self, id, unit, cgroup }
    }

    /// Neither systemd nor the kernel knows it any more.
    #[track_caller]
    fn has_nothing_of(&self, id: &str, unit: &str) {
        self.bench.is_clean(id);
        self.shows(unit, &[("LoadState", "not-found"), ("ActiveState", "inactive")]);
    }
}

/// Deleted when dropped.
struct Container<'a> {
    units: &'a Units,
    id: String,
    unit: String,
    cgroup: PathBuf,
}

impl Container<'_> {
    #[track_caller]
    fn reads(&self, files: &[(&str, &str)]) {
        for (file, value) in files {
            let path = self.cgroup.join(file);
            let text =
                fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            assert_eq!(text.trim(), *value, "{}", path.display());
        }
    }

    fn exec(&self, line: &str) -> Said {
        self.units.say(&["exec", &self.id, "/bin/sh", "-c", line])
    }
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        let said = self.units.say(&["delete", "--force", &self.id]);
        if !std::thread::panicking() {
            said.ok();
            self.units.has_nothing_of(&self.id, &self.unit);
        }
    }
}

const MIB: u64 = 1 << 20;

as_each_caller! {
    fn systemd_makes_a_scope_with_the_container_in_it(caller) {
        let units = Units::new(caller);
        let container = units.start(&json!({}));
        let pid = units.bench.pid(&container.id).to_string();
        container.reads(&[("cgroup.procs", &pid)]);
        let inside = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        assert_eq!(inside.trim(), format!("0::{}", container.cgroup.to_str().unwrap().strip_prefix(CGROUPS).unwrap()));
        units.shows(&container.unit, &[
            ("ActiveState", "active"), ("SubState", "running"), ("Transient", "yes"), ("Delegate", "yes"),
            ("Slice", units.slice()), ("CollectMode", "inactive-or-failed"),
            ("ControlGroup", container.cgroup.to_str().unwrap().strip_prefix(CGROUPS).unwrap()),
        ]);
        // Who joins is there as well.
        let said = container.exec("cat /proc/self/cgroup").ok();
        assert!(said.stdout.contains(&container.unit), "{said:?}");
    }

    fn systemd_gets_each_limit_and_undoes_none(caller) {
        let units = Units::new(caller);
        let mut cpu = json!({ "shares": 512, "quota": 50000, "period": 100_000 });
        // Debian's user@.service is given no cpuset.
        if caller.is_root() {
            cpu["cpus"] = json!("0");
            cpu["mems"] = json!("0");
        }
        let container = units.start(&json!({ "resources": {
            "memory": { "limit": 64 * MIB, "reservation": 32 * MIB, "swap": 96 * MIB }, "cpu": cpu,
            "pids": { "limit": 77 },
        } }));
        let files = [
            ("memory.max", "67108864"), ("memory.low", "33554432"), ("memory.swap.max", "33554432"),
            ("cpu.weight", "59"), ("cpu.max", "50000 100000"), ("pids.max", "77"),
        ];
        container.reads(&files);
        units.shows(&container.unit, &[
            ("MemoryMax", "67108864"), ("MemoryLow", "33554432"), ("MemorySwapMax", "33554432"), ("CPUWeight", "59"),
            ("CPUQuotaPerSecUSec", "500ms"), ("CPUQuotaPeriodUSec", "100ms"), ("TasksMax", "77"),
        ]);
        if caller.is_root() {
            container.reads(&[("cpuset.cpus", "0"), ("cpuset.mems", "0")]);
            units.shows(&container.unit, &[("AllowedCPUs", "0"), ("AllowedMemoryNodes", "0")]);
        }
        // It writes the files again from what it knows.
        units.systemctl(&["daemon-reload"]).ok();
        container.reads(&files);

        let changed = json!({
            "memory": { "limit": 80 * MIB, "swap": 80 * MIB }, "cpu": { "shares": 2048 }, "pids": { "limit": 88 },
        });
        let file = units.bench.place.make_file("work/resources.json", &changed.to_string());
        units.say(&["update", "--resources", file.to_str().unwrap(), &container.id]).ok();
        let files = [
            ("memory.max", "83886080"), ("memory.swap.max", "0"), ("cpu.weight", "174"), ("pids.max", "88"),
            ("cpu.max", "50000 100000"),
        ];
        container.reads(&files);
        units.shows(&container.unit, &[
            ("MemoryMax", "83886080"), ("MemorySwapMax", "0"), ("CPUWeight", "174"), ("TasksMax", "88"),
        ]);
        units.systemctl(&["daemon-reload"]).ok();
        container.reads(&files);
        if caller.is_root() {
            container.reads(&[("cpuset.cpus", "0")]);
        }
    }

    fn files_of_unified_are_properties_where_there_is_one(caller) {
        let units = Units::new(caller);
        let container = units.start(&json!({ "resources": {
            "unified": { "memory.high": "50331648", "memory.swap.high": "33554432" },
        } }));
        let files = [("memory.high", "50331648"), ("memory.swap.high", "33554432")];
        container.reads(&files);
        units.shows(&container.unit, &[("MemoryHigh", "50331648")]);
        units.systemctl(&["daemon-reload"]).ok();
        container.reads(&files);
    }

    /// What no controller can hold is an error, and the scope goes with it.
    fn a_limit_that_is_not_delegated_is_an_error(caller) {
        let units = Units::new(caller);
        if caller.is_root() {
            return;
        }
        let id = units.bench.id();
        units.bench.configure(|config| config["linux"]["resources"] = json!({ "cpu": { "cpus": "0" } }));
        units.create(&id).fails("have the cpuset controller delegated");
        units.has_nothing_of(&id, &format!("saggar-{id}.scope"));
    }

    fn annotations_are_properties_of_the_unit(caller) {
        let units = Units::new(caller);
        let id = units.bench.id();
        units.bench.configure(|config| {
            config["annotations"] = json!({
                "org.systemd.property.Description": "'from an annotation'",
                "org.systemd.property.TimeoutStopSec": "1.5",
                "org.systemd.property.CollectMode": "'inactive'",
            });
        });
        units.create(&id).ok();
        // The name when there is no cgroupsPath.
        let unit = format!("saggar-{id}.scope");
        units.shows(&unit, &[
            ("Description", "from an annotation"), ("TimeoutStopUSec", "1.500000s"), ("CollectMode", "inactive"),
            ("Slice", units.slice()),
        ]);
        units.say(&["delete", "--force", &id]).ok();
        units.has_nothing_of(&id, &unit);
    }

    fn a_slice_below_a_slice_is_made(caller) {
        let units = Units::new(caller);
        let id = units.bench.id();
        let slice = format!("saggartest{}-inner.slice", std::process::id());
        units.bench.configure(|config| config["linux"]["cgroupsPath"] = json!(format!("{slice}::{id}")));
        units.create(&id).ok();
        let unit = format!("{id}.scope");
        units.shows(&unit, &[("Slice", &slice)]);
        let outer = slice.replace("-inner", "");
        assert!(units.root().join(&outer).join(&slice).join(&unit).join("cgroup.procs").exists());
        units.say(&["delete", "--force", &id]).ok();
        units.has_nothing_of(&id, &unit);
        units.systemctl(&["stop", &outer]).ok();
    }

    fn a_start_that_fails_leaves_no_scope(caller) {
        let units = Units::new(caller);
        // Refused by systemd, and refused by us when the scope is there.
        let cases = [
            (json!({ "annotations": { "org.systemd.property.NoSuchProperty": "true" } }), "NoSuchProperty"),
            (json!({ "annotations": { "org.systemd.property.CollectMode": "'sometimes'" } }), "CollectMode"),
            (json!({ "hooks": { "createRuntime": [{ "path": "/bin/false" }] } }), "/bin/false"),
            (json!({ "root": { "path": "nowhere" } }), "nowhere"),
        ];
        for (change, word) in cases {
            let id = units.bench.id();
            units.bench.configure(|config| {
                config.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
            });
            units.create(&id).fails(word);
            units.has_nothing_of(&id, &format!("saggar-{id}.scope"));
        }
    }

    /// Whoever stops the unit stops the container.
    fn a_scope_that_systemd_stops_is_a_container_that_has_stopped(caller) {
        let units = Units::new(caller);
        let container = units.start(&json!({}));
        let watch = Watch::of(units.bench.pid(&container.id)).unwrap();
        // It has no handler for SIGTERM, as pid 1 of its namespace.
        units.systemctl(&["kill", "--signal", "KILL", &container.unit]).ok();
        watch.wait_gone("a container of a stopped scope");
        until_gone(&container.cgroup);
        units.bench.status_is(&container.id, "stopped");
    }

    fn a_frozen_scope_is_deleted(caller) {
        let units = Units::new(caller);
        let container = units.start(&json!({}));
        units.say(&["pause", &container.id]).ok();
        container.reads(&[("cgroup.freeze", "1")]);
        units.bench.status_is(&container.id, "paused");
    }

    /// `run` ends the unit as well, and the next of the same name finds nothing in its way.
    fn one_name_after_the_other(caller) {
        let units = Units::new(caller);
        units.bench.program(&["/bin/sh", "-c", "exit 3"]);
        let id = units.bench.id();
        for _ in 0..3 {
            let said = units.say(&["run", "--bundle", &units.bench.bundle().to_string_lossy(), &id]);
            assert_eq!(said.status.code(), Some(3), "{said:?}");
            units.has_nothing_of(&id, &format!("saggar-{id}.scope"));
        }
    }

    /// In a scope of the caller's own manager, as podman puts itself there.
    fn from_within_a_unit(caller) {
        let units = Units::new(caller);
        let id = units.bench.id();
        let inner = units.bench.command(&["--systemd-cgroup", "create", "--bundle", units.bench.bundle().to_str().unwrap(), &id]);
        let mut command = units.bench.place.command(Path::new("/usr/bin/systemd-run"));
        if !caller.is_root() {
            command.arg("--user");
        }
        command.args(["--scope", "--quiet"]).arg(inner.get_program()).args(inner.get_args());
        units.bench.finish(units.logged_in(command)).ok();
        let unit = format!("saggar-{id}.scope");
        units.shows(&unit, &[("ActiveState", "active"), ("Slice", units.slice())]);
        units.say(&["delete", "--force", &id]).ok();
        units.has_nothing_of(&id, &unit);
    }
}

/// DevicePolicy is left at auto: the rules are a program of ours in the scope, and systemd's reload leaves it there.
#[test]
fn the_rules_for_devices_outlive_a_reload() {
    let units = Units::new(Caller::root().unwrap_or_else(|_| Caller::current()));
    if !units.caller.is_root() {
        skip!("this test needs to be started as root");
    }
    let node = json!({ "path": "/dev/kmsg", "type": "c", "major": 1, "minor": 11, "fileMode": 0o666 });
    for allowed in [true, false] {
        let rules = json!([
            { "allow": false, "access": "rwm" },
            { "allow": allowed, "type": "c", "major": 1, "minor": 11, "access": "w" },
        ]);
        let container = units.start(&json!({ "devices": [node.clone()], "resources": { "devices": rules } }));
        for _ in 0..2 {
            assert_eq!(container.exec(": >/dev/kmsg").status.success(), allowed);
            units.shows(&container.unit, &[("DevicePolicy", "auto")]);
            units.systemctl(&["daemon-reload"]).ok();
        }
    }
}

/// Eight runtimes ask at the same time.
#[test]
fn many_at_once_get_a_scope_each() {
    let units = Units::new(Caller::current());
    let ids: Vec<String> = (0..8).map(|_| units.bench.id()).collect();
    let bundle = units.bench.bundle();
    let begin = |id: &String| {
        let command =
            units.bench.command(&["--systemd-cgroup", "create", "--bundle", bundle.to_str().unwrap(), id]);
        units.logged_in(command).spawn().unwrap()
    };
    let children: Vec<_> = ids.iter().map(begin).collect();
    for child in children {
        assert!(end_of(child, "create").success());
    }
    for id in &ids {
        units.shows(&format!("saggar-{id}.scope"), &[("ActiveState", "active")]);
        units.say(&["delete", "--force", id]).ok();
        units.has_nothing_of(id, &format!("saggar-{id}.scope"));
    }
}
