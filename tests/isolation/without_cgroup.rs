//! Limits where no cgroup can hold them: where the caller has cgroups, as root has, they are taken out of its sight.

use serde_json::Value;

use super::wrapped::{Ended, Wrap};
use crate::support::caller::Caller;

/// What starts saggar where it sees no cgroup.
const OUT_OF_SIGHT: &str =
    r#"exec unshare --mount sh -c 'umount --recursive --lazy /sys/fs/cgroup && exec "$@"' sh "$@""#;

/// The same for an ordinary user, who may cover a mount of others and not take it away.
const COVERED: &str = r#"exec unshare --user --map-current-user --keep-caps --mount sh -c 'mount -t tmpfs none /sys/fs/cgroup && exec setpriv --ambient-caps -all --inh-caps -all "$@"' sh "$@""#;

/// Limits that are less than the defaults, and no more than preferred.
const PREFERRED: [&str; 8] = ["--prefer", "limits", "--memory", "256M", "--pids", "20", "--cpus", "1"];

/// What tells the limits of the processes: memory, processes, CPUs.
const TELLS: &str =
    "awk '/^Max data/ { print $4, $5 } /^Max processes/ { print $3, $4 }' /proc/self/limits; nproc";

struct Host {
    wrap: Wrap,
    outside: &'static str,
}

/// A host without cgroups.
fn host(caller: Caller) -> Host {
    let wrap = Wrap::new(caller);
    if caller.is_root() {
        return Host { wrap, outside: OUT_OF_SIGHT };
    }
    let mut explain = wrap.place.saggar();
    explain.args(["explain", "--json"]);
    let report: Value = serde_json::from_str(&wrap.finish(explain).success()).unwrap();
    let rows = report["limits"].as_array().unwrap();
    let is_held = rows.iter().any(|row| row["name"] == "memory" && row["holds"] == true);
    Host { wrap, outside: if is_held { COVERED } else { r#"exec "$@""# } }
}

impl Host {
    fn sh(&self, options: &[&str], script: &str) -> Ended {
        self.wrap.started_by_shell(self.outside, options, &["/bin/sh", "-c", script])
    }
}

/// The lines about limits on standard error.
fn told(ended: &Ended) -> Vec<&str> {
    ended.stderr.lines().filter(|line| line.contains("no cgroup enforces")).collect()
}

as_each_caller! {
    fn processes_are_limited_instead(caller) {
        let host = host(caller);
        let ended = host.sh(&[], TELLS);
        assert_eq!(ended.success(), "2147483648 2147483648\n512 512\n1\n");
        let ended = host.sh(&PREFERRED, TELLS);
        assert_eq!(ended.success(), "268435456 268435456\n20 20\n1\n");
        // A limit that the caller has is not raised.
        let lower = host.outside.replacen("exec", "ulimit -d 100000; exec", 1);
        let ended = host.wrap.started_by_shell(&lower, &PREFERRED, &["/bin/sh", "-c", TELLS]);
        assert!(ended.success().starts_with("102400000 102400000\n"));
    }

    fn they_hold(caller) {
        let host = host(caller);
        let script = "
import os, threading
try:
    bytearray(300 << 20)
    print('memory')
except MemoryError:
    pass
children = 0
try:
    while children < 100:
        if os.fork() == 0: threading.Event().wait()
        children += 1
except BlockingIOError:
    pass
print('forked', 10 < children < 20)
";
        // Whatever its user runs outside is not counted.
        let busy = format!(
            "for i in $(seq 30); do sleep 1000 >/dev/null 2>&1 & all=\"$all $!\"; done; ({}); status=$?; kill $all; exit $status",
            host.outside
        );
        let ended = host.wrap.started_by_shell(&busy, &PREFERRED, &["/usr/bin/python3", "-c", script]);
        assert_eq!(ended.success(), "forked True\n");
    }

    fn one_line_tells_of_it(caller) {
        let host = host(caller);
        let ended = host.sh(&["--status-fd", "1"], "true");
        let [line] = told(&ended)[..] else { panic!("{ended:?}") };
        for part in ["saggar: no cgroup enforces memory, cpu, pids here: ", "; instead: 2G of data for each process, 512 processes by RLIMIT_NPROC, 1 CPU by affinity; ", "--quiet-degraded"] {
            assert!(line.contains(part), "no {part:?} in {line}");
        }
        let started: Value = serde_json::from_str(ended.stdout.lines().next().unwrap()).unwrap();
        for (name, instead) in [("memory", "each process is limited alone"), ("cpu", "whole CPUs are given"), ("pids", "RLIMIT_NPROC holds it")] {
            let lacks = started["degraded"].as_array().unwrap();
            let why = lacks.iter().find(|lack| lack["what"] == name).map(|lack| lack["why"].as_str().unwrap());
            assert!(why.is_some_and(|why| why.ends_with(instead)), "{started}");
        }
        assert!(told(&host.sh(&["--quiet-degraded"], "true")).is_empty());
        host.wrap.place.configure_user("[protections]\nquiet = true\n");
        assert!(told(&host.sh(&[], "true")).is_empty());
    }

    fn a_named_limit_is_refused(caller) {
        let host = host(caller);
        for (option, value, name) in [("--memory", "256M", "memory = 268435456"), ("--pids", "20", "pids = 20"), ("--cpus", "1", "cpu = 1.000")] {
            let ended = host.sh(&[option, value], "echo ran");
            ended.refused(&["the limit ", name, "cannot hold"]);
            assert!(told(&ended).is_empty(), "{ended:?}");
        }
        host.sh(&["--require", "limits"], "echo ran").refused(&["which is required, cannot hold"]);
    }
}
