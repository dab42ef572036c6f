//! Limits read back as they were asked for, hold for the program, are told of, and are gone with it.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::time::Instant;

use serde_json::Value;

use super::{Given, Run, Saggar};
use crate::support::caller::Caller;
use crate::support::deadline::Deadline;
use crate::support::rounds;

/// Three forks from the first instruction on: eight processes, each of which says `.` and waits for the end of its
/// input.
const FORKER: &str = r#"
.globl _start
_start:
    mov $57, %eax
    syscall
    mov $57, %eax
    syscall
    mov $57, %eax
    syscall
    mov $1, %eax
    mov $1, %edi
    lea dot(%rip), %rsi
    mov $1, %edx
    syscall
    xor %eax, %eax
    xor %edi, %edi
    lea byte(%rip), %rsi
    mov $1, %edx
    syscall
    mov $60, %eax
    xor %edi, %edi
    syscall
.data
dot: .byte 46
byte: .byte 0
"#;

/// [`FORKER`] as a program in the work tree.
fn forker(given: &Given) -> String {
    let source = given.place.make_file("forker.s", FORKER);
    let program = given.place.work().join("forker");
    let gcc =
        Command::new("gcc").args(["-nostdlib", "-static", "-o"]).arg(&program).arg(source).output().unwrap();
    assert!(gcc.status.success(), "{}", String::from_utf8_lossy(&gcc.stderr));
    program.to_str().unwrap().to_owned()
}

/// All processes below one.
fn descendants(pid: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let children: Vec<u32> = children.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    children.iter().flat_map(|child| [vec![*child], descendants(*child)].concat()).collect()
}

fn comm(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_owned()
}

/// Limits on the command line, and what their files say.
const LIMITS: [&str; 6] = ["--memory", "64m", "--pids", "50", "--cpus", "0.5"];
const FILES: [(&str, &str); 4] =
    [("memory.max", "67108864"), ("memory.swap.max", "0"), ("pids.max", "50"), ("cpu.max", "50000 100000")];

impl Given {
    /// `saggar wrap LIMITS -- PROGRAM`.
    fn wrap(&self, program: &[&str]) -> Saggar {
        self.start(&Run { options: &LIMITS, program, ..Run::default() })
    }
}

/// How many kills `saggar metrics` has counted; tests of a guest run one after the other.
fn oom_kills(given: &Given) -> u64 {
    let output = given.place.saggar().arg("metrics").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let count = text.lines().find_map(|line| line.strip_prefix("saggar_oom_kills_total "));
    count.unwrap_or_else(|| panic!("{text}")).parse().unwrap()
}

as_each_caller! {
    /// KC-02 to KC-04, KC-07: limits read back as they were asked for, hold for the program, and are gone with it.
    fn given_a_cgroup_has_the_limits_that_were_named(caller) {
        let given = Given::new(caller);
        for _ in 0..3 {
            let mut saggar = given.wrap(&["sh", "-c", "echo up; cat"]);
            saggar.heard("up");
            let sandbox = given.sandbox();
            for (file, text) in FILES {
                assert_eq!(fs::read_to_string(sandbox.join(file)).unwrap().trim(), text, "{file}");
            }
            let inside = fs::read_to_string(sandbox.join("main/cgroup.procs")).unwrap();
            assert!(inside.lines().count() >= 2, "pid 1 and the program: {inside}");
            assert!(!inside.lines().any(|pid| pid == saggar.child.id().to_string()));
            assert_eq!(saggar.end(), Some(0));
            given.is_as_it_was();
        }
    }

    /// KC-03: what takes more memory than there is dies.
    fn given_a_cgroup_ends_an_allocator(caller) {
        let given = Given::new(caller);
        let mut saggar = given.wrap(&["sh", "-c", "python3 -c 'print(len(bytearray(200 << 20)))' || echo $?"]);
        saggar.heard("137");
        assert_eq!(saggar.end(), Some(0));
        let said = "a program was killed at the limit of memory of 64M, at most 6";
        assert!(given.stderr().contains(said), "{}", given.stderr());
        let events = given.events();
        let told = events.iter().filter(|event| event["event"] == "limit" && event["limit"] == "memory");
        assert_eq!(told.count(), 1, "{events:?}");
        given.is_as_it_was();
    }

    /// KC-08, KC-34: an end for want of memory is told from a signal and from an exit status that looks like it.
    fn given_a_cgroup_the_cause_of_a_killed_program_is_reported(caller) {
        let given = Given::new(caller);
        let exit_of = |program: &[&str]| (given.wrap(program).end(), given.exited());
        let before = oom_kills(&given);
        let (status, told) = exit_of(&["python3", "-c", "print(len(bytearray(200 << 20)))"]);
        assert_eq!((status, &told["reason"], &told["signal"]), (Some(137), &"oom".into(), &9.into()), "{told}");
        let usage = &told["usage"];
        assert_eq!((&usage["memory_max"], &usage["oom_kills"]), (&(64 << 20).into(), &1.into()));
        let peak = usage["memory_peak"].as_u64().unwrap();
        assert!((60 << 20..=64 << 20).contains(&peak), "{peak}");
        assert!(usage["cpu_usec"].as_u64().unwrap() > 0);
        let said = "python3 was killed at the limit of memory of 64M";
        assert!(told["message"].as_str().unwrap().starts_with(said), "{told}");
        assert!(given.stderr().contains(said));

        let (status, told) = exit_of(&["sh", "-c", "kill -9 $$"]);
        assert_eq!((status, &told["reason"], &told["signal"]), (Some(137), &"signal".into(), &9.into()), "{told}");
        assert_eq!((&told["usage"]["oom_kills"], &told["message"]), (&0.into(), &Value::Null));
        let (status, told) = exit_of(&["sh", "-c", "exit 137"]);
        assert_eq!((status, &told["reason"], &told["exit_code"]), (Some(137), &"exit".into(), &137.into()), "{told}");
        assert_eq!(oom_kills(&given) - before, 1, "saggar metrics");
        given.is_as_it_was();
    }

    /// KC-08: who kills the program after one of its tools died for want of memory is not the kernel.
    fn given_a_cgroup_a_kill_is_distinguished_from_the_oom_kill_of_a_tool(caller) {
        let given = Given::new(caller);
        // Without the kernel's log a kill at once after it could be either.
        let rest = if caller.is_root() { "" } else { "sleep 1;" };
        let script = format!("python3 -c 'print(len(bytearray(200 << 20)))'; {rest} kill -9 $$");
        let saggar = given.wrap(&["sh", "-c", &script]);
        assert_eq!(saggar.end(), Some(137));
        let told = given.exited();
        assert_eq!((&told["reason"], &told["signal"], &told["limit"]), (&"signal".into(), &9.into(), &Value::Null));
        assert_eq!((&told["usage"]["oom_kills"], &told["message"]), (&1.into(), &Value::Null), "{told}");
        let events = given.events();
        let killed: Vec<&Value> = events.iter().filter(|event| event["event"] == "oom").collect();
        assert_eq!(killed.len(), 1, "{events:?}");
        if caller.is_root() {
            assert_eq!(killed[0]["program"], "python3");
        }
        given.is_as_it_was();
    }

    /// KC-02: forks beyond the limit fail, and are counted.
    fn given_a_cgroup_forks_stop_at_the_limit(caller) {
        let given = Given::new(caller);
        let script = "import os, time\ntry:\n while os.fork(): pass\n time.sleep(1000)\nexcept BlockingIOError: pass";
        assert_eq!(given.wrap(&["python3", "-c", script]).end(), Some(0));
        let told = given.exited();
        assert!(told["usage"]["pids_refused"].as_u64().unwrap() > 0, "{told}");
        assert_eq!((&told["reason"], &told["limit"]), (&"exit".into(), &"pids".into()), "{told}");
        let events = given.events();
        let told = events.iter().filter(|event| event["event"] == "limit" && event["limit"] == "pids");
        assert_eq!(told.count(), 1, "{events:?}");
        given.is_as_it_was();
    }

    /// DECISIONS 11: the watcher goes back for a supervisor that was killed.
    fn given_a_cgroup_is_left_by_a_killed_supervisor(caller) {
        let given = Given::new(caller);
        let mut saggar = given.wrap(&["sh", "-c", "echo up; cat"]);
        saggar.heard("up");
        given.kill(saggar);
    }

    /// Where others are, nothing is switched on over their heads: the limit is refused, and the cure named. Root has another
    /// place.
    fn given_a_cgroup_with_others_in_it_is_left_alone(caller) {
        let given = Given::new(caller);
        let mut other = Command::new("sleep").arg("1000").spawn().unwrap();
        fs::write(given.path.join("cgroup.procs"), other.id().to_string()).unwrap();
        let status = given.wrap(&["echo", "ran"]).end();
        // Root has another place for its limits, and an ordinary user the cgroup above, where that is delegated to it.
        let have_another = caller.is_root() || !Caller::current().is_root();
        assert_eq!(status, Some(if have_another { 0 } else { 125 }));
        let said = given.stderr();
        let words = ["the limit memory = 67108864, from command line", "other processes are in", "alone in a cgroup of its own"];
        if !have_another {
            words.iter().for_each(|word| assert!(said.contains(word), "no {word:?} in: {said}"));
        }
        other.kill().unwrap();
        other.wait().unwrap();
        given.is_as_it_was();
    }

    /// Every limit that a policy can name is in the file that the kernel has for it.
    fn given_a_cgroup_has_every_limit_of_a_policy(caller) {
        let given = Given::new(caller);
        let disk = given.place.work();
        let limits = format!(
            "memory = '64M'\nmemory_high = '48M'\nswap = '8M'\npids = 50\ncpus = 0.5\ncpu_burst = '20ms'\n\
             cpu_weight = 50\ncpuset_cpus = '1'\ncpuset_mems = '0'\nio_weight = 200\n\
             io = {{ {disk:?} = {{ read_bps = '10M', write_bps = '5M', read_iops = 1000, write_iops = 500 }} }}"
        );
        let program = ["python3", "-c", "import os; print(os.sched_getaffinity(0), flush=True); input()"];
        let mut saggar = given.start(&Run { limits: &limits, program: &program, ..Run::default() });
        saggar.heard("{1}");
        let sandbox = given.sandbox();
        let disk = fs::read_to_string("/sys/class/block/vda/dev").unwrap();
        let io_max = format!("{} rbps=10485760 wbps=5242880 riops=1000 wiops=500", disk.trim());
        let weight = if sandbox.join("io.weight").exists() { "io.weight" } else { "io.bfq.weight" };
        let of_bfq = 100 + (200 - 100) * 900 / 9900;
        let io_weight = if weight == "io.weight" { "default 200".to_owned() } else { format!("default {of_bfq}") };
        for (file, text) in [
            ("memory.max", "67108864"), ("memory.high", "50331648"), ("memory.swap.max", "8388608"),
            ("pids.max", "50"), ("cpu.max", "50000 100000"), ("cpu.max.burst", "20000"), ("cpu.weight", "50"),
            ("cpuset.cpus", "1"), ("cpuset.cpus.effective", "1"), ("cpuset.mems.effective", "0"),
            (weight, &io_weight), ("io.max", &io_max),
        ] {
            assert_eq!(fs::read_to_string(sandbox.join(file)).unwrap().trim(), text, "{file}");
        }
        saggar.end();
        given.is_as_it_was();

        // Of two names of one disk the lower rate holds, whichever is the later.
        let number = disk.trim();
        for (first, second) in [("5M", "9M"), ("9M", "5M")] {
            let limits = format!("io = {{ '/dev/vda' = {{ write_bps = '{first}' }}, '{number}' = {{ write_bps = '{second}' }} }}");
            let mut saggar = given.start(&Run { limits: &limits, program: &["sh", "-c", "echo up; cat"], ..Run::default() });
            saggar.heard("up");
            let io_max = fs::read_to_string(given.sandbox().join("io.max")).unwrap();
            assert_eq!(io_max.trim(), format!("{number} rbps=max wbps=5242880 riops=max wiops=max"));
            saggar.end();
        }

        let limits = "cpu_idle = true\nmemory_high = '32M'";
        let mut saggar = given.start(&Run { limits, program: &["sh", "-c", "echo up; cat"], ..Run::default() });
        saggar.heard("up");
        let sandbox = given.sandbox();
        assert_eq!(fs::read_to_string(sandbox.join("cpu.idle")).unwrap().trim(), "1");
        assert_eq!(given.read("cgroup.subtree_control").trim(), "cpu memory pids", "and no other controller");
        assert_eq!(saggar.end(), Some(0));
        given.is_as_it_was();
    }

    /// A program that takes more than memory.high goes on, slower, and is not killed.
    fn given_a_cgroup_memory_above_the_high_mark_is_no_death(caller) {
        let given = Given::new(caller);
        let limits = "memory = '256M'\nmemory_high = '16M'";
        let program = ["python3", "-c", "print(len(bytearray(24 << 20)))"];
        let mut saggar = given.start(&Run { limits, program: &program, ..Run::default() });
        saggar.heard(&(24 << 20).to_string());
        assert_eq!(saggar.end(), Some(0));
        assert_eq!(given.exited()["usage"]["oom_kills"], 0);
        given.is_as_it_was();
    }

    /// DECISIONS 11: at whatever moment that happens.
    fn given_a_cgroup_goes_whenever_its_supervisor_is_killed(caller) {
        let given = Given::new(caller);
        // How long a whole run takes; kills are spread over it.
        let begin = Instant::now();
        assert_eq!(given.wrap(&["true"]).end(), Some(0));
        let (span, rounds) = (begin.elapsed(), u32::try_from(rounds(12, 250)).unwrap());
        for round in 0..rounds {
            let mut saggar = given.wrap(&["sh", "-c", "cat; true"]);
            // The moment is what this test is about; nothing is waited for.
            std::thread::sleep(span * round / rounds);
            saggar.child.kill().unwrap();
            saggar.child.wait().unwrap();
            let deadline = Deadline::usual();
            let left = || (given.children(), given.read("cgroup.procs"), given.read("cgroup.subtree_control"));
            while left() != (Vec::new(), String::new(), "\n".to_owned()) && left() != Default::default() {
                assert!(!deadline.remaining().is_zero(), "round {round}: {:?}", left());
                deadline.pause();
            }
        }
        given.is_as_it_was();
    }

    /// KC-06: forks of a program that forks in its first instruction.
    fn given_a_cgroup_forks_of_the_first_instruction_are_in_it(caller) {
        let given = Given::new(caller);
        let forker = forker(&given);
        for run in 0..rounds(25, 1000) {
            let mut saggar = given.start(&Run { options: &LIMITS, program: &[&forker], ..Run::default() });
            // Each of the eight says so when it is there.
            saggar.heard_bytes(&[b'.'; 8]);
            let main = given.sandbox().join("main");
            let inside = || -> BTreeSet<u32> {
                fs::read_to_string(main.join("cgroup.procs")).unwrap().lines().map(|pid| pid.parse().unwrap()).collect()
            };
            let programs = || -> Vec<u32> {
                descendants(saggar.child.id()).into_iter().filter(|pid| comm(*pid) == "forker").collect()
            };
            // A child of pid 1 that was of use for the start alone may be about to end, and /proc's lists of
            // children leave some out while another of them goes.
            let deadline = Deadline::usual();
            while (inside().len(), programs().len()) != (9, 8) && !deadline.remaining().is_zero() {
                deadline.pause();
            }
            let (inside, programs) = (inside(), programs());
            assert_eq!(inside.len(), 9, "run {run}: pid 1 and eight programs");
            assert_eq!(programs.len(), 8, "run {run}");
            assert!(programs.iter().all(|pid| inside.contains(pid)), "run {run}: {programs:?} {inside:?}");
            assert_eq!(saggar.end(), Some(0));
        }
        given.is_as_it_was();
    }

    /// KC-07: time after time.
    fn given_a_cgroup_cycles_leave_nothing(caller) {
        let given = Given::new(caller);
        for _ in 0..rounds(20, 500) {
            assert_eq!(given.wrap(&["true"]).end(), Some(0), "{}", given.stderr());
            given.is_as_it_was();
        }
    }
}
