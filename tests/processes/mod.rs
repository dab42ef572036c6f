//! Who has which rights while a sandbox runs, by the kernel's account (saggar-security(7), PROCESSES): /proc says what
//! each process of saggar has given up, and a supervisor that was taken over is played by making system calls in it.

pub(crate) mod account;
mod container;
mod ended;
mod explained;
mod looks;
mod relay;
#[cfg(target_arch = "x86_64")]
pub(crate) mod taken;
mod workers;

use account::{Account, family};
use serde_json::json;
use std::io::Read;

use crate::isolation::wrapped::Wrap;
use crate::session::stage::{Sessions, control, supervisor};
use crate::support::caller::Caller;
use crate::support::deadline::Deadline;
use crate::support::process::Process;

/// CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, KILL, SETGID, SETUID, SETPCAP, SYS_PTRACE, SYS_ADMIN.
const LAUNCHER: u64 = 0x2801ef;

/// A program that stays, once it runs.
fn running(wrap: &Wrap) -> Process {
    let mut process =
        Process::start(&wrap.place, wrap.command(&[], &["/bin/sh", "-c", "echo up; exec sleep 1000"]));
    let mut stdout = process.take_stdout();
    let mut up = [0; 3];
    Deadline::usual().readable(&stdout).expect("the program says that it is up");
    stdout.read_exact(&mut up).expect("the program says that it is up");
    process
}

/// The supervisor has no rights beside its launcher, which has memory of its own and the rights of the table.
fn assert_table(caller: Caller, supervisor: u32) {
    let supervisor = account::until(supervisor, |account| account.seccomp == 2);
    supervisor.assert_powerless();
    let launcher = family(supervisor.pid, "saggar:launch");
    assert_eq!((launcher.no_new_privs, launcher.seccomp), (1, 2), "{launcher:?}");
    assert_eq!((launcher.inheritable, launcher.ambient), (0, 0), "{launcher:?}");
    assert!(
        !account::share_memory(supervisor.pid, launcher.pid),
        "the launcher's memory is the supervisor's"
    );
    if caller.is_root() {
        assert!(supervisor.uids.iter().chain(&supervisor.gids).all(|id| *id >= 1 << 20), "{supervisor:?}");
        assert_eq!(supervisor.bounding, 0, "{supervisor:?}");
        assert_eq!(
            (launcher.permitted, launcher.effective, launcher.bounding),
            (LAUNCHER, LAUNCHER, LAUNCHER)
        );
    } else {
        assert!(supervisor.uids.iter().all(|id| *id == caller.uid().as_raw()), "{supervisor:?}");
        assert_eq!((launcher.permitted, launcher.effective), (0, 0), "{launcher:?}");
    }
}

as_each_caller! {
    fn the_processes_of_wrap_have_the_rights_of_the_table(caller) {
        let wrap = Wrap::new(caller);
        let process = running(&wrap);
        assert_table(caller, process.pid());
        // It ends in its own time, beside the start of the program.
        let deadline = Deadline::usual();
        while Account::children(process.pid()).iter().any(|child| child.name == "saggar:watch") {
            assert!(!deadline.remaining().is_zero(), "the watcher, which shares the supervisor's memory, stays");
            deadline.pause();
        }
    }
}

as_each_caller! {
    fn the_processes_of_a_session_have_the_rights_of_the_table(caller) {
        let sessions = Sessions::new(caller);
        let session = sessions.create("rights", &[]);
        let supervisor = supervisor(&session).pid();
        assert_table(caller, supervisor);
        // It goes on to do all that takes a right, and what it writes is its own.
        sessions.send("rights", "run: echo made > made");
        let mut control = control(&session);
        let files = control.call("files.list", &json!({ "path": "" }));
        assert!(files.to_string().contains("made"), "{files}");
        let written = control.call("files.write", &json!({ "path": "written", "content": "by a server" }));
        assert_eq!(written, json!({}));
        let seen = control.call("exec", &json!({ "command": "stat -c %u made written | uniq | wc -l; cat written" }));
        assert_eq!(seen["stdout"], "1\nby a server", "{seen}");
        assert_table(caller, supervisor);
        sessions.ok(&["end", "rights"]);
        assert_eq!(sessions.state("rights").0, "ended");
        assert!(!sessions.ok(&["logs", "rights"]).is_empty());
    }
}

as_each_caller! {
    /// Nor has one whose network goes by policy, though its rules change, and with them the ports that are heard inside.
    fn the_processes_of_a_session_with_rules_have_the_rights_of_the_table(caller) {
        let sessions = Sessions::new(caller);
        let session = sessions.create("rules", &["--allow-host", "good.example:80"]);
        let supervisor = supervisor(&session).pid();
        assert_table(caller, supervisor);
        let mut control = control(&session);
        let mut is_heard = |port: u16| {
            let line = format!("grep -ciE ':{port:04X} [0-9A-F:]+ 0A' /proc/net/tcp6 /proc/net/tcp");
            let said = control.call("exec", &json!({ "command": line }));
            said["stdout"].as_str().is_some_and(|counts| counts.lines().any(|count| !count.ends_with(":0")))
        };
        assert!(is_heard(80) && !is_heard(81));
        let rules = json!({ "network": { "allow": ["good.example:80,81,8080"] } });
        assert_eq!(self::control(&session).call("update", &rules), json!({ "generation": 2 }));
        assert!(is_heard(80) && is_heard(81) && is_heard(8080));
        assert_table(caller, supervisor);
    }
}

/// No supervisor has an id that is another's, or that a sandbox maps.
#[test]
fn supervisors_of_two_sandboxes_have_different_ids() {
    let Ok(caller) = Caller::root() else {
        skip!("this test needs to be started as root: only root's supervisors take ids of their own")
    };
    let wrap = Wrap::new(caller);
    let (one, other) = (running(&wrap), running(&wrap));
    let id = |process: &Process| account::until(process.pid(), |account| account.seccomp == 2).uids[0];
    assert_ne!(id(&one), id(&other));
    for process in [&one, &other] {
        let init = family(process.pid(), "saggar:init");
        let map = std::fs::read_to_string(format!("/proc/{}/uid_map", init.pid)).unwrap();
        let is_mapped = map.lines().any(|line| {
            let numbers: Vec<u64> = line.split_whitespace().map(|word| word.parse().unwrap()).collect();
            (numbers[1]..numbers[1] + numbers[2]).contains(&u64::from(id(process)))
        });
        assert!(!map.is_empty() && !is_mapped, "{init:?} maps the id of its supervisor: {map}");
    }
}
