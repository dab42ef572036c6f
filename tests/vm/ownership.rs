//! Whose the cgroup of a container is (config-linux.md, "Cgroup ownership"), as root: only root gives things away.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::bundle::Bench;
use crate::in_guest_of;
use crate::support::caller::Caller;

/// The container's root is this id of the host.
const FIRST: u32 = 100_000;
/// And its program this one, inside.
const USER: u32 = 5;

fn bench() -> Result<Bench, &'static str> {
    in_guest_of("unified");
    Caller::root().map(Bench::new)
}

/// A user namespace, and the cgroups at their usual place.
fn with_cgroups(config: &mut Value, options: &[&str]) {
    let namespaces = config["linux"]["namespaces"].as_array_mut().unwrap();
    namespaces.extend([json!({ "type": "user" }), json!({ "type": "cgroup" })]);
    for map in ["uidMappings", "gidMappings"] {
        config["linux"][map] = json!([{ "containerID": 0, "hostID": FIRST, "size": 65536 }]);
    }
    config["process"]["user"] = json!({ "uid": USER, "gid": USER });
    let sysfs = json!({ "destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["ro"] });
    // The container's root may make no devices in a root that is another's.
    let dev = json!({ "destination": "/dev", "type": "tmpfs", "source": "tmpfs" });
    let cgroups = json!({
        "destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup", "options": options,
    });
    config["mounts"].as_array_mut().unwrap().extend([dev, sysfs, cgroups]);
}

/// The cgroup of a container.
fn cgroup_of(pid: u32) -> PathBuf {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    Path::new("/sys/fs/cgroup").join(text.trim().strip_prefix("0::/").unwrap())
}

fn owner(path: &Path) -> u32 {
    fs::metadata(path).unwrap().uid()
}

/// SHOULD: the directory and what the kernel lists, and nothing else; the program can make cgroups then, and gets no
/// further than that.
#[test]
fn given_a_cgroup_namespace_the_cgroup_is_the_users() {
    let bench = match bench() {
        Ok(bench) => bench,
        Err(why) => skip!("{why}"),
    };
    bench.configure(|config| {
        with_cgroups(config, &["rw"]);
        config["linux"]["resources"] = json!({ "pids": { "limit": 50 } });
    });
    let id = bench.start();
    let cgroup = cgroup_of(bench.pid(&id));
    let listed = fs::read_to_string("/sys/kernel/cgroup/delegate").unwrap();
    let listed: Vec<&str> = listed.lines().filter(|name| cgroup.join(name).exists()).collect();
    assert!(listed.contains(&"cgroup.procs"), "{listed:?}");
    assert_eq!(owner(&cgroup), FIRST + USER);
    for entry in fs::read_dir(&cgroup).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        let expected = if listed.contains(&name.as_str()) { FIRST + USER } else { 0 };
        assert_eq!(owner(&entry.path()), expected, "{name}");
    }
    let exec = |line: &str| bench.say(&["exec", &id, "/bin/sh", "-c", line]);
    exec("echo 0 >/sys/fs/cgroup/cgroup.procs && busybox mkdir /sys/fs/cgroup/sub && echo 0 >/sys/fs/cgroup/sub/cgroup.procs").ok();
    let refused = exec("echo max >/sys/fs/cgroup/pids.max");
    assert!(!refused.status.success() && refused.stderr.contains("ermission denied"), "{refused:?}");
    bench.say(&["delete", "--force", &id]).ok();
    assert!(!cgroup.exists(), "what the program made in it is gone too");
}

/// SHOULD NOT: read-only, or without a namespace or a mount of its own.
#[test]
fn given_no_way_to_write_it_the_cgroup_stays_ours() {
    let bench = match bench() {
        Ok(bench) => bench,
        Err(why) => skip!("{why}"),
    };
    let changes: [fn(&mut Value); 3] = [
        |config| with_cgroups(config, &["ro"]),
        |config| {
            with_cgroups(config, &["rw"]);
            config["linux"]["namespaces"].as_array_mut().unwrap().retain(|one| one["type"] != "cgroup");
        },
        |config| {
            with_cgroups(config, &["rw"]);
            config["mounts"].as_array_mut().unwrap().pop();
        },
    ];
    for change in changes {
        bench.configure(change);
        let id = bench.start();
        let cgroup = cgroup_of(bench.pid(&id));
        assert_eq!((owner(&cgroup), owner(&cgroup.join("cgroup.procs"))), (0, 0));
        bench.say(&["delete", "--force", &id]).ok();
    }
}
