//! Verbs that work on trees of others, one system call at a time, while an adversary exchanges every name of the tree
//! for something else. Whatever comes of the verb: what it was lured to is neither changed nor read, it ends, and the same
//! command again does what was left.
//!
//! | module | what it is |
//! |---|---|
//! | [`stepped`] | a command, stopped before each system call |
//! | [`names`] | the names that a system call is about to use |
//! | [`decoys`] | what is put in the place of a name |
//! | [`adversary`] | which names are exchanged when |
//! | [`victim`] | what must not change |
//! | [`verbs`] | the verbs of a session |
//! | [`sweeps`] | starts beside sweeps |
//! | [`workspaces`] | starts on a work tree itself, the last look at it, and the way back out of quarantine |
//!
//! `SAGGAR_TEST_LONG=1` takes all attacks, up to ten minutes for each verb (`SAGGAR_TEST_RACE=SECONDS` for others).

mod adversary;
mod decoys;
mod names;
pub(crate) mod stepped;
mod sweeps;
mod verbs;
mod victim;
mod workspaces;

use std::fs;
use std::os::unix::fs::lchown;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use tempfile::TempDir;

use adversary::Sweeps;
use decoys::Decoys;
use stepped::stepped;
use victim::{Victim, has_no_secret};

use crate::isolation::wrapped::{Ended, finish};
use crate::support::caller::Caller;
use crate::support::place::Place;
use crate::support::process::Process;
use crate::support::rounds;

/// Who owns the folder where root starts: a user without any right to the victim.
const OWNER: u32 = 12345;
/// How long a verb is raced in a short run.
const SHORT: u64 = 1500;
/// The same with `SAGGAR_TEST_LONG=1`.
const LONG: u64 = 600;

/// A place with an agent's folder and a work folder of an ordinary user's, and the victim.
struct Raced {
    place: Place,
    victim: Victim,
    /// A path whose appearance the adversary waits for.
    begins: Option<PathBuf>,
    /// A directory of another file system that has the state instead of the place.
    elsewhere: Option<TempDir>,
}

impl Raced {
    fn new(caller: Caller) -> Self {
        let place = Place::new(caller);
        for name in ["agent", "store", "victim"] {
            place.make_dir(name, 0o755);
        }
        for tree in ["agent", "work"] {
            for name in ["src", "old"] {
                place.make_dir(&format!("{tree}/{name}"), 0o755);
            }
            for name in ["CLAUDE.md", "src/main", "old/a", "old/b", "kept"] {
                place.make_file(&format!("{tree}/{name}"), "text\n");
            }
        }
        if caller.is_root() {
            for tree in ["agent", "work"] {
                for name in ["", "src", "old", "CLAUDE.md", "src/main", "old/a", "old/b", "kept"] {
                    lchown(place.join(tree).join(name), Some(OWNER), Some(OWNER)).unwrap();
                }
            }
        }
        // Of the caller's own, so that nothing but the verb's care keeps it as it is.
        let victim = Victim::new(place.join("victim"), |path| caller.own(path));
        Raced { place, victim, begins: None, elsewhere: None }
    }

    /// The directory of sessions and of what saggar keeps.
    fn state(&self) -> PathBuf {
        self.elsewhere.as_ref().map_or_else(|| self.place.join("state"), |other| other.path().to_owned())
    }

    /// Runs a command undisturbed.
    fn run(&self, words: &[&str]) -> Ended {
        finish(Process::start(&self.place, self.command(words)))
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.place.saggar();
        if self.elsewhere.is_some() {
            command.env("XDG_STATE_HOME", self.state()).env("SAGGAR_STATE_DIR", self.state().join("saggar"));
        }
        command.args(words);
        command
    }

    /// Runs the command against the next adversary in these trees. Whether the command has done all that it wanted.
    fn race(&self, command: &Command, trees: &[PathBuf], sweeps: &mut Sweeps) {
        let (output, store) = (self.place.join("output"), self.place.join("store"));
        let decoys = Decoys::new(store, self.victim.root.clone(), &trees[0]);
        let mut adversary = sweeps.adversary(trees, decoys, self.begins.clone());
        let status = stepped(&self.place, command, &output, |pid| adversary.step(pid));
        adversary.put_back();
        let when = format!("{:?}: {}", command.get_args(), adversary.describe());
        let text = fs::read(&output).unwrap_or_default();
        assert!(status.is_some(), "{when}: killed, or without an end: {}", String::from_utf8_lossy(&text));
        self.victim.check(&when);
        for place in ["agent", "work", "run", "output"] {
            has_no_secret(&self.place.join(place), &when);
        }
        has_no_secret(&self.state(), &when);
        sweeps.note(&adversary, status == Some(0));
    }
}

/// Has mounts of its own from now on, for this thread and the verbs that it starts.
fn own_mounts() {
    if nix::unistd::geteuid().is_root() {
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>).unwrap();
    }
}

/// Calls `race` with each of `kinds`, and the attacks on it, in turn until the time is over, or all attacks.
fn race_for_a_while<K: Copy>(kinds: &[K], attacks: fn() -> Sweeps, mut race: impl FnMut(K, &mut Sweeps)) {
    own_mounts();
    let wanted = std::env::var("SAGGAR_TEST_RACE").ok().and_then(|text| text.parse().ok());
    let long = Duration::from_secs(wanted.unwrap_or(LONG));
    let most = if rounds(0, 1) == 1 { long } else { Duration::from_millis(SHORT) };
    let begun = Instant::now();
    let mut all: Vec<(K, Sweeps)> = kinds.iter().map(|kind| (*kind, attacks())).collect();
    while begun.elapsed() < most && !all.is_empty() {
        for (kind, sweeps) in &mut all {
            race(*kind, sweeps);
        }
        all.retain(|(_, sweeps)| !sweeps.are_over());
    }
}
