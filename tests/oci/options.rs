//! Options of the verbs as they are given on command lines, each by what it does.

use super::bundle::{Bench, Said, cgroups_named};
use crate::support::caller::Caller;
use crate::support::deadline::Deadline;
use crate::support::lines::Lines;
use crate::support::process::Watch;
use crate::support::wait::until_exists;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A verb whose caller has descriptor 3 open on `file`, and no further one.
fn with_descriptor(bench: &Bench, file: &Path, args: &[&str]) -> Command {
    let verb = bench.command(args);
    let mut command = bench.place.command(Path::new("/bin/sh"));
    command.args(["-c", r#"exec "$@" 3<"$0""#]).arg(file).arg(verb.get_program()).args(verb.get_args());
    command.stdin(Stdio::null());
    command
}

as_each_caller! {
    fn preserved_descriptors_and_no_others_are_the_programs(caller) {
        let bench = Bench::new(caller);
        let file = bench.place.make_file("passed", "through\n");
        let (bundle, script) = (bench.bundle(), "ls /proc/self/fd; cat <&3");
        let bundle = bundle.to_str().unwrap();
        // The last one is the directory that ls reads.
        let (with, without) = ("0\n1\n2\n3\n4\nthrough\n", "0\n1\n2\n3\n");
        bench.program(&["/bin/sh", "-c", script]);
        let run = ["run", "--preserve-fds", "1", "--bundle", bundle, &bench.id()].map(str::to_owned);
        let run: Vec<&str> = run.iter().map(String::as_str).collect();
        assert_eq!(bench.finish(with_descriptor(&bench, &file, &run)).ok().stdout, with);
        let mut listening = with_descriptor(&bench, &file, &["run", "--bundle", bundle, &bench.id()]);
        listening.env("LISTEN_FDS", "1");
        assert_eq!(bench.finish(listening).ok().stdout, with, "LISTEN_FDS");
        bench.program(&["/bin/sh", "-c", "env | grep ^LISTEN_ | sort; cat <&3"]);
        for (pid, said) in [(None, "LISTEN_FDNAMES=web\nLISTEN_FDS=1\nLISTEN_PID=1\nthrough\n"), (Some("2"), "")] {
            let mut listening = with_descriptor(&bench, &file, &["run", "--bundle", bundle, &bench.id()]);
            listening.env("LISTEN_FDS", "1").env("LISTEN_FDNAMES", "web").envs(pid.map(|pid| ("LISTEN_PID", pid)));
            assert_eq!(bench.finish(listening).stdout, said, "those of process {pid:?}");
        }
        bench.program(&["/bin/sh", "-c", script]);
        let id = bench.id();
        let two = ["run", "--preserve-fds", "2", "--bundle", bundle, &id];
        bench.finish(with_descriptor(&bench, &file, &two)).fails("descriptor 4 is not open");
        bench.is_clean(&id);
        bench.program(&["/bin/sh", "-c", "ls /proc/self/fd"]);
        let none = ["run", "--bundle", bundle, &bench.id()].map(str::to_owned);
        let none: Vec<&str> = none.iter().map(String::as_str).collect();
        assert_eq!(bench.finish(with_descriptor(&bench, &file, &none)).ok().stdout, without);

        bench.program(&["/bin/sh", "-c", "cat <&3 >/tmp/got; mv /tmp/got /tmp/all; exec sleep 1000"]);
        std::os::unix::fs::symlink("busybox", bench.bundle().join("rootfs/bin/mv")).unwrap();
        let id = bench.id();
        let create = ["create", "--preserve-fds", "1", "--bundle", bundle, &id];
        bench.finish(with_descriptor(&bench, &file, &create)).ok();
        bench.say(&["start", &id]).ok();
        let got = bench.bundle().join("rootfs/tmp/all");
        until_exists(&got);
        assert_eq!(fs::read_to_string(got).unwrap(), "through\n");
        let exec = ["exec", "--preserve-fds", "1", &id, "/bin/sh", "-c", script];
        assert_eq!(bench.finish(with_descriptor(&bench, &file, &exec)).ok().stdout, with);
    }

    fn a_relative_root_is_below_the_working_directory(caller) {
        let bench = Bench::new(caller);
        let (id, bundle) = (bench.id(), bench.bundle());
        let say = |args: &[&str]| {
            let mut command = bench.place.saggar();
            command.args(["--root", "oci"]).args(args).current_dir(bench.place.path()).stdin(Stdio::null());
            bench.finish(command)
        };
        say(&["create", "--bundle", bundle.to_str().unwrap(), &id]).ok();
        bench.status_is(&id, "created");
        assert_eq!(say(&["list", "--quiet"]).ok().stdout, format!("{id}\n"));
        say(&["start", &id]).ok();
        say(&["delete", "--force", &id]).ok();
        bench.is_clean(&id);
    }

    fn run_detached_writes_its_pid_file(caller) {
        let bench = Bench::new(caller);
        let (id, bundle, file) = (bench.id(), bench.bundle(), bench.place.join("work/pid"));
        bench.say(&["run", "-d", "--pid-file", file.to_str().unwrap(), "--bundle", bundle.to_str().unwrap(), &id]).ok();
        assert_eq!(fs::read_to_string(&file).unwrap(), bench.pid(&id).to_string());
    }

    fn ps_takes_the_options_of_ps(caller) {
        let bench = Bench::new(caller);
        let id = bench.start();
        let pid = bench.pid(&id).to_string();
        let rows = |args: &[&str]| bench.say(args).ok().stdout.lines().map(str::to_owned).collect::<Vec<_>>();
        for args in [&["ps", &id, "-ef"][..], &["ps", &id, "-e", "-o", "pid,comm"]] {
            let rows = rows(args);
            assert!(rows[0].contains("PID") && rows.len() == 2 && rows[1].contains(&pid), "{args:?}: {rows:?}");
        }
        bench.say(&["ps", &id, "-e", "-o", "comm"]).fails("no column PID");
        bench.say(&["ps", &id, "--no-such-option"]).fails("ps");
        bench.say(&["ps", &id, "--format", "yaml"]).fails("yaml");
    }

    fn checkpoints_are_refused_in_words(caller) {
        let bench = Bench::new(caller);
        for args in [["checkpoint", "some"], ["restore", "some"], ["checkpoint", "--help"]] {
            let said = bench.say(&args).fails("does not support checkpoints");
            assert_eq!((said.status.code(), said.stdout.as_str()), (Some(2), ""));
        }
    }

    /// Where systemd cannot be reached, by the socket that libraries of D-Bus look at.
    fn the_systemd_driver_without_systemd_is_an_error_and_leaves_nothing(caller) {
        let bench = Bench::new(caller);
        bench.configure(|config| config["linux"]["cgroupsPath"] = json!("system.slice:saggar:test"));
        let (id, bundle) = (bench.id(), bench.bundle());
        for manager in ["--systemd-cgroup", "--cgroup-manager=systemd"] {
            let mut command = bench.command(&[manager, "create", "--bundle", bundle.to_str().unwrap(), &id]);
            for bus in ["DBUS_SYSTEM_BUS_ADDRESS", "DBUS_SESSION_BUS_ADDRESS"] {
                command.env(bus, "unix:path=/nonexistent");
            }
            bench.finish(command).fails("systemd");
            bench.is_clean(&id);
        }
    }
}

fn root() -> Option<Bench> {
    Caller::root().ok().map(Bench::new)
}

/// The directory of a container's cgroup that has this controller, and what options call that controller.
pub(super) fn cgroup_with(bench: &Bench, id: &str, controller: &str) -> (PathBuf, String) {
    let text = fs::read_to_string(format!("/proc/{}/cgroup", bench.pid(id))).unwrap();
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.splitn(3, ':').collect()).collect();
    let below = |base: &Path, path: &str| base.join(path.trim_start_matches('/'));
    let root = Path::new("/sys/fs/cgroup");
    match lines.iter().find(|line| line[1].split(',').any(|name| name == controller)) {
        Some(line) => (below(&root.join(controller), line[2]), format!("{controller}:")),
        None => (below(root, lines.iter().find(|line| line[0] == "0").unwrap()[2]), String::new()),
    }
}

#[test]
fn exec_joins_the_named_cgroup_below_the_containers() {
    let Some(bench) = root() else { skip!("this test needs to be started as root") };
    let id = bench.start();
    let (cgroup, prefix) = cgroup_with(&bench, &id, "pids");
    fs::create_dir(cgroup.join("below")).unwrap();
    let exec = |named: &str| bench.say(&["exec", "--cgroup", named, &id, "/bin/cat", "/proc/self/cgroup"]);
    let inside = |said: Said| said.stdout.lines().filter(|line| line.ends_with("/below")).count();
    assert_eq!(inside(exec(&format!("{prefix}below")).ok()), 1);
    assert_eq!(inside(exec(&format!("{prefix}/below")).ok()), 1);
    exec(&format!("{prefix}nowhere")).fails("does not exist");
    exec(&format!("{prefix}../{id}")).fails("leads out");
    exec("nosuch:below").fails("no such controller");
}

/// What has no pid namespace of its own does not go with the first process.
#[test]
fn kill_all_reaches_processes_that_survive_the_init() {
    let Some(bench) = root() else { skip!("this test needs to be started as root") };
    bench.configure(|config| {
        config["linux"]["namespaces"].as_array_mut().unwrap().retain(|one| one["type"] != "pid");
    });
    let id = bench.start();
    let file = bench.place.join("work/pid");
    bench.say(&["exec", "-d", "--pid-file", file.to_str().unwrap(), &id, "/bin/sleep", "1000"]).ok();
    let other = Watch::of(fs::read_to_string(&file).unwrap().parse().unwrap()).unwrap();
    bench.say(&["kill", &id, "KILL"]).ok();
    bench.wait_stopped(&id);
    bench.say(&["kill", &id, "KILL"]).fails("container not running");
    assert!(!other.is_gone_by(Deadline::after(Duration::ZERO)));
    bench.say(&["kill", "--all", &id, "KILL"]).ok();
    other.wait_gone("the program of exec");
    bench.say(&["kill", "--all", &id, "KILL"]).fails("container not running");
    bench.say(&["delete", &id]).ok();
    bench.is_clean(&id);
}

#[test]
fn update_takes_each_limit_by_its_option() {
    let Some(bench) = root() else { skip!("this test needs to be started as root") };
    let id = bench.start();
    let stats = || bench.say(&["events", "--stats", &id]).ok().json()["data"].clone();
    bench.say(&["update", "--memory", "64M", "--pids-limit", "77", &id]).ok();
    assert_eq!(
        (&stats()["memory"]["usage"]["limit"], &stats()["pids"]["limit"]),
        (&json!(64 << 20), &json!(77))
    );
    bench.say(&["update", &id, "--memory=96M", "--pids-limit=-1"]).ok();
    assert_eq!(stats()["memory"]["usage"]["limit"], 96 << 20);
    bench.say(&["update", "--cpu-period", "100000", "--cpu-quota", "40000", "--cpu-shares", "512", &id]).ok();
    let (cgroup, prefix) = cgroup_with(&bench, &id, "cpu");
    let read = |name: &str| fs::read_to_string(cgroup.join(name)).unwrap().trim().to_owned();
    if prefix.is_empty() {
        assert_eq!(read("cpu.max"), "40000 100000");
    } else {
        assert_eq!((read("cpu.cfs_quota_us"), read("cpu.shares")), ("40000".to_owned(), "512".to_owned()));
    }
    bench.say(&["update", "--l3-cache-schema", "L3:0=f", &id]).fails("--l3-cache-schema");
    bench.say(&["update", "--resources", "/nonexistent", &id]).fails("/nonexistent");
    bench.say(&["update", "--pids-limit", "9", "nobody"]).fails("does not exist");
}

#[test]
fn events_reports_statistics_periodically_and_out_of_memory() {
    let Some(bench) = root() else { skip!("this test needs to be started as root") };
    bench.configure(|config| {
        // Once told to, it doubles a word until the kernel ends it.
        let eat = "until [ -e /tmp/go ]; do sleep 0.01; done; a=aaaaaaaa; while :; do a=$a$a; done";
        config["process"]["args"] = json!(["/bin/sh", "-c", eat]);
        config["linux"]["resources"] = json!({ "memory": { "limit": 24 << 20 } });
    });
    let id = bench.start();
    let mut command = bench.command(&["events", "--interval", "50ms", &id]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = Lines::new(child.stdout.take().unwrap());
    for _ in 0..3 {
        let event = lines.next_json(Deadline::usual());
        assert_eq!((&event["type"], &event["id"]), (&json!("stats"), &json!(id)), "{event}");
    }
    fs::write(bench.bundle().join("rootfs/tmp/go"), "").unwrap();
    let heard = lines.until(Deadline::usual(), |event| event["type"] == "oom");
    assert_eq!(heard.last().unwrap()["id"], json!(id));
    while lines.next_line(Deadline::usual()).unwrap().is_some() {}
    assert!(super::bundle::end_of(child, "events").success());
    bench.say(&["delete", &id]).ok();
    assert!(cgroups_named(&id).is_empty());
}
