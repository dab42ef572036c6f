//! The processes beside a container that has a bridge: their rights by /proc, and what becomes of the container without
//! them.

use nix::sys::signal::Signal;
use serde_json::json;

use super::account::{self, Account, family};
use crate::control::client::ControlClient;
use crate::oci::bridge::{beside, both_gone, demo, demo_with, keeper, socket};
use crate::oci::bundle::Bench;
use crate::support::bridge_client::BridgeClient;
use crate::support::caller::Caller;
use crate::support::process::Watch;

/// DAC_OVERRIDE, KILL, SYS_PTRACE.
const KEEPER: u64 = 0x8_0022;
/// CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, KILL, SETGID, SETUID, SETPCAP, SYS_CHROOT, SYS_PTRACE, SYS_ADMIN, SYS_NICE,
/// SYS_RESOURCE.
const STARTER: u64 = 0x1ac_01e7;
/// CAP_MKNOD, which no start of a command takes.
const MKNOD: u64 = 1 << 27;

/// The starter of a container whose program runs.
fn starter(keeper: u32) -> Account {
    let starter = Account::children(keeper).into_iter().next().expect("the keeper has a starter");
    account::until(starter.pid, |account| account.name == "saggar:starter")
}

as_each_caller! {
    /// The supervisor has given everything up, and what takes a right its keeper and the starter do.
    fn the_processes_beside_a_container_have_the_rights_of_the_table(caller) {
        let bench = Bench::new(caller);
        demo(&bench);
        let id = bench.start();
        let mut client = BridgeClient::connect(&socket(&bench, &id));
        assert!(client.turn("hello").is_done());
        // The starter has given up what it does not need before it starts the first command.
        assert_eq!(client.exec("exit 3", 30_000)["exitCode"], 3);
        let beside = beside(&bench, &id);
        let supervisor = Account::of(beside[0].pid()).unwrap();
        supervisor.assert_powerless();
        let keeper = family(supervisor.pid, "saggar:keeper");
        let starter = starter(keeper.pid);
        assert_eq!((keeper.no_new_privs, keeper.seccomp), (1, 2), "{keeper:?}");
        // Commands would inherit both.
        assert_eq!((starter.no_new_privs, starter.seccomp), (0, 0), "{starter:?}");
        for known in [&keeper, &starter] {
            assert_eq!((known.inheritable, known.ambient), (0, 0), "{known:?}");
            assert!(known.uids.iter().all(|id| *id == caller.uid().as_raw()), "{known:?}");
        }
        for (one, other) in [(&supervisor, &keeper), (&supervisor, &starter), (&keeper, &starter)] {
            assert!(!account::share_memory(one.pid, other.pid), "{one:?} and {other:?} have one memory");
        }
        if caller.is_root() {
            assert!(supervisor.uids.iter().chain(&supervisor.gids).all(|id| *id >= 1 << 20), "{supervisor:?}");
            assert_eq!(supervisor.bounding, 0, "{supervisor:?}");
            // Root of a container may have fewer.
            let own = Account::of(std::process::id()).unwrap().effective;
            for (known, kept) in [(&keeper, KEEPER & own), (&starter, STARTER & own)] {
                assert_eq!((known.permitted, known.effective, known.bounding), (kept, kept, kept), "{known:?}");
            }
        } else {
            assert_eq!((keeper.permitted, keeper.effective), (0, 0), "{keeper:?}");
            assert_eq!((starter.permitted, starter.effective), (0, 0), "{starter:?}");
        }
        assert_eq!(client.exec("exit 4", 30_000)["exitCode"], 4);
        assert_eq!(client.exec("kill -9 $$", 30_000)["exitCode"], 137);
        assert!(client.turn("hello").is_done());
        Account::of(beside[0].pid()).unwrap().assert_powerless();
        let watches = [keeper.pid, starter.pid].map(|pid| Watch::of(pid).expect("it lives"));
        bench.say(&["kill", &id, "KILL"]).ok();
        both_gone(&beside);
        watches.iter().for_each(|watch| watch.wait_gone("the keeper and the starter"));
        assert!(!socket(&bench, &id).exists() && !bench.state_dir(&id).join("control.sock").exists());
        bench.say(&["delete", &id]).ok();
        bench.is_clean(&id);
    }

    /// What the starter gives up is nothing that a command is to have: it has what `saggar exec` gives.
    fn commands_of_a_bridge_have_the_capabilities_of_their_container(caller) {
        let bench = Bench::new(caller);
        for capabilities in [json!([]), json!(["CAP_NET_RAW", "CAP_MKNOD", "CAP_SYS_MODULE", "CAP_CHOWN"])] {
            demo_with(&bench, |config| {
                config["process"]["capabilities"] =
                    json!({ "bounding": &capabilities, "effective": &capabilities, "permitted": &capabilities });
            });
            let id = bench.start();
            let mut client = BridgeClient::connect(&socket(&bench, &id));
            let look = "busybox grep -E '^(Cap|NoNewPrivs|Seccomp)' /proc/self/status";
            let by_bridge = client.exec(look, 30_000);
            let by_exec = bench.say(&["exec", &id, "/bin/sh", "-c", look]).ok().stdout;
            assert_eq!(by_bridge["stdout"], by_exec, "{by_bridge}");
            let has_mknod = by_exec.lines().any(|line| {
                let set = line.strip_prefix("CapEff:").and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
                set.is_some_and(|set| set & MKNOD != 0)
            });
            assert_eq!(has_mknod, capabilities != json!([]), "{by_exec}");
            bench.say(&["delete", "--force", &id]).ok();
        }
    }

    /// The container ends, and nothing of it is left but what `delete` removes.
    fn killed_keeper_or_starter_ends_the_container(caller) {
        let bench = Bench::new(caller);
        demo(&bench);
        for kills_starter in [false, true] {
            let id = bench.start();
            let mut client = BridgeClient::connect(&socket(&bench, &id));
            assert!(client.turn("hello").is_done());
            client.send(&json!({"cmd": "exec", "command": "echo up; exec sleep 1000", "timeout": 600_000}));
            let (beside, init) = (beside(&bench, &id), Watch::of(bench.pid(&id)).unwrap());
            let keeper = keeper(&bench, &id);
            let starter = Watch::of(starter(keeper.pid()).pid).unwrap();
            if kills_starter { &starter } else { &keeper }.signal(Signal::SIGKILL);
            init.wait_gone("the init");
            both_gone(&beside);
            keeper.wait_gone("the keeper");
            starter.wait_gone("the starter");
            assert!(!socket(&bench, &id).exists());
            assert!(!bench.state_dir(&id).join("control.sock").exists());
            bench.say(&["delete", &id]).ok();
            bench.is_clean(&id);
        }
    }

    /// A request has a bound, of which the answer tells, and the next command runs.
    fn command_longer_than_an_argument_is_refused(caller) {
        let bench = Bench::new(caller);
        demo(&bench);
        let id = bench.start();
        let mut client = BridgeClient::connect(&socket(&bench, &id));
        let of_length = |length: usize| format!("exit 5 #{}", "x".repeat(length - 8));
        let longest = (128 << 10) - 1;
        assert_eq!(client.exec(&of_length(longest), 30_000)["exitCode"], 5);
        client.send(&json!({"cmd": "exec", "command": of_length(longest + 1), "timeout": 30_000, "id": "long"}));
        let answer = client.events_until(|event| event["id"] == "long").pop().unwrap();
        assert_eq!(answer["ev"], "error", "{answer}");
        assert!(answer["error"].as_str().unwrap().contains("131072 bytes"), "{answer}");
        assert_eq!(client.exec("exit 6", 30_000)["exitCode"], 6);
    }
}

/// What they keep does for all that the loop asks of them, and their log is theirs.
#[test]
fn keeper_with_its_filter_does_all_that_it_is_asked() {
    let Ok(caller) = Caller::root() else { skip!("this test needs to be started as root: cgroups") };
    let bench = Bench::new(caller);
    demo(&bench);
    let id = bench.start();
    let mut client = ControlClient::connect(&bench.state_dir(&id).join("control.sock"));
    assert_eq!(client.get("state")["status"], "running");
    assert!(client.get("stats").is_object());
    client.get("pause");
    assert_eq!(client.get("state")["status"], "paused");
    client.get("resume");
    let update = json!({ "resources": { "pids": { "limit": 77 }, "cpu": { "shares": 512 } } });
    assert_eq!(client.call("update", &update), json!({ "generation": 2 }));
    let late = client.call("exec", &json!({ "command": "(sleep 100 &); sleep 100", "timeout": 100 }));
    assert_eq!(late["exitCode"], 124, "{late}");
    client.call("kill", &json!({ "signal": "KILL" }));
    bench.wait_stopped(&id);
    let log = std::fs::read_to_string(bench.state_dir(&id).join("bridge.log")).unwrap_or_default();
    let errors: Vec<&str> = log.lines().filter(|line| line.contains("\"error\"")).collect();
    assert!(errors.is_empty(), "{errors:?}");
}

/// A loop that was taken over has neither the container's rights nor the host's.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_supervisor_of_a_container_that_was_taken_over_can_do_no_harm() {
    let Ok(caller) = Caller::root() else {
        skip!("this test needs to be started as root: only root may trace a supervisor")
    };
    let bench = Bench::new(caller);
    demo(&bench);
    let id = bench.start();
    let mut client = BridgeClient::connect(&socket(&bench, &id));
    assert!(client.turn("hello").is_done());
    super::taken::assert_harmless(beside(&bench, &id)[0].pid());
    // It goes on.
    assert!(client.turn("hello").is_done());
    assert_eq!(client.exec("exit 3", 30_000)["exitCode"], 3);
}

/// A keeper that was taken over has the rights over its container, and no way to a program, another process's memory, a
/// mount, or a host.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_keeper_that_was_taken_over_starts_nothing_and_traces_nothing() {
    use super::relay::{assert_refused, int, opens};

    let Ok(caller) = Caller::root() else {
        skip!("this test needs to be started as root: only root may trace a keeper")
    };
    let bench = Bench::new(caller);
    demo(&bench);
    let id = bench.start();
    let mut client = BridgeClient::connect(&socket(&bench, &id));
    assert!(client.turn("hello").is_done());
    let keeper = family(beside(&bench, &id)[0].pid(), "saggar:keeper").pid;
    let starter = u64::from(starter(keeper).pid);
    let taken = super::taken::Taken::over(keeper);
    let flags = int(libc::CLONE_NEWUSER | libc::CLONE_NEWNS);
    let socket =
        |domain: i32, of_type: i32, protocol: i32| [int(domain), int(of_type), int(protocol), 0, 0, 0];
    let planted = "/tmp/saggar-taken";
    assert_refused(&[
        ("execute", taken.call(libc::SYS_execve, [0; 6], Some((0, "/bin/sh")))),
        ("execute by descriptor", taken.call(libc::SYS_execveat, [0; 6], Some((1, "/bin/sh")))),
        ("fork", taken.call(libc::SYS_clone, [int(libc::SIGCHLD), 0, 0, 0, 0, 0], None)),
        ("fork by clone3", taken.call(libc::SYS_clone3, [0; 6], None)),
        ("fork by vfork", taken.call(libc::SYS_vfork, [0; 6], None)),
        ("unshare", taken.call(libc::SYS_unshare, [flags, 0, 0, 0, 0, 0], None)),
        ("join a namespace", taken.call(libc::SYS_setns, [0; 6], None)),
        ("mount", taken.call(libc::SYS_mount, [0; 6], Some((2, "tmpfs")))),
        (
            "take a mount",
            taken.call(libc::SYS_open_tree, [int(libc::AT_FDCWD), 0, 1, 0, 0, 0], Some((1, "/"))),
        ),
        ("chroot", taken.call(libc::SYS_chroot, [0; 6], Some((0, "/")))),
        ("become another", taken.call(libc::SYS_setresuid, [1, 1, 1, 0, 0, 0], None)),
        ("trace", taken.call(libc::SYS_ptrace, [16, starter, 0, 0, 0, 0], None)),
        ("read memory", taken.call(libc::SYS_process_vm_readv, [starter, 0, 0, 0, 0, 0], None)),
        ("write memory", taken.call(libc::SYS_process_vm_writev, [starter, 0, 0, 0, 0, 0], None)),
        ("take a descriptor", taken.call(libc::SYS_pidfd_getfd, [0; 6], None)),
        (
            "make a file",
            taken.call(libc::SYS_openat, opens(libc::O_WRONLY | libc::O_CREAT), Some((1, planted))),
        ),
        (
            "make a file by open",
            taken.call(libc::SYS_open, [0, int(libc::O_CREAT), 0o600, 0, 0, 0], Some((0, planted))),
        ),
        ("make a file by creat", taken.call(libc::SYS_creat, [0, 0o600, 0, 0, 0, 0], Some((0, planted)))),
        ("make a directory", taken.call(libc::SYS_mkdir, [0, 0o700, 0, 0, 0, 0], Some((0, planted)))),
        ("change a mode", taken.call(libc::SYS_chmod, [0, 0o4755, 0, 0, 0, 0], Some((0, planted)))),
        ("give a file away", taken.call(libc::SYS_chown, [0; 6], Some((0, planted)))),
        ("link", taken.call(libc::SYS_symlink, [0; 6], Some((1, planted)))),
        ("rename", taken.call(libc::SYS_rename, [0; 6], Some((0, planted)))),
        ("call a host", taken.call(libc::SYS_socket, socket(libc::AF_INET, libc::SOCK_STREAM, 0), None)),
        ("packets", taken.call(libc::SYS_socket, socket(libc::AF_PACKET, libc::SOCK_RAW, 0), None)),
        ("routes", taken.call(libc::SYS_socket, socket(libc::AF_NETLINK, libc::SOCK_RAW, 0), None)),
        ("control a device", taken.call(libc::SYS_ioctl, [0, 0x5412, 0, 0, 0, 0], None)),
        ("a lease", taken.call(libc::SYS_fcntl, [0, 1024, 0, 0, 0, 0], None)),
        ("load a module", taken.call(libc::SYS_init_module, [0; 6], None)),
        ("load bpf", taken.call(libc::SYS_bpf, [0; 6], None)),
        ("keys", taken.call(libc::SYS_keyctl, [0; 6], None)),
        ("new code", taken.call(libc::SYS_mmap, [0, 4096, 7, 0x22, u64::MAX, 0], None)),
    ]);
    drop(taken);
    // It goes on.
    assert_eq!(client.exec("exit 3", 30_000)["exitCode"], 3);
}
