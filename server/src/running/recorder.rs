//! The recorder writes the events of a session into the database, each event once. It requests all events after the
//! last recorded one from the bridge, and stores the number of the last event in the transaction that stores its rows.

use super::{RunningSession, RunningSessions, status_without_sandbox};
use crate::error::{Error, Result};
use crate::saggar::{BridgeConnection, EventReader, SessionState};
use crate::session_directory::remove_session_directory;
use crate::store::{NewEvent, RecordedRow, Status};
use crate::stream::{database_rows, event_turn_id, parse_message, usage_rows};
use crate::traces::TurnSpans;
use saggar_bridge::client::{ClientCommand, EventBody, ReceivedEvent};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncRead;
use tokio::time::sleep;
use tracing::{info, warn};

/// Maximum number of events in one transaction.
const MAX_BATCH_EVENTS: usize = 256;
/// Delay before the next attempt when the database or the bridge fails; it doubles with each failure in a row.
const FIRST_DELAY: Duration = Duration::from_millis(100);
const MAX_DELAY: Duration = Duration::from_secs(10);

/// Why a connection was closed.
enum Closed {
    /// By the bridge.
    ByBridge,
    /// The session was deleted: there is nothing to record for.
    SessionDeleted,
}

/// Records events until the sandbox has exited.
pub(super) async fn run(sessions: RunningSessions, session: Arc<RunningSession>) {
    let mut delay = FIRST_DELAY;
    loop {
        let before = session.recorded();
        match record_connection(&sessions, &session).await {
            Ok(Closed::ByBridge) => {}
            Ok(Closed::SessionDeleted) => {
                sessions.remove(&session);
                return session.set_finished();
            }
            Err(error) => warn!("session {}: {error}", session.id),
        }
        // The connection can fail while the session is still running.
        match sessions.sandboxes.find_session(session.id, &session.sandbox).await {
            Ok(Some(record)) if record.sandbox == session.sandbox && record.is_served() => {}
            Ok(record) => return finish(&sessions, &session, record.map(|record| record.state)).await,
            Err(error) => warn!("session {}: {error}; retrying", session.id),
        }
        delay = if session.recorded() > before { FIRST_DELAY } else { (delay * 2).min(MAX_DELAY) };
        sleep(delay).await;
    }
}

async fn finish(sessions: &RunningSessions, session: &Arc<RunningSession>, state: Option<SessionState>) {
    // The bridge may have closed before it sent its last events. Of a removed session there are none.
    if state.is_some() {
        record_stored(sessions, session).await;
    }
    sessions.remove(session);
    let status = status_without_sandbox(state);
    // A client's request to pause, stop or end the session sets its own status and takes precedence, as a new sandbox does.
    let has_changed = retry(session, || sessions.store.set_exited(session.id, &session.sandbox, status)).await
        // A frozen pod that has ended cannot be resumed.
        || sessions.sandboxes.are_pods()
            && retry(session, || sessions.store.change_status(session.id, &[Status::Paused], status)).await;
    if has_changed {
        info!("sandbox of session {} has exited: status {status}", session.id);
    }
    if status == Status::Ended {
        remove_session_directory(&sessions.data_dir, session.id).await;
    }
    sessions.changes.add_session(&session.tenant, session.id);
    session.set_finished();
}

/// Records the events that saggar has stored and the database does not have yet.
pub(super) async fn record_stored(sessions: &RunningSessions, session: &RunningSession) {
    let recorded = async || {
        let stored = sessions.sandboxes.stored_events(session.id, &session.sandbox, session.recorded());
        let mut stored = stored.await?;
        record_events(sessions, session, stored.events()).await?;
        stored.finish().await.map_err(Error::from)
    };
    let error = loop {
        let before = session.recorded();
        match recorded().await {
            Ok(()) => return,
            // Another recorder was faster. The events after its last one remain.
            Err(error) if session.recorded() > before => warn!("session {}: {error}; retrying", session.id),
            Err(error) => break error,
        }
    };
    // A session that was removed meanwhile has no events.
    if !matches!(sessions.sandboxes.find_session(session.id, &session.sandbox).await, Ok(None)) {
        warn!("session {}: {error}", session.id);
    }
}

async fn record_connection(sessions: &RunningSessions, session: &RunningSession) -> Result<Closed> {
    let replay = ClientCommand::replay(session.recorded()).with_id("replay");
    let mut connection = BridgeConnection::open(&session.bridge, &[replay]).await?;
    record_events(sessions, session, connection.events()).await
}

async fn record_events<R: AsyncRead + Unpin>(
    sessions: &RunningSessions,
    session: &RunningSession,
    events: &mut EventReader<R>,
) -> Result<Closed> {
    while let Some(event) = events.receive().await? {
        if let EventBody::Error(text) = event.body()
            && event.number().is_none()
        {
            return Err(Error::new(format!("cannot replay events of the bridge: {text}")));
        }
        let mut batch = Batch::default();
        batch.add(&event, session.turn_spans());
        while batch.events < MAX_BATCH_EVENTS
            && let Some(event) = events.receive_buffered()
        {
            batch.add(&event, session.turn_spans());
        }
        if let Some(runs_turn) = batch.runs_turn {
            session.set_runs_turn(runs_turn);
        }
        if let Some(closed) = write_batch(sessions, session, &batch).await? {
            return Ok(closed);
        }
        if batch.has_ended_turn {
            sessions.changes.add_session(&session.tenant, session.id);
        }
    }
    Ok(Closed::ByBridge)
}

async fn write_batch(
    sessions: &RunningSessions,
    session: &RunningSession,
    batch: &Batch,
) -> Result<Option<Closed>> {
    let after = session.recorded();
    if batch.last_number <= after {
        return Ok(None);
    }
    let (store, range) = (&sessions.store, (after, batch.last_number));
    if retry(session, || store.record(&session.tenant, session.id, range, &batch.rows)).await {
        session.set_recorded(batch.last_number);
        return Ok(None);
    }
    match retry(session, || store.session(&session.tenant, session.id)).await {
        Some(stored) => {
            session.set_recorded(stored.recorded);
            // The connection to the database can be lost after a commit and before its reply.
            if stored.recorded == batch.last_number {
                return Ok(None);
            }
            // The recorder of the previous sandbox of this session has recorded further events.
            Err(Error::new("another recorder stored events; reconnecting"))
        }
        None => Ok(Some(Closed::SessionDeleted)),
    }
}

/// Repeats a database operation until it succeeds: an outage of the database must not lose events.
async fn retry<T, F: Future<Output = Result<T>>>(
    session: &RunningSession,
    mut operation: impl FnMut() -> F,
) -> T {
    let mut delay = FIRST_DELAY;
    loop {
        match operation().await {
            Ok(value) => return value,
            Err(error) => warn!("session {}: {error}; retrying", session.id),
        }
        sleep(delay).await;
        delay = (delay * 2).min(MAX_DELAY);
    }
}

/// The database rows of consecutive events.
#[derive(Default)]
struct Batch {
    events: usize,
    last_number: u64,
    rows: Vec<RecordedRow>,
    /// Whether a turn is running after these events; `None` if none of them is of a turn.
    runs_turn: Option<bool>,
    /// Whether one of them has ended a turn.
    has_ended_turn: bool,
}

impl Batch {
    /// Adds an event, also to the span of its turn.
    fn add(&mut self, event: &ReceivedEvent, turn_spans: &TurnSpans) {
        self.events += 1;
        let number = match event.body() {
            EventBody::Gap(_, to) => Some(*to),
            _ => event.number(),
        };
        let Some(number) = number else { return };
        self.last_number = number;
        let turn = event_turn_id(event);
        if let Some(turn) = turn {
            let is_end = matches!(event.body(), EventBody::Done(_) | EventBody::Error(_));
            self.runs_turn = Some(!is_end);
            self.has_ended_turn |= is_end;
            turn_spans.end(turn, event.body());
        }
        match event.body() {
            EventBody::Message => {
                let raw = event.message().unwrap_or_default();
                let message = parse_message(raw);
                self.rows.extend(database_rows(&message, raw));
                let usage = usage_rows(&message, raw);
                if let Some(turn) = turn
                    && message["type"] == "result"
                {
                    turn_spans.add_result(turn, &usage, message["is_error"] == true);
                }
                self.rows.extend(usage);
            }
            EventBody::Error(text) if turn.is_some() => {
                self.push_event("error", &json!({ "error": text }));
            }
            EventBody::Gap(from, to) => {
                self.push_event("lifecycle", &json!({ "action": "events_lost", "from": from, "to": to }));
            }
            _ => {}
        }
    }

    fn push_event(&mut self, kind: &'static str, data: &Value) {
        self.rows.push(RecordedRow::Event(NewEvent::new(kind, data)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capacity::Capacity;
    use crate::persisted::ChangeQueue;
    use crate::saggar::{Program, Sandboxes};
    use crate::settings::{Arguments, Settings};
    use crate::store::testing::{TestStore, stores};
    use crate::store::{NewSession, Page};
    use std::path::Path;
    use uuid::Uuid;

    async fn session(store: &TestStore) -> RunningSession {
        let id = Uuid::new_v4();
        let new = NewSession { id, tenant: "t", agent: "a", model: None, config: "{}", parent: None };
        let session = store.insert_session(&new).await.unwrap();
        RunningSession::new(&session, "", Default::default(), None)
    }

    fn running_sessions(store: &TestStore) -> RunningSessions {
        let arguments = Arguments { data: Some("/nonexistent".into()), ..Arguments::default() };
        let settings = Settings::read(arguments, |_| None).unwrap();
        RunningSessions::new(
            (**store).clone(),
            Sandboxes::new(Program::find(&settings, Path::new("/nonexistent")), None),
            "/nonexistent".into(),
            Capacity::new(1),
            ChangeQueue::new(false),
        )
    }

    fn batch(last_number: u64) -> Batch {
        let rows = vec![RecordedRow::Message("{}".into())];
        Batch { events: 1, last_number, rows, ..Batch::default() }
    }

    /// As after a connection that was lost between a commit and its reply.
    #[tokio::test]
    async fn batch_that_is_already_committed_is_not_stored_twice() {
        for store in stores().await {
            let (sessions, session) = (running_sessions(&store), session(&store).await);
            assert!(store.record("t", session.id, (0, 3), &batch(3).rows).await.unwrap());
            assert!(write_batch(&sessions, &session, &batch(3)).await.unwrap().is_none());
            assert!(write_batch(&sessions, &session, &batch(4)).await.unwrap().is_none());
            let page = Page { limit: 10, after: 0 };
            assert_eq!(store.messages("t", session.id, page).await.unwrap().len(), 2, "{}", store.scheme);
        }
    }

    #[tokio::test]
    async fn batch_that_overlaps_events_of_another_recorder_is_requested_again() {
        for store in stores().await {
            let (sessions, session) = (running_sessions(&store), session(&store).await);
            assert!(store.record("t", session.id, (0, 3), &batch(3).rows).await.unwrap());
            assert!(write_batch(&sessions, &session, &batch(5)).await.is_err());
            assert_eq!(session.recorded(), 3);
            store.delete_session(session.id).await.unwrap();
            let closed = write_batch(&sessions, &session, &batch(5)).await.unwrap();
            assert!(matches!(closed, Some(Closed::SessionDeleted)));
        }
    }
}
