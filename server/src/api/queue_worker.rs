//! The worker of the queue: claims items, runs their turns, and stores how they ended.
//!
//! An item is claimed before its turn is sent, and the command id of the turn is stored before the command. A later
//! server therefore finds each turn of an earlier one in the events of the session ([`queue_turn`]).

use super::App;
use super::auth::Caller;
use super::error::ApiError;
use super::message_body::{SendBody, build_query};
use super::messages::{OpenTurn, open_turn};
use super::queue_span::{item_span, set_result};
use super::queue_turn::{follow_turn, receive_turn};
use super::sessions::{self, find_session, start_session};
use super::{lifecycle, queue_turn};
use crate::api_key::KeyScope;
use crate::clock;
use crate::error::Result;
use crate::store::{Page, QueueItem, Status};
use crate::stream::{TurnConclusion, TurnWatch, new_turn_id};
use jiff::{SignedDuration, Timestamp};
use saggar_bridge::client::ClientCommand;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::{info, warn};
use uuid::Uuid;

/// Delay before the first retry of an item. It doubles with each retry.
const FIRST_RETRY: Duration = Duration::from_secs(5);
/// Maximum delay before a retry.
const MAX_RETRY: Duration = Duration::from_secs(5 * 60);
/// Maximum length of a stored error, in characters.
const MAX_ERROR_CHARS: usize = 4096;
/// Delay after a failure of the database, and while an item that is due waits for its session or a worker.
const RECHECK_DELAY: Duration = Duration::from_secs(1);

/// How the attempt to run an item ended.
#[derive(Debug)]
pub(super) enum ItemAttempt {
    /// The turn has ended.
    Ended(TurnConclusion),
    /// The turn did not begin, and is not going to. The reason, if the turn can have been announced to a client.
    NotBegun(Option<String>),
    /// The server cannot run the turn now. The reason.
    Postponed(String),
    /// The server is shutting down. The next one continues.
    ShuttingDown,
}

/// Runs the items of the queue until the server shuts down.
pub async fn run_queue(app: Arc<App>) {
    let mut attempts = JoinSet::new();
    let Some(previous) = repeat(&app, || app.store.processing_queue_items()).await else { return };
    for item in previous {
        info!("queue item {}: continuing after a restart", item.id);
        let app = Arc::clone(&app);
        attempts.spawn(async move { run_item(&app, &item, resume_attempt(&app, &item)).await });
    }
    loop {
        let wait = claim_items(&app, &mut attempts).await;
        tokio::select! {
            biased;
            () = app.tasks.wait_for_shutdown() => break,
            Some(ended) = attempts.join_next() => {
                if let Err(error) = ended {
                    warn!("an attempt to run a queue item failed: {error}; the next server continues it");
                }
            }
            () = app.queue_wakeup.notified() => {}
            () = sleep(wait.unwrap_or(MAX_RETRY)) => {}
        }
    }
    while attempts.join_next().await.is_some() {}
}

/// Starts as many pending items as there are free workers. Returns how long to wait for the next retry.
async fn claim_items(app: &Arc<App>, attempts: &mut JoinSet<()>) -> Option<Duration> {
    while attempts.len() < app.queue_workers {
        if app.tasks.is_shutting_down() {
            return None;
        }
        match app.store.claim_queue_item().await {
            Ok(Some(item)) => {
                let app = Arc::clone(app);
                attempts.spawn(async move { run_item(&app, &item, attempt(&app, &item)).await });
            }
            Ok(None) => break,
            Err(error) => {
                warn!("cannot claim items of the queue: {error}; retrying");
                return Some(RECHECK_DELAY);
            }
        }
    }
    match app.store.next_queue_retry().await {
        Ok(retry) => retry.map(|time| time_until(&time)),
        Err(_) => Some(RECHECK_DELAY),
    }
}

/// How long to wait until a time, rounded up to the next millisecond.
fn time_until(time: &str) -> Duration {
    let time: Timestamp = time.parse().unwrap_or(Timestamp::MAX);
    let wait = Duration::try_from(time.duration_since(Timestamp::now())).unwrap_or(Duration::ZERO);
    if wait.is_zero() { RECHECK_DELAY } else { wait + Duration::from_millis(1) }
}

/// Runs an attempt and stores how it ended, in a span of its own.
async fn run_item(app: &App, item: &QueueItem, attempt: impl Future<Output = ItemAttempt>) {
    let span = item_span(item);
    let attempt = span.run(attempt).await;
    set_result(&span, &attempt);
    span.run(store_attempt(app, item, attempt)).await;
}

fn caller(item: &QueueItem) -> Caller {
    Caller { tenant: item.tenant_id.clone(), scope: KeyScope::Agent }
}

/// Runs the turn of an item that this server has claimed.
async fn attempt(app: &App, item: &QueueItem) -> ItemAttempt {
    match try_attempt(app, item).await {
        Ok(attempt) => attempt,
        // Nothing was sent to the agent.
        Err(error) if error.is_temporary() => ItemAttempt::Postponed(error.into_text()),
        Err(error) => ItemAttempt::Ended(TurnConclusion::Failed(error.into_text())),
    }
}

async fn try_attempt(app: &App, item: &QueueItem) -> std::result::Result<ItemAttempt, ApiError> {
    let caller = caller(item);
    let session = prepare_session(app, &caller, item).await?;
    let recorded = find_session(app, &caller, session).await?.recorded;
    let mut watch = TurnWatch::new(new_turn_id(), recorded);
    app.store.set_queue_turn(&item.id, watch.turn(), recorded).await?;
    let body = SendBody::text(&item.prompt);
    let OpenTurn { session, running, usage, mut connection, .. } =
        open_turn(app, &caller, session, &body, None).await?;
    let trace_context = running.turn_spans().begin(watch.turn(), &session, body.model(&session));
    let query = build_query(&session, body, trace_context).with_id(watch.turn().to_owned());
    connection.send(&[ClientCommand::replay(watch.number()).with_id(queue_turn::REPLAY_ID), query]);
    let received = receive_turn(app, &running, &mut connection, &mut watch, None).await;
    drop(usage);
    let turn = watch.turn().to_owned();
    let attempt = match received {
        Some(attempt) => attempt,
        None => follow_turn(app, &caller, session.id, watch).await,
    };
    // It has ended, unless the query did not reach the bridge, or the server shuts down.
    running.turn_spans().leave(&turn);
    Ok(attempt)
}

/// Returns the session of an item. If the item has none, the queue creates one, and it remains after the turn.
async fn prepare_session(
    app: &App,
    caller: &Caller,
    item: &QueueItem,
) -> std::result::Result<Uuid, ApiError> {
    let session = item.session_id.as_deref().and_then(|id| id.parse().ok());
    match session {
        Some(id) if item.makes_session == 0 => {
            resume_if_evicted(app, caller, id).await?;
            return Ok(id);
        }
        Some(id) if is_usable(app, caller, id).await? => return Ok(id),
        _ => {}
    }
    let id = Uuid::new_v4();
    // Before the session exists: a server that is killed meanwhile must not leave a session that no item names.
    app.store.set_queue_session(&item.id, Some(id)).await?;
    let started = start_session(app, caller, sessions::CreateBody::of_agent(&item.agent_name), id).await;
    if started.is_err() {
        app.store.set_queue_session(&item.id, None).await?;
    }
    started.map(|session| session.id)
}

/// Resumes a session whose sandbox the server has ended.
async fn resume_if_evicted(app: &App, caller: &Caller, id: Uuid) -> std::result::Result<(), ApiError> {
    let session = find_session(app, caller, id).await?;
    if session.status != Status::Paused || !session.is_evicted {
        return Ok(());
    }
    let slot = lifecycle::acquire_slot_to_resume(app, &session).await?;
    let _session_lock = app.running.lock_session(id).await;
    let session = find_session(app, caller, id).await?;
    match session.status == Status::Paused && session.is_evicted {
        true => lifecycle::resume_session(app, &session, slot).await,
        false => Ok(()),
    }
}

/// Prepares a session that the queue has created for another attempt. Returns false if its creation was interrupted;
/// then what remains of it is removed.
async fn is_usable(app: &App, caller: &Caller, id: Uuid) -> std::result::Result<bool, ApiError> {
    let Some(session) = app.store.session(&caller.tenant, id).await? else { return Ok(false) };
    let slot = lifecycle::acquire_slot_to_resume(app, &session).await?;
    let _session_lock = app.running.lock_session(id).await;
    let Some(session) = app.store.session(&caller.tenant, id).await? else { return Ok(false) };
    let has_exited = matches!(session.status, Status::Starting | Status::Paused | Status::Error)
        && app.running.get(id).is_none();
    if !has_exited {
        // Also one that a client has frozen or stopped: the attempt fails, and the client can resume the session.
        return Ok(true);
    }
    if !app.store.messages(&caller.tenant, id, Page { limit: 1, after: 0 }).await?.is_empty() {
        lifecycle::resume_session(app, &session, slot).await?;
        return Ok(true);
    }
    lifecycle::discard_session(app, &session).await?;
    Ok(false)
}

/// Continues an item that an earlier server has claimed.
async fn resume_attempt(app: &App, item: &QueueItem) -> ItemAttempt {
    let session = item.session_id.as_deref().and_then(|id| id.parse().ok());
    let (Some(session), Some(turn)) = (session, item.turn_id.clone()) else {
        // Nothing was sent.
        return ItemAttempt::NotBegun(None);
    };
    let after = item.events_before.and_then(|number| u64::try_from(number).ok()).unwrap_or(0);
    follow_turn(app, &caller(item), session, TurnWatch::new(turn, after)).await
}

/// Stores how an attempt ended.
async fn store_attempt(app: &App, item: &QueueItem, attempt: ItemAttempt) {
    let id = item.id.as_str();
    let attempt = match attempt {
        ItemAttempt::Ended(TurnConclusion::Failed(error)) => {
            ItemAttempt::Ended(TurnConclusion::Failed(storable(&error)))
        }
        attempt => attempt,
    };
    let stored = match attempt {
        ItemAttempt::ShuttingDown => return,
        ItemAttempt::Ended(TurnConclusion::Completed) => {
            repeat(app, || app.store.finish_queue_item(id, None)).await
        }
        ItemAttempt::Ended(TurnConclusion::Failed(error)) if item.retry_count < item.max_retries => {
            let time = clock::format(retry_time(item.retry_count));
            info!("queue item {id}: {error}; retrying at {time}");
            repeat(app, || app.store.retry_queue_item(id, &error, &time)).await
        }
        ItemAttempt::Ended(TurnConclusion::Failed(error)) => {
            warn!("queue item {id} has failed: {error}");
            repeat(app, || app.store.finish_queue_item(id, Some(&error))).await
        }
        ItemAttempt::NotBegun(reason) => {
            repeat(app, || app.store.requeue_item(id, reason.as_deref(), None)).await
        }
        ItemAttempt::Postponed(reason) => {
            let (reason, time) = (storable(&reason), clock::format(retry_time(0)));
            repeat(app, || app.store.requeue_item(id, Some(&reason), Some(&time))).await
        }
    };
    if stored.is_none() {
        warn!(
            "queue item {id}: its end is not stored; the next server finds it in the events of the session"
        );
    }
}

/// An error text that each database can store: PostgreSQL refuses the character NUL, which a result can contain.
fn storable(error: &str) -> String {
    error.chars().filter(|character| *character != '\0').take(MAX_ERROR_CHARS).collect()
}

/// The time of the next retry after this number of retries.
fn retry_time(retries: i64) -> Timestamp {
    let delay = SignedDuration::try_from(retry_delay(retries)).unwrap_or(SignedDuration::ZERO);
    Timestamp::now().saturating_add(delay).unwrap_or(Timestamp::MAX)
}

fn retry_delay(retries: i64) -> Duration {
    let factor = u32::try_from(retries).ok().and_then(|retries| 2_u32.checked_pow(retries));
    factor.and_then(|factor| FIRST_RETRY.checked_mul(factor)).map_or(MAX_RETRY, |delay| delay.min(MAX_RETRY))
}

/// Repeats a database operation until it succeeds. Returns `None` if the server shuts down before.
async fn repeat<T, F: Future<Output = Result<T>>>(app: &App, mut operation: impl FnMut() -> F) -> Option<T> {
    loop {
        match operation().await {
            Ok(value) => return Some(value),
            Err(error) => warn!("queue: {error}; retrying"),
        }
        tokio::select! {
            () = sleep(RECHECK_DELAY) => {}
            () = app.tasks.wait_for_shutdown() => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_doubles_up_to_five_minutes() {
        let seconds: Vec<u64> = (0..8).map(|retries| retry_delay(retries).as_secs()).collect();
        assert_eq!(seconds, [5, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(retry_delay(i64::MAX), MAX_RETRY);
    }

    #[test]
    fn errors_are_stored_without_nul_and_bounded() {
        assert_eq!(storable("a\0b"), "ab");
        assert_eq!(storable(&"ä".repeat(9999)).chars().count(), MAX_ERROR_CHARS);
    }

    #[test]
    fn wait_ends_after_the_time_of_the_retry() {
        let soon = clock::format(Timestamp::now().saturating_add(SignedDuration::from_secs(60)).unwrap());
        assert!(time_until(&soon) > Duration::from_secs(30));
        assert_eq!(time_until("2000-01-01T00:00:00.000Z"), RECHECK_DELAY);
    }
}
