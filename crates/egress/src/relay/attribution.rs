//! The loop of the attribution process. It answers requests of the relay, and notifications from the seccomp filter of
//! the sandbox's pid 1.
//!
//! Process: a fork of the relay's program, created before that program read any data of the sandbox. It has the id of
//! the sandbox's owner ([`super::confine::confine_attribution`]). It ends when both the sandbox and the relay have
//! exited.

use super::confine;
use super::message_socket::{MessageSocket, ReceiveResult};
use super::wire::{AttributionReport, AttributionRequest, AttributionResponse, RelayStart};
use crate::io::{Attribution, CallReport};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use saggar_sys::file::set_nonblocking;
use saggar_sys::{file, process, scm};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Instant;

/// Main function of the process; returns its exit status. The sockets are the attribution's ends of its connections to
/// the relay.
pub(super) fn run_attribution(
    start: &RelayStart,
    pidfd: &OwnedFd,
    requests: &OwnedFd,
    reports: &OwnedFd,
) -> i32 {
    let _ = process::set_name(confine::ATTRIBUTION_RIGHTS.name);
    let ready = set_nonblocking(reports.as_fd()).and_then(|()| confine::confine_attribution(start.owner));
    // The duplicate is closed when the relay exits. The original is borrowed, so this process may not close it.
    match ready.and_then(|()| MessageSocket::new(duplicate(requests)?)) {
        Ok(asks) => serve_requests(&mut Attribution::new(start.init), pidfd.as_fd(), asks, reports.as_fd()),
        Err(_) => 1,
    }
}

fn duplicate(fd: &OwnedFd) -> saggar_sys::error::Result<OwnedFd> {
    file::duplicate(fd.as_raw_fd())
        .map_err(|e| saggar_sys::error::Error::system("duplicate a descriptor", e.desc()))
}

fn serve_requests(
    attribution: &mut Attribution,
    init: BorrowedFd<'_>,
    requests: MessageSocket,
    reports: BorrowedFd<'_>,
) -> i32 {
    let (mut asks, mut is_over) = (Some(requests), false);
    // If the relay does not read its socket, the report is lost: false.
    let report = |report: CallReport| {
        let report = match report {
            CallReport::Denied(refusal) => AttributionReport::Denied((*refusal).into()),
            CallReport::ModeRequested(notification) => AttributionReport::ModeRequested(notification),
        };
        serde_json::to_vec(&report).is_ok_and(|bytes| scm::send(reports, &bytes, &[]).is_ok())
    };
    while asks.is_some() || !is_over {
        let left = attribution.deadline().map(|at| at.saturating_duration_since(Instant::now()));
        let timeout = left.and_then(|left| PollTimeout::try_from(left).ok()).unwrap_or(PollTimeout::NONE);
        let ready = {
            let input = |fd| PollFd::new(fd, PollFlags::POLLIN);
            let listener = attribution.listener();
            let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(3);
            fds.extend(asks.as_ref().map(|asks| input(asks.as_fd())));
            fds.extend(listener.map(input));
            fds.extend((!is_over).then(|| input(init)));
            match poll(&mut fds, timeout) {
                Ok(_) | Err(nix::Error::EINTR) => {}
                Err(_) => return 1,
            }
            let is_ready = |fd: &PollFd<'_>| fd.any().unwrap_or(false);
            !is_over && fds.last().is_some_and(is_ready)
        };
        attribution.answer_calls(&mut |call| report(call));
        for refusal in attribution.take_denials() {
            report(CallReport::Denied(Box::new(refusal)));
        }
        if let Some(channel) = &mut asks
            && !answer_requests(attribution, channel)
        {
            asks = None;
            attribution.deny_forwarded();
        }
        if ready {
            is_over = true;
            attribution.stop_answering();
        }
    }
    0
}

/// Answers all pending requests of the relay; false when the relay has exited.
fn answer_requests(attribution: &mut Attribution, requests: &mut MessageSocket) -> bool {
    if requests.flush().is_err() {
        return false;
    }
    loop {
        let (answered, beside) = match requests.receive() {
            ReceiveResult::Message(AttributionRequest::Program(number, of), _) => {
                (AttributionResponse { number, program: attribution.find_program(of) }, None)
            }
            ReceiveResult::Message(AttributionRequest::File(number, file), _) => (
                AttributionResponse { number, program: None },
                File::open(file.path()).ok().map(OwnedFd::from),
            ),
            ReceiveResult::Message(AttributionRequest::ListeningPort(port), _) => {
                attribution.add_listened_port(port);
                continue;
            }
            ReceiveResult::Message(AttributionRequest::SetSeccompListener, listener) => {
                listener.into_iter().for_each(|listener| attribution.set_seccomp_listener(listener));
                continue;
            }
            ReceiveResult::WouldBlock => return true,
            ReceiveResult::Closed => return false,
        };
        // A relay that sends requests and does not read responses is broken.
        if requests.send(&answered, beside).is_err() || requests.is_full() {
            return false;
        }
    }
}
