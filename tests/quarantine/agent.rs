//! `saggar agent`: at each `done`, and at the end.

use std::fs;

use super::told::{Session, events, id, names, telling};
use crate::isolation::wrapped::finish;
use crate::support::bridge_client::BridgeClient;
use crate::support::caller::Caller;
use crate::support::place::Place;
use crate::support::process::Process;

/// A place with an agent's folder.
fn place(caller: Caller) -> Place {
    let place = Place::new(caller);
    place.make_dir("agent", 0o755);
    place.make_file("agent/CLAUDE.md", "# test");
    place
}

/// `saggar agent` on the work folder.
fn start(place: &Place, options: &[&str]) -> Process {
    let mut saggar = place.saggar();
    saggar.args(["agent", "--adapter", "demo"]).args(options);
    Process::start(place, telling(place, &saggar))
}

as_each_caller! {
    fn protected_names_left_by_a_turn_are_quarantined_before_the_next(caller) {
        let place = place(caller);
        let session = Session::of(&place);
        let socket = place.join("run/b.sock");
        let mut agent = start(&place, &["--workspace", ".", "--bridge-socket", socket.to_str().unwrap(), "../agent"]);
        let mut client = BridgeClient::connect_when_listening(&socket);
        assert!(client.turn("run: echo evil > .bashrc; ln -s /etc/passwd .mcp.json; git init -q .; git config core.fsmonitor x; echo x > file").is_done());
        // The look is made between the two turns.
        assert!(client.turn("run: test ! -e .bashrc && test ! -h .mcp.json && git status > status && ! git config core.fsmonitor && touch fine").is_done());
        assert_eq!(names(&place), [".bashrc", ".git/config", ".mcp.json"]);
        assert!(place.work().join("fine").exists(), "git works, and the names are gone");
        assert!(fs::read_dir(session.0.join("quarantine")).unwrap().count() == 4, "they and the index");
        // The same name again gets another number.
        assert!(client.turn("run: echo more > .bashrc").is_done());
        assert!(client.turn("hi").is_done());
        assert_eq!(events(&place, "quarantined").len(), 4);
        client.send(&serde_json::json!({"cmd": "shutdown"}));
        assert_eq!(agent.wait().code(), Some(0));
        assert_eq!(events(&place, "quarantined").len(), 4, "each once");
    }

    /// What a program in the background leaves, and what only the last look finds.
    fn the_end_is_looked_at_in_the_copy_too(caller) {
        let place = place(caller);
        let session = Session::of(&place);
        let prompt = "run: mkdir -p a/b; git init -q --bare a/b/c; git -C a/b/c config alias.st '!evil'; git init -q d; printf '#!' > d/.git/hooks/pre-commit; chmod +x d/.git/hooks/pre-commit; echo evil > .zshrc";
        let ended = finish(start(&place, &["../agent", prompt]));
        assert_eq!(ended.code(), 0, "{ended:?}");
        let work = session.0.join("workspace");
        let paths = |kind: &str| -> Vec<String> {
            let path = |event: &serde_json::Value| event["path"].as_str().unwrap().trim_start_matches(work.to_str().unwrap()).to_owned();
            events(&place, kind).iter().map(path).collect()
        };
        assert_eq!(paths("quarantined"), ["/.zshrc", "/a/b/c/config", "/d/.git/hooks/pre-commit"]);
        assert!(paths("reported").is_empty());
        assert!(ended.stderr.contains("/quarantine/1-.zshrc"), "{}", ended.stderr);
        assert_eq!(events(&place, "exited").len(), 1);
        assert_eq!(events(&place, "exited")[0]["id"], id(&place));
    }

    /// A program that exchanges the name as fast as it can, while the look is made.
    fn a_name_that_is_swapped_all_the_time_is_never_followed(caller) {
        let place = place(caller);
        let _session = Session::of(&place);
        let before = fs::read("/etc/passwd").unwrap();
        let socket = place.join("run/b.sock");
        let mut agent = start(&place, &["--workspace", ".", "--bridge-socket", socket.to_str().unwrap(), "../agent"]);
        let mut client = BridgeClient::connect_when_listening(&socket);
        let swap = "import os
import itertools
def go(f, *a):
    try: f(*a)
    except OSError: pass
for n in itertools.count():
    for name in ('.bashrc', '.claude', '.git'):
        go(os.symlink, '/etc/passwd', name); go(os.unlink, name); go(os.mkfifo, name); go(os.unlink, name)
        go(os.mkdir, name); go(os.mkfifo, name + '/config'); go(os.unlink, name + '/config')
        go(os.symlink, '/etc', name + '/hooks'); go(os.unlink, name + '/hooks'); go(os.rmdir, name)
    if n == 0: go(open, 'swapping', 'w')
";
        place.make_file("work/swap.py", swap);
        assert!(client.turn("run: setsid python3 swap.py </dev/null >/dev/null 2>&1 & until test -e swapping; do :; done").is_done());
        for _ in 0..50 {
            assert!(client.turn("hi").is_done());
        }
        client.send(&serde_json::json!({"cmd": "shutdown"}));
        assert_eq!(agent.wait().code(), Some(0));
        assert_eq!(fs::read("/etc/passwd").unwrap(), before);
        for event in events(&place, "quarantined") {
            let meta = std::path::Path::new(event["to"].as_str().unwrap()).symlink_metadata().unwrap();
            assert!(!meta.is_file() || meta.len() == 0, "{event}: a copy of what a link leads to");
        }
        for name in [".bashrc", ".claude/settings.json"] {
            assert!(place.work().join(name).symlink_metadata().is_err(), "{name} is there in the end");
        }
    }
}
