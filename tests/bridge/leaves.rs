//! DECISIONS 9 and 10: whatever a program starts is born in its cgroup, and that goes with it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::killed::leftovers;
use super::served::{Served, Stage};
use crate::support::deadline::Deadline;
use crate::support::rounds;

/// Forks in its first instruction; parent and child then become `cat /proc/self/cgroup`, the parent last.
const FORKS_AT_ONCE: &str = r#"
__asm__(".globl _start\n_start: mov $57, %eax\n syscall\n mov %rax, %rdi\n and $-16, %rsp\n call after\n");
static long call(long number, long a, long b, long c, long d) {
    register long fourth __asm__("r10") = d;
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth)
                     : "rcx", "r11", "memory");
    return result;
}
void after(long child) {
    static const char *words[] = {"cat", "/proc/self/cgroup", 0};
    if (child != 0)
        call(61, child, 0, 0, 0);
    call(59, (long)"/bin/cat", (long)words, 0, 0);
    call(60, 1, 0, 0, 0);
}
"#;

/// The program, compiled into the work folder; or why it cannot be.
fn forks_at_once(stage: &Stage) -> Result<PathBuf, String> {
    let source = stage.place.make_file("forks.c", FORKS_AT_ONCE);
    let program = stage.work().join("forks");
    let mut gcc = Command::new("gcc");
    gcc.args(["-nostdlib", "-static", "-O1", "-fno-stack-protector", "-o"]).arg(&program).arg(source);
    let gcc = gcc.output().map_err(|error| format!("gcc cannot be run: {error}"))?;
    assert!(gcc.status.success(), "{}", String::from_utf8_lossy(&gcc.stderr));
    Ok(program)
}

/// Whether this caller's sandboxes have a cgroup here.
fn has_cgroup(served: &Served) -> bool {
    let agent = served.inside("__demo-agent");
    fs::read_to_string(format!("/proc/{}/cgroup", agent.pid())).unwrap().contains("/saggar-")
}

/// What the cgroup v2 hierarchy shows of the processes, one line for each.
fn unified(text: &str) -> Vec<&str> {
    text.lines().filter(|line| line.starts_with("0::")).collect()
}

as_each_caller! {
    /// KC-06: both processes of a program that forks in its first instruction are in its cgroup: of the first program
    /// of a sandbox, and of a command beside an agent.
    fn kc_06_forks_of_the_first_instruction_are_in_the_cgroup(caller) {
        let stage = Stage::new(caller);
        let program = match forks_at_once(&stage) {
            Ok(program) => program,
            Err(why) => skip!("{why}"),
        };
        let served = stage.demo();
        let mut client = served.connect();
        if !has_cgroup(&served) {
            // An ordinary user without a subtree has no cgroup to be born in; guests have one.
            return served.shut_down(&mut client);
        }
        for round in 0..rounds(20, 1000) {
            let told = client.exec(program.to_str().unwrap(), 30_000);
            let told = told["stdout"].as_str().unwrap();
            let (of_child, of_parent) = match unified(told)[..] {
                [child, parent] => (child, parent),
                _ => panic!("round {round}: {told}"),
            };
            assert_eq!(of_child, of_parent, "round {round}");
            assert!(of_child.starts_with("0::/../exec-"), "round {round}: {told}");
        }
        served.shut_down(&mut client);
        for round in 0..rounds(10, 1000) {
            let mut command = stage.place.saggar();
            command.args(["wrap", "--workspace"]).arg(stage.work()).arg("--").arg(&program);
            let output = command.output().unwrap();
            let told = String::from_utf8(output.stdout).unwrap();
            assert_eq!(unified(&told), ["0::/", "0::/"], "round {round}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }

    /// BP-22: a command that is killed takes along whatever got away from it; one that ends leaves it running.
    fn bp_22_escaped_descendants_die_with_a_killed_command(caller) {
        let stage = Stage::new(caller);
        let served = stage.demo();
        let mut client = served.connect();
        let command = |time: u32, end: &str| {
            format!("setsid sh -c 'echo > up-{time}; exec sleep {time}' & until test -s up-{time}; do :; done; {end}")
        };
        assert_eq!(client.exec(&command(1001, "echo up"), 30_000)["stdout"], "up\n");
        assert_eq!(client.exec(&command(1002, "sleep 1000"), 2000)["exitCode"], 124);
        let runs = |time: &str| served.process.descendants().iter().any(|(_, words)| words.iter().any(|word| word == time));
        let deadline = Deadline::usual();
        while runs("1002") {
            assert!(!deadline.remaining().is_zero(), "it lives: {:?}", served.process.descendants());
        }
        assert!(runs("1001"));
        served.shut_down(&mut client);
        assert_eq!(leftovers(&stage), [""; 0]);
    }
}
