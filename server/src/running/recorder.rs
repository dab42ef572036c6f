//! The recorder writes the events of a session into the database, each event once. It requests all events after the
//! last recorded one from the bridge, and stores the number of the last event in the transaction that stores its rows.

use super::{RunningSession, RunningSessions, status_without_sandbox};
use crate::error::{Error, Result};
use crate::saggar::{BridgeConnection, EventReader, SessionState};
use crate::store::{NewEvent, RecordedRow};
use crate::stream::{database_rows, event_turn_id, parse_message, usage_rows};
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
        match sessions.program.find_session(session.id).await {
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
    match sessions.store.set_exited(session.id, &session.sandbox, status).await {
        Ok(true) => info!("sandbox of session {} has exited: status {status}", session.id),
        Ok(false) => {}
        Err(error) => warn!("session {}: {error}", session.id),
    }
    session.set_finished();
}

/// Records the events that saggar has stored and the database does not have yet.
pub(super) async fn record_stored(sessions: &RunningSessions, session: &RunningSession) {
    let recorded = async {
        let mut stored = sessions.program.stored_events(session.id, session.recorded())?;
        record_events(sessions, session, stored.events()).await?;
        stored.finish().await.map_err(Error::from)
    };
    let Err(error) = recorded.await else { return };
    // A session that was removed meanwhile has no events.
    if !matches!(sessions.program.find_session(session.id).await, Ok(None)) {
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
        batch.add(&event);
        while batch.events < MAX_BATCH_EVENTS
            && let Some(event) = events.receive_buffered()
        {
            batch.add(&event);
        }
        if let Some(closed) = write_batch(sessions, session, &batch).await? {
            return Ok(closed);
        }
    }
    Ok(Closed::ByBridge)
}

/// Retries until the database accepts the batch: a database outage must not lose events.
async fn write_batch(
    sessions: &RunningSessions,
    session: &RunningSession,
    batch: &Batch,
) -> Result<Option<Closed>> {
    let after = session.recorded();
    if batch.last_number <= after {
        return Ok(None);
    }
    let (range, mut delay) = ((after, batch.last_number), FIRST_DELAY);
    loop {
        match sessions.store.record(&session.tenant, session.id, range, &batch.rows).await {
            Ok(true) => {
                session.set_recorded(batch.last_number);
                return Ok(None);
            }
            Ok(false) => match sessions.store.session(&session.tenant, session.id).await? {
                Some(stored) => {
                    // The recorder of the previous sandbox of this session has recorded further events.
                    session.set_recorded(stored.recorded);
                    return Err(Error::new("another recorder stored events; reconnecting"));
                }
                None => return Ok(Some(Closed::SessionDeleted)),
            },
            Err(error) => {
                warn!("session {}: {error}; retrying", session.id);
                sleep(delay).await;
                delay = (delay * 2).min(MAX_DELAY);
            }
        }
    }
}

/// The database rows of consecutive events.
#[derive(Default)]
struct Batch {
    events: usize,
    last_number: u64,
    rows: Vec<RecordedRow>,
}

impl Batch {
    fn add(&mut self, event: &ReceivedEvent) {
        self.events += 1;
        let number = match event.body() {
            EventBody::Gap(_, to) => Some(*to),
            _ => event.number(),
        };
        let Some(number) = number else { return };
        self.last_number = number;
        match event.body() {
            EventBody::Message => {
                let raw = event.message().unwrap_or_default();
                let message = parse_message(raw);
                self.rows.extend(database_rows(&message, raw));
                self.rows.extend(usage_rows(&message, raw));
            }
            EventBody::Error(text) if event_turn_id(event).is_some() => {
                self.push_event("error", &json!({ "error": text }));
            }
            EventBody::Gap(from, to) => {
                self.push_event("lifecycle", &json!({ "action": "events_lost", "from": from, "to": to }));
            }
            _ => {}
        }
    }

    fn push_event(&mut self, kind: &'static str, data: &Value) {
        self.rows.push(RecordedRow::Event(NewEvent { kind, data: data.to_string() }));
    }
}
