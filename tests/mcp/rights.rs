//! The server parses, and has no rights; its broker has those of the caller, and hears the server alone.

use std::fs;

use nix::sys::signal::Signal;
use serde_json::json;

use super::stage::{client, dev};
use crate::processes::account::{Account, until};
use crate::support::process::Watch;

as_each_caller! {
    fn the_server_has_no_rights(caller) {
        let sessions = dev(caller);
        let mut client = client(&sessions, &["dev"]);
        assert!(!client.call("diff", json!({})).is_error);
        let server = until(client.pid(), |account| account.seccomp == 2);
        server.assert_powerless();
        assert_eq!(server.name, "saggar:mcp");
        // It is not dumpable: only root sees its descriptors.
        if nix::unistd::geteuid().is_root() {
            for link in fs::read_dir(format!("/proc/{}/fd", server.pid)).unwrap() {
                let target = fs::read_link(link.unwrap().path()).unwrap_or_default();
                // Its standard error is a file here.
                let is_file = target.is_absolute() && target.exists() && !target.starts_with("/dev");
                let is_stderr = target.file_name().is_some_and(|name| name.to_string_lossy().starts_with("stderr"));
                assert!(!is_file || is_stderr, "{}", target.display());
            }
        }
        let children = Account::children(server.pid);
        assert_eq!(children.len(), 1, "{children:?}");
        assert_eq!(children[0].name, "saggar:broker");
        assert!(client.end().success());
    }

    fn the_broker_ends_with_the_server_and_keeps_no_children(caller) {
        let sessions = dev(caller);
        let mut client = client(&sessions, &["dev"]);
        for _ in 0..20 {
            assert!(!client.call("run_command", json!({ "command": ":" })).is_error);
        }
        let broker = Account::children(client.pid()).into_iter().find(|child| child.name == "saggar:broker");
        let broker = broker.expect("the broker").pid;
        let deadline = crate::support::deadline::Deadline::usual();
        while !Account::children(broker).is_empty() {
            assert!(!deadline.remaining().is_zero(), "{:?}", Account::children(broker));
            deadline.pause();
        }
        let watch = Watch::of(broker).unwrap();
        client.kill();
        watch.wait_gone("the broker");
    }

    /// A client whose broker is gone gets errors, and no silence.
    fn without_its_broker_the_server_says_so(caller) {
        let sessions = dev(caller);
        let mut client = client(&sessions, &["dev"]);
        let broker = Account::children(client.pid())[0].pid;
        let watch = Watch::of(broker).unwrap();
        watch.signal(Signal::SIGKILL);
        watch.wait_gone("the broker");
        let result = client.call("diff", json!({}));
        assert!(result.is_error && result.text.starts_with("the broker of this server has ended"), "{result:?}");
    }
}
