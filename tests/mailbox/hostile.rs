//! A mailbox that is not what it must be, and servers that end at any moment.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use serde_json::json;

use super::mcp_client::{McpClient, command, run_directory};
use crate::isolation::wrapped::{Ended, finish};
use crate::processes::account::Account;
use crate::support::place::Place;
use crate::support::process::Process;

fn run(place: &Place, arguments: &[&str]) -> Ended {
    let mut saggar = place.saggar();
    saggar.args(["mcp", "mailbox"]).args(arguments);
    let mut process = Process::start(place, saggar);
    drop(process.take_stdin());
    finish(process)
}

/// What a server that does not start says.
fn refusal(place: &Place) -> String {
    let mut process = Process::start(place, command(place, "one"));
    drop(process.take_stdin());
    let ended = finish(process);
    ended.refused(&[]);
    ended.stderr
}

as_each_caller! {
    fn a_command_line_that_cannot_be_served_is_refused(caller) {
        let place = Place::new(caller);
        for (arguments, why) in [
            (&["--run", "1", "--as", "a b"][..], "invalid agent name \"a b\""),
            (&["--run", "1", "--as", ".."], "invalid agent name \"..\""),
            (&["--run", "0", "--as", "one"], "run 0 does not exist"),
            (&["--run", "1", "--as", "one", "--root", "/nonexistent/root"], "/nonexistent/root"),
            (&["--run", "1", "--as", "one", "--repo", "/nonexistent"], "--repo /nonexistent: No such file or directory"),
        ] {
            let ended = run(&place, arguments);
            ended.refused(&[why, "saggar: error: "]);
        }
        assert_eq!(run(&place, &["--run", "1"]).code(), 2);
        assert!(!place.join("home/.agentpair").exists() || fs::read_dir(place.join("home/.agentpair/runs")).is_err()
            || !run_directory(&place).exists());
    }

    /// Private whatever the umask is.
    fn files_are_private(caller) {
        let place = Place::new(caller);
        let mut client = McpClient::start(&place, "one");
        client.send("", "chat", "x", "");
        client.call("receive_messages", json!({ "agent": "one" }));
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o7777;
        let directory = run_directory(&place);
        for directory in directory.ancestors().take(4) {
            assert_eq!(mode(directory), 0o700, "{}", directory.display());
        }
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            assert_eq!(mode(&path), if path.is_dir() { 0o700 } else { 0o600 }, "{}", path.display());
        }
    }

    /// A clear error that names the file, and a target that stays as it is.
    fn a_mailbox_that_is_something_else_is_refused(caller) {
        let place = Place::new(caller);
        let mut client = McpClient::start(&place, "one");
        client.send("", "chat", "kept", "");
        client.end();
        let file = run_directory(&place).join("bridge.jsonl");
        let aside = place.join("aside");
        fs::rename(&file, &aside).unwrap();
        let before = fs::read(&aside).unwrap();
        let replaced = |replace: &dyn Fn(), why: &str| {
            replace();
            let said = refusal(&place);
            assert!(said.contains("bridge.jsonl") && said.contains(why), "{said}");
            if file.is_dir() { fs::remove_dir(&file).unwrap() } else { fs::remove_file(&file).unwrap() }
            assert_eq!(fs::read(&aside).unwrap(), before);
        };
        replaced(&|| symlink(&aside, &file).unwrap(), "it is a symbolic link");
        replaced(&|| fs::hard_link(&aside, &file).unwrap(), "it has 2 hard links");
        let fifo = || {
            nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).unwrap();
            nix::unistd::chown(&file, Some(caller.uid()), None).unwrap();
        };
        replaced(&fifo, "it is not a regular file");
        replaced(&|| fs::create_dir(&file).unwrap(), "it is a directory");
        fs::rename(&aside, &file).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o400)).unwrap();
        // By the mode for root, by the kernel for others.
        let said = refusal(&place);
        assert!(said.contains("bridge.jsonl: ") && said.contains("hint: make "), "{said}");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let mut client = McpClient::start(&place, "two");
        let received = client.call("receive_messages", json!({ "agent": "two" }));
        assert_eq!(received.structured["messages"][0]["content"], "kept");
    }

    /// The agent talks to it, and it has the rights of a person's account when it starts.
    fn the_server_has_no_rights_but_those_to_its_run(caller) {
        let place = Place::new(caller);
        let client = McpClient::start(&place, "one");
        let account = Account::of(client.pid()).unwrap();
        account.assert_powerless();
        assert_eq!((account.no_new_privs, account.seccomp), (1, 2), "{account:?}");
    }

    /// A server that is killed between two calls loses none that it has answered.
    fn am_10_what_was_answered_outlives_the_server(caller) {
        let place = Place::new(caller);
        for number in 0..20 {
            let mut client = McpClient::start(&place, "one");
            client.send("two", "chat", &number.to_string(), "");
            client.kill();
        }
        let mut two = McpClient::start(&place, "two");
        let received = two.call("receive_messages", json!({ "agent": "two" }));
        let contents: Vec<String> = received.structured["messages"].as_array().unwrap().iter()
            .map(|message| message["content"].as_str().unwrap().to_owned()).collect();
        assert_eq!(contents, (0..20).map(|number| number.to_string()).collect::<Vec<_>>());
    }
}
