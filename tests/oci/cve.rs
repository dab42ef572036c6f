//! What other runtimes have been broken by, each by its number (SECURITY: classes).

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use nix::sys::statvfs::{FsFlags, statvfs};
use serde_json::{Value, json};

use super::bundle::{Bench, Said};
use crate::support::caller::Caller;
use crate::support::wait::until_exists;

/// A container whose program is this script.
fn script(bench: &Bench, script: &str, change: impl FnOnce(&mut Value)) {
    bench.configure(|config| {
        config["process"]["args"] = json!(["/bin/sh", "-c", script]);
        change(config);
    });
}

fn push(config: &mut Value, mount: Value) {
    config["mounts"].as_array_mut().unwrap().push(mount);
}

/// Somewhere in the test's place that no container may reach, and nothing may appear in.
fn outside(bench: &Bench) -> std::path::PathBuf {
    bench.place.make_dir("outside", 0o755)
}

#[track_caller]
fn is_empty(dir: &Path) {
    let found: Vec<_> = fs::read_dir(dir).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert!(found.is_empty(), "{found:?} in {}", dir.display());
}

/// The file that a process executes cannot be written through /proc, not by root of the host.
#[track_caller]
fn exe_is_out_of_reach(pid: u32) {
    // "Text file busy", which an open would say now, lasts only as long as somebody executes it.
    let exe = statvfs(format!("/proc/{pid}/exe").as_str()).unwrap();
    assert!(exe.flags().contains(FsFlags::ST_RDONLY), "{exe:?}");
}

#[test]
fn cve_2019_5736_at_create() {
    let Ok(caller) = Caller::root() else { skip!("this test needs to be started as root") };
    let bench = Bench::new(caller);
    let id = bench.id();
    bench.create(&id).ok();
    exe_is_out_of_reach(bench.pid(&id));
}

/// The program is the runtime itself, as the attack has it: it goes on under the same file.
#[test]
fn cve_2019_5736_at_exec() {
    let Ok(caller) = Caller::root() else { skip!("this test needs to be started as root") };
    let bench = Bench::new(caller);
    let binary = bench.place.reachable(crate::support::binary::saggar());
    let before = fs::read(&binary).unwrap();
    let id = bench.start();
    // A shell of the container writes to every program that it sees, until somebody stops it.
    let write =
        "while :; do for p in /proc/[0-9]*; do [ $p = /proc/$$ ] || : >> $p/exe; done; done 2>/dev/null";
    bench.say(&["exec", "--detach", &id, "/bin/sh", "-c", write]).ok();
    for _ in 0..20 {
        let mut command = bench.command(&["exec", &id, "/proc/self/exe", "--version"]);
        command.stdin(Stdio::null());
        // Whether it can be executed inside depends on how it is linked.
        bench.finish(command);
    }
    assert!(fs::read(&binary).unwrap() == before, "the binary was changed");
}

as_each_caller! {
    fn cve_2024_21626(caller) {
        let bench = Bench::new(caller);
        let id = bench.start();
        for number in 3..24 {
            let cwd = format!("/proc/self/fd/{number}");
            script(&bench, "pwd", |config| config["process"]["cwd"] = json!(cwd));
            // A descriptor of the container's own root is none of the host's tree.
            let inside = |said: Said| assert!(!said.status.success() || said.stdout == "/\n", "{cwd}: {said:?}");
            inside(bench.run(&bench.id()));
            inside(bench.say(&["exec", "--cwd", &cwd, &id, "/bin/sh", "-c", "pwd"]));
        }
    }

    /// Part of a mount's path is exchanged for a link, again and again, while it is walked.
    fn cve_2021_30465(caller) {
        let bench = Bench::new(caller);
        let outside = outside(&bench);
        let root = bench.bundle().join("rootfs");
        fs::create_dir_all(root.join("volume/part")).unwrap();
        symlink(&outside, root.join("volume/link")).unwrap();
        for dir in ["volume", "volume/part"] {
            caller.own(&root.join(dir));
        }
        let source = bench.place.make_dir("source", 0o755);
        script(&bench, "true", |config| {
            for name in ["one", "two", "three"] {
                let at = format!("/volume/part/{name}");
                push(config, json!({ "destination": at, "type": "bind", "source": source, "options": ["bind"] }));
            }
        });
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (part, link) = (root.join("volume/part"), root.join("volume/link"));
                while !stop.load(Ordering::Relaxed) {
                    renameat2(AT_FDCWD, &part, AT_FDCWD, &link, RenameFlags::RENAME_EXCHANGE).unwrap();
                }
            });
            for _ in 0..10 {
                // Whether it runs is a matter of luck.
                bench.run(&bench.id());
            }
            stop.store(true, Ordering::Relaxed);
        });
        is_empty(&outside);
    }

    /// A volume over /proc, or over what the runtime writes labels to.
    fn cve_2019_16884(caller) {
        let bench = Bench::new(caller);
        let fake = bench.place.make_dir("fake", 0o755);
        for at in ["/proc/self/attr", "/proc/sys", "/proc/self/fd"] {
            script(&bench, "true", |config| {
                push(config, json!({ "destination": at, "type": "bind", "source": fake, "options": ["bind"] }));
            });
            bench.run(&bench.id()).fails("mount");
        }
        script(&bench, "true", |config| {
            config["mounts"][0] = json!({ "destination": "/proc", "type": "bind", "source": fake, "options": ["bind"] });
            config["linux"]["maskedPaths"] = json!(["/proc/kcore"]);
        });
        bench.run(&bench.id()).fails("mask /proc/kcore");
    }

    /// /proc of the image is a link: what is masked there would be another's.
    fn cve_2019_19921_and_2023_27561(caller) {
        let bench = Bench::new(caller);
        let root = bench.bundle().join("rootfs");
        for target in ["/elsewhere", "elsewhere", "/tmp"] {
            let _ = fs::remove_dir(root.join("proc"));
            let _ = fs::remove_file(root.join("proc"));
            symlink(target, root.join("proc")).unwrap();
            script(&bench, "true", |config| config["linux"]["maskedPaths"] = json!(["/proc/kcore"]));
            bench.run(&bench.id()).fails("mount proc on /proc");
        }
    }

    /// /dev/null of the image is something else: no masked path may show it.
    fn cve_2025_31133(caller) {
        let bench = Bench::new(caller);
        let root = bench.bundle().join("rootfs");
        fs::write(root.join("etc/secret"), "secret").unwrap();
        fs::write(root.join("etc/other"), "other").unwrap();
        symlink("/etc/other", root.join("dev/null")).unwrap();
        script(&bench, "busybox stat -c '%t:%T' /etc/secret; cat /etc/secret", |config| {
            push(config, json!({ "destination": "/dev", "type": "tmpfs", "source": "tmpfs" }));
            config["linux"]["maskedPaths"] = json!(["/etc/secret"]);
        });
        assert_eq!(bench.run(&bench.id()).ok().stdout, "1:3\n");
        // Without a /dev of the container's own the link is in the way of a device.
        script(&bench, "cat /etc/secret", |config| config["linux"]["maskedPaths"] = json!(["/etc/secret"]));
        let said = bench.run(&bench.id());
        assert!(!said.stdout.contains("other") && !said.stdout.contains("secret"), "{said:?}");
    }

    /// /dev/console and the terminal multiplexer of the image are links.
    fn cve_2025_52565(caller) {
        let bench = Bench::new(caller);
        let root = bench.bundle().join("rootfs");
        fs::write(root.join("etc/target"), "").unwrap();
        fs::create_dir_all(root.join("dev/pts")).unwrap();
        symlink("/etc/target", root.join("dev/pts/ptmx")).unwrap();
        let terminal = |config: &mut Value| config["process"]["terminal"] = json!(true);
        let listener = bench.place.join("work/console.sock");
        let _console = std::os::unix::net::UnixListener::bind(&listener).unwrap();
        caller.own(&listener);
        let create = || {
            let (id, bundle) = (bench.id(), bench.bundle());
            bench.say(&["create", "--console-socket", listener.to_str().unwrap(), "--bundle", bundle.to_str().unwrap(), &id])
        };
        script(&bench, "true", terminal);
        assert!(!create().status.success());
        symlink("/etc/target", root.join("dev/console")).unwrap();
        script(&bench, "true", |config| {
            terminal(config);
            push(config, json!({ "destination": "/dev/pts", "type": "devpts", "source": "devpts", "options": ["newinstance", "ptmxmode=0666"] }));
        });
        create().fails("terminal");
    }

    /// What the runtime writes to /proc it never writes to something that only looks like it.
    fn cve_2025_52881(caller) {
        let bench = Bench::new(caller);
        let fake = bench.place.make_dir("fake", 0o755);
        fs::create_dir_all(fake.join("sys/net/ipv4")).unwrap();
        let file = fake.join("sys/net/ipv4/ip_forward");
        fs::write(&file, "untouched").unwrap();
        script(&bench, "true", |config| {
            config["mounts"][0] = json!({ "destination": "/proc", "type": "bind", "source": fake, "options": ["bind"] });
            config["linux"]["sysctl"] = json!({ "net.ipv4.ip_forward": "1" });
        });
        bench.run(&bench.id());
        assert_eq!(fs::read_to_string(&file).unwrap(), "untouched");
    }

    /// /dev, /dev/pts and the like are links that lead out of the image.
    fn cve_2026_41579_and_2026_47766(caller) {
        let bench = Bench::new(caller);
        let outside = outside(&bench);
        let root = bench.bundle().join("rootfs");
        fs::remove_dir(root.join("dev")).unwrap();
        for target in [outside.clone(), Path::new("../../../../../..").join(outside.strip_prefix("/").unwrap())] {
            for (link, at) in [("dev", "/dev"), ("sys", "/sys"), ("etc", "/etc/made/deep")] {
                let _ = fs::remove_dir(root.join(link));
                let _ = fs::remove_file(root.join(link));
                symlink(&target, root.join(link)).unwrap();
                script(&bench, "true", |config| {
                    push(config, json!({ "destination": at, "type": "tmpfs", "source": "tmpfs" }));
                });
                bench.run(&bench.id());
                is_empty(&outside);
            }
        }
    }

    /// No capability is inheritable that nobody asked for.
    fn cve_2022_24769(caller) {
        let bench = Bench::new(caller);
        let some = json!(["CAP_KILL", "CAP_CHOWN"]);
        script(&bench, "cat /proc/self/status; touch /tmp/ready; exec sleep 1000", |config| {
            config["process"]["capabilities"] = json!({ "bounding": some, "permitted": some, "effective": some });
        });
        let id = bench.start();
        until_exists(&bench.bundle().join("rootfs/tmp/ready"));
        let inheritable = |status: &str| {
            let line = status.lines().find(|line| line.starts_with("CapInh:")).unwrap().to_owned();
            assert_eq!(line.split_whitespace().nth(1), Some("0000000000000000"), "{line}");
        };
        inheritable(&fs::read_to_string(format!("/proc/{}/status", bench.pid(&id))).unwrap());
        let said = bench.say(&["exec", "--cap", "CAP_KILL", &id, "/bin/cat", "/proc/self/status"]).ok();
        inheritable(&said.stdout);
    }

    /// The control files of cgroups cannot be written where the mount is read-only, whoever asks: with them go
    /// release_agent (2022-0492), and the limits of the container itself.
    fn cve_2022_0492_and_2023_25809(caller) {
        let bench = Bench::new(caller);
        for namespace in [true, false] {
            let try_all = "cd /sys/fs/cgroup; for f in $(busybox find . -type f); do (: >> $f) 2>&1; done | \
                           busybox grep -vE 'Read-only file system|Permission denied|nonexistent directory' | busybox head -3; touch new 2>&1";
            script(&bench, try_all, |config| {
                if namespace {
                    config["linux"]["namespaces"].as_array_mut().unwrap().push(json!({ "type": "cgroup" }));
                }
                push(config, json!({ "destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup", "options": ["ro"] }));
            });
            let said = bench.run(&bench.id());
            assert_eq!(said.stdout.lines().count(), 1, "{said:?}");
            assert!(said.stdout.contains("new: Read-only file system"), "{said:?}");
        }
    }
}
