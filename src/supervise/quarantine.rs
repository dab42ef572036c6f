//! Looks for what has appeared under protected names, has it moved to quarantine, and tells: one event and one
//! line of the log each.

use super::status::{Event, Status};
use crate::host::appeared::{Found, Remedy, Watched};
use crate::session::quarantine::Quarantine;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What is told of without being moved; more is not remembered, and not told of.
const TOLD: usize = 256;
/// How much is moved in one look. Whoever makes more finds the sandbox's end at the same limit, and it is told.
const MOVED: usize = 1024;

/// The quarantine of a running sandbox.
#[derive(Debug)]
pub struct Warden {
    workspace: PathBuf,
    watched: Option<Watched>,
    quarantine: Quarantine,
    told: BTreeSet<(PathBuf, String)>,
}

impl Warden {
    /// Looks after `workspace`; at nothing without `watched`, where programs cannot change it.
    pub fn new(workspace: &Path, watched: Option<Watched>, quarantine: Quarantine) -> Self {
        Warden { workspace: workspace.to_owned(), watched, quarantine, told: BTreeSet::new() }
    }

    /// A quick look, while programs run.
    pub(super) fn look(&mut self, id: &str, status: &mut Status) {
        self.round(id, status, |watched, take| watched.names(take));
    }

    /// The last look, when all programs are dead: at so many entries of the work tree.
    pub(super) fn look_everywhere(&mut self, id: &str, status: &mut Status, entries: usize) {
        let mut whole = true;
        self.round(id, status, |watched, take| whole = watched.everything(entries, take));
        if !whole {
            let (path, why) = (&self.workspace, "the work tree is larger than what is looked at");
            log::info!("{}: {why}", path.display());
            status.say(&Event::Reported { id, path, why });
        }
    }

    fn round(&mut self, id: &str, status: &mut Status, look: impl FnOnce(&Watched, &mut dyn FnMut(Found))) {
        let Warden { workspace, watched: Some(watched), quarantine, told } = self else { return };
        let mut left = MOVED;
        let mut tell = |path: &Path, why: String, status: &mut Status| {
            if told.len() < TOLD && told.insert((path.to_owned(), why.clone())) {
                log::warn!("{}: {why}", path.display());
                status.say(&Event::Reported { id, path, why: &why });
            }
        };
        look(watched, &mut |found| {
            // A directory itself is found as its `.`, which components leave out.
            let path: PathBuf = workspace.join(&found.path).components().collect();
            if found.remedy == Remedy::Report {
                return tell(&path, found.why, status);
            }
            left = left.saturating_sub(1);
            if left == 0 {
                return tell(&path, format!("{}; there are too many to move", found.why), status);
            }
            match quarantine.take(&found) {
                Ok(None) => {}
                Ok(Some(to)) => {
                    // What could not leave the workspace is named by its place there.
                    let to = workspace.join(to);
                    log::warn!("{}: {}; moved to {}", path.display(), found.why, to.display());
                    status.say(&Event::Quarantined { id, path: &path, to: &to, why: &found.why });
                }
                Err(error) => tell(&path, format!("{}; {error}", found.why), status),
            }
        });
    }
}
