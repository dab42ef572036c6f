//! Scans for files under protected names: quick scans after each command, and the last scan. A worker that may only
//! read reports whether there are findings, and a second worker moves them ([`super::super::quarantine_monitor`]). For
//! a small and plain work tree the launcher can tell by itself that there are none.
//!
//! A worker writes its findings line by line, each a JSON value of [`ScanMessage`]. Its log messages and status events
//! take the same way, and the loop writes them.

use super::super::quarantine_monitor::ScanExtent;
use super::super::status::StatusWriter;
use super::{SCAN, SCAN_DONE, WorkerContext};
use crate::session::disk_usage::DiskUsage;
use crate::stage::agent::launcher::Launcher;
use crate::sys::file_worker::confine_worker;
use nix::fcntl::OFlag;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;

/// Most bytes that are read from a worker.
const MAX_OUTPUT: u64 = 16 << 20;
/// Most reports that are remembered, so that each is made once.
const MAX_REMEMBERED_REPORTS: usize = 1024;
/// Bits of the argument: scan the missing names only; move the findings. The other bits are the number of files that
/// were moved before.
const MISSING_NAMES_ONLY: u64 = 1;
const MOVE_FINDINGS: u64 = 2;
const FLAG_BITS: u32 = 2;

/// A message of a worker.
#[derive(Debug, Serialize, Deserialize)]
enum ScanMessage {
    /// A status event, as JSON.
    Event(String),
    /// A warning for the log.
    Warn(String),
    /// An informational message for the log.
    Info(String),
    /// There are findings to be moved or reported.
    HasFindings,
    /// The whole work tree was scanned.
    Scanned,
    /// Number of files moved to quarantine so far.
    Moved(usize),
    /// Whether the disk is full.
    DiskIsFull(bool),
    /// Whether a retained overlay has changes.
    HasChanges(bool),
}

/// The result of the last scan, without its reports.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::supervise) struct ScanResult {
    /// The disk is full.
    pub(in crate::supervise) disk_is_full: bool,
    /// Whether a retained overlay has changes; `None` without one.
    pub(in crate::supervise) has_changes: Option<bool>,
}

impl WorkerContext<'_> {
    /// The last scan without a worker, in the launcher itself; false when a worker is needed.
    pub(super) fn scan_in_launcher(&self, argument: u64) -> bool {
        // If files were moved before, a worker reports their number.
        argument == 0
            && self.disk_usage.is_none()
            && self.retained_changes.is_none()
            && self.quarantine_monitor.has_nothing_to_find()
    }

    pub(super) fn scan(&mut self, argument: u64, to: File) {
        let (Ok(events), Ok(log)) = (to.try_clone(), to.try_clone()) else { return };
        crate::log::relay(Box::new(move |level, text| {
            let line = if level <= log::Level::Warn {
                ScanMessage::Warn(text.into())
            } else {
                ScanMessage::Info(text.into())
            };
            send_message(&log, &line);
        }));
        let extent =
            if argument & MISSING_NAMES_ONLY == 0 { ScanExtent::WholeTree } else { ScanExtent::MissingNames };
        let takes = argument & MOVE_FINDINGS != 0;
        if !takes && extent == ScanExtent::WholeTree {
            // Needs only the rights of this process: the kernel's counts, and whether a directory is empty.
            send_message(&to, &ScanMessage::DiskIsFull(self.disk_is_full()));
            if let Some(has) = self.has_changes() {
                send_message(&to, &ScanMessage::HasChanges(has));
            }
        }
        let looked = self.quarantine_monitor.with_confinement(takes, |warden, confinement| {
            confine_worker(confinement, nix::unistd::getppid().as_raw())?;
            if !takes {
                return Ok(warden.has_findings(extent));
            }
            let mut status =
                StatusWriter::for_worker(move |event| send_message(&events, &ScanMessage::Event(event)));
            warden.set_moved(usize::try_from(argument >> FLAG_BITS).unwrap_or(usize::MAX));
            warden.scan(extent, &mut status);
            send_message(&to, &ScanMessage::Moved(warden.moved()));
            Ok(false)
        });
        match looked {
            Ok(true) => send_message(&to, &ScanMessage::HasFindings),
            Ok(false) if extent == ScanExtent::WholeTree => send_message(&to, &ScanMessage::Scanned),
            Ok(false) => {}
            Err(error) => send_message(&to, &ScanMessage::Warn(error.to_string())),
        }
    }

    /// Whether the last scan can have findings.
    fn needs_full_scan(&self, status: &StatusWriter) -> bool {
        self.quarantine_monitor.watches()
            || self.retained_changes.is_some()
            || (self.disk_usage.is_some() && status.has_reader())
    }

    fn disk_is_full(&self) -> bool {
        self.disk_usage.as_ref().is_some_and(DiskUsage::is_full)
    }

    fn has_changes(&self) -> Option<bool> {
        self.retained_changes.map(|kept| kept.changes_if_any().is_some())
    }
}

fn send_message(mut to: &File, line: &ScanMessage) {
    if let Ok(mut text) = serde_json::to_vec(line) {
        text.push(b'\n');
        // The reader may have exited; the scan is completed all the same.
        let _ = to.write_all(&text);
    }
}

/// In the loop: has workers scan, and reports their findings.
#[derive(Debug, Default)]
pub(in crate::supervise) struct ScanClient {
    reported: BTreeSet<String>,
    /// Number of files moved by quick scans.
    moved_count: usize,
}

impl ScanClient {
    /// A quick scan, while programs run. Without a launcher no program runs yet.
    pub(in crate::supervise) fn scan_quickly(
        &mut self,
        launcher: Option<&Launcher>,
        status: &mut StatusWriter,
    ) {
        if let Some(launcher) = launcher {
            self.scan_and_move(launcher, MISSING_NAMES_ONLY, status);
        }
    }

    /// The last scan, when no program is left; in this process if it never had a launcher.
    pub(in crate::supervise) fn scan_everything(
        &mut self,
        launcher: Option<&Launcher>,
        workers: &mut WorkerContext<'_>,
        status: &mut StatusWriter,
    ) -> ScanResult {
        match launcher {
            Some(launcher) if workers.needs_full_scan(status) => self.scan_and_move(launcher, 0, status),
            Some(_) => ScanResult::default(),
            None => {
                workers.quarantine_monitor.scan_in_workers(status);
                ScanResult { disk_is_full: workers.disk_is_full(), has_changes: workers.has_changes() }
            }
        }
    }

    /// Has a worker scan, and a second one move the findings.
    fn scan_and_move(
        &mut self,
        launcher: &Launcher,
        extent_flags: u64,
        status: &mut StatusWriter,
    ) -> ScanResult {
        let mut seen = ScanResult::default();
        let said = self.run_scan(launcher, extent_flags, &mut seen, status);
        // The last scan reports the number of files that quick scans have moved.
        let takes = said.has_findings || (extent_flags != MISSING_NAMES_ONLY && self.moved_count > 0);
        let said = if takes {
            self.run_scan(launcher, extent_flags | MOVE_FINDINGS, &mut seen, status)
        } else {
            said
        };
        if said.is_complete {
            // If the launcher has exited, the next start makes the scan.
            let _ = launcher.start_worker(SCAN_DONE, 0, &[]);
        }
        seen
    }

    fn run_scan(
        &mut self,
        launcher: &Launcher,
        argument: u64,
        seen: &mut ScanResult,
        status: &mut StatusWriter,
    ) -> ScanSummary {
        let mut said = ScanSummary::default();
        let Ok((read, write)) = nix::unistd::pipe2(OFlag::O_CLOEXEC) else { return said };
        if let Err(error) = launcher.start_worker(
            SCAN,
            argument | (self.moved_count as u64) << FLAG_BITS,
            &[write.as_raw_fd()],
        ) {
            log::warn!("look for what appeared under protected names: {}", error.desc());
            return said;
        }
        drop(write);
        for line in BufReader::new(File::from(read).take(MAX_OUTPUT)).lines().map_while(Result::ok) {
            let Ok(parsed) = serde_json::from_str(&line) else { continue };
            match parsed {
                ScanMessage::HasFindings => said.has_findings = true,
                ScanMessage::Scanned => said.is_complete = true,
                ScanMessage::Moved(count) => self.moved_count = count,
                ScanMessage::DiskIsFull(is) => seen.disk_is_full = is,
                ScanMessage::HasChanges(has) => seen.has_changes = Some(has),
                // A worker does not know the reports of others.
                _ if self.reported.contains(&line) => {}
                ScanMessage::Event(event) => status.forward(&event),
                ScanMessage::Warn(text) => log::warn!("{text}"),
                ScanMessage::Info(text) => log::info!("{text}"),
            }
            if self.reported.len() < MAX_REMEMBERED_REPORTS {
                self.reported.insert(line);
            }
        }
        said
    }
}

/// The summary of a worker's messages.
#[derive(Debug, Default)]
struct ScanSummary {
    /// There are findings to be moved.
    has_findings: bool,
    /// The scan was complete.
    is_complete: bool,
}
