//! Sessions that outlive their creator, each with a supervisor of its own.

pub mod files;
pub mod snapshot;

mod create;
mod detach;
mod end;
mod logs;
mod pause;
mod remove;
mod resume;
mod send;

pub use create::create;
pub use end::end;
pub use logs::{LogQuery, read_logs};
pub use pause::pause;
pub use remove::remove;
pub use resume::resume;
pub use send::send;

use crate::control::client::ControlClient;
use crate::error::{Code, Error, Result};
use crate::session::record::SessionRecord;
use crate::session::session_state::SessionTransition;
use std::path::Path;

/// The control socket of a session that is served.
///
/// # Errors
/// [`Code::State`] when nothing serves it; as [`ControlClient::connect`].
fn connect_control(record: &SessionRecord) -> Result<ControlClient> {
    let socket = record.control_socket.as_ref().filter(|_| record.is_served());
    let socket = socket.ok_or_else(|| not_served_error(record))?;
    ControlClient::connect(Path::new(socket))
}

/// Nothing serves the session.
fn not_served_error(record: &SessionRecord) -> Error {
    let id = &record.id;
    match record.state.apply(SessionTransition::Restart) {
        Err(illegal) => illegal.to_error(id),
        Ok(_) => Error::new(Code::State, format!("session {id} is {}: it is not served", record.state))
            .hint(format!("saggar session resume {id}")),
    }
}
