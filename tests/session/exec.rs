//! `saggar session exec`: a command beside the agent.

use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::stage::Sessions;
use crate::support::deadline::Deadline;
use crate::support::process::{Process, any_with_argument};
use crate::support::wait::until_exists;

as_each_caller! {
    fn a_command_runs_beside_the_agent(caller) {
        let sessions = Sessions::new(caller);
        let session = sessions.create("beside", &[]);
        let workspace = session["workspace"].as_str().unwrap();
        assert_eq!(sessions.ok(&["exec", "beside", "pwd"]), format!("{workspace}\n"));
        let words = ["exec", "beside", "printf", "<%s>", "a b", "$HOME", "--", "'"];
        assert_eq!(sessions.ok(&words), "<a b><$HOME><--><'>");
        let ended = sessions.run(&["exec", "beside", "sh", "-c", "cat; echo out; echo err >&2; exit 7"]);
        assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (7, "out\n", "err\n"));
        assert_eq!(sessions.run(&["exec", "beside", "sh", "-c", "kill -9 $$"]).code, 137);
        assert_eq!(sessions.run(&["exec", "--timeout", "100ms", "beside", "sleep", "1000"]).code, 124);
        assert_eq!(sessions.run(&["exec", "beside", "no-such-program"]).code, 127);
        let ended = sessions.run(&["exec", "beside", "sh", "-c", "yes | head -c 20M"]);
        assert_eq!((ended.code, ended.stdout.len() <= 10 << 20), (0, true));
        assert!(ended.stderr.contains("output was removed"), "{}", ended.stderr);
        assert!(sessions.send("beside", "my name is Ann").contains("Ann"), "the agent goes on");
    }

    fn what_cannot_run_is_named(caller) {
        let sessions = Sessions::new(caller);
        sessions.create("named", &[]);
        sessions.run(&["exec", "none", "true"]).refused(125, &["session none does not exist"]);
        sessions.run(&["exec", "--timeout", "25h", "named", "true"]).refused(2, &["--timeout", "1d"]);
        assert_eq!(sessions.run(&["exec", "named"]).code, 2);
        sessions.ok(&["end", "named"]);
        sessions.run(&["exec", "named", "true"]).refused(125, &["session named has ended"]);
    }

    /// A command that no client waits for has no use.
    fn a_command_ends_with_its_client(caller) {
        let sessions = Sessions::new(caller);
        let session = sessions.create("client", &[]);
        let workspace = Path::new(session["workspace"].as_str().unwrap()).to_owned();
        // Its argument, which the command line of the client does not have.
        let seconds = 1_000_000 + u64::from(std::process::id()) * 10 + u64::from(caller.is_root());
        let script = format!("echo >begun; exec sleep $(({seconds} - 1 + 1))");
        let mut client =
            Process::start(&sessions.stage.place, sessions.command(&["exec", "client", "sh", "-c", &script]));
        until_exists(&workspace.join("begun"));
        client.signal(Signal::SIGKILL);
        client.wait();
        let deadline = Deadline::usual();
        while any_with_argument(&seconds.to_string()) {
            assert!(deadline.remaining() > Duration::ZERO, "the command goes on");
            deadline.pause();
        }
        assert!(sessions.send("client", "my name is Ann").contains("Ann"), "the agent goes on");
    }
}
