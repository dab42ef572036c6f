//! One call at a time, for a server of limited memory that many clients call: a message of 16 MiB takes some 300 MiB from
//! its line in the file to the line of its response, every byte of it escaped.
//!
//! ```text
//! a line of more than 64 KiB ── turn ──> read ─┐
//! a shorter line ──> read ────── turn ─────────┴──> call ──> response written ── the next turn
//! ```
//! A client that neither sends the rest of its line nor reads its response holds up all others, so it loses its
//! conversation after some time.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Longest part of a line that is read without the turn, in bytes.
const SHORT_LINE: usize = 64 << 10;
/// How long a client that has the turn may neither send nor read.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// The turns of all conversations of a process.
#[derive(Debug, Clone)]
pub(super) struct Turns(Arc<Semaphore>);

/// The turn of one conversation, while it has it.
#[derive(Debug)]
pub(super) struct ConversationTurn {
    turns: Turns,
    /// Held for the line that is read.
    line: Option<OwnedSemaphorePermit>,
    /// Held for the call that is not answered.
    call: CallTurn,
}

/// The turn of the call that is not answered.
#[derive(Debug, Clone, Default)]
pub(super) struct CallTurn(Arc<Mutex<Option<OwnedSemaphorePermit>>>);

impl Turns {
    pub(super) fn new() -> Self {
        Turns(Arc::new(Semaphore::new(1)))
    }

    /// For one more conversation.
    pub(super) fn conversation(&self) -> ConversationTurn {
        ConversationTurn { turns: self.clone(), line: None, call: CallTurn::default() }
    }
}

impl ConversationTurn {
    /// Waits for the turn, which the line that is read has from then on.
    pub(super) async fn take(&mut self) {
        if self.line.is_none() {
            // Nobody closes the semaphore.
            self.line = Arc::clone(&self.turns.0).acquire_owned().await.ok();
        }
    }

    /// Waits for the turn if a line of this many bytes needs it.
    pub(super) async fn take_for(&mut self, length: usize) {
        if length > SHORT_LINE {
            self.take().await;
        }
    }

    /// Whether the line that is read has the turn.
    pub(super) fn is_held(&self) -> bool {
        self.line.is_some()
    }

    /// The line is read. A call keeps the turn until its response is written.
    pub(super) fn pass_on(&mut self, is_call: bool) {
        if let Some(turn) = self.line.take() {
            self.call.set(is_call.then_some(turn));
        }
    }

    /// What ends the turn of a call.
    pub(super) fn call(&self) -> CallTurn {
        self.call.clone()
    }
}

impl CallTurn {
    fn set(&self, turn: Option<OwnedSemaphorePermit>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = turn;
    }

    /// The response is written, or cannot be.
    pub(super) fn end(&self) {
        self.set(None);
    }
}

/// Waits for a client, for a bounded time if it has the turn.
///
/// # Errors
/// That of the transfer; [`io::ErrorKind::TimedOut`] after [`PATIENCE`].
pub(super) async fn await_client<T>(
    has_turn: bool,
    transfer: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    if !has_turn {
        return transfer.await;
    }
    tokio::time::timeout(PATIENCE, transfer).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}
