//! What reached the mock, and the two signals between a test and a stream that does not end by itself.

use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::Value;

use super::script;
use crate::support::deadline::Deadline;

/// The pace of an endless stream: quick enough that an interrupt always falls between two parts.
const PACE: Duration = Duration::from_millis(20);

/// One request for a message: one turn of the model.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    /// The body of the request.
    pub(crate) body: Value,
    /// The key that came with it.
    pub(crate) key: Option<String>,
}

impl Turn {
    /// Whether the conversation holds this text in a message of the user's.
    pub(crate) fn conversation_has(&self, text: &str) -> bool {
        script::user_text(&self.body).contains(text)
    }
}

#[derive(Debug, Default)]
struct Seen {
    turns: Vec<Turn>,
    others: Vec<String>,
    abandoned: usize,
    stop: bool,
}

/// Shared by the test and the threads that serve.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    seen: Mutex<Seen>,
    changed: Condvar,
}

impl Recorder {
    /// Keeps a request for a message; the answer is its number, from 0.
    pub(super) fn turn(&self, body: Value, key: Option<String>) -> usize {
        let mut seen = self.seen();
        seen.turns.push(Turn { body, key });
        self.changed.notify_all();
        seen.turns.len() - 1
    }

    /// Keeps the first line of another request.
    pub(super) fn other(&self, request: String) {
        self.seen().others.push(request);
    }

    /// Counts a stream whose peer went before its end.
    pub(super) fn abandoned(&self) {
        self.seen().abandoned += 1;
        self.changed.notify_all();
    }

    /// Ends endless streams: the current ones after their next part, later ones after one part.
    pub(super) fn stop(&self) {
        self.seen().stop = true;
        self.changed.notify_all();
    }

    /// Waits for the time of an endless stream's next part; true when there shall be none.
    pub(super) fn stopped_before_next_part(&self) -> bool {
        let seen = self.seen();
        let (seen, _) =
            self.changed.wait_timeout_while(seen, PACE, |seen| !seen.stop).expect("no holder panics");
        seen.stop
    }

    pub(super) fn turns(&self) -> Vec<Turn> {
        self.seen().turns.clone()
    }

    pub(super) fn others(&self) -> Vec<String> {
        self.seen().others.clone()
    }

    pub(super) fn wait_for_abandoned(&self, count: usize) {
        let patience = Deadline::usual().remaining();
        let fewer = |seen: &mut Seen| seen.abandoned < count;
        let (seen, waited) =
            self.changed.wait_timeout_while(self.seen(), patience, fewer).expect("no holder panics");
        assert!(
            !waited.timed_out(),
            "{} of {count} streams were left by their peer, in {} turns",
            seen.abandoned,
            seen.turns.len()
        );
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().expect("no holder panics")
    }
}
