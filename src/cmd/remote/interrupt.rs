//! SIGINT during a turn interrupts the turn on the server. Otherwise, and the second time, it ends the program.

use crate::error::{Error, Result};
use nix::sys::signal::{SigSet, Signal, raise};
use saggar_remote::Connection;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// No turn is running.
const IDLE: u8 = 0;
/// A turn is running.
const RUNNING: u8 = 1;
/// A turn is running, and was interrupted.
const INTERRUPTED: u8 = 2;

/// Waits for SIGINT in a thread of its own, as long as the program runs.
#[derive(Debug)]
pub(super) struct InterruptWatch {
    state: Arc<AtomicU8>,
}

impl InterruptWatch {
    /// Blocks SIGINT and starts the thread. Call it before any other thread is started.
    pub(super) fn start(server: Arc<Connection>, session: String) -> Result<Self> {
        let mut signals = SigSet::empty();
        signals.add(Signal::SIGINT);
        signals.thread_block().map_err(|errno| Error::system("block SIGINT", errno))?;
        let state = Arc::new(AtomicU8::new(IDLE));
        let watched = Arc::clone(&state);
        std::thread::spawn(move || {
            while signals.wait().is_ok() {
                match watched.compare_exchange(RUNNING, INTERRUPTED, Ordering::SeqCst, Ordering::SeqCst) {
                    Ok(_) => interrupt(&server, &session),
                    // With its default action, as if it had not been blocked.
                    Err(_) => drop(signals.thread_unblock().and_then(|()| raise(Signal::SIGINT))),
                }
            }
        });
        Ok(InterruptWatch { state })
    }

    /// A turn begins.
    pub(super) fn begin(&self) {
        self.state.store(RUNNING, Ordering::SeqCst);
    }

    /// The turn is over; true if it was interrupted.
    pub(super) fn finish(&self) -> bool {
        self.state.swap(IDLE, Ordering::SeqCst) == INTERRUPTED
    }
}

fn interrupt(server: &Connection, session: &str) {
    if let Err(error) = server.post(&["api", "sessions", session, "interrupt"], &json!({})) {
        log::warn!("cannot interrupt the turn: {error}");
    }
}
