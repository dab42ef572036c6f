//! `saggar session resume`: at once where the session is served, else in a new sandbox.

use super::create::remembered;
use super::{control, detach};
use crate::bridge::proto::json::shorten;
use crate::error::{Code, Error, Result};
use crate::session::record::Record;
use crate::session::states::{Move, State};
use crate::state::process;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// How long an agent may take to be up again.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a supervisor that does not answer may take to be gone.
const GOING: Duration = Duration::from_secs(5);

pub(super) fn run(id: &str) -> Result<u8> {
    let (_, _, record) = Record::find(id)?;
    record.state.after(Move::Run).map_err(|illegal| illegal.error(id))?;
    if record.is_served() {
        match go_on(&record) {
            // It was about to end when we looked: what it served is resumed like any other.
            Err(_) if is_gone(&record) => {}
            done => return done.map(|()| 0),
        }
    }
    let (mut args, options) = remembered(&record)?;
    args.resume = true;
    detach::start(args, options)?;
    Ok(0)
}

/// Lets a session that is served go on. A supervisor that was killed and is not gone yet does not answer.
fn go_on(record: &Record) -> Result<()> {
    match record.state {
        State::Paused => control(record)?.call("resume", &json!({})).map(drop),
        State::Error => wake(record),
        State::Active => control(record).map(drop),
        State::Starting | State::Ended => Ok(()),
    }
}

/// Whether the supervisor is gone, or just going.
fn is_gone(record: &Record) -> bool {
    let pidfd = record.supervisor.as_ref().and_then(|supervisor| supervisor.open().ok());
    pidfd.is_none_or(|pidfd| process::wait(&pidfd, GOING))
}

/// Has the bridge start an agent again that has ended.
fn wake(record: &Record) -> Result<()> {
    let state = control(record)?.call("state", &json!({}))?;
    let session = state["session"]["conversation"].as_str().unwrap_or(&record.id);
    let socket = record.bridge_socket.as_deref().unwrap_or_default();
    let fail = |e: std::io::Error| Error::system(format_args!("speak to the bridge {socket}"), e);
    let mut stream = UnixStream::connect(socket).map_err(fail)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(fail)?;
    stream
        .write_all(format!("{}\n", json!({ "cmd": "resume", "sessionId": session })).as_bytes())
        .map_err(fail)?;
    for line in BufReader::new(stream).lines() {
        let event: Value = serde_json::from_str(&line.map_err(fail)?).unwrap_or_default();
        match event["ev"].as_str() {
            Some("done") => return Ok(()),
            Some("error") => {
                let why = shorten(event["error"].as_str().unwrap_or_default());
                return Err(Error::new(Code::State, format!("session {}: {why}", record.id)));
            }
            _ => {}
        }
    }
    Err(fail(std::io::ErrorKind::UnexpectedEof.into()))
}
