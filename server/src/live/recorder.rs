//! Writes what a session says into the database, each event once: it asks the bridge for all events after the last one that
//! the database has, and notes the number of the last event together with its rows.

use super::{Live, LiveSessions, status_without_sandbox};
use crate::error::{Error, Result};
use crate::saggar::{BridgeConnection, SessionState};
use crate::store::{NewEvent, Recorded, Status};
use crate::stream::{rows_of, turn_of};
use saggar_bridge::client::{ClientCommand, EventBody, ReceivedEvent};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;
use tracing::{info, warn};

/// Events of one transaction.
const MOST_EVENTS: usize = 256;
/// Between two tries, of a database or a bridge that fails.
const PAUSE: Duration = Duration::from_millis(200);

/// Records until the sandbox has ended.
pub(super) async fn run(sessions: LiveSessions, live: Arc<Live>) {
    loop {
        if let Err(error) = record_connection(&sessions, &live).await {
            warn!("session {}: {error}", live.id);
        }
        // A connection can be lost while the session goes on.
        match sessions.program.show(live.id).await {
            Ok(record) if record.is_served() => sleep(PAUSE).await,
            ended => {
                end(&sessions, &live, ended.ok().map(|record| record.state)).await;
                return;
            }
        }
    }
}

async fn end(sessions: &LiveSessions, live: &Arc<Live>, state: Option<SessionState>) {
    let status = status_without_sandbox(state);
    // What a client has asked for is in the database already, or will be.
    match sessions.store.change_status(live.id, &[Status::Active], status).await {
        Ok(true) => info!("session {} has no sandbox any more: {status}", live.id),
        Ok(false) => {}
        Err(error) => warn!("session {}: {error}", live.id),
    }
    sessions.forget(live);
    live.set_over();
}

async fn record_connection(sessions: &LiveSessions, live: &Live) -> Result<()> {
    let replay = ClientCommand::replay(live.recorded()).with_id("replay");
    let mut connection = BridgeConnection::open(&live.bridge, &[replay]).await?;
    while let Some(event) = connection.receive().await? {
        if let EventBody::Error(text) = event.body()
            && event.number().is_none()
        {
            return Err(Error::new(format!("the bridge does not give its events: {text}")));
        }
        let mut batch = Batch::default();
        batch.add(&event);
        while batch.events < MOST_EVENTS
            && let Some(event) = connection.receive_buffered()?
        {
            batch.add(&event);
        }
        write(sessions, live, &batch).await?;
    }
    Ok(())
}

/// Tries until the database takes it: nothing of a session is dropped because a database was away.
async fn write(sessions: &LiveSessions, live: &Live, batch: &Batch) -> Result<()> {
    let after = live.recorded();
    if batch.number <= after {
        return Ok(());
    }
    let span = (after, batch.number);
    loop {
        match sessions.store.record(&live.tenant, live.id, span, &batch.rows).await {
            Ok(true) => {
                live.set_recorded(batch.number);
                return Ok(());
            }
            Ok(false) => {
                // The recorder of the former sandbox of this session had still something to write.
                let session = sessions.store.session(&live.tenant, live.id).await?;
                live.set_recorded(session.map_or(u64::MAX, |session| session.recorded));
                return Err(Error::new("the database has other events; asking for those after them"));
            }
            Err(error) => {
                warn!("session {}: {error}; trying again", live.id);
                sleep(PAUSE).await;
            }
        }
    }
}

/// What some events leave in the database.
#[derive(Default)]
struct Batch {
    events: usize,
    number: u64,
    rows: Vec<Recorded>,
}

impl Batch {
    fn add(&mut self, event: &ReceivedEvent) {
        self.events += 1;
        let number = match event.body() {
            EventBody::Gap(_, to) => Some(*to),
            _ => event.number(),
        };
        let Some(number) = number else { return };
        self.number = number;
        match event.body() {
            EventBody::Message => {
                let raw = event.message().unwrap_or_default();
                let message: Value = serde_json::from_str(raw).unwrap_or_default();
                self.rows.extend(rows_of(&message, raw));
            }
            EventBody::Error(text) if turn_of(event).is_some() => {
                self.event("error", &json!({ "error": text }));
            }
            EventBody::Gap(from, to) => {
                self.event("lifecycle", &json!({ "action": "events_lost", "from": from, "to": to }));
            }
            _ => {}
        }
    }

    fn event(&mut self, kind: &'static str, data: &Value) {
        self.rows.push(Recorded::Event(NewEvent { kind, data: data.to_string() }));
    }
}
