//! DECISIONS 9 and 10: whatever a program starts is born in its cgroup, and that goes with it.

use std::fs;
use std::path::{Path, PathBuf};
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

/// Creates a process in the cgroup whose directory is descriptor 9 (CLONE_INTO_CGROUP), and prints the result.
const CREATES_INTO: &str = r#"
import ctypes, errno, os, struct
args = ctypes.create_string_buffer(struct.pack("11Q", 1 << 33, 0, 0, 0, 17, 0, 0, 0, 0, 0, 9), 88)
libc = ctypes.CDLL(None, use_errno=True)
child = libc.syscall(435, args, 88)
if child == 0:
    os._exit(0)
print(errno.errorcode[ctypes.get_errno()] if child < 0 else "created")
"#;

/// Enters the cgroup `main` of the sandbox $0 with the directory $1 as descriptor 9, and executes the rest.
const IN_MAIN: &str = r#"echo $$ >"$0/main/cgroup.procs" && exec 9<"$1" && shift && exec "$@""#;

/// The unified hierarchy of this host.
fn unified_mount() -> &'static Path {
    let mounts = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].map(Path::new);
    mounts.into_iter().find(|mount| mount.join("cgroup.controllers").exists()).expect("cgroup v2 is mounted")
}

/// Whether a cgroup namespace bounds the moves of its processes: the mount option that systemd sets.
fn is_namespace_delegated() -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    mounts.lines().any(|line| line.contains(" cgroup2 ") && line.contains("nsdelegate"))
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
        for round in 0..rounds(8, 1000) {
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
        for round in 0..rounds(4, 1000) {
            let mut command = stage.place.saggar();
            command.args(["wrap", "--workspace"]).arg(stage.work()).arg("--").arg(&program);
            let output = command.output().unwrap();
            let told = String::from_utf8(output.stdout).unwrap();
            assert_eq!(unified(&told), ["0::/", "0::/"], "round {round}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }

    /// DECISIONS 10: the ids and the cgroup namespace of pid 1, which are those of the programs too, give no right to
    /// create a process in the leaf of a command, even with a descriptor of its directory.
    fn the_ids_of_a_sandbox_cannot_create_a_process_in_a_leaf(caller) {
        let stage = Stage::new(caller);
        let served = stage.demo();
        let mut client = served.connect();
        if !has_cgroup(&served) {
            return served.shut_down(&mut client);
        }
        // Its leaf stays with what it leaves running.
        assert_eq!(client.exec("sleep 1000 >/dev/null 2>&1 &", 30_000)["exitCode"], 0);
        let agent = served.inside("__demo-agent").pid();
        let text = fs::read_to_string(format!("/proc/{agent}/cgroup")).unwrap();
        let main = unified(&text)[0].strip_prefix("0::/").unwrap();
        let sandbox = unified_mount().join(main.strip_suffix("/main").unwrap());
        let entries = fs::read_dir(&sandbox).unwrap().map(|entry| entry.unwrap().path());
        let leaf = entries.into_iter().find(|path| path.is_dir() && !path.ends_with("main")).expect("a leaf");
        let run = |words: &[&str]| {
            let mut command = stage.place.command(Path::new("/bin/sh"));
            command.args(["-c", IN_MAIN]).arg(&sandbox).arg(&leaf).args(words);
            let output = command.output().unwrap();
            let stderr = String::from_utf8_lossy(&output.stderr);
            format!("{}{stderr}", String::from_utf8_lossy(&output.stdout))
        };
        let create = ["/usr/bin/python3", "-c", CREATES_INTO];
        let agent = agent.to_string();
        let enter = ["/usr/bin/nsenter", "--target", &agent, "--user", "--cgroup"];
        let ids: &[&str] = match caller.is_root() {
            true => &["--setuid", "1000", "--setgid", "1000"],
            false => &["--preserve-credentials"],
        };
        // The caller's own ids and namespace can.
        assert_eq!(run(&create), "created\n");
        let result = run(&[&enter[..], ids, &create].concat());
        // An ordinary user owns the files, so it is the namespace that refuses.
        let expected = match (caller.is_root(), is_namespace_delegated()) {
            (true, _) => "EACCES\n",
            (false, true) => "ENOENT\n",
            (false, false) => "created\n",
        };
        assert_eq!(result, expected);
        served.shut_down(&mut client);
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
