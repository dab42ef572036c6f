//! A session from its creation to its end, where nothing goes wrong.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;

use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::Signal;
use serde_json::json;

use super::stage::{Sessions, agent, bridge, control, json, status, supervisor, text};
use crate::isolation::wrapped::finish;
use crate::kill::wait_for_nothing;
use crate::support::deadline::Deadline;
use crate::support::process::Process;
use std::time::Duration;

as_each_caller! {
    /// Nothing of the creator is left in the supervisor: no parent, no terminal, no stream, no directory, no session.
    fn a_supervisor_stands_alone(caller) {
        // Nobody but root sees into a supervisor.
        if !crate::support::caller::Caller::current().is_root() {
            skip!("this test needs to be started as root");
        }
        let sessions = Sessions::new(caller);
        let session = sessions.create("alone", &[]);
        assert_eq!((text(&session, "state"), &session["id"]), ("active".into(), &json!("alone")));
        let watch = supervisor(&session);
        let pid = watch.pid();
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let fields: Vec<i64> =
            stat.rsplit_once(") ").unwrap().1[2..].split(' ').map_while(|field| field.parse().ok()).collect();
        // Parent, process group, session, terminal (proc_pid_stat(5)).
        let own = i64::from(pid);
        assert_ne!(fields[0], i64::from(std::process::id()));
        assert_eq!(fields[1..4], [own, own, 0], "{stat}");
        let link = |name: &str| fs::read_link(format!("/proc/{pid}/{name}")).unwrap();
        assert_eq!(link("cwd"), std::path::Path::new("/"));
        for stream in 0..3 {
            assert_eq!(link(&format!("fd/{stream}")), std::path::Path::new("/dev/null"));
        }
        let inherited = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten().filter(|entry| {
            let target = fs::read_link(entry.path()).unwrap_or_default();
            target.starts_with(sessions.stage.place.path()) && !target.starts_with(sessions.directory("alone"))
                && !target.starts_with(sessions.stage.place.join("run")) && !target.starts_with(sessions.stage.work())
                // The record of the look that is still to be made is its own.
                && !target.starts_with(sessions.stage.place.join("state/saggar/unfinished"))
        });
        assert_eq!(inherited.count(), 0, "a descriptor of the creator");
        assert_eq!(status(pid, "Threads:"), 1);
        assert!(sessions.send("alone", "my name is Ann").contains("Ann"));
        assert!(sessions.send("alone", "recall").contains("my name is Ann"));
    }

    /// KC-16, KC-17: what the commands say of each state, and how it ends.
    fn kc_17_a_life_and_its_end(caller) {
        let sessions = Sessions::new(caller);
        let session = sessions.create("life", &[]);
        let again = sessions.run(&["create", "--session", "life", sessions.stage.work().to_str().unwrap()]);
        again.refused(125, &["session life exists", "saggar session resume life"]);
        let listed = sessions.list();
        assert_eq!(listed.len(), 1);
        assert_eq!(listed[0], sessions.show("life"));
        assert_eq!(listed[0]["bridgeSocket"], session["bridgeSocket"]);
        assert_eq!(json(sessions.ok(&["list", "--json", "none", "life", "other"]).trim()), listed[0]);
        assert_eq!(sessions.ok(&["list", "--json", "none"]), "");
        sessions.run(&["list", "../x"]).refused(125, &["../x"]);
        assert_eq!(json(sessions.ok(&["resume", "--json", "life"]).trim()), listed[0]);
        let table = sessions.ok(&["list"]);
        assert!(table.lines().nth(1).is_some_and(|line| line.starts_with("life ") && line.contains(" active ")), "{table}");
        let state = control(&session).get("state");
        assert_eq!((&state["session"]["id"], &state["session"]["state"]), (&json!("life"), &json!("active")));
        assert!(bridge(&session).turn("hi").is_done());
        let watch = supervisor(&session);
        sessions.run(&["remove", "life"]).refused(125, &["served", "saggar session end --remove life"]);
        sessions.ok(&["end", "life"]);
        assert!(watch.is_gone_by(Deadline::after(Duration::ZERO)), "it has ended");
        assert!(!std::path::Path::new(&text(&session, "bridgeSocket")).exists());
        assert_eq!(sessions.state("life"), ("ended".into(), None));
        for command in ["resume", "pause", "end"] {
            sessions.run(&[command, "life"]).refused(125, &["session life has ended", "create another one"]);
        }
        let mut command = sessions.command(&["send", "life", "hi"]);
        command.env("SAGGAR_LOG", "off");
        sessions.stage.run(command).refused(125, &["has ended"]);
        // Nor by the other way in.
        let mut command = sessions.stage.place.saggar();
        command.arg("agent").arg(sessions.stage.work()).args(["--session", "life", "--resume", "--adapter", "demo", "hi"]);
        sessions.stage.run(command).refused(125, &["has ended"]);
        sessions.ok(&["remove", "life"]);
        assert!(!sessions.directory("life").exists() && sessions.list().is_empty());
        sessions.run(&["show", "life"]).refused(125, &["does not exist", "saggar session list"]);
        wait_for_nothing(&sessions.directory("life"), Duration::ZERO);
    }

    fn lost_output_of_a_turn_is_a_failure(caller) {
        let sessions = Sessions::new(caller);
        sessions.create("full", &[]);
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let ended = sessions.command(&["send", "full", "hi"]).stdout(full).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{said}");
        assert!(said.contains("write to standard output: No space left on device"), "{said}");
        sessions.ok(&["end", "full"]);
    }

    /// KC-20: what is alive is active at once, and is the same process; meanwhile no commands are taken.
    fn kc_20_a_pause_and_the_fast_path(caller) {
        let sessions = Sessions::new(caller);
        let session = sessions.create("still", &[]);
        let before = (supervisor(&session).pid(), agent(&session).pid());
        let paused = sessions.run(&["pause", "still"]);
        if paused.code != 0 {
            assert!(!caller.is_root(), "root can freeze here: {paused:?}");
            paused.refused(125, &["no cgroup", "saggar doctor"]);
            assert_eq!(sessions.state("still").0, "active");
            return;
        }
        assert_eq!(sessions.state("still"), ("paused".into(), Some("request".into())));
        sessions.ok(&["pause", "still"]);
        sessions.run(&["send", "still", "hi"]).refused(125, &["is paused", "saggar session resume still"]);
        let mut client = bridge(&session);
        for command in [
            json!({ "cmd": "query", "prompt": "x", "sessionId": "still" }),
            json!({ "cmd": "exec", "command": "true" }),
            json!({ "cmd": "resume", "sessionId": "still" }),
        ] {
            client.send(&command);
            let event = client.event();
            assert!(event["error"].as_str().is_some_and(|why| why.contains("paused")), "{event}");
        }
        sessions.ok(&["resume", "still"]);
        let after = sessions.show("still");
        assert_eq!(text(&after, "state"), "active");
        assert_eq!((supervisor(&after).pid(), agent(&after).pid()), before);
        assert!(client.turn("hi").is_done());
        // Resuming what runs is no error.
        sessions.ok(&["resume", "still"]);
        // The end is not held up by a pause.
        sessions.ok(&["pause", "still"]);
        sessions.ok(&["end", "still"]);
    }

    /// A creation that fails says why, with the status of a start, and leaves nothing.
    fn kc_18_failed_creation_leaves_nothing(caller) {
        let sessions = Sessions::new(caller);
        let work = sessions.stage.work();
        let work = work.to_str().unwrap();
        let script = sessions.stage.script("bad", "no program\n");
        let create = ["create", "--session", "bad", "--adapter", "stream-json", "--net", "host", "--agent-cmd"];
        sessions.run(&[&create[..], &["no-such-program", work]].concat()).refused(127, &["no-such-program", "not found"]);
        sessions.run(&[&create[..], &["/bin", work]].concat()).refused(126, &["/bin"]);
        drop(script);
        sessions.run(&["create", "--session", "bad", "/etc"]).refused(125, &["CLAUDE.md"]);
        sessions.run(&["create", "--session", "../bad", work]).refused(125, &["../bad"]);
        sessions.run(&["create", "--status-fd", "3", work]).refused(2, &["--status-fd"]);
        assert!(!sessions.directory("bad").exists());
        assert!(sessions.list().is_empty());
        wait_for_nothing(sessions.stage.place.path(), Duration::ZERO);
    }

    /// A turn that is sent can be interrupted, and goes on when its client goes.
    fn a_turn_is_interrupted_by_the_user_and_not_by_a_lost_client(caller) {
        let sessions = Sessions::new(caller);
        sessions.create("turns", &[]);
        let workspace = text(&sessions.show("turns"), "workspace");
        let workspace = std::path::Path::new(&workspace);
        let wait = "run: : > up; while [ ! -e go ]; do sleep 0.01; done; : > done";
        let start = || {
            let process = Process::start(&sessions.stage.place, sessions.command(&["send", "--json", "turns", wait]));
            crate::support::wait::until_exists(&workspace.join("up"));
            fs::remove_file(workspace.join("up")).unwrap();
            process
        };
        let mut interrupted = start();
        interrupted.signal(Signal::SIGINT);
        assert_eq!(interrupted.wait().code(), Some(130), "{}", interrupted.stderr());
        let mut lost = start();
        lost.signal(Signal::SIGKILL);
        lost.wait();
        fs::write(workspace.join("go"), "").unwrap();
        crate::support::wait::until_exists(&workspace.join("done"));
        assert!(sessions.send("turns", "hi").contains("Hello"));
        // The agent's own status, when it dies of the turn.
        let crashed = sessions.run(&["send", "--json", "turns", "crash"]);
        assert_eq!(crashed.code, 3, "{crashed:?}");
        assert!(crashed.stderr.contains("code 3"), "{crashed:?}");
    }

    /// An agent that was killed because it did not end its turn has not crashed.
    fn an_agent_that_ignores_an_interrupt_ends_no_session(caller) {
        let sessions = Sessions::new(caller);
        let work = sessions.stage.work();
        let agent = work.join("agent");
        let script = "#!/usr/bin/python3\nimport signal, sys\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n\
                      for line in sys.stdin:\n    if '\"user\"' in line: open('up', 'w')\n";
        fs::write(&agent, script).unwrap();
        fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)).unwrap();
        let agent = agent.to_str().unwrap();
        let words = ["create", "--json", "--session", "deaf", "--adapter", "stream-json", "--agent-cmd", agent];
        let session = json(&sessions.ok(&[&words[..], &[work.to_str().unwrap()]].concat()));
        let mut client = bridge(&session);
        client.send(&json!({ "cmd": "query", "prompt": "hi", "sessionId": "deaf" }));
        crate::support::wait::until_exists(&std::path::Path::new(&text(&session, "workspace")).join("up"));
        client.send(&json!({ "cmd": "interrupt" }));
        assert_eq!(client.outcome().end["ev"], "done");
        let mut server = control(&session);
        assert_eq!(server.get("state")["session"]["lastExit"], "the agent was killed by signal 9 (SIGKILL)");
        assert_eq!(sessions.state("deaf"), ("active".into(), None));
        let supervisor = supervisor(&session);
        client.send(&json!({ "cmd": "shutdown" }));
        supervisor.wait_gone("the supervisor of a session that is shut down");
        assert_eq!(sessions.state("deaf"), ("paused".into(), Some("shutdown".into())));
    }

    /// A new session takes a random name, and says it.
    fn a_session_without_a_name_gets_one(caller) {
        let sessions = Sessions::new(caller);
        let work = sessions.stage.work();
        let id = sessions.ok(&["create", "--adapter", "demo", work.to_str().unwrap()]);
        let id = id.trim_end();
        assert_eq!(id.len(), 32);
        assert_eq!(json(&sessions.ok(&["show", "--json", id]))["id"], id);
        sessions.ok(&["end", "--remove", id]);
        assert!(sessions.list().is_empty());
    }

    /// What removes a session has its lock to the last, and no record any more.
    fn a_session_that_is_being_removed_is_waited_for(caller) {
        let sessions = Sessions::new(caller);
        sessions.create("gone", &[]);
        sessions.ok(&["end", "gone"]);
        let directory = sessions.directory("gone");
        let path = directory.join("lock");
        let lock = Flock::lock(File::open(&path).unwrap(), FlockArg::LockExclusive).map_err(|(_, error)| error).unwrap();
        fs::remove_file(directory.join("session.json")).unwrap();
        let process = Process::start(&sessions.stage.place, sessions.command(&["end", "--remove", "gone"]));
        let has_it_open = || {
            let links = fs::read_dir(format!("/proc/{}/fd", process.pid())).into_iter().flatten().flatten();
            links.flat_map(|link| fs::read_link(link.path())).any(|link| link == path)
        };
        let deadline = Deadline::usual();
        while !has_it_open() {
            assert!(!deadline.remaining().is_zero(), "it does not look at the lock");
            deadline.pause();
        }
        fs::remove_file(&path).unwrap();
        drop(lock);
        let ended = finish(process);
        assert_ne!(ended.code(), 0);
        assert!(ended.stderr.contains("session gone does not exist"), "{ended:?}");
        fs::remove_dir_all(directory).unwrap();
    }
}
