//! `saggar session end`: politely where it is served, and in its record in any case.

use super::{control, remove};
use crate::cli::session::EndArgs;
use crate::error::{Code, Error, Result};
use crate::id::SandboxId;
use crate::session::record::{Keeper, Record};
use crate::session::states::{Move, State};
use crate::session::{Begin, Session};
use crate::state::process;
use serde_json::json;
use std::time::Duration;

/// How long a supervisor is given to end politely, and one that was killed to be gone.
const POLITE: Duration = Duration::from_secs(10);
const KILLED: Duration = Duration::from_secs(10);
/// How often somebody else may resume it meanwhile.
const ROUNDS: usize = 5;

pub(super) fn run(args: &EndArgs) -> Result<u8> {
    for _ in 0..ROUNDS {
        let (id, directory, record) = Record::find(&args.id)?;
        if record.state == State::Ended && args.remove {
            return remove::run(id.as_str());
        }
        record.state.after(Move::End).map_err(|illegal| illegal.error(id.as_str()))?;
        stop(&record)?;
        let session = match Session::open(&id, Begin::Resume) {
            Err(error) if error.code() == Code::Exists => continue,
            other => other?,
        };
        // As it is now that it is ours.
        let record = Record::read(&directory).map_or(record, Record::as_seen);
        record.await_end(KILLED);
        Keeper::of_dead(&directory, record).leave(Move::End, None, None)?;
        drop(session);
        return if args.remove { remove::run(id.as_str()) } else { Ok(0) };
    }
    Err(busy(&SandboxId::parse(&args.id)?))
}

/// Somebody else has it.
pub(super) fn busy(id: &SandboxId) -> Error {
    Error::new(Code::State, format!("session {id} is being served by somebody else"))
        .hint("another saggar starts it again and again: end that first")
}

/// Ends the supervisor, if there is one; one that does not hear is killed.
fn stop(record: &Record) -> Result<()> {
    let Some(supervisor) = &record.supervisor else { return Ok(()) };
    // It may be gone by now.
    let Ok(pidfd) = supervisor.open() else { return Ok(()) };
    let asked = control(record).and_then(|mut control| control.call("shutdown", &json!({})));
    if asked.is_ok() && process::wait(&pidfd, POLITE) {
        return Ok(());
    }
    if supervisor.kill(KILLED) {
        return Ok(());
    }
    let message =
        format!("the supervisor of session {}, process {}, outlives SIGKILL", record.id, supervisor.pid);
    Err(Error::new(Code::System, message).hint("it hangs in the kernel; see /proc/PID/stack"))
}
