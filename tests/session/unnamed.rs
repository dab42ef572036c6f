//! What `saggar agent` leaves of a session that was not asked for: nothing, unless something would be missed.

use super::stage::Sessions;
use crate::support::place::Place;
use serde_json::Value;
use std::fs;
use std::process::{Command, Output};

/// A folder with an agent, in a place of its own.
struct Folder<'a> {
    sessions: &'a Sessions,
}

impl Folder<'_> {
    fn place(&self) -> &Place {
        &self.sessions.stage.place
    }

    fn command(&self, options: &[&str]) -> Command {
        let mut command = self.place().saggar();
        command.arg("agent").arg(self.sessions.stage.work()).args(["--adapter", "demo"]).args(options);
        command
    }

    fn run(&self, options: &[&str]) -> Output {
        self.command(options).output().unwrap()
    }

    /// The ids of all sessions, also of those without a record.
    fn sessions(&self) -> Vec<String> {
        let directory = self.sessions.directory("x");
        let names = fs::read_dir(directory.parent().unwrap()).into_iter().flatten();
        let mut names: Vec<String> =
            names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

as_each_caller! {
    /// N9: neither a turn without changes nor a refused start leaves a directory.
    fn an_agent_that_changes_nothing_leaves_no_session(caller) {
        let sessions = Sessions::new(caller);
        let folder = Folder { sessions: &sessions };
        // A file of an overlay that is only touched is not a change either.
        sessions.stage.place.make_file("work/touched", "");
        for options in [&[][..], &["--workspace-overlay"]] {
            let said = folder.run(&[options, &["run: touch touched"]].concat());
            assert!(said.status.success() && !stderr(&said).contains("session:"), "{said:?}");
            assert_eq!(folder.sessions(), [""; 0], "{options:?}");
        }
        let work = sessions.stage.work();
        let said = folder.run(&["--workspace", work.to_str().unwrap(), "run: echo direct > direct"]);
        assert!(said.status.success(), "{said:?}");
        assert_eq!(fs::read_to_string(work.join("direct")).unwrap(), "direct\n");
        assert_eq!(folder.run(&["--ro", "/nowhere", "hi"]).status.code(), Some(125));
        assert_eq!(folder.sessions(), [""; 0]);
    }

    fn changes_keep_the_session_and_a_line_names_it(caller) {
        let sessions = Sessions::new(caller);
        let folder = Folder { sessions: &sessions };
        for options in [&[][..], &["--workspace-overlay"]] {
            let said = folder.run(&[options, &["run: echo made > made"]].concat());
            assert!(said.status.success(), "{said:?}");
            let [id] = &folder.sessions()[..] else { panic!("{:?}", folder.sessions()) };
            if caller.is_root() || options.is_empty() {
                assert!(stderr(&said).contains(&format!("session: {id} is kept")), "{said:?}");
                assert!(sessions.ok(&["diff", id]).contains("made"));
            }
            sessions.ok(&["remove", id]);
        }
    }

    /// The log of an agent or a script that failed is what its user looks for.
    fn failures_inside_keep_the_session(caller) {
        let sessions = Sessions::new(caller);
        let folder = Folder { sessions: &sessions };
        sessions.stage.place.make_file("work/install.sh", "echo installs; exit 3\n");
        let said = folder.run(&["hi"]);
        assert_eq!(said.status.code(), Some(125), "{said:?}");
        let [id] = &folder.sessions()[..] else { panic!("{:?}", folder.sessions()) };
        assert!(sessions.ok(&["logs", id]).contains("install.sh: installs"));
        sessions.ok(&["remove", id]);
        fs::remove_file(sessions.stage.work().join("install.sh")).unwrap();
        let agent = sessions.stage.place.make_file("agent", "#!/bin/sh\necho last words >&2\nexit 4\n");
        fs::set_permissions(&agent, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let mut command = sessions.stage.place.saggar();
        command.arg("agent").arg(sessions.stage.work()).args(["--ro"]).arg(&agent);
        let said = command.args(["--adapter", "stream-json", "--agent-cmd"]).arg(&agent).arg("hi").output().unwrap();
        assert_eq!(said.status.code(), Some(4), "{said:?}");
        let [id] = &folder.sessions()[..] else { panic!("{:?}", folder.sessions()) };
        assert!(stderr(&said).contains(&format!("session: {id} is kept")), "{said:?}");
        assert!(sessions.ok(&["logs", id]).contains("last words"));
        sessions.ok(&["remove", id]);
    }

    /// A name, events that are kept, a policy.
    fn sessions_that_were_asked_for_are_kept(caller) {
        let sessions = Sessions::new(caller);
        let folder = Folder { sessions: &sessions };
        let policy = sessions.stage.place.make_file("keep.toml", "[sandbox]\nkeep_session = true\n");
        let policy = policy.to_str().unwrap();
        for options in [&["--session", "mine"][..], &["--id", "mine"], &["--spool"], &["--policy", policy]] {
            let said = folder.run(&[options, &["hi"]].concat());
            assert!(said.status.success() && !stderr(&said).contains("session:"), "{options:?}: {said:?}");
            let [id] = &folder.sessions()[..] else { panic!("{options:?}: {:?}", folder.sessions()) };
            let shown: Value = serde_json::from_str(&sessions.ok(&["show", "--json", id])).unwrap();
            assert_eq!(shown["state"], "paused");
            sessions.ok(&["remove", id]);
        }
    }

    /// What cannot be compared is kept: the record of the workspace is damaged, or its folder is gone.
    fn a_session_that_cannot_be_compared_is_kept(caller) {
        let sessions = Sessions::new(caller);
        let folder = Folder { sessions: &sessions };
        let names: String = (0..1000).map(|n| format!("'{n}{}',", "\"".repeat(2000))).collect();
        let policy = sessions.stage.place.make_file("big.toml", &format!("[protect]\npaths = [{}]\n", &names[..900_000].rsplit_once(",").unwrap().0));
        let said = folder.run(&["--policy", policy.to_str().unwrap(), "run: echo precious > made"]);
        if said.status.success() {
            let [id] = &folder.sessions()[..] else { panic!("{said:?}") };
            assert!(sessions.ok(&["diff", id]).contains("made"));
            sessions.ok(&["remove", id]);
        }
        let work = sessions.stage.work();
        let moved = work.with_file_name("moved");
        let mut child = folder.command(&["run: sleep 1000"]).stderr(std::process::Stdio::piped()).spawn().unwrap();
        let id = loop {
            if let [id] = &folder.sessions()[..] && sessions.show(id)["state"] == "active" {
                break id.clone();
            }
        };
        fs::rename(&work, &moved).unwrap();
        let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        child.wait().unwrap();
        fs::rename(&moved, &work).unwrap();
        assert_eq!(folder.sessions().as_slice(), std::slice::from_ref(&id));
        sessions.ok(&["remove", &id]);
    }
}
