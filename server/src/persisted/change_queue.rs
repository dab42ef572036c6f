//! What has changed since its last copy. Workers take it, one at a time for each session or agent; changes of what waits or
//! is being copied are combined.

use crate::mutex::lock;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

/// Time from a change to its copy: further changes are combined with it.
const COPY_DELAY: Duration = Duration::from_secs(1);
/// How many times the time of a copy passes before the next copy: a session is frozen for a quarter of its time at most.
const REST_FACTOR: u32 = 3;
/// Delay before a failed copy is tried again; it doubles with each failure in a row.
const FIRST_DELAY: Duration = Duration::from_secs(1);
const MAX_DELAY: Duration = Duration::from_secs(300);
/// How long a copy waits for the end of turns before it is made during one.
const MAX_PUT_OFF: Duration = Duration::from_secs(60);

/// What is copied, or deleted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CopyTarget {
    /// A session.
    Session {
        /// The tenant that owns it.
        tenant: String,
        /// Its id.
        id: Uuid,
    },
    /// Objects that no copy has any more; they are deleted.
    Removals,
    /// The folder of an agent.
    Agent {
        /// The tenant that owns it.
        tenant: String,
        /// Its name.
        name: String,
    },
}

impl fmt::Display for CopyTarget {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CopyTarget::Session { id, .. } => write!(formatter, "session {id}"),
            CopyTarget::Removals => formatter.write_str("former objects"),
            CopyTarget::Agent { name, .. } => write!(formatter, "agent {name}"),
        }
    }
}

/// The queue. Without a snapshot store it stays empty.
#[derive(Debug, Clone)]
pub struct ChangeQueue {
    shared: Arc<SharedQueue>,
}

#[derive(Debug)]
struct SharedQueue {
    is_enabled: bool,
    changes: Mutex<Changes>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Changes {
    waiting: HashMap<CopyTarget, NextAttempt>,
    copied: HashSet<CopyTarget>,
    /// When the time after a copy ends in which no further one is made.
    rests: HashMap<CopyTarget, Instant>,
    is_closed: bool,
}

#[derive(Debug)]
struct NextAttempt {
    due: Instant,
    failures: u32,
    /// When the copy was first put off because of a turn.
    put_off: Option<Instant>,
}

/// What a worker copies. It passes it to [`ChangeQueue::finish`] or [`ChangeQueue::retry`].
#[derive(Debug)]
pub(super) struct CopyAttempt {
    pub(super) target: CopyTarget,
    /// How many copies have failed since the last one.
    pub(super) failures: u32,
    put_off: Option<Instant>,
    begun: Instant,
}

impl CopyAttempt {
    /// Whether turns have put the copy off for long enough.
    pub(super) fn is_overdue(&self) -> bool {
        self.put_off.is_some_and(|first| first.elapsed() >= MAX_PUT_OFF)
    }
}

/// What a worker does next.
enum WorkerStep {
    Copy(CopyAttempt),
    WaitUntil(Instant),
    Wait,
    Exit,
}

impl ChangeQueue {
    /// Creates an empty queue, which ignores all changes unless `is_enabled`.
    pub fn new(is_enabled: bool) -> Self {
        let shared = SharedQueue { is_enabled, changes: Mutex::default(), changed: Notify::new() };
        ChangeQueue { shared: Arc::new(shared) }
    }

    /// Whether there is a snapshot store.
    pub fn is_enabled(&self) -> bool {
        self.shared.is_enabled
    }

    /// Adds a session that has changed.
    pub fn add_session(&self, tenant: &str, id: Uuid) {
        self.add(CopyTarget::Session { tenant: tenant.to_owned(), id });
    }

    /// Adds an agent that has changed.
    pub fn add_agent(&self, tenant: &str, name: &str) {
        self.add(CopyTarget::Agent { tenant: tenant.to_owned(), name: name.to_owned() });
    }

    /// Adds the deletion of objects.
    pub fn add_removals(&self) {
        self.add(CopyTarget::Removals);
    }

    fn add(&self, target: CopyTarget) {
        if !self.shared.is_enabled {
            return;
        }
        let now = Instant::now();
        let mut changes = lock(&self.shared.changes);
        changes.rests.retain(|_, end| *end > now);
        let due = changes.rests.get(&target).map_or(now, |end| *end).max(now + COPY_DELAY);
        let new = NextAttempt { due, failures: 0, put_off: None };
        let waiting = changes.waiting.entry(target).or_insert(new);
        if waiting.failures == 0 {
            waiting.due = waiting.due.min(due);
        }
        drop(changes);
        self.shared.changed.notify_one();
    }

    /// How much waits or is being copied.
    pub fn len(&self) -> usize {
        let changes = lock(&self.shared.changes);
        changes.waiting.len()
            + changes.copied.iter().filter(|target| !changes.waiting.contains_key(target)).count()
    }

    /// Whether nothing waits or is being copied.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the server exits.
    pub(super) fn is_closed(&self) -> bool {
        lock(&self.shared.changes).is_closed
    }

    /// Lets the workers exit after they have tried once more to copy all that waits.
    pub(super) fn close(&self) {
        lock(&self.shared.changes).is_closed = true;
        self.shared.changed.notify_one();
    }

    /// Waits for something to copy; `None` after [`ChangeQueue::close`], when nothing is left.
    pub(super) async fn take(&self) -> Option<CopyAttempt> {
        loop {
            let changed = self.shared.changed.notified();
            match self.next() {
                WorkerStep::Copy(attempt) => {
                    // More may wait for another worker.
                    self.shared.changed.notify_one();
                    return Some(attempt);
                }
                WorkerStep::WaitUntil(due) => tokio::select! {
                    () = changed => {}
                    () = sleep_until(due) => {}
                },
                WorkerStep::Wait => changed.await,
                WorkerStep::Exit => {
                    // The next worker.
                    self.shared.changed.notify_one();
                    return None;
                }
            }
        }
    }

    fn next(&self) -> WorkerStep {
        let mut changes = lock(&self.shared.changes);
        let Changes { waiting, copied, is_closed, .. } = &mut *changes;
        let free = waiting.iter().filter(|(target, _)| !copied.contains(target));
        let first = free.min_by_key(|(_, attempt)| attempt.due);
        let Some((target, due)) = first.map(|(target, attempt)| (target.clone(), attempt.due)) else {
            return if *is_closed && waiting.is_empty() { WorkerStep::Exit } else { WorkerStep::Wait };
        };
        if due > Instant::now() && !*is_closed {
            return WorkerStep::WaitUntil(due);
        }
        let Some(NextAttempt { failures, put_off, .. }) = waiting.remove(&target) else {
            return WorkerStep::Wait;
        };
        copied.insert(target.clone());
        WorkerStep::Copy(CopyAttempt { target, failures, put_off, begun: Instant::now() })
    }

    /// Ends a copy. The next one waits in proportion to its time.
    pub(super) fn finish(&self, attempt: &CopyAttempt) {
        let mut changes = lock(&self.shared.changes);
        changes.copied.remove(&attempt.target);
        let end = Instant::now() + attempt.begun.elapsed() * REST_FACTOR;
        if let Some(next) = changes.waiting.get_mut(&attempt.target) {
            next.due = next.due.max(end);
        }
        changes.rests.insert(attempt.target.clone(), end);
        drop(changes);
        self.shared.changed.notify_one();
    }

    /// Puts a copy off to the end of the turn that runs, or until it is overdue.
    pub(super) fn put_off(&self, attempt: CopyAttempt) {
        let mut changes = lock(&self.shared.changes);
        changes.copied.remove(&attempt.target);
        let first = attempt.put_off.unwrap_or(attempt.begun);
        let new = NextAttempt { due: first + MAX_PUT_OFF, failures: attempt.failures, put_off: None };
        changes.waiting.entry(attempt.target).or_insert(new).put_off = Some(first);
        drop(changes);
        self.shared.changed.notify_one();
    }

    /// Ends a copy that has failed; it is tried again later.
    pub(super) fn retry(&self, attempt: CopyAttempt) {
        let mut changes = lock(&self.shared.changes);
        changes.copied.remove(&attempt.target);
        if !changes.is_closed {
            let pause = delay(attempt.failures).max(attempt.begun.elapsed() * REST_FACTOR);
            let next = NextAttempt {
                due: Instant::now() + pause,
                failures: attempt.failures + 1,
                put_off: attempt.put_off,
            };
            changes.waiting.insert(attempt.target, next);
        }
        drop(changes);
        self.shared.changed.notify_one();
    }
}

/// The time before the next attempt, after this number of earlier failures.
fn delay(failures: u32) -> Duration {
    FIRST_DELAY.saturating_mul(1 << failures.min(16)).min(MAX_DELAY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use tokio::time::timeout;

    #[tokio::test]
    async fn changes_during_a_copy_cause_one_more() {
        let queue = ChangeQueue::new(true);
        let id = Uuid::new_v4();
        queue.add_session("t", id);
        queue.add_session("t", id);
        let first = queue.take().await.unwrap();
        queue.add_session("t", id);
        assert!(queue.take().now_or_never().is_none(), "one copy at a time");
        assert_eq!(queue.len(), 1);
        queue.finish(&first);
        let second = queue.take().await.unwrap();
        queue.finish(&second);
        assert!(queue.is_empty() && queue.take().now_or_never().is_none());
    }

    #[tokio::test]
    async fn failed_copy_is_tried_again_later() {
        let queue = ChangeQueue::new(true);
        queue.add_session("t", Uuid::new_v4());
        let attempt = queue.take().await.unwrap();
        queue.retry(attempt);
        assert!(queue.take().now_or_never().is_none());
        let delays: Vec<u64> = [0, 1, 2, 8, 9, 99].map(|failures| delay(failures).as_secs()).into();
        assert_eq!(delays, [1, 2, 4, 256, 300, 300]);
        // At the exit, without a wait, and once.
        queue.close();
        let attempt = queue.take().await.unwrap();
        assert_eq!(attempt.failures, 1);
        queue.retry(attempt);
        assert!(queue.take().await.is_none() && queue.take().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn copy_that_turns_put_off_is_made_after_the_next_turn_or_when_it_is_overdue() {
        let queue = ChangeQueue::new(true);
        let id = Uuid::new_v4();
        queue.add_session("t", id);
        let first = queue.take().await.unwrap();
        queue.put_off(first);
        assert!(queue.take().now_or_never().is_none());
        // The end of a turn, after which the next one has begun.
        queue.add_session("t", id);
        let second = timeout(COPY_DELAY * 2, queue.take()).await.unwrap().unwrap();
        assert!(!second.is_overdue());
        queue.put_off(second);
        assert!(timeout(MAX_PUT_OFF / 2, queue.take()).await.is_err());
        let third = timeout(MAX_PUT_OFF, queue.take()).await.unwrap().unwrap();
        assert!(third.is_overdue());
        queue.finish(&third);
        assert!(queue.is_empty());
    }

    #[tokio::test]
    async fn queue_without_a_store_stays_empty() {
        let queue = ChangeQueue::new(false);
        queue.add_session("t", Uuid::new_v4());
        assert!(queue.is_empty());
    }
}
