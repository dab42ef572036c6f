//! The turn of an item of the queue, followed to its end: on the connection that sent it, and after that was lost or
//! the server was restarted, in the stored events of the session and the state of its sandbox.

use super::App;
use super::auth::Caller;
use super::queue_worker::ItemAttempt;
use crate::error::{Error, Result};
use crate::running::RunningSession;
use crate::saggar::{BridgeConnection, CONTROL_TIMEOUT, call_control};
use crate::store::Session;
use crate::stream::{TurnConclusion, TurnWatch, event_turn_id};
use saggar_bridge::client::{ClientCommand, EventBody};
use serde_json::json;
use std::time::Duration;
use tokio::time::sleep;
use tracing::warn;
use uuid::Uuid;

/// The command id of the replay on a connection.
pub(super) const REPLAY_ID: &str = "replay";
/// How often the state of a sandbox is examined whose events contain none of the turn, and the delay after a failure.
const EXAMINE_INTERVAL: Duration = Duration::from_secs(1);

/// The error of an item whose turn is over without a known end.
const UNKNOWN_END: &str =
    "The end of the turn is unknown: its events are no longer stored; see the messages of the session";

/// What one examination found.
enum Examined {
    /// The attempt is over.
    Over(ItemAttempt),
    /// The sandbox runs no turn, and has stored no event of this one.
    Idle,
    /// The turn can still be running or waiting.
    Open,
}

/// Receives the events of a turn until it ends or the server shuts down. Returns `None` if the connection is lost, or
/// the turn has not begun within `patience`.
pub(super) async fn receive_turn(
    app: &App,
    running: &RunningSession,
    connection: &mut BridgeConnection,
    watch: &mut TurnWatch,
    patience: Option<Duration>,
) -> Option<ItemAttempt> {
    loop {
        let is_patient = patience.is_none() || watch.has_begun();
        let received = tokio::select! {
            received = connection.receive() => received,
            () = app.tasks.wait_for_shutdown() => return Some(ItemAttempt::ShuttingDown),
            () = sleep(patience.unwrap_or_default()), if !is_patient => return None,
        };
        let event = match received {
            Ok(Some(event)) => event,
            Ok(None) => return None,
            Err(error) => {
                warn!("session {}: {error}", running.id);
                return None;
            }
        };
        if let Some(conclusion) = watch.add(&event) {
            let attempt = recorded_end(app, running.wait_until_recorded(watch.number()), conclusion).await;
            // The recorder has done so, unless the bridge refused the query.
            running.turn_spans().end(watch.turn(), event.body());
            return Some(attempt);
        }
        // The replay is refused, for example since the spool cannot be read.
        if matches!(event.body(), EventBody::Error(_))
            && event.number().is_none()
            && event_turn_id(&event).is_none()
            && patience.is_some()
        {
            return None;
        }
    }
}

/// The end of an item after `recorded`: a client that finds the end must find all of the turn in the lists. If the
/// database cannot be reached, the shutdown does not wait for it; the next server finds the end in the events.
async fn recorded_end(
    app: &App,
    recorded: impl Future<Output = ()>,
    conclusion: TurnConclusion,
) -> ItemAttempt {
    tokio::select! {
        biased;
        () = recorded => ItemAttempt::Ended(conclusion),
        () = app.tasks.wait_for_shutdown() => ItemAttempt::ShuttingDown,
    }
}

/// Follows a turn that was sent, or whose command id was at least stored, to its end.
pub(super) async fn follow_turn(
    app: &App,
    caller: &Caller,
    session: Uuid,
    mut watch: TurnWatch,
) -> ItemAttempt {
    let mut was_idle = false;
    loop {
        let is_idle = match examine(app, caller, session, &mut watch).await {
            Ok(Examined::Over(attempt)) => return attempt,
            // Twice in a row: a command that the bridge had not read the first time has begun by the second.
            Ok(Examined::Idle) if was_idle => return conclude_idle(&watch),
            Ok(Examined::Idle) => true,
            Ok(Examined::Open) => false,
            Err(error) => {
                warn!("cannot follow turn {} of session {session}: {error}; retrying", watch.turn());
                false
            }
        };
        was_idle = is_idle;
        tokio::select! {
            () = sleep(EXAMINE_INTERVAL) => {}
            () = app.tasks.wait_for_shutdown() => return ItemAttempt::ShuttingDown,
        }
    }
}

/// The attempt, if the sandbox runs no turn and the end of this one is not stored.
fn conclude_idle(watch: &TurnWatch) -> ItemAttempt {
    if watch.has_begun() || watch.has_gap() {
        return ItemAttempt::Ended(TurnConclusion::Failed(UNKNOWN_END.into()));
    }
    ItemAttempt::NotBegun(Some("The turn did not begin before the server was interrupted".into()))
}

async fn examine(app: &App, caller: &Caller, id: Uuid, watch: &mut TurnWatch) -> Result<Examined> {
    let Some(session) = app.store.session(&caller.tenant, id).await? else {
        let text = "The session was deleted during the turn";
        return Ok(Examined::Over(ItemAttempt::Ended(TurnConclusion::Failed(text.into()))));
    };
    let running = app.running.get_or_attach(&session).await?;
    if running.is_none() && app.running.find_session(&session).await?.is_none() {
        let text = "The session is not on this machine";
        return Ok(Examined::Over(ItemAttempt::Ended(TurnConclusion::Failed(text.into()))));
    }
    // Before the events are read: a turn that has ended by now has stored all of them.
    let is_busy = match &running {
        Some(running) => is_busy(running).await?,
        None => false,
    };
    let conclusion = read_stored(app, &session, watch).await?;
    match (running, conclusion) {
        (Some(running), Some(conclusion)) => {
            let recorded = running.wait_until_recorded(watch.number());
            Ok(Examined::Over(recorded_end(app, recorded, conclusion).await))
        }
        (None, conclusion) => Ok(Examined::Over(conclude_exited(app, &session, watch, conclusion).await)),
        (Some(_), None) if !is_busy => Ok(Examined::Idle),
        (Some(running), None) => {
            let replay = ClientCommand::replay(watch.number()).with_id(REPLAY_ID);
            let mut connection = BridgeConnection::open(&running.bridge, &[replay]).await?;
            let received = receive_turn(app, &running, &mut connection, watch, Some(EXAMINE_INTERVAL)).await;
            Ok(received.map_or(Examined::Open, Examined::Over))
        }
    }
}

/// The attempt, if no sandbox is running.
async fn conclude_exited(
    app: &App,
    session: &Session,
    watch: &TurnWatch,
    conclusion: Option<TurnConclusion>,
) -> ItemAttempt {
    let failed = |text: &str| TurnConclusion::Failed(text.into());
    let conclusion = match conclusion {
        Some(conclusion) => conclusion,
        None if watch.has_begun() => failed("The sandbox exited during the turn"),
        None if watch.has_gap() => failed(UNKNOWN_END),
        // A failure, which is counted: the agent can have received the message and written nothing yet.
        None => failed("The sandbox exited before the first event of the turn"),
    };
    recorded_end(app, app.running.record_stored(session), conclusion).await
}

/// Adds the stored events of a session to the watch.
async fn read_stored(app: &App, session: &Session, watch: &mut TurnWatch) -> Result<Option<TurnConclusion>> {
    let stored = app.sandboxes.stored_events(session.id, &session.sandbox_id, watch.number());
    let mut stored = stored.await?;
    while let Some(event) = stored.events().receive().await? {
        if let Some(conclusion) = watch.add(&event) {
            return Ok(Some(conclusion));
        }
    }
    stored.finish().await?;
    Ok(None)
}

/// Whether the sandbox runs a turn or another command. Then further turns can be waiting.
async fn is_busy(running: &RunningSession) -> Result<bool> {
    let state = call_control(&running.control, "state", &json!({}), CONTROL_TIMEOUT).await;
    let state = state.map_err(|error| Error::new(error.to_string()))?;
    let is_busy = state["session"]["busy"].as_bool();
    is_busy.ok_or_else(|| Error::new("the state of the sandbox does not contain session.busy"))
}
