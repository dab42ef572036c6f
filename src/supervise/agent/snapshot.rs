//! A snapshot of the session while it is served: the sandbox is frozen if possible, a separate process writes the file,
//! and the loop continues meanwhile.
//!
//! ```text
//! requested ──> freezing ── frozen, FREEZE_TIMEOUT over, or no freezer ──> writing ──> response sent
//! ```
//! A pause that a client requests meanwhile stays in force after the snapshot, and the end of the sandbox does not wait
//! for a snapshot.

use super::{AgentLoop, SNAPSHOT};
use crate::control::rpc::{RpcError, RpcErrorKind};
use crate::control::server::ResponseTicket;
use crate::error::Result;
use crate::session::session_state::SessionState;
use crate::session::snapshot::subprocess;
use crate::stage::agent::launcher::Launcher;
use crate::supervise::channel::control::{ControlHandler, to_rpc_error};
use crate::supervise::registration::register;
use crate::supervise::worker::request;
use crate::supervise::worker::snapshot::{self, SnapshotProcess};
use crate::sys::file::set_nonblocking;
use mio::Registry;
use mio::unix::SourceFd;
use serde_json::{Value, json};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

/// How long the freeze may take; a process that hangs in the kernel is not waited for any longer.
const FREEZE_TIMEOUT: Duration = Duration::from_secs(2);

/// A snapshot that is in progress.
#[derive(Debug)]
pub(super) struct SnapshotInProgress {
    ticket: ResponseTicket,
    all: bool,
    /// Deadline of the freeze; `None` without a freezer.
    freeze_deadline: Option<Instant>,
    writer: Option<SnapshotWriter>,
}

impl SnapshotInProgress {
    /// Time until the next check.
    pub(super) fn poll_timeout(&self) -> Option<Duration> {
        let until = self.freeze_deadline.filter(|_| self.writer.is_none())?;
        Some(until.saturating_duration_since(Instant::now()))
    }
}

/// The process that writes the snapshot; it ends when this is dropped.
#[derive(Debug)]
struct SnapshotWriter {
    process: SnapshotProcess,
    output: Vec<u8>,
    /// The sandbox was frozen while it wrote.
    was_frozen: bool,
}

impl SnapshotWriter {
    fn start(launcher: &Launcher, all: bool, was_frozen: bool, registry: &Registry) -> Result<Self> {
        let begun = snapshot::start_snapshot(launcher, all)?;
        set_nonblocking(begun.output.as_fd())?;
        register(registry, begun.output.as_fd(), SNAPSHOT)?;
        Ok(SnapshotWriter { process: begun, output: Vec::new(), was_frozen })
    }

    /// Reads the process's output into the buffer; true when it is complete.
    fn read_output(&mut self) -> bool {
        request::receive(&self.process.output, &mut self.output)
    }

    fn result(&self) -> std::result::Result<Value, RpcError> {
        match serde_json::from_slice(&self.output) {
            Ok(subprocess::SnapshotReport::Taken { file, entries, bytes, notes }) => Ok(json!({
                "file": file, "entries": entries, "bytes": bytes, "notes": notes, "still": self.was_frozen,
            })),
            Ok(subprocess::SnapshotReport::Failed(error)) => Err(to_rpc_error(&error)),
            Err(_) => Err(RpcError::new(
                RpcErrorKind::Internal,
                "snapshot: its writer was killed before it was done",
            )),
        }
    }

    fn stop(self, registry: &Registry) {
        let _ = registry.deregister(&mut SourceFd(&self.process.output.as_raw_fd()));
        self.process.stop();
    }
}

impl AgentLoop<'_> {
    /// Starts a snapshot; the response is sent when it is on disk.
    pub(super) fn start_snapshot(&mut self, all: bool, ticket: ResponseTicket) {
        if let Err(failure) = self.check_snapshot_possible() {
            return self.respond(ticket, Err(failure));
        }
        // Without a freezer the snapshot has each file as it is when it is read.
        let stops = self.set_frozen(true).is_ok();
        let stopping = stops.then(|| Instant::now() + FREEZE_TIMEOUT);
        self.snapshot = Some(SnapshotInProgress { ticket, all, freeze_deadline: stopping, writer: None });
        self.advance_snapshot();
    }

    fn check_snapshot_possible(&self) -> std::result::Result<(), RpcError> {
        if self.snapshot.is_some() {
            return Err(RpcError::new(RpcErrorKind::Busy, "snapshot: one is being taken already"));
        }
        if self.session_state() == SessionState::Starting {
            return Err(RpcError::new(RpcErrorKind::State, "snapshot: the session is starting"));
        }
        Ok(())
    }

    /// Starts the writer once the sandbox is frozen.
    pub(super) fn advance_snapshot(&mut self) {
        let Some(taking) = &self.snapshot else { return };
        // Requested by the bridge or by a signal: a frozen agent could not exit in order.
        if self.is_ending() {
            return self.cancel_snapshot();
        }
        if taking.writer.is_some() {
            return;
        }
        let (all, stopping) = (taking.all, taking.freeze_deadline);
        let still = stopping.is_some() && self.is_fully_frozen();
        if !still && stopping.is_some_and(|until| Instant::now() < until) {
            return;
        }
        let Some(launcher) = self.privileged.launcher() else { return };
        match SnapshotWriter::start(launcher, all, still, self.channel.poll.registry()) {
            Ok(writer) => {
                if let Some(taking) = &mut self.snapshot {
                    taking.writer = Some(writer);
                }
            }
            Err(error) => self.finish_snapshot(|_| Err(to_rpc_error(&error))),
        }
    }

    /// Handles output of the writer.
    pub(super) fn read_snapshot_output(&mut self) {
        let writer = self.snapshot.as_mut().and_then(|taking| taking.writer.as_mut());
        if writer.is_some_and(SnapshotWriter::read_output) {
            self.finish_snapshot(|writer| writer.map_or(Ok(Value::Null), SnapshotWriter::result));
        }
    }

    /// The end of the sandbox does not wait for a snapshot.
    pub(super) fn cancel_snapshot(&mut self) {
        self.finish_snapshot(|_| Err(RpcError::new(RpcErrorKind::State, "snapshot: the sandbox ends")));
    }

    /// Thaws the sandbox and sends the response.
    fn finish_snapshot(
        &mut self,
        answer: impl FnOnce(Option<&SnapshotWriter>) -> std::result::Result<Value, RpcError>,
    ) {
        let Some(SnapshotInProgress { ticket, writer, .. }) = self.snapshot.take() else { return };
        let result = answer(writer.as_ref());
        if let Some(writer) = writer {
            writer.stop(self.channel.poll.registry());
        }
        // If a client has paused the sandbox it stays frozen.
        let _ = self.set_frozen(self.freeze.requested);
        self.respond(ticket, result);
    }
}
