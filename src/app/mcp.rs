//! The broker of `saggar mcp control`: it does for the server what needs the rights of the caller, for the sessions that
//! the policy names.
//!
//! ```text
//!  server (no rights) ── a packet, with the socket for the reply ──> broker ── fork ──> child: one request, exit
//! ```
//! Each request has a process of its own, so that the lock of a session can be held while a person decides. Trees
//! are read by the workers of a session, as for `saggar session diff` and `apply`; the child itself parses log entries,
//! which a supervisor wrote.

use super::session::{self, files};
use crate::error::{Code, Error, Result};
use crate::mcp::control::serve_control;
use crate::mcp::control::wire::{
    BrokerReply, BrokerRequest, CONSENT, Changes, MAX_REQUEST_SIZE, SANDBOX_METHODS, SessionSummary,
};
use crate::session::apply::ApplyOptions;
use crate::session::diff::text;
use crate::session::logs::{LogEntry, LogFiles};
use crate::session::record::SessionRecord;
use crate::spec::policy::SessionPattern;
use crate::sys::scm::socket_pair;
use crate::sys::worker::WorkerProcess;
use crate::sys::{self, Errno, process, scm};
use crate::text::prefix;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Most requests at a time; each has a process. The server has fewer, and questions that wait for an answer.
const MAX_REQUESTS: usize = 64;
/// Most bytes of a difference, and of log entries, in one reply.
const MAX_DIFF: usize = 256 << 10;
const MAX_LOGS: usize = 256 << 10;
/// Most changes in one question: a person is to read them all.
const MAX_ASKED_CHANGES: usize = 200;

/// Serves the sessions that `patterns` name on standard input and output, until the client closes them. Returns the
/// exit status. The process must have one thread.
///
/// # Errors
/// [`Code::System`].
pub(crate) fn serve_sessions(patterns: &[SessionPattern]) -> Result<u8> {
    let fail = |errno: Errno| Error::system("start the broker", errno.desc());
    let (server, broker) = socket_pair()?;
    sys::worker::fork(&[broker.as_raw_fd()], || run_broker(&broker, patterns)).map_err(fail)?;
    drop(broker);
    let names: Vec<String> = patterns.iter().map(SessionPattern::to_string).collect();
    serve_control(server, names.join(", "))
}

/// Serves requests until the server is gone. Returns the exit status.
fn run_broker(server: &OwnedFd, patterns: &[SessionPattern]) -> u8 {
    let _ = process::set_name(c"saggar:broker");
    let mut running: Vec<WorkerProcess> = Vec::new();
    let mut packet = vec![0; MAX_REQUEST_SIZE];
    loop {
        if wait_for_request(server, &mut running).is_err() {
            return 1;
        }
        let Ok(mut received) = scm::receive(server.as_fd(), &mut packet) else { return 1 };
        if received.len == 0 {
            return 0;
        }
        let request = packet.get(..received.len).and_then(|packet| serde_json::from_slice(packet).ok());
        let (Some(request), Some(reply)) = (request, received.fds[0].take()) else { continue };
        let started = if running.len() < MAX_REQUESTS {
            sys::worker::fork(&[reply.as_raw_fd()], || serve_request(&reply, request, patterns))
                .map_err(|errno| Error::system("start a process for the call", errno.desc()))
        } else {
            Err(Error::new(Code::State, format!("{MAX_REQUESTS} calls run already")))
        };
        match started {
            Ok(child) => running.push(child),
            Err(error) => drop(send(&reply, &BrokerReply::Failed(error), &[])),
        }
    }
}

/// Waits until the server has sent a request or is gone, and reaps children that exit meanwhile.
fn wait_for_request(server: &OwnedFd, running: &mut Vec<WorkerProcess>) -> Result<(), Errno> {
    loop {
        let fds = std::iter::once(server.as_fd()).chain(running.iter().map(|child| child.pidfd.as_fd()));
        let mut fds: Vec<PollFd<'_>> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        match poll(&mut fds, PollTimeout::NONE) {
            Err(Errno::EINTR) => continue,
            other => other?,
        };
        let ready: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap_or(true)).collect();
        let mut has_exited = ready.iter().skip(1);
        running.retain(|child| {
            let is_over = has_exited.next() == Some(&true);
            if is_over {
                let _ = waitid(Id::PIDFd(child.pidfd.as_fd()), WaitPidFlag::WEXITED);
            }
            !is_over
        });
        if ready.first() == Some(&true) {
            return Ok(());
        }
    }
}

/// Serves one request. Returns the exit status.
fn serve_request(reply: &OwnedFd, request: BrokerRequest, patterns: &[SessionPattern]) -> u8 {
    let sent = match answer(reply, request, patterns) {
        Ok(Answer { last, socket }) => {
            let descriptors: Vec<RawFd> = socket.iter().map(AsRawFd::as_raw_fd).collect();
            send(reply, &last, &descriptors)
        }
        Err(error) => send(reply, &BrokerReply::Failed(error), &[]),
    };
    u8::from(sent.is_err())
}

/// The last line of a reply.
struct Answer {
    last: BrokerReply,
    /// The control socket that accompanies it.
    socket: Option<UnixStream>,
}

impl From<BrokerReply> for Answer {
    fn from(last: BrokerReply) -> Self {
        Answer { last, socket: None }
    }
}

fn answer(reply: &OwnedFd, request: BrokerRequest, patterns: &[SessionPattern]) -> Result<Answer> {
    Ok(match request {
        BrokerRequest::List => {
            let sessions = named_sessions(patterns)?;
            let summary = |record: SessionRecord| SessionSummary {
                served: record.is_served(),
                state: record.state.to_string(),
                session: record.id,
                folder: record.folder,
            };
            BrokerReply::Sessions(sessions.into_iter().map(summary).collect()).into()
        }
        BrokerRequest::Connect { session } => {
            let control = session::connect_limited(&choose(patterns, session)?, &SANDBOX_METHODS)?;
            Answer { last: BrokerReply::Connected, socket: Some(control.into_stream()) }
        }
        BrokerRequest::Logs { session, after, limit } => {
            let (_, directory, _) = SessionRecord::find(&choose(patterns, session)?)?;
            let entries = LogFiles::open_read_only(&directory).map(|files| files.entries_after(after, limit));
            bounded(entries.unwrap_or_default(), limit).into()
        }
        BrokerRequest::Diff { session, paths, has_patches } => {
            diff(&choose(patterns, session)?, &to_paths(paths), has_patches)?.into()
        }
        BrokerRequest::Apply { session, paths } => {
            apply(reply, choose(patterns, session)?, &to_paths(paths))?.into()
        }
    })
}

/// As many of the entries as a reply can have, and one at least.
fn bounded(mut entries: Vec<LogEntry>, limit: usize) -> BrokerReply {
    let (found, mut bytes) = (entries.len(), 0);
    let too_many = entries.iter().position(|entry| {
        bytes += entry.text.len();
        bytes > MAX_LOGS
    });
    entries.truncate(too_many.map_or(found, |end| end.max(1)));
    BrokerReply::Logs { is_truncated: found == limit || entries.len() < found, entries }
}

fn to_paths(paths: Vec<String>) -> Vec<PathBuf> {
    paths.into_iter().map(PathBuf::from).collect()
}

fn diff(session: &str, paths: &[PathBuf], has_patches: bool) -> Result<BrokerReply> {
    let (mut text, mut is_truncated) = (String::new(), false);
    let done = files::diff_as_text(session, paths, has_patches, |part| {
        let shown = prefix(part, MAX_DIFF - text.len());
        text.push_str(shown);
        is_truncated = shown.len() < part.len();
        // Ends the comparison.
        if is_truncated { Err(Error::new(Code::Invalid, "the difference is long")) } else { Ok(()) }
    });
    if !is_truncated {
        done?;
    }
    Ok(BrokerReply::Diff { text, is_truncated })
}

fn apply(reply: &OwnedFd, session: String, paths: &[PathBuf]) -> Result<BrokerReply> {
    let ask = |folder: &Path, lines: &[String]| {
        if lines.len() > MAX_ASKED_CHANGES {
            let message =
                format!("{} changes are too many for a question; at most {MAX_ASKED_CHANGES}", lines.len());
            let hint = format!("name paths, or a person applies them: saggar session apply {session}");
            return Err(Error::new(Code::Refused, message).hint(hint));
        }
        let changes =
            Changes { session: session.clone(), folder: text::show_path(folder), lines: lines.to_vec() };
        send(reply, &BrokerReply::Question(changes), &[])
            .map_err(|errno| Error::system("ask for consent", errno.desc()))?;
        receive_consent(reply)
    };
    let (folder, lines) = files::apply_after_consent(&session, paths, &ApplyOptions::default(), ask)?;
    let folder = text::show_path(&folder);
    Ok(BrokerReply::Applied(Changes { session: session.clone(), folder, lines }))
}

/// Waits for the server's consent.
///
/// # Errors
/// [`Code::Refused`]: the server has closed the connection.
fn receive_consent(reply: &OwnedFd) -> Result<()> {
    let refused = || Error::new(Code::Refused, "there is no consent; nothing was done");
    let stream = reply.try_clone().map_err(|e| Error::system("wait for consent", e))?;
    let mut line = Vec::new();
    BufReader::new(UnixStream::from(stream)).read_until(b'\n', &mut line).map_err(|_| refused())?;
    if line == CONSENT { Ok(()) } else { Err(refused()) }
}

/// The existing sessions that the policy names.
fn named_sessions(patterns: &[SessionPattern]) -> Result<Vec<SessionRecord>> {
    let all = SessionRecord::list()?;
    Ok(all.into_iter().filter(|record| is_named(patterns, &record.id)).collect())
}

fn is_named(patterns: &[SessionPattern], session: &str) -> bool {
    patterns.iter().any(|pattern| pattern.matches(session))
}

/// The session of a request.
///
/// # Errors
/// [`Code::Refused`] for one that the policy does not name; [`Code::Invalid`] for none if there is not exactly one.
fn choose(patterns: &[SessionPattern], asked: Option<String>) -> Result<String> {
    if let Some(session) = asked {
        return match is_named(patterns, &session) {
            true => Ok(session),
            false => {
                Err(Error::new(Code::Refused, format!("the policy does not name the session {session:?}"))
                    .hint("list_sessions lists those that it names; an operator sets mcp.sessions"))
            }
        };
    }
    let mut sessions: Vec<String> = named_sessions(patterns)?.into_iter().map(|record| record.id).collect();
    match sessions.len() {
        1 => Ok(sessions.swap_remove(0)),
        0 => Err(Error::new(Code::Invalid, "there is no session that the policy names")
            .hint("saggar session create starts one")),
        _ => Err(Error::new(Code::Invalid, format!("there are several sessions: {}", sessions.join(", ")))
            .hint("name one with the argument session")),
    }
}

/// Sends a line; the descriptors are attached to its beginning.
fn send(reply: &OwnedFd, line: &BrokerReply, descriptors: &[RawFd]) -> Result<(), Errno> {
    let mut bytes = serde_json::to_vec(line).unwrap_or_default();
    bytes.push(b'\n');
    let (first, rest) = bytes.split_at(1);
    scm::send(reply.as_fd(), first, descriptors)?;
    let stream = reply.try_clone().map_err(|_| Errno::EIO)?;
    UnixStream::from(stream).write_all(rest).map_err(|_| Errno::EPIPE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::proto::LogLevel;

    #[test]
    fn a_reply_has_as_many_log_entries_as_fit_and_one_at_least() {
        let entries = |sizes: &[usize]| -> Vec<LogEntry> {
            let entry =
                |size: &usize| LogEntry { index: 1, ts: 0, level: LogLevel::Info, text: "x".repeat(*size) };
            sizes.iter().map(entry).collect()
        };
        for (sizes, limit, left, truncated) in [
            (&[][..], 10, 0, false),
            (&[1, 2], 10, 2, false),
            (&[1, 2], 2, 2, true),
            (&[MAX_LOGS, 1], 10, 1, true),
            (&[MAX_LOGS + 1], 10, 1, false),
            (&[MAX_LOGS / 2, MAX_LOGS / 2, 1], 10, 2, true),
        ] {
            let BrokerReply::Logs { entries, is_truncated } = bounded(entries(sizes), limit) else {
                panic!()
            };
            assert_eq!((entries.len(), is_truncated), (left, truncated), "{sizes:?}");
        }
    }
}
