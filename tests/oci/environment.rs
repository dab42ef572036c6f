//! What a container finds around it (config.md and config-linux.md): root, mounts, devices, namespaces, names.

use super::bundle::{Bench, Said};
use crate::support::caller::Caller;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

fn ran(bench: &Bench, script: &str, change: impl FnOnce(&mut Value)) -> Said {
    bench.configure(|config| {
        config["process"]["args"] = json!(["/bin/busybox", "sh", "-c", script]);
        change(config);
    });
    bench.run(&bench.id())
}

as_each_caller! {
    /// config.md, Root: "the root filesystem MUST be read-only", "A directory MUST exist".
    fn the_root_is_read_only_when_asked_and_must_exist(caller) {
        let bench = Bench::new(caller);
        let touch = "touch /new 2>/dev/null && echo written || echo refused";
        assert_eq!(ran(&bench, touch, |config| config["root"]["readonly"] = json!(true)).ok().stdout, "refused\n");
        assert!(!bench.bundle().join("rootfs/new").exists());
        assert_eq!(ran(&bench, touch, |_| {}).ok().stdout, "written\n");
        ran(&bench, "true", |config| config["root"]["path"] = json!("elsewhere")).fails("elsewhere");
    }

    /// config.md, Mounts: "MUST mount entries in the listed order", a relative destination is "relative to /".
    fn mounts_are_made_in_their_order(caller) {
        let bench = Bench::new(caller);
        for (name, content) in [("one", "1"), ("two", "2")] {
            let dir = bench.place.make_dir(name, 0o755);
            fs::write(dir.join("file"), content).unwrap();
        }
        let bind = |from: &str, to: &str| json!({ "destination": to, "type": "none", "options": ["bind"],
            "source": bench.place.join(from) });
        for (order, seen) in [(["one", "two"], "2"), (["two", "one"], "1")] {
            let mounts = [bind(order[0], "/m"), bind(order[1], "m"), bind("one", "/m/../under"), bind("two", "m/../other")];
            let said = ran(&bench, "cat /m/file /under/file /other/file", |config| {
                config["mounts"].as_array_mut().unwrap().extend(mounts);
            });
            assert_eq!(said.ok().stdout, format!("{seen}12"));
        }
    }

    /// config-linux.md, Namespaces: a new one for each that is listed without a path, "the container MUST inherit
    /// the runtime namespace" of every other type.
    fn a_namespace_is_new_when_listed_and_the_runtimes_when_not(caller) {
        let bench = Bench::new(caller);
        let of = |pid: &str, kind: &str| fs::read_link(format!("/proc/{pid}/ns/{kind}")).unwrap();
        let all = ["pid", "mount", "ipc", "uts", "network", "cgroup", "time"];
        for left_out in ["", "pid", "ipc", "uts", "network", "cgroup", "time"] {
            bench.configure(|config| {
                let list = config["linux"]["namespaces"].as_array_mut().unwrap();
                list.retain(|entry| entry["type"] == "user");
                list.extend(all.iter().filter(|kind| **kind != left_out).map(|kind| json!({ "type": kind })));
                // Without a pid namespace of its own an ordinary user's procfs would be the host's.
                if left_out == "pid" && !caller.is_root() {
                    config["mounts"] = json!([]);
                }
            });
            let id = bench.start();
            let pid = bench.pid(&id).to_string();
            for (kind, file) in all.iter().zip(["pid", "mnt", "ipc", "uts", "net", "cgroup", "time"]) {
                assert_eq!(of(&pid, file) == of("self", file), *kind == left_out, "{kind} without {left_out}");
            }
            bench.say(&["delete", "--force", &id]).ok();
        }
    }

    /// config.md, Hostname and Domainname.
    fn the_names_are_those_of_the_document(caller) {
        let bench = Bench::new(caller);
        let said = ran(&bench, "cat /proc/sys/kernel/hostname /proc/sys/kernel/domainname", |config| {
            config["hostname"] = json!("mrsdalloway");
            config["domainname"] = json!("foobarbaz.test");
        });
        assert_eq!(said.ok().stdout, "mrsdalloway\nfoobarbaz.test\n");
    }

    /// "If oomScoreAdj is set, the runtime MUST set oom_score_adj", and else "MUST NOT change the value".
    fn the_oom_score_is_the_given_one_or_the_callers(caller) {
        let bench = Bench::new(caller);
        let bundle = bench.bundle();
        for (given, expected) in [(None, "300\n"), (Some(300), "300\n"), (Some(777), "777\n")] {
            bench.configure(|config| {
                config["process"]["args"] = json!(["/bin/cat", "/proc/self/oom_score_adj"]);
                config["process"]["oomScoreAdj"] = json!(given);
            });
            let prelude = "echo 300 > /proc/self/oom_score_adj";
            let id = bench.id();
            let said = bench.finish(bench.command_after(prelude, &["run", "--bundle", bundle.to_str().unwrap(), &id]));
            assert_eq!(said.ok().stdout, expected, "{given:?}");
        }
    }

    /// config-linux.md, Devices: listed ones "MUST be available", wherever they are, and another file at the path
    /// "MUST generate an error"; runtime-linux.md: the links of /dev.
    fn devices_are_there_and_nothing_else_takes_their_place(caller) {
        let bench = Bench::new(caller);
        let script = "cd /dev; for f in null zero full random urandom tty; do busybox test -c $f || echo no $f; done; \
            for l in fd stdin stdout stderr ptmx; do busybox readlink $l; done; busybox stat -c '%t:%T' /some/where";
        let listed = |config: &mut Value| {
            config["mounts"].as_array_mut().unwrap().push(json!({ "destination": "/dev", "type": "tmpfs", "source": "tmpfs" }));
            config["linux"]["devices"] = json!([{ "path": "/some/where", "type": "c", "major": 1, "minor": 3 }]);
        };
        let links = "/proc/self/fd\n/proc/self/fd/0\n/proc/self/fd/1\n/proc/self/fd/2\npts/ptmx\n";
        // For an ordinary user the host's node of this number is bind mounted, whatever its name.
        assert_eq!(ran(&bench, script, listed).ok().stdout, format!("{links}1:3\n"));
        let unknown = |config: &mut Value| {
            config["linux"]["devices"] = json!([{ "path": "/some/other", "type": "c", "major": 4000, "minor": 3 }]);
        };
        if !caller.is_root() {
            ran(&bench, "true", unknown).fails("/some/other");
        }
        let file = bench.bundle().join("rootfs/taken");
        fs::write(&file, "kept").unwrap();
        let taken = |config: &mut Value| {
            config["linux"]["devices"] = json!([{ "path": "/taken", "type": "c", "major": 1, "minor": 3 }]);
        };
        ran(&bench, "true", taken).fails("/taken");
        assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
    }
}

/// config-linux.md, Devices: name, mode and owner are the configuration's in a user namespace too, and the device works.
#[test]
fn devices_in_a_user_namespace_of_root_are_as_configured() {
    let caller = match Caller::root() {
        Ok(caller) => caller,
        Err(why) => skip!("{why}"),
    };
    let bench = Bench::new(caller);
    let script = "busybox stat -c '%n %t:%T %a %u:%g' /dev/null /dev/mine /dev/shm0 /dev/pipe; \
        echo lost >/dev/mine && busybox head -c 2 /dev/shm0 | busybox wc -c; \
        busybox mknod /tmp/own c 1 3; busybox grep -c store /proc/self/mountinfo";
    let mapped = |config: &mut Value| {
        let linux = &mut config["linux"];
        linux["namespaces"].as_array_mut().unwrap().push(json!({ "type": "user" }));
        for map in ["uidMappings", "gidMappings"] {
            linux[map] = json!([{ "containerID": 0, "hostID": 100_000, "size": 65536 }]);
        }
        linux["devices"] = json!([
            { "path": "/dev/mine", "type": "c", "major": 1, "minor": 3, "fileMode": 0o622, "uid": 7, "gid": 9 },
            { "path": "/dev/shm0", "type": "c", "major": 1, "minor": 5 },
            { "path": "/dev/pipe", "type": "p", "fileMode": 0o600 },
        ]);
        config["mounts"]
            .as_array_mut()
            .unwrap()
            .push(json!({ "destination": "/dev", "type": "tmpfs", "source": "tmpfs" }));
    };
    fn owned(bench: &Bench) {
        for path in ["rootfs", "rootfs/tmp", "rootfs/dev"] {
            std::os::unix::fs::chown(bench.bundle().join(path), Some(100_000), Some(100_000)).unwrap();
        }
    }
    owned(&bench);
    let said = ran(&bench, script, mapped);
    let listed = "/dev/null 1:3 666 65534:65534\n/dev/mine 1:3 622 7:9\n/dev/shm0 1:5 666 0:0\n/dev/pipe 0:0 600 0:0\n2\n0\n";
    assert_eq!(said.stdout, listed, "{said:?}");
    assert!(said.stderr.contains("mknod: /tmp/own: Operation not permitted"), "{said:?}");
    // The host's device, as other runtimes mount it, for an owner that the namespace does not have.
    let said = ran(&bench, "busybox stat -c '%t:%T %a %u' /dev/mine", |config| {
        mapped(config);
        config["linux"]["devices"][0]["uid"] = json!(70_000);
    });
    assert_eq!(said.stdout, "1:3 666 65534\n", "{said:?}");
    assert!(said.stderr.contains("linux.devices: the owner of /dev/mine is not in the map"), "{said:?}");
    // More than there are places for trees.
    let said = ran(&bench, "busybox test -c /dev/n299 && echo there", |config| {
        mapped(config);
        let device = |number| json!({ "path": format!("/dev/n{number}"), "type": "c", "major": 1, "minor": 3, "uid": 1 });
        config["linux"]["devices"] = (0..300).map(device).collect();
    });
    assert_eq!(said.stdout, "there\n", "{said:?}");
}

/// CVE-2019-16884: a link of the image leads a device to a file of procfs.
#[test]
fn a_device_covers_nothing_of_procfs() {
    let caller = match Caller::ordinary() {
        Ok(caller) => caller,
        Err(why) => skip!("{why}"),
    };
    let bench = Bench::new(caller);
    let root = bench.bundle().join("rootfs");
    std::os::unix::fs::symlink("/proc/sys/kernel/hostname", root.join("dev/null")).unwrap();
    ran(&bench, "true", |_| {}).fails("/dev/null");
    fs::remove_dir_all(root.join("dev")).unwrap();
    std::os::unix::fs::symlink("/proc/self/attr", root.join("dev")).unwrap();
    let exec = json!([{ "path": "/dev/exec", "type": "c", "major": 1, "minor": 3 }]);
    ran(&bench, "true", |config| config["linux"]["devices"] = exec).fails("");
}

/// Where /dev is the host's, nothing is made in it, and a listed device elsewhere is there all the same.
#[test]
fn a_device_outside_of_a_bound_dev_is_made() {
    let caller = match Caller::root() {
        Ok(caller) => caller,
        Err(why) => skip!("{why}"),
    };
    let bench = Bench::new(caller);
    let names = || {
        let mut names: Vec<_> =
            fs::read_dir("/dev").unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = names();
    let said = ran(&bench, "busybox test -c /dev/null && echo there", |config| {
        let dev = json!({ "destination": "/dev", "type": "none", "source": "/dev", "options": ["rbind"] });
        config["mounts"].as_array_mut().unwrap().push(dev);
        config["linux"]["devices"] = json!([
            { "path": "/some/null", "type": "c", "major": 1, "minor": 3, "fileMode": 0o640 },
            { "path": "/dev/saggar-test-node", "type": "c", "major": 1, "minor": 3 },
        ]);
    });
    assert_eq!(said.ok().stdout, "there\n");
    let made = fs::metadata(bench.bundle().join("rootfs/some/null")).unwrap();
    assert!(made.file_type().is_char_device());
    assert_eq!((made.rdev(), made.mode() & 0o7777), (libc::makedev(1, 3), 0o640));
    assert_eq!(names(), before, "nothing is made on the host");
}
