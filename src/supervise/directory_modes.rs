//! Calls of programs that set the mode of a directory, and wait. A worker answers each
//! ([`super::worker::directory_mode`]), one after the other.
//!
//! With a network by policy another process receives the notifications of pid 1's filter, and forwards these. Otherwise
//! this module watches the listener, and the worker receives.

use super::registration::register;
use super::worker::directory_mode;
use crate::error::Result;
use crate::stage::agent::launcher::Launcher;
use crate::sys::file::set_nonblocking;
use crate::sys::seccomp::listener::{self, SyscallNotification};
use mio::unix::SourceFd;
use mio::{Registry, Token};
use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// The pending calls.
#[derive(Debug, Default)]
pub(super) struct DirectoryModes {
    listener: Option<OwnedFd>,
    /// Whether this process watches the listener.
    is_watched: bool,
    forwarded: VecDeque<SyscallNotification>,
    /// Open until the worker of the current call is done.
    worker: Option<File>,
}

impl DirectoryModes {
    /// Watches the listener of pid 1's filter.
    ///
    /// # Errors
    /// [`crate::error::Code::System`].
    pub(super) fn watch(&mut self, listener: OwnedFd, registry: &Registry, token: Token) -> Result<()> {
        register(registry, listener.as_fd(), token)?;
        self.listener = Some(listener);
        self.is_watched = true;
        Ok(())
    }

    /// Takes a duplicate of the listener, for calls that another process forwards.
    pub(super) fn set_duplicate(&mut self, listener: OwnedFd) {
        self.listener = Some(listener);
    }

    /// Adds a forwarded call.
    pub(super) fn add_forwarded(&mut self, call: SyscallNotification) {
        self.forwarded.push_back(call);
    }

    /// Nothing forwards calls any more: without a listener the kernel lets all of them fail, so that none waits forever.
    pub(super) fn stop_forwarding(&mut self) {
        if !self.is_watched {
            self.listener = None;
            self.forwarded.clear();
        }
    }

    /// Handles an event of the worker.
    pub(super) fn on_worker_event(&mut self, registry: &Registry) {
        if let Some(worker) = &mut self.worker
            && !matches!(worker.read(&mut [0]), Err(e) if e.kind() == std::io::ErrorKind::WouldBlock)
        {
            let _ = registry.deregister(&mut SourceFd(&worker.as_raw_fd()));
            self.worker = None;
        }
    }

    /// Starts a worker for the next call, unless one is at work. A call for which there is none waits for the next event.
    pub(super) fn start_next(&mut self, launcher: Option<&Launcher>, registry: &Registry, token: Token) {
        let (None, Some(launcher), Some(listener)) = (&self.worker, launcher, &self.listener) else { return };
        let listener = listener.as_fd();
        let next = self.forwarded.front();
        if next.is_none() && !(self.is_watched && listener::is_pending(listener).unwrap_or(false)) {
            return;
        }
        let started = directory_mode::start_call(launcher, next, listener).and_then(|worker| {
            set_nonblocking(worker.as_fd())?;
            register(registry, worker.as_fd(), token)?;
            Ok(worker)
        });
        if let Ok(worker) = started {
            self.forwarded.pop_front();
            self.worker = Some(worker);
        }
    }
}
