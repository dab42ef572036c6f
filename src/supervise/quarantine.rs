//! Looks for what a sandbox left for the host to run, has it moved to quarantine, and tells: an event and a line of the log
//! each, as far as there is room for them, and how many there are.

use super::status::{Event, Status};
use crate::host::appeared::{Bounds, Found, Remedy, Watched};
use crate::session::quarantine::Quarantine;
use crate::session::unfinished::{self, Unfinished};
use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How many things are named, of those that were moved and of those that were not. The index of the quarantine has all
/// that were moved.
const NAMED: usize = 100;
/// How much the last look takes in. Whatever is beyond is told.
const EVERYTHING: Bounds = Bounds { entries: 8_000_000, time: Duration::from_secs(60) };

/// The quarantine of a running sandbox.
#[derive(Debug)]
pub struct Warden {
    id: String,
    workspace: PathBuf,
    watched: Option<Watched>,
    quarantine: Quarantine,
    told: BTreeSet<(PathBuf, String)>,
    moved: usize,
    stayed: usize,
    unfinished: Option<Unfinished>,
}

impl Warden {
    /// Looks after `workspace` of the sandbox `id`, whose first process is `init`; at nothing without `watched`, where
    /// programs cannot change it.
    pub fn new(
        id: &str,
        workspace: &Path,
        watched: Option<Watched>,
        quarantine: Quarantine,
        init: i32,
    ) -> Self {
        let unfinished = watched.as_ref().and_then(|watched| {
            Unfinished::write(id, workspace, quarantine.directory(), init, watched.recorded())
                .inspect_err(|error| {
                    log::warn!("{error}; if saggar is killed, what this sandbox leaves is not looked for")
                })
                .ok()
        });
        Warden { unfinished, ..Self::over(id, workspace, watched, quarantine) }
    }

    fn over(id: &str, workspace: &Path, watched: Option<Watched>, quarantine: Quarantine) -> Self {
        let (told, unfinished) = (BTreeSet::new(), None);
        let (id, workspace) = (id.to_owned(), workspace.to_owned());
        Warden { id, workspace, watched, quarantine, told, moved: 0, stayed: 0, unfinished }
    }

    /// What it looks after, where programs can change it.
    pub(super) fn workspace(&self) -> Option<BorrowedFd<'_>> {
        self.watched.as_ref().map(AsFd::as_fd)
    }

    /// The open record of the look that is still to be made, which is locked until then.
    pub(super) fn record(&self) -> Option<BorrowedFd<'_>> {
        self.unfinished.as_ref().map(AsFd::as_fd)
    }

    /// So many were moved before, by workers that are gone.
    pub(super) fn goes_on_from(&mut self, moved: usize) {
        self.moved = moved;
    }

    /// How many were moved.
    pub(super) fn moved(&self) -> usize {
        self.moved
    }

    /// A quick look, while programs run.
    pub(super) fn look(&mut self, status: &mut Status) {
        self.round(status, |watched, take| watched.names(take));
    }

    /// The last look, when all programs are dead.
    pub(super) fn look_everywhere(&mut self, status: &mut Status) {
        self.look_within(EVERYTHING, status);
    }

    fn look_within(&mut self, bounds: Bounds, status: &mut Status) {
        let mut unseen = None;
        self.round(status, |watched, take| unseen = Some(watched.everything(bounds, take)));
        if let Some(first) = unseen.as_ref().and_then(|unseen| unseen.first.as_ref()) {
            let path = self.workspace.join(first);
            let count = unseen.as_ref().map_or(0, |unseen| unseen.directories);
            let why = format!(
                "not looked at, like {} more directories: run no git and open no editor there before you have looked",
                count.saturating_sub(1)
            );
            log::warn!("{}: {why}", path.display());
            status.say(&Event::Reported { id: &self.id, path: &path, why: &why });
            self.stayed += 1;
        }
        self.sum_up(status);
        if let Some(unfinished) = self.unfinished.take() {
            unfinished.done();
        }
    }

    fn sum_up(&self, status: &mut Status) {
        let (id, moved, stayed) = (self.id.as_str(), self.moved, self.stayed);
        if moved + stayed == 0 {
            return;
        }
        status.say(&Event::Left { id, quarantined: moved, reported: stayed });
        if moved > 0 {
            let more = match moved.saturating_sub(NAMED) {
                0 => String::new(),
                more => format!(", {more} of them not named here"),
            };
            log::warn!(
                "{moved} in quarantine{more}: saggar quarantine list {id}; to undo it: saggar quarantine restore {id}"
            );
        }
        if stayed > NAMED {
            log::warn!("{} more that stayed where they are are not named here", stayed - NAMED);
        }
    }

    fn round(&mut self, status: &mut Status, look: impl FnOnce(&Watched, &mut dyn FnMut(Found))) {
        let Warden { id, workspace, watched: Some(watched), quarantine, told, moved, stayed, .. } = self
        else {
            return;
        };
        let mut tell = |path: &Path, why: String, status: &mut Status| {
            if told.len() < NAMED && told.insert((path.to_owned(), why.clone())) {
                *stayed += 1;
                log::warn!("{}: {why}", path.display());
                status.say(&Event::Reported { id, path, why: &why });
            } else if !told.contains(&(path.to_owned(), why)) {
                *stayed += 1;
            }
        };
        look(watched, &mut |found| {
            // A directory itself is found as its `.`, which components leave out.
            let path: PathBuf = workspace.join(&found.path).components().collect();
            if found.remedy == Remedy::Report {
                return tell(&path, found.why, status);
            }
            match quarantine.take(&found) {
                Ok(None) => {}
                Ok(Some(to)) => {
                    *moved += 1;
                    if *moved <= NAMED {
                        log::warn!("{}: {}; moved to {}", path.display(), found.why, to.display());
                        status.say(&Event::Quarantined { id, path: &path, to: &to, why: &found.why });
                    }
                }
                Err(error) => tell(&path, format!("{}; {error}", found.why), status),
            }
        });
    }
}

/// Makes the last look that supervisors could not make which were killed, at `workspace` or at all; how many.
pub fn sweep_unfinished(workspace: Option<&Path>) -> usize {
    let left = unfinished::left(workspace);
    let count = left.len();
    for mut one in left {
        log::warn!(
            "{}: looking for what the sandbox {} left, which was killed",
            one.workspace.display(),
            one.id
        );
        let recorded = std::mem::take(&mut one.recorded);
        // A workspace that is gone has nothing.
        if let Ok(watched) = Watched::again(&one.workspace, recorded) {
            let quarantine = Quarantine::new(one.quarantine.clone(), one.workspace.clone());
            Warden::over(&one.id, &one.workspace, Some(watched), quarantine)
                .look_within(EVERYTHING, &mut Status::default());
        }
        one.done();
    }
    count
}
