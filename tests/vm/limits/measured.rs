//! What limits do, measured: forks, processor time, the speed of a disk.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::{Given, Run};
use crate::bundle::end_of;
use crate::support::deadline::Deadline;

/// The number after `name` in a file of such lines.
fn count(file: &Path, name: &str) -> u64 {
    let text = fs::read_to_string(file).unwrap();
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).unwrap().parse().unwrap()
}

as_each_caller! {
    /// KC-02: a fork bomb stays at its limit, and others can still fork.
    fn given_a_cgroup_a_fork_bomb_is_the_sandboxs_alone(caller) {
        let given = Given::new(caller);
        let bomb = "import os\nprint('up', flush=True)\nwhile True:\n try: os.fork()\n except BlockingIOError: pass";
        let limits = "pids = 50\ncpus = 0.5\nmemory = '1G'";
        let mut saggar = given.start(&Run { limits, program: &["python3", "-c", bomb], ..Run::default() });
        saggar.heard("up");
        let sandbox = given.sandbox();
        let deadline = Deadline::usual();
        while count(&sandbox.join("pids.events"), "max") < 100 {
            assert!(!deadline.remaining().is_zero(), "the bomb does not reach its limit");
            deadline.pause();
        }
        for _ in 0..5 {
            // The bomb goes on all the time: that another process starts and ends at all is what counts.
            assert!(end_of(Command::new("true").spawn().unwrap(), "another process").success());
            let now: u64 = fs::read_to_string(sandbox.join("pids.current")).unwrap().trim().parse().unwrap();
            assert!((40..=50).contains(&now), "{now} processes");
        }
        given.kill(saggar);
    }

    /// KC-04: four spinners get their quota together, within five percent.
    fn given_a_cgroup_spinners_get_their_quota(caller) {
        let given = Given::new(caller);
        let spin = "for i in 1 2 3 4; do while :; do :; done & done; echo up; wait";
        let mut saggar = given.start(&Run { limits: "cpus = 0.5", program: &["sh", "-c", spin], ..Run::default() });
        saggar.heard("up");
        let stat = given.sandbox().join("cpu.stat");
        let mut shares = Vec::new();
        let share = |used: u64, passed: Duration| Duration::from_micros(used).as_secs_f64() / passed.as_secs_f64();
        // Never more; and less only while the host of the guest gives it no time itself. Whoever is held up between
        // a clock and a count must see neither: the count lies within the one span, and around the other.
        for _ in 0..3 {
            let outer = Instant::now();
            let before = count(&stat, "usage_usec");
            let inner = Instant::now();
            // A span is measured; nothing is waited for.
            std::thread::sleep(Duration::from_secs(6));
            let least = inner.elapsed();
            let used = count(&stat, "usage_usec") - before;
            let most = outer.elapsed();
            assert!(share(used, most) <= 0.525, "{used} us in {most:?}");
            shares.push(share(used, least));
            if share(used, least) >= 0.475 {
                break;
            }
        }
        assert!(shares.last().unwrap() >= &0.475, "{shares:?} of a core");
        assert!(count(&stat, "nr_throttled") > 0);
        given.kill(saggar);
    }

    /// Rates of a disk, where nothing lies between the program and the disk; and of its own disk alone.
    fn given_a_cgroup_a_disk_is_as_slow_as_its_rates(caller) {
        let given = Given::new(caller);
        let work = given.place.work();
        let dd = |limit: &str, arguments: &str| {
            let limits = if limit.is_empty() { String::new() } else { format!("io = {{ {work:?} = {{ {limit} }} }}") };
            let script = format!("echo up; dd {arguments} 2>&1 >/dev/null | grep -c copied");
            let mut saggar = given.start(&Run { limits: &limits, program: &["sh", "-c", &script], ..Run::default() });
            saggar.heard("up");
            let begin = Instant::now();
            assert_eq!(saggar.line(), "1", "{}", given.stderr());
            let passed = begin.elapsed();
            assert_eq!(saggar.end(), Some(0), "{}", given.stderr());
            given.is_as_it_was();
            passed
        };
        let write = "if=/dev/zero of=file bs=256K count=16 conv=notrunc oflag=direct";
        let read = "if=file of=/dev/null bs=256K count=16 iflag=direct";
        let small = "if=/dev/zero of=file bs=4K count=60 conv=notrunc oflag=direct";
        // Four MiB at one MiB a second; sixty writes at fifteen a second: not sooner. A busy machine may take longer.
        let mut slowest = Duration::ZERO;
        for (limit, arguments) in
            [("write_bps = '1M'", write), ("read_bps = '1M'", read), ("write_iops = 15", small)]
        {
            let passed = dd(limit, arguments);
            assert!(passed >= Duration::from_secs(3), "{limit}: {passed:?}");
            slowest = slowest.max(passed);
        }
        // A limit would hold each time; the machine may be busy once.
        let is_free = |limit: &str, arguments: &str| (0..3).any(|_| dd(limit, arguments) < slowest / 2);
        assert!(is_free("", write), "without a limit it takes no less than {slowest:?}");
        assert!(is_free("write_bps = '1M'", read), "what is written has no say in what is read");
    }
}
