//! A program that exchanges names while a verb is at work, as one in a sandbox on the same folder could: each name that a
//! system call is about to use, right before that call.
//!
//! A verb may well refuse to go on when it meets an exchanged name, and then what it does later is not reached. So an
//! attack is a sweep of many runs: each begins where the last one ended, until a run has nothing left to exchange.

use std::path::{Path, PathBuf};

use nix::unistd::Pid;

use super::decoys::{Decoy, Decoys, Exchanged};
use super::names;

/// One way to exchange names.
#[derive(Debug, Clone, Copy)]
struct Attack {
    decoy: Decoy,
    /// Names in calls that change something, or in all.
    changes: bool,
    /// The name itself, or the directory above it.
    above: bool,
    /// For how many system calls it is exchanged; `None` until the end of the run.
    calls: Option<usize>,
}

impl Attack {
    /// All of them, those that do the most harm first.
    fn all() -> Vec<Attack> {
        let mut all = Vec::new();
        for changes in [true, false] {
            for calls in [Some(1), Some(4), None] {
                for above in [false, true] {
                    all.extend(Decoy::ALL.map(|decoy| Attack { decoy, changes, above, calls }));
                }
            }
        }
        // Only root mounts in the namespace that the verb is in.
        all.retain(|attack| attack.decoy != Decoy::Mount || nix::unistd::geteuid().is_root());
        all
    }
}

/// All attacks on one verb, over many runs.
#[derive(Debug)]
pub(super) struct Sweeps {
    /// Each with the number of the use of a name at which its next run begins.
    left: Vec<(Attack, usize)>,
    turn: usize,
}

impl Sweeps {
    pub(super) fn new() -> Self {
        Sweeps { left: Attack::all().into_iter().map(|attack| (attack, 0)).collect(), turn: 0 }
    }

    /// On a tree that is shown with what the host has mounted in it.
    pub(super) fn without_mounts() -> Self {
        let mut sweeps = Sweeps::new();
        sweeps.left.retain(|(attack, _)| attack.decoy != Decoy::Mount);
        sweeps
    }

    /// The attack that comes first, alone.
    pub(super) fn first() -> Self {
        Sweeps { left: vec![(Attack::all()[0], 0)], turn: 0 }
    }

    /// Whether every use of a name was met by every attack.
    pub(super) fn are_over(&self) -> bool {
        self.left.is_empty()
    }

    /// The adversary of the next run, which begins when there is something at `begins`.
    pub(super) fn adversary<'a>(
        &mut self,
        trees: &'a [PathBuf],
        decoys: Decoys,
        begins: Option<PathBuf>,
    ) -> Adversary<'a> {
        self.turn = (self.turn + 1) % self.left.len();
        let (attack, from) = self.left[self.turn];
        Adversary { trees, decoys, attack, from, begins, uses: 0, last: None, exchanged: None, calls: 0 }
    }

    /// Notes how far a run has come, and whether the verb did all that it wanted.
    pub(super) fn note(&mut self, adversary: &Adversary<'_>, is_done: bool) {
        match &adversary.last {
            Some((number, _)) if !is_done || adversary.attack.calls.is_none() => {
                self.left[self.turn].1 = number + 1;
            }
            _ => {
                self.left.remove(self.turn);
                // The one that follows has its number now.
                self.turn = self.turn.checked_sub(1).unwrap_or(self.left.len().saturating_sub(1));
            }
        }
    }
}

/// The adversary of one run.
pub(super) struct Adversary<'a> {
    trees: &'a [PathBuf],
    decoys: Decoys,
    attack: Attack,
    from: usize,
    begins: Option<PathBuf>,
    /// How often a name was used so far.
    uses: usize,
    /// The use that was met last, and its name.
    last: Option<(usize, PathBuf)>,
    exchanged: Option<Exchanged>,
    /// For how many more calls.
    calls: usize,
}

impl Adversary<'_> {
    /// Before a system call of `pid`.
    pub(super) fn step(&mut self, pid: Pid) {
        if self.begins.as_ref().is_some_and(|path| path.symlink_metadata().is_err()) {
            return;
        }
        self.begins = None;
        if self.exchanged.is_some() {
            self.calls = self.calls.saturating_sub(1);
            if self.calls > 0 {
                return;
            }
            self.put_back();
        }
        let used = names::used(pid);
        let attack = self.attack;
        let in_trees = used.iter().filter(|used| used.changes || !attack.changes);
        let names: Vec<&Path> = in_trees.filter_map(|used| self.component(&used.path)).collect();
        for name in names.into_iter().map(Path::to_owned).collect::<Vec<_>>() {
            self.uses += 1;
            let is_next = self.uses > self.from && self.exchanged.is_none();
            let is_free = attack.calls.is_some() || self.last.is_none();
            if is_next
                && is_free
                && let Ok(exchanged) = self.decoys.exchange(attack.decoy, &name)
            {
                self.exchanged = Some(exchanged);
                self.calls = attack.calls.unwrap_or(usize::MAX);
                self.last = Some((self.uses - 1, name));
            }
        }
    }

    /// The part of `path` that is exchanged. The trees themselves have names that no sandbox can reach.
    fn component<'p>(&self, path: &'p Path) -> Option<&'p Path> {
        let part = if self.attack.above { path.parent()? } else { path };
        self.trees.iter().any(|tree| part != tree && part.starts_with(tree)).then_some(part)
    }

    /// Puts the last name back.
    pub(super) fn put_back(&mut self) {
        if let Some(exchanged) = self.exchanged.take() {
            exchanged.put_back();
        }
    }

    /// What it does, for a message.
    pub(super) fn describe(&self) -> String {
        format!("{:?} from use {}, last at {:?}", self.attack, self.from, self.last)
    }
}
