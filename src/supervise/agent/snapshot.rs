//! A snapshot of the session while it is served: everything in the sandbox stands still where it can, a process of its
//! own writes the file, and the loop goes on meanwhile.
//!
//! ```text
//! asked ──> stopping ── all stand still, or STILL_WITHIN is over, or nothing can be stopped ──> writing ──> answered
//! ```
//! A pause that somebody asks for meanwhile outlasts it, and an end does not wait for it.

use super::{Loop, SNAPSHOT};
use crate::control::clients::Ticket;
use crate::control::rpc::{Failure, Kind};
use crate::error::Result;
use crate::launch::set_nonblocking;
use crate::session::snapshot::aside;
use crate::session::states::State;
use crate::stage::launcher::Launcher;
use crate::supervise::sandbox::register;
use crate::supervise::talk::control::{Controlled, failure};
use crate::supervise::worker::call;
use crate::supervise::worker::snapshot::{self, Begun};
use mio::Registry;
use mio::unix::SourceFd;
use serde_json::{Value, json};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

/// How long processes may take to stop; one that the kernel holds is not waited for any longer.
const STILL_WITHIN: Duration = Duration::from_secs(2);

/// A snapshot that was asked for and is not there yet.
#[derive(Debug)]
pub(super) struct Taking {
    ticket: Ticket,
    all: bool,
    /// Until when is waited for everything to stand still; `None` when nothing can be stopped.
    stopping: Option<Instant>,
    writer: Option<Writer>,
}

impl Taking {
    /// How long it can wait.
    pub(super) fn patience(&self) -> Option<Duration> {
        let until = self.stopping.filter(|_| self.writer.is_none())?;
        Some(until.saturating_duration_since(Instant::now()))
    }
}

/// The process that writes it; it ends with this.
#[derive(Debug)]
struct Writer {
    begun: Begun,
    said: Vec<u8>,
    /// Nothing in the sandbox ran while it wrote.
    still: bool,
}

impl Writer {
    fn start(launcher: &Launcher, all: bool, still: bool, registry: &Registry) -> Result<Self> {
        let begun = snapshot::begin(launcher, all)?;
        set_nonblocking(begun.output.as_fd())?;
        register(registry, begun.output.as_fd(), SNAPSHOT)?;
        Ok(Writer { begun, said: Vec::new(), still })
    }

    /// Whether it has said all; what comes is kept.
    fn is_over(&mut self) -> bool {
        call::hear(&self.begun.output, &mut self.said)
    }

    fn answer(&self) -> std::result::Result<Value, Failure> {
        match serde_json::from_slice(&self.said) {
            Ok(aside::Answer::Taken { file, entries, bytes, notes }) => Ok(json!({
                "file": file, "entries": entries, "bytes": bytes, "notes": notes, "still": self.still,
            })),
            Ok(aside::Answer::Failed(error)) => Err(failure(&error)),
            Err(_) => Err(Failure::new(Kind::Internal, "snapshot: its writer was killed before it was done")),
        }
    }

    fn end(self, registry: &Registry) {
        let _ = registry.deregister(&mut SourceFd(&self.begun.output.as_raw_fd()));
        self.begun.end();
    }
}

impl Loop<'_> {
    /// Begins a snapshot; who has asked for it hears of it when it is on disk.
    pub(super) fn take_snapshot(&mut self, all: bool, ticket: Ticket) {
        if let Err(failure) = self.may_take_snapshot() {
            return self.answer(ticket, Err(failure));
        }
        // Without a freezer it shows each file as it is when it is read.
        let stops = self.drive_freezer(true).is_ok();
        let stopping = stops.then(|| Instant::now() + STILL_WITHIN);
        self.snapshot = Some(Taking { ticket, all, stopping, writer: None });
        self.tend_snapshot();
    }

    fn may_take_snapshot(&self) -> std::result::Result<(), Failure> {
        if self.snapshot.is_some() {
            return Err(Failure::new(Kind::Busy, "snapshot: one is being taken already"));
        }
        if self.session_state() == State::Starting {
            return Err(Failure::new(Kind::State, "snapshot: the session is starting"));
        }
        Ok(())
    }

    /// Starts the writer, once everything stands still.
    pub(super) fn tend_snapshot(&mut self) {
        let Some(taking) = &self.snapshot else { return };
        // By the bridge, or by a signal: an agent that is stopped could not end politely.
        if self.is_ending() {
            return self.give_up_snapshot();
        }
        if taking.writer.is_some() {
            return;
        }
        let (all, stopping) = (taking.all, taking.stopping);
        let still = stopping.is_some() && self.stands_still();
        if !still && stopping.is_some_and(|until| Instant::now() < until) {
            return;
        }
        let Some(launcher) = self.privileged.launcher() else { return };
        match Writer::start(launcher, all, still, self.talk.poll.registry()) {
            Ok(writer) => {
                if let Some(taking) = &mut self.snapshot {
                    taking.writer = Some(writer);
                }
            }
            Err(error) => self.snapshot_is_over(|_| Err(failure(&error))),
        }
    }

    /// The writer has something to say.
    pub(super) fn read_snapshot(&mut self) {
        let writer = self.snapshot.as_mut().and_then(|taking| taking.writer.as_mut());
        if writer.is_some_and(Writer::is_over) {
            self.snapshot_is_over(|writer| writer.map_or(Ok(Value::Null), Writer::answer));
        }
    }

    /// The end of the sandbox does not wait for a snapshot.
    pub(super) fn give_up_snapshot(&mut self) {
        self.snapshot_is_over(|_| Err(Failure::new(Kind::State, "snapshot: the sandbox ends")));
    }

    /// Lets everything go on, and answers.
    fn snapshot_is_over(
        &mut self,
        answer: impl FnOnce(Option<&Writer>) -> std::result::Result<Value, Failure>,
    ) {
        let Some(Taking { ticket, writer, .. }) = self.snapshot.take() else { return };
        let result = answer(writer.as_ref());
        if let Some(writer) = writer {
            writer.end(self.talk.poll.registry());
        }
        // Somebody has paused it meanwhile, or before: then it stays so.
        let _ = self.drive_freezer(self.still.frozen);
        self.answer(ticket, result);
    }
}
