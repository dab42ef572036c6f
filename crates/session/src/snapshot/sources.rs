//! The source trees of a snapshot, and the worker that reads them.
//!
//! ```text
//! command: opens trees, file ── fork ──> worker: reads trees, writes file ── summary ──> command: syncs, renames
//! ```
//! Programs of the session created the trees. The worker ([`saggar_sys::file_worker`]) reads them and writes to the
//! file that was opened before; it can access no other file.

use super::{SnapshotLabel, SnapshotLimits, SnapshotSummary, write};
use crate::diff::text;
use crate::workspace_origin::ChangeStorage;
use saggar_sys::beneath;
use saggar_sys::error::{Code, Error, Result};
use saggar_sys::file_worker::{self, Confinement, FileAccess};
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Largest summary in bytes: a thousand notes with long paths.
const MAX_SUMMARY: usize = 32 << 20;
/// Bytes of a member in an archive besides its content: headers and their extensions.
const MEMBER_OVERHEAD: u64 = 16 << 10;

/// The open trees of a session.
#[derive(Debug)]
pub(super) struct SnapshotSources {
    /// The workspace or the upper layer, and its name in the archive.
    pub(super) tree: Option<(OwnedFd, &'static str)>,
    /// The agent's home.
    pub(super) home: Option<OwnedFd>,
}

impl SnapshotSources {
    /// Opens the trees of the session in this directory, whose changes are stored in `place`.
    ///
    /// # Errors
    /// [`Code::System`].
    pub(super) fn open(session: &Path, place: Option<ChangeStorage>) -> Result<Self> {
        let root = beneath::open_root(session)
            .map_err(|e| Error::system(format_args!("open {}", text::show_path(session)), e))?;
        let open = |path: &str| match beneath::open_directory(root.as_fd(), path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            opened => opened.map(Some).map_err(|e| write::io_error(Path::new(path), &e)),
        };
        let tree = match place {
            Some(ChangeStorage::Copy) => {
                let missing = || write::io_error(Path::new("workspace"), &io::ErrorKind::NotFound.into());
                Some((open("workspace")?.ok_or_else(missing)?, "workspace"))
            }
            // An overlay without changes has no directory for them.
            Some(ChangeStorage::Overlay) => open("upper/changes")?.map(|opened| (opened, "changes")),
            None => None,
        };
        Ok(SnapshotSources { tree, home: open("home")? })
    }

    /// Writes the trees to the empty file `output` in a worker, like [`super::write_snapshot`].
    ///
    /// # Errors
    /// As [`super::write_snapshot`] and [`file_worker::run_worker`].
    pub(super) fn write_in_worker(
        &self,
        label: &SnapshotLabel,
        output: &File,
        all: bool,
        limits: SnapshotLimits,
    ) -> Result<SnapshotSummary> {
        let trees: Vec<BorrowedFd<'_>> =
            self.tree.iter().map(|(tree, _)| tree.as_fd()).chain(self.home.iter().map(AsFd::as_fd)).collect();
        let directories: Vec<_> = trees.iter().map(|tree| (*tree, FileAccess::Read)).collect();
        let fail = |e: io::Error| Error::system("take a snapshot", e);
        let owners: Vec<_> = trees
            .iter()
            .map(|tree| file_worker::worker_owner(*tree))
            .collect::<io::Result<_>>()
            .map_err(fail)?;
        let owner = owners.first().copied().flatten();
        let files = [output.as_fd()];
        let run = |capabilities| {
            let confinement = Confinement {
                task: "take a snapshot",
                owner,
                capabilities,
                directories: &directories,
                files: &files,
                limits: file_worker::WorkerLimits {
                    file_size: limits.bytes.saturating_add(limits.entries.saturating_mul(MEMBER_OVERHEAD)),
                    output_size: MAX_SUMMARY,
                    ..limits.for_worker()
                },
            };
            file_worker::run_worker(&confinement, || write::write_to(self, label, output, all, limits))
        };
        // For root, the home belongs to root, and the workspace to the owner of the folder.
        if owner.is_some() && owners.iter().all(|other| *other == owner) {
            match run(0) {
                Err(error) if error.code() == Code::System => {}
                done => return done,
            }
            // A file of another owner was in the way.
            output.set_len(0).map_err(fail)?;
            let mut start = output;
            start.seek(SeekFrom::Start(0)).map_err(fail)?;
        }
        run(file_worker::READ_MULTI_OWNER_CAPABILITIES)
    }
}
