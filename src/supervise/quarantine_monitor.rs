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
use crate::session::workspace_scan::{
    QuarantineAction, QuarantineFinding, ScanBounds, UnscannedPaths, WorkspaceScanner,
};
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

/// A tree that programs can change: the workspace, or the git directory of its repository.
#[derive(Debug)]
struct WatchedTree {
    scanner: WorkspaceScanner,
    /// The record of its pending last scan.
    unfinished: Option<UnfinishedScan>,
}

/// Scans the workspace of a running sandbox.
#[derive(Debug)]
pub struct QuarantineMonitor {
    id: String,
    workspace: PathBuf,
    trees: Vec<WatchedTree>,
    quarantine: Quarantine,
    reported: BTreeSet<(PathBuf, String)>,
    moved_count: usize,
    left_in_place: usize,
    /// Whether the sandbox is an earlier one, whose supervisor was killed.
    was_killed: bool,
}

impl QuarantineMonitor {
    /// A monitor for the sandbox `id` with this workspace, whose first process is `init`. It scans the trees of
    /// `scanners`, which programs can change.
    pub fn new(
        id: &str,
        workspace: &Path,
        scanners: Vec<WorkspaceScanner>,
        quarantine: Quarantine,
        init: i32,
    ) -> Self {
        let record = |scanner: &WorkspaceScanner| {
            UnfinishedScan::write(id, scanner.path(), quarantine.directory(), init, scanner.baseline())
                .inspect_err(|error| {
                    log::warn!(
                        "{error}; if saggar is killed, the files that this sandbox leaves are not checked"
                    )
                })
                .ok()
        };
        let watch = |scanner| WatchedTree { unfinished: record(&scanner), scanner };
        let trees = scanners.into_iter().map(watch).collect();
        Self::watching(id, workspace, trees, quarantine)
    }

    fn watching(id: &str, workspace: &Path, trees: Vec<WatchedTree>, quarantine: Quarantine) -> Self {
        QuarantineMonitor {
            id: id.to_owned(),
            workspace: workspace.to_owned(),
            trees,
            quarantine,
            reported: BTreeSet::new(),
            moved_count: 0,
            left_in_place: 0,
            was_killed: false,
        }
    }

    /// Whether programs can change anything that is scanned.
    pub(super) fn watches(&self) -> bool {
        !self.trees.is_empty()
    }

    /// The trees, and the open records of their pending last scans, which stay locked until those.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.trees.iter().map(|tree| tree.scanner.as_fd()).chain(self.records().map(AsFd::as_fd))
    }

    fn records(&self) -> impl Iterator<Item = &UnfinishedScan> {
        self.trees.iter().filter_map(|tree| tree.unfinished.as_ref())
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
        self.trees.iter().all(|tree| tree.scanner.is_trivially_clean())
    }

    /// Whether a scan has findings that are to be moved or reported.
    pub(super) fn has_findings(&self, extent: ScanExtent) -> bool {
        let mut any = false;
        for WatchedTree { scanner, .. } in &self.trees {
            let mut take = |_| any = true;
            match extent {
                ScanExtent::MissingNames => scanner.scan_missing_names(&mut take),
                ScanExtent::WholeTree => {
                    let unseen = scanner.scan_all(FULL_SCAN_BOUNDS, &mut take);
                    any |= unseen.directories > 0;
                }
            }
        }
        any
    }

    /// Scans, moves findings to quarantine, and reports them.
    pub(super) fn scan(&mut self, extent: ScanExtent, status: &mut StatusWriter) {
        if extent == ScanExtent::MissingNames {
            return self.scan_once(status, |watched, take| watched.scan_missing_names(take));
        }
        let mut unseen = Vec::new();
        self.scan_once(status, |scanner, take| {
            let UnscannedPaths { directories, first_path } = scanner.scan_all(FULL_SCAN_BOUNDS, take);
            unseen.extend(first_path.map(|first| (scanner.path().join(first), directories)));
        });
        for (path, count) in unseen {
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
        self.records().for_each(UnfinishedScan::start_sync);
    }

    /// The last scan was made: no later process has to make it.
    pub(super) fn mark_scanned(&mut self) {
        let records = self.trees.iter_mut().filter_map(|tree| tree.unfinished.take());
        records.for_each(UnfinishedScan::complete);
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
        let access = if takes { FileAccess::Write } else { FileAccess::Read };
        let roots = self.trees.iter().map(|tree| (lasting(tree.scanner.as_fd()), access));
        let mut directories: Vec<_> = roots.collect();
        // The git directory of a workspace has the same owner.
        let root = directories.first().map(|(root, _)| *root);
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
        mut look: impl FnMut(&WorkspaceScanner, &mut dyn FnMut(QuarantineFinding)),
    ) {
        let QuarantineMonitor {
            id,
            trees,
            quarantine,
            reported: told,
            moved_count: moved,
            left_in_place: stayed,
            ..
        } = self;
        let mut tell = |path: &Path, why: String, status: &mut StatusWriter| {
            if told.len() < MAX_REPORTED && told.insert((path.to_owned(), why.clone())) {
                *stayed += 1;
                log::warn!("{}: {why}", path.display());
                status.write(&StatusEvent::Reported { id, path, why: &why });
            } else if !told.contains(&(path.to_owned(), why)) {
                *stayed += 1;
            }
        };
        for WatchedTree { scanner, .. } in trees {
            look(scanner, &mut |found| {
                // A finding that is a directory itself has the path `.`, which `components` omits.
                let path: PathBuf = scanner.path().join(&found.path).components().collect();
                if found.action == QuarantineAction::Report {
                    return tell(&path, found.reason, status);
                }
                match quarantine.move_in(scanner.path(), &found) {
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
}

/// Makes the last scans of supervisors that were killed, in `workspace` or in all workspaces; returns their number.
pub fn finish_abandoned_scans(workspace: Option<&Path>) -> usize {
    let left = unfinished_scan::find_abandoned(workspace);
    let count = left.len();
    for mut one in left {
        let recorded = std::mem::take(&mut one.recorded);
        // A workspace that no longer exists has no findings.
        if let Ok(scanner) = WorkspaceScanner::resume(&one.workspace, recorded) {
            let quarantine = Quarantine::new(one.quarantine.clone());
            let tree = WatchedTree { scanner, unfinished: Some(one.record) };
            let mut warden = QuarantineMonitor::watching(&one.id, &one.workspace, vec![tree], quarantine);
            warden.was_killed = true;
            warden.scan_in_workers(&mut StatusWriter::default());
        } else {
            one.record.complete();
        }
    }
    count
}
