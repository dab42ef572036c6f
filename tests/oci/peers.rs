//! What callers of other runtimes count on, and the specification leaves open.

use super::bundle::Bench;
use crate::support::caller::Caller;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::MetadataExt;

/// A hook of the host's shell.
fn shell(script: &str) -> Value {
    json!({ "path": "/bin/sh", "args": ["sh", "-c", script] })
}

as_each_caller! {
    /// A hook works in the bundle; one of createContainer sees the container's mounts there.
    fn hooks_of_create_work_in_the_bundle(caller) {
        let bench = Bench::new(caller);
        let (id, bundle) = (bench.id(), bench.bundle());
        bench.configure(|config| {
            config["hooks"]["createRuntime"] = json!([shell("pwd > rootfs/tmp/runtime")]);
            config["hooks"]["createContainer"] = json!([shell("test -e rootfs/proc/self && pwd > rootfs/tmp/container")]);
        });
        bench.create(&id).ok();
        for file in ["runtime", "container"] {
            let said = fs::read_to_string(bundle.join("rootfs/tmp").join(file)).unwrap();
            assert_eq!(said.trim(), bundle.to_str().unwrap(), "{file}");
        }
    }

    /// A hook that names no environment has the runtime's; a program of the container that of the container's process; and
    /// a program of the host that sees what the container mounts has neither (CVE-2025-23266).
    fn a_hook_without_an_environment_has_that_of_its_own_side(caller) {
        let bench = Bench::new(caller);
        let id = bench.id();
        let script = "echo \"${SAGGAR_TEST_MARK-none} ${OF_IMAGE-none}\" >> ";
        let inside = |env: Value| {
            json!({ "path": "/bin/sh", "args": ["sh", "-c", format!("{script}/tmp/marks")], "env": env })
        };
        bench.configure(|config| {
            config["process"]["env"] = json!(["OF_IMAGE=image"]);
            let outside = shell(&format!("{script}rootfs/tmp/marks"));
            let mut bare = outside.clone();
            bare["env"] = json!([]);
            config["hooks"]["prestart"] = json!([outside, bare]);
            config["hooks"]["createContainer"] = json!([outside]);
            config["hooks"]["startContainer"] = json!([inside(Value::Null), inside(json!(["OF_IMAGE=hook"]))]);
        });
        let bundle = bench.bundle();
        let mut create = bench.command(&["create", "--bundle", bundle.to_str().unwrap(), &id]);
        create.env("SAGGAR_TEST_MARK", "mark");
        bench.finish(create).ok();
        let mut start = bench.command(&["start", &id]);
        start.env("SAGGAR_TEST_MARK", "mark");
        bench.finish(start).ok();
        let marks = fs::read_to_string(bundle.join("rootfs/tmp/marks")).unwrap();
        let expected = ["mark none", "none none", "none none", "none image", "none hook", ""];
        assert_eq!(marks.split('\n').collect::<Vec<_>>(), expected);
    }

    /// /dev/stdout of a program of another user can be opened when it is a pipe; a file of the caller stays its own.
    fn a_pipe_among_the_streams_belongs_to_the_user(caller) {
        if !caller.is_root() {
            return;
        }
        let bench = Bench::new(caller);
        bench.configure(|config| {
            config["process"]["user"] = json!({ "uid": 1234, "gid": 1235 });
            config["process"]["args"] = json!(["/bin/sh", "-c", "stat -L -c %u:%g /proc/self/fd/1; echo again > /proc/self/fd/1"]);
        });
        let (id, bundle) = (bench.id(), bench.bundle());
        let mut run = bench.command(&["run", "--bundle", bundle.to_str().unwrap(), &id]);
        let said = run.output().unwrap();
        assert_eq!(String::from_utf8_lossy(&said.stdout), "1234:1235\nagain\n", "{said:?}");

        let (id, file) = (bench.id(), bundle.join("output"));
        let mut run = bench.command(&["run", "--bundle", bundle.to_str().unwrap(), &id]);
        let status = run.stdout(fs::File::create(&file).unwrap()).stderr(std::process::Stdio::null()).status();
        status.unwrap();
        assert_eq!(file.metadata().unwrap().uid(), 0);
    }

    fn the_policy_of_memory_may_be_the_default(caller) {
        let bench = Bench::new(caller);
        for mode in ["MPOL_DEFAULT", "MPOL_LOCAL"] {
            bench.configure(|config| {
                config["linux"]["memoryPolicy"] = json!({ "mode": mode });
                config["process"]["args"] = json!(["/bin/true"]);
            });
            bench.run(&bench.id()).ok();
        }
    }

    fn an_idle_priority_has_no_level(caller) {
        let bench = Bench::new(caller);
        bench.configure(|config| {
            config["process"]["ioPriority"] = json!({ "class": "IOPRIO_CLASS_IDLE" });
            config["process"]["args"] = json!(["/bin/busybox", "ionice", "-p", "1"]);
        });
        let said = bench.run(&bench.id()).ok();
        assert!(said.stdout.starts_with("idle"), "{said:?}");
    }

    /// Without maps a user namespace has the runtime's ids: all of root's, an ordinary user's own as root.
    fn a_user_namespace_without_maps_has_the_runtimes_ids(caller) {
        let bench = Bench::new(caller);
        bench.configure(|config| {
            let namespaces = config["linux"]["namespaces"].as_array_mut().unwrap();
            if !namespaces.contains(&json!({ "type": "user" })) {
                namespaces.push(json!({ "type": "user" }));
            }
            for maps in ["uidMappings", "gidMappings"] {
                config["linux"].as_object_mut().unwrap().remove(maps);
            }
            config["process"]["args"] = json!(["/bin/cat", "/proc/self/uid_map"]);
        });
        let said = bench.run(&bench.id()).ok();
        let numbers: Vec<u32> = said.stdout.split_whitespace().map(|word| word.parse().unwrap()).collect();
        if caller.is_root() {
            assert_eq!(numbers[..2], [0, 0], "{numbers:?}");
        } else {
            assert_eq!(numbers, [0, caller.uid().as_raw(), 1]);
        }
    }

    /// A device of the host that is bound, since a user namespace makes none, is no program and no set-id file.
    fn a_bound_device_is_nothing_but_a_device(caller) {
        let bench = Bench::new(caller);
        bench.configure(|config| {
            if caller.is_root() {
                let map = json!([{ "containerID": 0, "hostID": 0, "size": 65536 }]);
                config["linux"]["namespaces"].as_array_mut().unwrap().push(json!({ "type": "user" }));
                config["linux"]["uidMappings"] = map.clone();
                config["linux"]["gidMappings"] = map;
            }
            config["process"]["args"] = json!(["/bin/busybox", "grep", " /dev/null ", "/proc/self/mountinfo"]);
        });
        let said = bench.run(&bench.id()).ok();
        let options = said.stdout.split(' ').nth(5).unwrap();
        assert!(options.contains("nosuid") && options.contains("noexec"), "{said:?}");
    }

    /// Options of a file system on a bind mount have no meaning; the kernel drops them, and other runtimes pass them on.
    fn a_bind_mount_with_options_of_a_file_system_is_made(caller) {
        let bench = Bench::new(caller);
        bench.configure(|config| {
            let mount = json!({ "destination": "/tmp", "type": "bind", "source": "rootfs/tmp", "options": ["bind", "mode=755"] });
            config["mounts"].as_array_mut().unwrap().push(mount);
            config["process"]["args"] = json!(["/bin/true"]);
        });
        bench.run(&bench.id()).ok();
    }
}

/// Podman's `--group-add keep-groups`.
#[test]
fn the_groups_of_the_caller_can_be_kept() {
    let Ok(caller) = Caller::root() else { skip!("this test needs to be started as root") };
    let bench = Bench::new(caller);
    bench.configure(|config| {
        config["annotations"] = json!({ "run.oci.keep_original_groups": "1" });
        config["process"]["user"] = json!({ "uid": 1234, "gid": 1235 });
        config["process"]["args"] = json!(["/bin/busybox", "grep", "Groups", "/proc/self/status"]);
    });
    let (id, bundle) = (bench.id(), bench.bundle());
    let run = bench.command(&["run", "--bundle", bundle.to_str().unwrap(), &id]);
    let mut with_groups = std::process::Command::new("setpriv");
    with_groups.args(["--groups", "4001,4002"]).arg(run.get_program()).args(run.get_args());
    with_groups.envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let said = bench.finish(with_groups).ok();
    assert_eq!(said.stdout.split_whitespace().collect::<Vec<_>>(), ["Groups:", "4001", "4002"]);
}
