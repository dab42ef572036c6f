//! `linux.seccomp`: what the programs of a container may call, from config.json to the kernel.

use super::bundle::{Bench, Said};
use serde_json::{Value, json};
use std::io::Read;
use std::os::unix::net::UnixListener;

/// Docker's default profile, as its engine writes it.
const DOCKER: &str = include_str!("../../crates/sandbox/src/plan/container/seccomp/tests/docker.json");

/// All that a static busybox calls to print a line and to end, and execve. What the runtime calls after the load
/// of a filter would have to be here too.
const LITTLE: [&str; 24] = [
    "execve",
    "brk",
    "arch_prctl",
    "set_tid_address",
    "set_robust_list",
    "rseq",
    "prlimit64",
    "readlink",
    "readlinkat",
    "getrandom",
    "mprotect",
    "exit_group",
    "mmap",
    "munmap",
    "write",
    "writev",
    "uname",
    "fstat",
    "newfstatat",
    "getuid",
    "setuid",
    "setgid",
    "getgid",
    "prctl",
];

fn run(bench: &Bench, seccomp: &Value, script: &str) -> Said {
    bench.configure(|config| {
        config["linux"]["seccomp"] = seccomp.clone();
        config["process"]["args"] = json!(["/bin/sh", "-c", script]);
    });
    bench.run(&bench.id())
}

fn but_mkdir(action: &str) -> Value {
    let rule = json!({ "names": ["mkdir", "mkdirat"], "action": action });
    json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": [rule] })
}

as_each_caller! {
    fn a_rule_answers_its_calls_and_no_others(caller) {
        let bench = Bench::new(caller);
        let mut seccomp = but_mkdir("SCMP_ACT_ERRNO");
        let mkdir = "busybox mkdir /tmp/a; echo $?; touch /tmp/b && cat /proc/self/status";
        let said = run(&bench, &seccomp, mkdir).ok();
        assert!(said.stderr.contains("Operation not permitted") && said.stdout.starts_with("1\n"), "{said:?}");
        assert!(said.stdout.contains("Seccomp:\t2\nSeccomp_filters:\t"), "{said:?}");
        seccomp["syscalls"][0]["errnoRet"] = json!(libc::EUSERS);
        let said = run(&bench, &seccomp, mkdir);
        assert!(said.stderr.contains("Too many users"), "{said:?}");
    }

    fn a_call_can_end_the_program(caller) {
        let bench = Bench::new(caller);
        for action in ["SCMP_ACT_KILL", "SCMP_ACT_KILL_THREAD", "SCMP_ACT_KILL_PROCESS", "SCMP_ACT_TRAP"] {
            let said = run(&bench, &but_mkdir(action), "exec busybox mkdir /tmp/a");
            assert_eq!(said.status.code(), Some(128 + libc::SIGSYS), "{action}: {said:?}");
            assert!(!bench.bundle().join("rootfs/tmp/a").exists());
        }
        let said = run(&bench, &but_mkdir("SCMP_ACT_LOG"), "busybox mkdir /tmp/a").ok();
        assert!(bench.bundle().join("rootfs/tmp/a").exists(), "{said:?}");
    }

    fn dockers_profile_holds_for_the_program_and_for_exec(caller) {
        let bench = Bench::new(caller);
        bench.configure(|config| config["linux"]["seccomp"] = serde_json::from_str(DOCKER).unwrap());
        let id = bench.start();
        let pid = bench.pid(&id);
        let filters = |text: &str| {
            let line = text.lines().find(|line| line.starts_with("Seccomp_filters:")).unwrap();
            line.split_whitespace().nth(1).unwrap().parse::<u32>().unwrap()
        };
        let own = filters(&std::fs::read_to_string("/proc/self/status").unwrap());
        assert_eq!(filters(&std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap()), own + 1);
        let said = bench.say(&["exec", &id, "/bin/sh", "-c", "cat /proc/self/status; echo a | cat"]).ok();
        assert_eq!(filters(&said.stdout), own + 1);
        assert!(said.stdout.ends_with("a\n"));
        for refused in ["unshare -U true", "hostname other", "swapoff /dev/null", "mount -t tmpfs none /tmp"] {
            let said = bench.say(&["exec", &id, "/bin/busybox", "sh", "-c", &format!("busybox {refused}")]);
            assert!(!said.status.success(), "{refused}: {said:?}");
            let why = &said.stderr;
            assert!(why.contains("not permitted") || why.contains("permission denied"), "{refused}: {said:?}");
        }
    }

    fn the_runtime_calls_nothing_that_a_strict_filter_lacks(caller) {
        let bench = Bench::new(caller);
        for default in ["SCMP_ACT_KILL_PROCESS", "SCMP_ACT_ERRNO"] {
            bench.configure(|config| {
                config["process"]["args"] = json!(["/bin/busybox", "echo", "through"]);
                let rule = json!({ "names": LITTLE, "action": "SCMP_ACT_ALLOW" });
                config["linux"]["seccomp"] = json!({ "defaultAction": default, "syscalls": [rule] });
            });
            for no_new_privileges in [false, true] {
                let mut config: Value = serde_json::from_slice(&std::fs::read(bench.bundle().join("config.json")).unwrap()).unwrap();
                config["process"]["noNewPrivileges"] = json!(no_new_privileges);
                bench.write_config(config.to_string().as_bytes());
                assert_eq!(bench.run(&bench.id()).ok().stdout, "through\n");
            }
        }
    }

    fn invalid_seccomp_settings_fail_create_with_their_json_path(caller) {
        let bench = Bench::new(caller);
        let with = |key: &str, value: Value| {
            let mut seccomp = but_mkdir("SCMP_ACT_ERRNO");
            seccomp[key] = value;
            run(&bench, &seccomp, "true")
        };
        with("flags", json!(["SECCOMP_FILTER_FLAG_NEW"])).fails("seccomp");
        with("architectures", json!(["SCMP_ARCH_VAX"])).fails("seccomp");
        with("defaultAction", json!("SCMP_ACT_PERMIT")).fails("seccomp");
        let rule = |value: u64, action: &str| {
            json!({ "names": ["ioctl"], "action": action, "args": [{ "index": 1, "value": value, "op": "SCMP_CMP_EQ" }] })
        };
        let clash = with("syscalls", json!([rule(7, "SCMP_ACT_TRAP"), rule(7, "SCMP_ACT_LOG")]));
        clash.fails("linux.seccomp.syscalls[0] and linux.seccomp.syscalls[1] want different actions for ioctl");
        let many: Vec<Value> = (0..5000).map(|value| rule(value, "SCMP_ACT_TRAP")).collect();
        with("syscalls", json!(many)).fails("more than 4096 instructions");
        let notify = run(&bench, &but_mkdir("SCMP_ACT_NOTIFY"), "true");
        notify.fails("listenerPath");
    }

    fn a_filter_without_its_listener_does_not_start(caller) {
        let bench = Bench::new(caller);
        let mut seccomp = but_mkdir("SCMP_ACT_NOTIFY");
        seccomp["listenerPath"] = json!(bench.place.join("work/nobody.sock"));
        run(&bench, &seccomp, "true").fails("linux.seccomp.listenerPath");
    }

    /// config-linux.md, The Container Process State. Listeners receive it with one call, such as those of the examples of libseccomp.
    fn a_listener_gets_the_whole_state_at_once(caller) {
        let bench = Bench::new(caller);
        let path = bench.place.join("work/listener.sock");
        let listener = UnixListener::bind(&path).unwrap();
        bench.give(&path);
        let mut seccomp = but_mkdir("SCMP_ACT_NOTIFY");
        seccomp["listenerPath"] = json!(path);
        bench.configure(|config| {
            config["process"]["args"] = json!(["/bin/busybox", "true"]);
            config["linux"]["seccomp"] = seccomp;
            config["annotations"] = json!({ "long": "x".repeat(20_000) });
        });
        let id = bench.id();
        bench.run(&id).ok();
        let mut state = vec![0; 1 << 16];
        let (mut connection, _) = listener.accept().unwrap();
        let length = connection.read(&mut state).unwrap();
        let state: Value = serde_json::from_slice(&state[..length]).unwrap();
        assert_eq!((&state["fds"], &state["state"]["id"]), (&json!(["seccompFd"]), &json!(id)));
        assert_eq!(state["state"]["annotations"]["long"].as_str().unwrap().len(), 20_000);
    }

    fn names_that_no_kernel_has_are_logged(caller) {
        let bench = Bench::new(caller);
        let mut seccomp = but_mkdir("SCMP_ACT_ERRNO");
        seccomp["syscalls"][0]["names"] = json!(["mkdir", "frobnicate"]);
        bench.configure(|config| {
            config["linux"]["seccomp"] = seccomp.clone();
            config["process"]["args"] = json!(["/bin/true"]);
        });
        let log = bench.place.join("work/log");
        let (id, bundle) = (bench.id(), bench.bundle());
        let said = bench.say(&["--log", log.to_str().unwrap(), "run", "--bundle", bundle.to_str().unwrap(), &id]);
        said.ok();
        let told = std::fs::read_to_string(&log).unwrap();
        assert!(told.contains("syscalls[0].names[1]: there is no system call"), "{told}");
        assert_eq!(told.matches("frobnicate").count(), 1, "{told}");
        // By several commands once too.
        std::fs::remove_file(&log).unwrap();
        bench.configure(|config| config["linux"]["seccomp"] = seccomp);
        let id = bench.id();
        for args in [&["create", "--bundle", bundle.to_str().unwrap(), &id][..], &["start", &id], &["exec", &id, "/bin/true"]] {
            bench.say(&[&["--log", log.to_str().unwrap()], args].concat()).ok();
        }
        let told = std::fs::read_to_string(&log).unwrap();
        assert_eq!(told.matches("frobnicate").count(), 1, "{told}");
    }
}
