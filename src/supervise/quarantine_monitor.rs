//! Scans for files that a sandbox left for the host to execute, moves them to quarantine, and reports them: an event
//! and a log line for each of the first [`MAX_REPORTED`], and their number.
//!
//! A scan reads files that programs wrote, so a file worker (`session/worker`) makes it. The first worker can read the
//! workspace and nothing else, and only reports whether there are findings. A second one, if it is needed, scans again,
//! and can also change the workspace and the quarantine, which is created for it.

use super::status::{StatusEvent, StatusWriter};
use crate::error::Result;
use crate::session::quarantine::Quarantine;
use crate::session::unfinished_scan::{self, UnfinishedScan};
use crate::session::workspace_scan::{QuarantineAction, QuarantineFinding, ScanBounds, WorkspaceScanner};
use crate::sys::caps;
use crate::sys::confine::ProcessRights;
use crate::sys::file;
use crate::sys::file_worker::{self, Confinement, FileAccess, READ_MULTI_OWNER_CAPABILITIES, WorkerLimits};
use std::collections::BTreeSet;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Most findings that are reported one by one, of the moved and of the unmoved ones each. The index of the quarantine
/// lists all that were moved.
const MAX_REPORTED: usize = 100;
/// Bounds of the last scan. If the scan hits one of them, that is reported.
const FULL_SCAN_BOUNDS: ScanBounds = ScanBounds { max_entries: 8_000_000, max_time: Duration::from_secs(60) };
/// Processor time limit of a scan worker, in seconds.
const SCAN_CPU_SECONDS: u64 = 120;

/// The rights of a worker that scans and moves nothing.
pub const SCAN_RIGHTS: ProcessRights =
    ProcessRights { capabilities: READ_MULTI_OWNER_CAPABILITIES, ..file_worker::FILE_WORKER_RIGHTS };

/// CAP_DAC_OVERRIDE as a bit: a move goes from a directory of the workspace's owner to a directory of root.
const MOVE_CAPABILITIES: u64 = 1 << caps::DAC_OVERRIDE;

/// What a scan covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScanExtent {
    /// The protected names that did not exist at the start: while programs run.
    MissingNames,
    /// The whole work tree: when no program is left.
    WholeTree,
}

/// Scans the workspace of a running sandbox.
#[derive(Debug)]
pub struct QuarantineMonitor {
    id: String,
    workspace: PathBuf,
    watched: Option<WorkspaceScanner>,
    quarantine: Quarantine,
    reported: BTreeSet<(PathBuf, String)>,
    moved_count: usize,
    left_in_place: usize,
    unfinished: Option<UnfinishedScan>,
    /// Whether the sandbox is an earlier one, whose supervisor was killed.
    was_killed: bool,
}

impl QuarantineMonitor {
    /// A monitor of `workspace` for the sandbox `id`, whose first process is `init`. Without `watched` it scans
    /// nothing, as programs cannot change the workspace.
    pub fn new(
        id: &str,
        workspace: &Path,
        watched: Option<WorkspaceScanner>,
        quarantine: Quarantine,
        init: i32,
    ) -> Self {
        let unfinished = watched.as_ref().and_then(|watched| {
            UnfinishedScan::write(id, workspace, quarantine.directory(), init, watched.baseline())
                .inspect_err(|error| {
                    log::warn!(
                        "{error}; if saggar is killed, the files that this sandbox leaves are not checked"
                    )
                })
                .ok()
        });
        QuarantineMonitor { unfinished, ..Self::without_record(id, workspace, watched, quarantine) }
    }

    fn without_record(
        id: &str,
        workspace: &Path,
        watched: Option<WorkspaceScanner>,
        quarantine: Quarantine,
    ) -> Self {
        let (told, unfinished) = (BTreeSet::new(), None);
        let (id, workspace) = (id.to_owned(), workspace.to_owned());
        QuarantineMonitor {
            id,
            workspace,
            watched,
            quarantine,
            reported: told,
            moved_count: 0,
            left_in_place: 0,
            unfinished,
            was_killed: false,
        }
    }

    /// The workspace, if programs can change it.
    pub(super) fn workspace_fd(&self) -> Option<BorrowedFd<'_>> {
        self.watched.as_ref().map(AsFd::as_fd)
    }

    /// The open record of the pending last scan, which stays locked until that scan.
    pub(super) fn record_fd(&self) -> Option<BorrowedFd<'_>> {
        self.unfinished.as_ref().map(AsFd::as_fd)
    }

    /// Sets the number of files that workers moved earlier.
    pub(super) fn set_moved(&mut self, moved: usize) {
        self.moved_count = moved;
    }

    /// Number of files that were moved.
    pub(super) fn moved(&self) -> usize {
        self.moved_count
    }

    /// Whether there cannot be any findings. It parses nothing and allocates nothing.
    pub(super) fn has_nothing_to_find(&self) -> bool {
        self.watched.as_ref().is_none_or(WorkspaceScanner::is_trivially_clean)
    }

    /// Whether a scan has findings that are to be moved or reported.
    pub(super) fn has_findings(&self, extent: ScanExtent) -> bool {
        let Some(watched) = &self.watched else { return false };
        let mut any = false;
        let mut take = |_| any = true;
        match extent {
            ScanExtent::MissingNames => watched.scan_missing_names(&mut take),
            ScanExtent::WholeTree => {
                let unseen = watched.scan_all(FULL_SCAN_BOUNDS, &mut take);
                any |= unseen.directories > 0;
            }
        }
        any
    }

    /// Scans, moves findings to quarantine, and reports them.
    pub(super) fn scan(&mut self, extent: ScanExtent, status: &mut StatusWriter) {
        if extent == ScanExtent::MissingNames {
            return self.scan_once(status, |watched, take| watched.scan_missing_names(take));
        }
        let mut unseen = None;
        self.scan_once(status, |watched, take| unseen = Some(watched.scan_all(FULL_SCAN_BOUNDS, take)));
        if let Some(first) = unseen.as_ref().and_then(|unseen| unseen.first_path.as_ref()) {
            let path = self.workspace.join(first);
            let count = unseen.as_ref().map_or(0, |unseen| unseen.directories);
            let why = format!(
                "not looked at, like {} more directories: run no git and open no editor there before you have looked",
                count.saturating_sub(1)
            );
            log::warn!("{}: {why}", path.display());
            status.write(&StatusEvent::Reported { id: &self.id, path: &path, why: &why });
            self.left_in_place += 1;
        }
        self.report_summary(status);
    }

    /// Syncs the record of the pending last scan: a persistent sandbox needs it after a crash of the machine.
    pub(super) fn sync_record(&self) {
        if let Some(unfinished) = &self.unfinished {
            unfinished.start_sync();
        }
    }

    /// The last scan was made: no later process has to make it.
    pub(super) fn mark_scanned(&mut self) {
        if let Some(unfinished) = self.unfinished.take() {
            unfinished.complete();
        }
    }

    /// Calls `with` with the rights that a scan worker gets: to read the workspace, and, to move findings, to change
    /// the workspace and the quarantine. This process creates the quarantine, in a directory that the worker does not
    /// own.
    ///
    /// # Errors
    /// Those of `with`; [`crate::error::Code::System`] when the owner of the workspace cannot be determined.
    pub(super) fn with_confinement<T>(
        &mut self,
        takes: bool,
        with: impl FnOnce(&mut Self, &Confinement<'_>) -> Result<T>,
    ) -> Result<T> {
        // Open as long as this monitor, which `with` does not replace.
        let lasting = |fd: BorrowedFd<'_>| file::borrow_number(fd.as_raw_fd());
        let root = self.watched.as_ref().map(|watched| lasting(watched.as_fd()));
        let mut directories: Vec<_> = root
            .map(|root| (root, if takes { FileAccess::Write } else { FileAccess::Read }))
            .into_iter()
            .collect();
        let mut files = Vec::new();
        // If the quarantine cannot be created, findings stay in place, and each is reported with the reason.
        if takes && let Ok([place, index]) = self.quarantine.prepare() {
            directories.push((lasting(place), FileAccess::Write));
            files.push(lasting(index));
        }
        let fails = |e| crate::error::Error::system("find the owner of the workspace", e);
        let owner = root.map(file_worker::worker_owner).transpose().map_err(fails)?.flatten();
        let confinement = Confinement {
            task: "look for what the sandbox left in the workspace",
            owner,
            capabilities: if takes { MOVE_CAPABILITIES } else { SCAN_RIGHTS.capabilities },
            directories: &directories,
            files: &files,
            limits: WorkerLimits { cpu_seconds: SCAN_CPU_SECONDS, ..WorkerLimits::default() },
        };
        with(self, &confinement)
    }

    /// Makes the last scan in workers of this process, which has no launcher.
    pub(super) fn scan_in_workers(&mut self, status: &mut StatusWriter) {
        let looked = self.with_confinement(false, |it, confinement| {
            file_worker::run_worker(confinement, || Ok(it.has_findings(ScanExtent::WholeTree)))
        });
        let looked = looked.and_then(|finds| match finds {
            false => Ok(()),
            true => self.with_confinement(true, |it, confinement| {
                let job = |output: &file_worker::WorkerOutput| {
                    let output = *output;
                    let mut status = StatusWriter::for_worker(move |event| _ = output.write(&event));
                    it.scan(ScanExtent::WholeTree, &mut status);
                    Ok(())
                };
                file_worker::run_worker_with_output(confinement, job, |event| {
                    status.forward(event);
                    Ok(())
                })
            }),
        });
        match looked {
            Ok(()) => self.mark_scanned(),
            Err(error) => log::warn!("{error}; the next start in {} looks again", self.workspace.display()),
        }
    }

    fn report_summary(&self, status: &mut StatusWriter) {
        let (id, moved, stayed) = (self.id.as_str(), self.moved_count, self.left_in_place);
        if moved + stayed == 0 {
            return;
        }
        status.write(&StatusEvent::Findings { id, quarantined: moved, reported: stayed });
        // Who starts a sandbox in this workspace did not start that one, and hears of it when there is something to hear.
        if self.was_killed {
            log::warn!("{}: the sandbox {id}, which was killed, left this", self.workspace.display());
        }
        if moved > 0 {
            let more = match moved.saturating_sub(MAX_REPORTED) {
                0 => String::new(),
                more => format!(", {more} of them not named here"),
            };
            log::warn!(
                "{moved} in quarantine{more}: saggar quarantine list {id}; to undo it: saggar quarantine restore {id}"
            );
        }
        if stayed > MAX_REPORTED {
            log::warn!("{} more that stayed where they are are not named here", stayed - MAX_REPORTED);
        }
    }

    fn scan_once(
        &mut self,
        status: &mut StatusWriter,
        look: impl FnOnce(&WorkspaceScanner, &mut dyn FnMut(QuarantineFinding)),
    ) {
        let QuarantineMonitor {
            id,
            workspace,
            watched: Some(watched),
            quarantine,
            reported: told,
            moved_count: moved,
            left_in_place: stayed,
            ..
        } = self
        else {
            return;
        };
        let mut tell = |path: &Path, why: String, status: &mut StatusWriter| {
            if told.len() < MAX_REPORTED && told.insert((path.to_owned(), why.clone())) {
                *stayed += 1;
                log::warn!("{}: {why}", path.display());
                status.write(&StatusEvent::Reported { id, path, why: &why });
            } else if !told.contains(&(path.to_owned(), why)) {
                *stayed += 1;
            }
        };
        look(watched, &mut |found| {
            // A finding that is a directory itself has the path `.`, which `components` omits.
            let path: PathBuf = workspace.join(&found.path).components().collect();
            if found.action == QuarantineAction::Report {
                return tell(&path, found.reason, status);
            }
            match quarantine.move_in(&found) {
                Ok(None) => {}
                Ok(Some(to)) => {
                    *moved += 1;
                    if *moved <= MAX_REPORTED {
                        log::warn!("{}: {}; moved to {}", path.display(), found.reason, to.display());
                        status.write(&StatusEvent::Quarantined {
                            id,
                            path: &path,
                            to: &to,
                            why: &found.reason,
                        });
                    }
                }
                Err(error) => tell(&path, format!("{}; {error}", found.reason), status),
            }
        });
    }
}

/// Makes the last scans of supervisors that were killed, in `workspace` or in all workspaces; returns their number.
pub fn finish_abandoned_scans(workspace: Option<&Path>) -> usize {
    let left = unfinished_scan::find_abandoned(workspace);
    let count = left.len();
    for mut one in left {
        let recorded = std::mem::take(&mut one.recorded);
        // A workspace that no longer exists has no findings.
        if let Ok(watched) = WorkspaceScanner::resume(&one.workspace, recorded) {
            let quarantine = Quarantine::new(one.quarantine.clone(), one.workspace.clone());
            let mut warden =
                QuarantineMonitor::without_record(&one.id, &one.workspace, Some(watched), quarantine);
            warden.unfinished = Some(one.record);
            warden.was_killed = true;
            warden.scan_in_workers(&mut StatusWriter::default());
        } else {
            one.record.complete();
        }
    }
    count
}
