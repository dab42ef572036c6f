//! pid 1 of the sandbox: unseen, untouched, undying.

use std::fs;

use super::probe::{self, probe};
use super::wrapped::Wrap;
use crate::kill::init_of;
use crate::support::caller::Caller;
use crate::support::deadline::Deadline;
use crate::support::process::Process;
use crate::support::wait;

as_each_caller! {
    /// KC-12: it has the uid of the programs, so only what it set on itself protects it.
    fn pid_one_cannot_be_looked_into(caller) {
        let probe = probe!();
        let wrap = Wrap::new(caller);
        let hidden = [
            "init_mem", "init_environ", "init_maps", "init_cmdline", "init_fd", "init_root", "init_cwd", "init_exe",
            "init_map_files", "init_task_fd", "setns_init",
        ];
        probe::expect_all(&wrap, probe, "ENOENT", &hidden);
        let refused = ["init_attach", "init_seize", "init_vm_readv", "init_pidfd_getfd"];
        probe::expect_all(&wrap, probe, "EPERM", &refused);
    }

    /// Where /proc hides nothing, "not dumpable" alone must do.
    fn pid_one_cannot_be_looked_into_without_hidepid(caller) {
        let probe = probe!();
        let wrap = Wrap::new(caller);
        let nesting = ["--profile", "nesting"];
        wrap.place.close();
        probe::expect(&wrap, probe, &nesting, &[
            ("init_mem", "EACCES"),
            ("init_environ", "EACCES"),
            ("init_maps", "EACCES"),
            ("init_fd", "EACCES"),
            ("init_root", "EACCES"),
            ("init_cwd", "EACCES"),
            ("init_exe", "EACCES"),
            ("init_map_files", "EACCES"),
            ("init_attach", "EPERM"),
            ("init_vm_readv", "EPERM"),
        ]);
        let words = wrap.run(&nesting, &["/bin/cat", "/proc/1/cmdline", "/proc/1/comm"]).success();
        assert_eq!(words.trim_matches(['\0', '\n']), "saggar:init", "its arguments are blank");
    }

    /// DECISIONS 7: the same uid, and still no say over its limits and its place in the queue.
    fn pid_one_cannot_be_crippled(caller) {
        let probe = probe!();
        let refused = [
            "init_prlimit", "init_setpriority", "user_setpriority", "init_affinity", "init_scheduler", "init_ioprio",
        ];
        probe::expect_all(&Wrap::new(caller), probe, "EPERM", &refused);
    }

    /// Every signal at once: those that the launcher's runtime handles, too.
    fn pid_one_survives_every_signal(caller) {
        let probe = probe!();
        let wrap = Wrap::new(caller);
        probe::install(&wrap, probe);
        // The second program is started by pid 1's reaping parent only if it lives: it also reaps an orphan.
        let alive = wrap.sh("./probe init_kill init_kill init_kill; (sleep 0.1 &); sleep 0.2; echo alive").success();
        assert!(alive.ends_with("alive\n"), "{alive}");
    }

    /// KC-33: orphans are reaped by pid 1, so no zombie stays.
    fn orphans_are_reaped(caller) {
        let wrap = Wrap::new(caller);
        let script = "for i in 1 2 3 4 5; do (true &) ; done; \
            for try in $(seq 10000); do grep -l '^State:.Z' /proc/[0-9]*/status >z 2>/dev/null || exit 0; done; cat z; exit 1";
        wrap.sh(script).success();
    }
}

/// DECISIONS 9: a program's arguments and environment pass by pid 1, which lends the program its memory until it is
/// one; nothing of them stays with pid 1.
#[test]
fn pid_one_keeps_nothing_of_a_program() {
    let Ok(root) = Caller::root() else { skip!("this test needs to be started as root") };
    let wrap = Wrap::new(root);
    let script = ["/bin/sh", "-c", ": > up; read word; exit 0"];
    let mut command = wrap.command(&["--env", "SECRET"], &script);
    command.env("SECRET", "s3cr3t-w0rd");
    let mut process = Process::start(&wrap.place, command);
    wait::until_exists(&wrap.work().join("up"));
    let init = init_of(&process).pid();
    // The program may run before pid 1, which has lent it its memory until then, goes on and gives pages back.
    let deadline = Deadline::usual();
    let status = || fs::read_to_string(format!("/proc/{init}/status")).unwrap();
    while !status().contains("State:\tS") {
        assert!(!deadline.remaining().is_zero(), "{}\n{:?}", status(), process.descendants());
        deadline.pause();
    }
    let maps = fs::read_to_string(format!("/proc/{init}/maps")).unwrap();
    assert!(maps.contains("[stack]") && !maps.contains("memfd"), "{maps}");
    let memory = fs::File::open(format!("/proc/{init}/mem")).unwrap();
    for line in maps.lines().filter(|line| line.contains(" rw-p ")) {
        let (from, to) = line.split_once(' ').and_then(|(range, _)| range.split_once('-')).unwrap();
        let (from, to) = (u64::from_str_radix(from, 16).unwrap(), u64::from_str_radix(to, 16).unwrap());
        let mut bytes = vec![0; usize::try_from(to - from).unwrap()];
        std::os::unix::fs::FileExt::read_exact_at(&memory, &mut bytes, from).unwrap();
        if let Some(at) = bytes.windows(11).position(|part| part == b"s3cr3t-w0rd") {
            let around = &bytes[at.saturating_sub(256)..bytes.len().min(at + 256)];
            panic!("it is at {line}: {}", String::from_utf8_lossy(around));
        }
    }
    drop(process.take_stdin());
    assert!(process.wait().success());
}
