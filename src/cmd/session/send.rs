//! `saggar session send`.

use super::{control, not_served};
use crate::cli::session::SendArgs;
use crate::error::{Code, Error, Result};
use crate::session::record::Record;
use crate::session::states::State;
use crate::supervise::agent::{Show, Turned, turn};
use serde_json::json;
use std::io::IsTerminal;
use std::os::unix::net::UnixStream;

pub(super) fn run(args: &SendArgs) -> Result<u8> {
    let (id, _, record) = Record::find(&args.id)?;
    let Some(socket) = record.bridge_socket.as_ref().filter(|_| record.is_served()) else {
        return Err(not_served(&record));
    };
    if record.state == State::Paused {
        return Err(Error::new(Code::State, format!("session {id} is paused"))
            .hint(format!("saggar session resume {id}")));
    }
    let mut control = control(&record)?;
    let state = control.call("state", &json!({}))?;
    // What the server of this session calls it; the first to speak gives it its name.
    let session = state["session"]["conversation"].as_str().unwrap_or(id.as_str());
    let show = if args.json || !std::io::stdout().is_terminal() { Show::Json } else { Show::Text };
    let stream = UnixStream::connect(socket)
        .map_err(|e| Error::system(format_args!("connect to the bridge {socket}"), e))?;
    match turn(stream, &args.prompt, session, show)? {
        Turned::Done => Ok(0),
        Turned::Signal(signal) => Ok(128u8.saturating_add(u8::try_from(signal).unwrap_or(0))),
        Turned::Failed(why) => {
            log::warn!("{why}");
            // With the agent's own status, when it died of it.
            let state = control.call("state", &json!({})).unwrap_or_default();
            let is_down = state["session"]["state"] == "error";
            let status = state["session"]["lastStatus"].as_u64().filter(|status| is_down && *status != 0);
            Ok(status.and_then(|status| u8::try_from(status).ok()).unwrap_or(1))
        }
    }
}
