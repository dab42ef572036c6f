//! State that somebody damaged: no verb hangs or crashes, the other containers are seen, and `delete --force`
//! frees everything.

use super::bundle::Bench;
use super::options::cgroup_with;
use crate::support::caller::Caller;
use crate::support::deadline::Deadline;
use crate::support::process::Watch;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

type Damage = (&'static str, fn(&Path));

const DAMAGES: [Damage; 9] = [
    ("gone", |_| {}),
    ("empty", |path| fs::write(path, "").unwrap()),
    ("cut", |path| fs::write(path, r#"{"version":1,"id":"#).unwrap()),
    ("garbage", |path| fs::write(path, b"\xff\0\xfe").unwrap()),
    ("huge", |path| fs::File::create(path).unwrap().set_len(1 << 40).unwrap()),
    ("deep", |path| fs::write(path, "[".repeat(1 << 20)).unwrap()),
    ("a FIFO", |path| nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap()),
    ("a link to a terminal", |path| symlink("/dev/tty", path).unwrap()),
    ("a directory", |path| fs::create_dir(path).unwrap()),
];

as_each_caller! {
    fn one_damaged_record_is_made_up_for_by_the_other(caller) {
        let bench = Bench::new(caller);
        for (what, damage) in DAMAGES {
            let id = bench.start();
            spoil(&bench, &id, &["state.json"], damage);
            let said = bench.say(&["state", &id]).ok();
            assert_eq!(said.json()["status"], "running", "{what}");
            bench.say(&["delete", "--force", &id]).ok();
            bench.is_clean(&id);
        }
    }

    fn no_verb_hangs_or_crashes_over_damaged_state_and_others_are_listed(caller) {
        let bench = Bench::new(caller);
        let whole = bench.start();
        for (what, damage) in DAMAGES {
            let id = bench.start();
            let watch = Watch::of(bench.pid(&id)).unwrap();
            spoil(&bench, &id, &["state.json", "state.copy.json", "config.json"], damage);
            for verb in ["state", "start", "pause", "resume", "kill", "ps", "delete", "events"] {
                bench.say(&[verb, &id]).fails(&id);
            }
            bench.say(&["exec", &id, "/bin/true"]).fails(&id);
            let listed = bench.say(&["list", "-q"]).ok().stdout;
            assert!(listed.contains(&whole), "{what}: {listed}");
            bench.say(&["delete", "--force", &id]).ok();
            assert!(!bench.state_dir(&id).exists(), "{what}");
            // By the record in its lock.
            watch.wait_gone(what);
            bench.is_clean(&id);
        }
        bench.status_is(&whole, "running");
    }

    /// What nothing leads to any more is said, and the exit status says it too.
    fn delete_force_reports_resources_that_it_cannot_find(caller) {
        let bench = Bench::new(caller);
        for (what, damage) in &DAMAGES[1..] {
            let id = bench.start();
            let watch = Watch::of(bench.pid(&id)).unwrap();
            let has_cgroup = bench.has_cgroup(&id);
            spoil(&bench, &id, &["state.json", "state.copy.json", "config.json", "lock"], *damage);
            let deleted = bench.say(&["delete", "--force", &id]);
            assert!(!bench.state_dir(&id).exists(), "{what}");
            if has_cgroup {
                // By its cgroup, which has the id in its name.
                assert!(deleted.status.success(), "{what}: {deleted:?}");
                watch.wait_gone(what);
                bench.is_clean(&id);
            } else {
                deleted.fails("its processes may still run");
                watch.signal(nix::sys::signal::Signal::SIGKILL);
                watch.wait_gone(what);
            }
        }
    }

    fn damaged_locks_and_sockets_block_no_command(caller) {
        let bench = Bench::new(caller);
        for name in ["lock", "start.sock"] {
            for (what, damage) in DAMAGES {
                let id = bench.id();
                bench.create(&id).ok();
                spoil(&bench, &id, &[name], damage);
                bench.say(&["state", &id]).ok();
                let started = bench.say(&["start", &id]);
                assert!(!started.stderr.contains("panicked"), "{name} {what}: {started:?}");
                bench.say(&["delete", "--force", &id]).ok();
                bench.is_clean(&id);
            }
        }
    }

    fn a_recycled_pid_is_never_taken_for_the_container(caller) {
        let bench = Bench::new(caller);
        let id = bench.start();
        let real = Watch::of(bench.pid(&id)).unwrap();
        let mut other = stranger(&bench, &id);
        for name in ["state.json", "state.copy.json"] {
            let path = bench.state_dir(&id).join(name);
            let mut record: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
            record["process"]["pid"] = other.id().into();
            fs::write(&path, record.to_string()).unwrap();
        }
        bench.status_is(&id, "stopped");
        bench.say(&["kill", &id, "KILL"]).fails("not running");
        bench.say(&["delete", "--force", &id]).ok();
        assert!(other.try_wait().unwrap().is_none(), "a stranger was killed");
        other.kill().unwrap();
        other.wait().unwrap();
        real.signal(nix::sys::signal::Signal::SIGKILL);
    }
}

/// Not even SIGKILL wakes whom the freezer of cgroup v1 holds, in the container's cgroup, in one that it made itself, or
/// in one of somebody else.
#[test]
fn delete_force_frees_what_is_frozen_anywhere() {
    let Ok(caller) = Caller::root() else { skip!("this test needs to be started as root") };
    let bench = Bench::new(caller);
    for place in ["own", "below", "elsewhere"] {
        let id = bench.start();
        let pid = bench.pid(&id);
        let watch = Watch::of(pid).unwrap();
        let (own, prefix) = cgroup_with(&bench, &id, "freezer");
        let above = own.parent().unwrap();
        let frozen = match place {
            "own" => own.clone(),
            "below" => own.join("below"),
            _ => above.join(format!("elsewhere-{}", std::process::id())),
        };
        let _ = fs::create_dir(&frozen);
        fs::write(frozen.join("cgroup.procs"), pid.to_string()).unwrap();
        let (is, value) =
            if prefix.is_empty() { ("cgroup.freeze", "1") } else { ("freezer.state", "FROZEN") };
        fs::write(frozen.join(is), value).unwrap();
        let deleted = bench.say(&["delete", "--force", &id]);
        let is_gone = watch.is_gone_by(Deadline::usual());
        let _ = fs::write(frozen.join(is), if prefix.is_empty() { "0" } else { "THAWED" });
        watch.wait_gone(place);
        let _ = fs::remove_dir(&frozen);
        assert!(is_gone && deleted.status.success(), "{place}: {deleted:?}");
        bench.is_clean(&id);
    }
}

/// In a cgroup that was there before, others have processes, and keep them where they are: with the freezer of version
/// 1, and in version 2, whichever the host has.
#[test]
fn delete_force_leaves_strangers_where_they_are() {
    let Ok(caller) = Caller::root() else { skip!("this test needs to be started as root") };
    let hierarchies = ["freezer", "unified", "."].map(|name| Path::new("/sys/fs/cgroup").join(name));
    let bench = Bench::new(caller);
    let name = format!("shared-{}", std::process::id());
    let mut tried = 0;
    for hierarchy in hierarchies.iter().filter(|hierarchy| hierarchy.join("cgroup.procs").exists()) {
        let (shared, below) = (hierarchy.join(&name), hierarchy.join(&name).join("below"));
        fs::create_dir_all(&below).unwrap();
        let mut stranger = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        fs::write(below.join("cgroup.procs"), stranger.id().to_string()).unwrap();
        bench.configure(|config| config["linux"]["cgroupsPath"] = format!("/{name}").into());
        let id = bench.start();
        let watch = Watch::of(bench.pid(&id)).unwrap();
        let deleted = bench.say(&["delete", "--force", &id]);
        let is = fs::read_to_string(below.join("cgroup.procs")).unwrap();
        stranger.kill().unwrap();
        stranger.wait().unwrap();
        fs::remove_dir(&below).unwrap();
        fs::remove_dir(&shared).unwrap();
        deleted.ok();
        watch.wait_gone("the container");
        assert_eq!(is.trim(), stranger.id().to_string(), "{hierarchy:?}");
        tried += 1;
    }
    assert!(tried > 0, "no hierarchy of cgroups below /sys/fs/cgroup");
}

/// A process that did not start in the clock tick in which the container did: within one, a pid does not come round.
fn stranger(bench: &Bench, id: &str) -> std::process::Child {
    let started =
        |pid: u32| saggar::state::process::ProcessId::from_pid(pid.cast_signed()).unwrap().start_time;
    let own = started(bench.pid(id));
    loop {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        if started(child.id()) != own {
            return child;
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

fn spoil(bench: &Bench, id: &str, names: &[&str], damage: fn(&Path)) {
    for name in names {
        let path = bench.state_dir(id).join(name);
        let _ = fs::remove_file(&path);
        damage(&path);
    }
}
