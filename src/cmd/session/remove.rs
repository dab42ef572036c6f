//! `saggar session remove`.

use super::end;
use crate::error::{Code, Error, Result};
use crate::session::record::Record;
use crate::session::{Begin, Session};
use std::time::Duration;

/// How long what a killed supervisor has left is given to end.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) fn run(id: &str) -> Result<u8> {
    let (id, directory, record) = Record::find(id)?;
    if record.is_served() {
        return Err(Error::new(Code::State, format!("session {id} is {}, and served", record.state))
            .hint(format!("saggar session end --remove {id}")));
    }
    // Held until it is gone: nobody resumes it meanwhile.
    let session = Session::open(&id, Begin::Resume).map_err(|error| match error.code() {
        Code::Exists => end::busy(&id),
        _ => error,
    })?;
    record.await_end(PATIENCE);
    session.remove()?;
    drop((session, directory));
    Ok(0)
}
