//! KC-21, KC-25: what an agent changed, before it touches the folder: diff, apply, discard, and snapshots.

mod applying;
mod differing;
mod hostile;
mod killed;
mod linking;
mod property;
mod snapshots;
mod trees;
mod workers;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::isolation::wrapped::{Ended, finish};
use crate::support::caller::Caller;
use crate::support::place::Place;
use crate::support::process::Process;

/// The session of a test.
const ID: &str = "work";

/// An agent's folder, and a session of it.
struct Work {
    place: Place,
    overlay: bool,
}

impl Work {
    /// A folder with a few files, owned by the caller.
    fn new(caller: Caller, overlay: bool) -> Self {
        let place = Place::new(caller);
        place.make_dir("agent", 0o755);
        place.make_dir("agent/src", 0o755);
        place.make_dir("agent/old", 0o755);
        for (name, text) in [
            ("CLAUDE.md", "# test\n"),
            ("src/main", "one\ntwo\nthree\n"),
            ("src/same", "same\n"),
            ("old/a", "a\n"),
            ("old/b", "b\n"),
            ("kept", "kept\n"),
        ] {
            place.make_file(&format!("agent/{name}"), text);
        }
        Work { place, overlay }
    }

    fn folder(&self) -> PathBuf {
        self.place.join("agent")
    }

    fn session(&self) -> PathBuf {
        self.place.join("state/saggar/sessions").join(ID)
    }

    /// Where the agent's changes are on disk.
    fn left(&self) -> PathBuf {
        self.session().join(if self.overlay { "upper/changes" } else { "workspace" })
    }

    /// Starts the agent for one turn with this shell script.
    fn start(&self, script: &str, options: &[&str]) -> Command {
        let mut command = self.place.saggar();
        command.args(["agent", "--adapter", "demo", "--session", ID]).args(options);
        if self.overlay {
            command.arg("--workspace-overlay");
        }
        command.args(["../agent", &format!("run: {script}")]);
        command
    }

    /// One turn of a new session.
    fn begin(&self, script: &str) -> Ended {
        let ended = finish(Process::start(&self.place, self.start(script, &[])));
        assert_eq!(ended.code(), 0, "{ended:?}");
        assert!(!ended.stdout.contains("\"exitCode\":1"), "{ended:?}");
        ended
    }

    /// One turn of the session that is there.
    fn resume(&self, script: &str) -> Ended {
        let ended = finish(Process::start(&self.place, self.start(script, &["--resume"])));
        assert_eq!(ended.code(), 0, "{ended:?}");
        ended
    }

    /// `saggar session WORDS`.
    fn session_command(&self, words: &[&str]) -> Command {
        let mut command = self.place.saggar();
        command.arg("session").args(words);
        command
    }

    fn run(&self, words: &[&str]) -> Ended {
        let mut process = Process::start(&self.place, self.session_command(words));
        drop(process.take_stdin());
        finish(process)
    }

    /// The lines of `saggar session diff`.
    fn diff(&self) -> Vec<String> {
        self.run(&["diff", ID]).success().lines().map(str::to_owned).collect()
    }

    fn has(&self, name: &str, content: &str) {
        assert_eq!(fs::read_to_string(self.folder().join(name)).unwrap(), content, "{name}");
    }

    fn own(&self, path: &Path) {
        let caller = fs::metadata(self.place.path()).unwrap();
        use std::os::unix::fs::MetadataExt;
        std::os::unix::fs::lchown(path, Some(caller.uid()), Some(caller.gid())).unwrap();
    }

    /// Writes a file of the folder as its owner would.
    fn write(&self, name: &str, content: &str) {
        let path = self.folder().join(name);
        fs::write(&path, content).unwrap();
        self.own(&path);
    }
}

/// Two tests in one: on a copy of the folder and on an overlay over it.
fn on_each(caller: Caller, test: impl Fn(Work)) {
    for overlay in [false, true] {
        test(Work::new(caller, overlay));
    }
}
