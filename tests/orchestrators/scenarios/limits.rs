//! Resource limits, as the kernel tells them inside, and what happens at them.

use super::{Background, eventually, shell};
use crate::callers::{Engine, IMAGE, Kind, is_systemd, is_unified};

/// Prints a limit: the file of cgroup v2 or of v1.
fn file(unified: &str, legacy: &str) -> String {
    if is_unified() {
        format!("cat /sys/fs/cgroup/{unified}")
    } else {
        format!("cat /sys/fs/cgroup/{legacy}")
    }
}

pub(super) fn memory(engine: &dyn Engine) {
    let limit = file("memory.max", "memory/memory.limit_in_bytes");
    assert_eq!(shell(engine, &["--memory", "64m"], &limit), (64 << 20).to_string());
    let reservation = file("memory.low", "memory/memory.soft_limit_in_bytes");
    let said = shell(engine, &["--memory", "64m", "--memory-reservation", "32m"], &reservation);
    assert_eq!(said, (32 << 20).to_string());
    if is_unified() {
        // Memory and swap together in the options, swap alone in cgroup v2.
        let said =
            shell(engine, &["--memory", "64m", "--memory-swap", "96m"], "cat /sys/fs/cgroup/memory.swap.max");
        assert_eq!(said, (32 << 20).to_string());
    }
}

pub(super) fn pids(engine: &dyn Engine) {
    assert_eq!(shell(engine, &["--pids-limit", "20"], &file("pids.max", "pids/pids.max")), "20");
    let many = "at=0; while [ $at -lt 40 ]; do sleep 100 & at=$((at+1)); done";
    let said = engine.run(&["run", "--rm", "--pids-limit", "20", IMAGE, "sh", "-c", many]);
    assert_ne!(said.code(), 0, "{said}");
    said.mentions("an't fork");
}

pub(super) fn cpu(engine: &dyn Engine) {
    if is_unified() {
        assert_eq!(shell(engine, &["--cpus", "0.5"], "cat /sys/fs/cgroup/cpu.max"), "50000 100000");
        // 1024 shares are the default of both: weight 100, and 39 for runc before 1.4 and crun before 1.23.
        let weight = shell(engine, &["--cpu-shares", "1024"], "cat /sys/fs/cgroup/cpu.weight");
        assert!(["100", "39"].contains(&weight.as_str()), "{weight}");
    } else {
        let quota = "cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us /sys/fs/cgroup/cpu/cpu.cfs_period_us";
        assert_eq!(shell(engine, &["--cpus", "0.5"], quota), "50000\n100000");
        assert_eq!(shell(engine, &["--cpu-shares", "512"], "cat /sys/fs/cgroup/cpu/cpu.shares"), "512");
    }
}

pub(super) fn cpuset(engine: &dyn Engine) {
    if is_systemd() && engine.is_rootless() {
        // Debian's user@.service is given no cpuset.
        let refused = engine.run(&["run", "--rm", "--cpuset-cpus", "1", IMAGE, "true"]);
        assert_ne!(refused.code(), 0, "{refused}");
        refused.mentions("cpuset");
        return;
    }
    let said = shell(engine, &["--cpuset-cpus", "1"], "grep Cpus_allowed_list /proc/self/status");
    assert!(said.ends_with("\t1"), "{said}");
}

pub(super) fn out_of_memory(engine: &dyn Engine) {
    // One endless line: tail has to keep it. Its parent outlives it, since containerd drops what it hears of a
    // cgroup that is gone by then, with runc as often.
    let line =
        "trap 'exit 7' TERM; tail /dev/zero; echo ended with $?; while :; do sleep 1000 & wait $!; done";
    let limits = ["--memory", "32m", "--memory-swap", "32m"];
    let container = Background::run(engine, &limits, &["sh", "-c", line]);
    container.expect("ended with");
    assert!(container.logs().contains("ended with 137"), "{}", container.logs());
    // Podman is told by conmon, and Debian's 2.1.6 tells it nothing, with runc neither.
    if engine.kind() == Kind::Docker {
        let events = ["events", "--since", "1h", "--until", "0s", "--filter", "event=oom", "--filter"];
        let of_this = format!("container={}", container.name);
        eventually("its event", || {
            let said = engine.run(&[&events[..], &[&of_this]].concat());
            if said.stdout.contains("container oom") { Ok(()) } else { Err(said.to_string()) }
        });
    }
    engine.run(&["kill", "--signal", "TERM", &container.name]).exits(0);
    assert_eq!(container.wait(), "7");
    if engine.kind() == Kind::Docker {
        assert_eq!(container.inspect(".State.OOMKilled"), "true");
    }
}

pub(super) fn update(engine: &dyn Engine) {
    let container =
        Background::waiting(engine, &["--memory", "64m", "--memory-swap", "128m", "--pids-limit", "50"]);
    engine.run(&["update", "--memory", "96m", "--memory-swap", "192m", &container.name]).exits(0);
    let limit = file("memory.max", "memory/memory.limit_in_bytes");
    assert_eq!(container.exec(&["sh", "-c", &limit]), (96 << 20).to_string());
    // Podman 4.3 has no such option.
    if engine.kind() == Kind::Docker {
        engine.run(&["update", "--pids-limit", "77", &container.name]).exits(0);
        assert_eq!(container.exec(&["sh", "-c", &file("pids.max", "pids/pids.max")]), "77");
    }
    engine.run(&["update", "--cpus", "0.25", &container.name]).exits(0);
    let quota = container.exec(&["sh", "-c", &file("cpu.max", "cpu/cpu.cfs_quota_us")]);
    assert!(quota.starts_with("25000"), "{quota}");
    // What was not named stays.
    assert_eq!(container.exec(&["sh", "-c", &limit]), (96 << 20).to_string());
}

pub(super) fn rlimits(engine: &dyn Engine) {
    let said = shell(
        engine,
        &["--ulimit", "nofile=100:200", "--ulimit", "nproc=512:1024", "--ulimit", "core=0"],
        "ulimit -Sn; ulimit -Hn; ulimit -c",
    );
    assert_eq!(said, "100\n200\n0");
}

pub(super) fn oom_score(engine: &dyn Engine) {
    assert_eq!(shell(engine, &["--oom-score-adj", "500"], "cat /proc/self/oom_score_adj"), "500");
}
