//! The relay's connection to the attribution process: requests with a short timeout, and unsolicited reports.

use super::message_socket::{MessageSocket, ReceiveResult};
use super::wire::{AttributionReport, AttributionRequest, AttributionResponse};
use crate::io::{CallingProgram, NetworkDenial, RelayServices, ResolverFile, Whose};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use saggar_sys::pidfd;
use saggar_sys::seccomp::listener::SyscallNotification;
use std::cell::Cell;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Timeout of a request. Connections wait during this time, which only a busy machine takes.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long the attribution process may take to exit, in milliseconds.
const EXIT_TIMEOUT_MS: u16 = 300;
/// Most bytes that are read of a file.
const MAX_FILE_SIZE: u64 = 1 << 20;

/// The connection to the attribution process.
#[derive(Debug)]
pub(super) struct AttributionClient {
    requests: MessageSocket,
    reports: MessageSocket,
    next_number: u64,
    mode_requests: Vec<SyscallNotification>,
    has_exited: Rc<Cell<bool>>,
    _child: AttributionChild,
}

/// Waits for the child when its sockets are closed, so that the reaper of orphans on this host inherits no zombie.
#[derive(Debug)]
struct AttributionChild(OwnedFd);

impl Drop for AttributionChild {
    fn drop(&mut self) {
        if pidfd::wait_exit(self.0.as_fd(), EXIT_TIMEOUT_MS) {
            let _ = pidfd::reap(self.0.as_fd());
        }
    }
}

impl AttributionClient {
    pub(super) fn new(asks: MessageSocket, reports: MessageSocket, child: OwnedFd) -> Self {
        AttributionClient {
            requests: asks,
            reports,
            next_number: 0,
            mode_requests: Vec::new(),
            has_exited: Rc::default(),
            _child: AttributionChild(child),
        }
    }

    /// The descriptor that is readable when the attribution has sent a report.
    pub(super) fn reports_fd(&self) -> RawFd {
        self.reports.as_fd().as_raw_fd()
    }

    /// A flag that is set when the attribution process has exited.
    pub(super) fn exit_flag(&self) -> Rc<Cell<bool>> {
        Rc::clone(&self.has_exited)
    }

    fn send(&mut self, what: &AttributionRequest, passed_fd: Option<OwnedFd>) {
        if self.requests.send(what, passed_fd).is_err() {
            self.has_exited.set(true);
        }
    }

    /// Sends a request and waits for the response.
    fn request(
        &mut self,
        question: impl FnOnce(u64) -> AttributionRequest,
    ) -> Option<(AttributionResponse, Option<OwnedFd>)> {
        self.next_number += 1;
        let (number, until) = (self.next_number, Instant::now() + RESPONSE_TIMEOUT);
        self.send(&question(number), None);
        loop {
            match self.requests.receive::<AttributionResponse>() {
                // A response to an earlier request that had timed out.
                ReceiveResult::Message(answered, _) if answered.number != number => {}
                ReceiveResult::Message(answered, beside) => return Some((answered, beside)),
                ReceiveResult::WouldBlock => {
                    let left = PollTimeout::try_from(until.saturating_duration_since(Instant::now())).ok()?;
                    let mut fds = [PollFd::new(self.requests.as_fd(), PollFlags::POLLIN)];
                    if poll(&mut fds, left) == Ok(0) {
                        return None;
                    }
                }
                ReceiveResult::Closed => {
                    self.has_exited.set(true);
                    return None;
                }
            }
        }
    }
}

impl RelayServices for AttributionClient {
    fn find_program(&mut self, of: Whose) -> Option<CallingProgram> {
        self.request(|number| AttributionRequest::Program(number, of))?.0.program
    }

    fn read_file(&mut self, file: ResolverFile) -> String {
        let mut text = String::new();
        if let Some((_, Some(file))) = self.request(|number| AttributionRequest::File(number, file))
            && std::fs::File::from(file).take(MAX_FILE_SIZE).read_to_string(&mut text).is_err()
        {
            text.clear();
        }
        text
    }

    fn add_listened_port(&mut self, port: u16) {
        self.send(&AttributionRequest::ListeningPort(port), None);
    }

    fn set_seccomp_listener(&mut self, listener: OwnedFd) {
        self.send(&AttributionRequest::SetSeccompListener, Some(listener));
    }

    fn take_denials(&mut self) -> Vec<NetworkDenial> {
        let mut refusals = Vec::new();
        loop {
            match self.reports.receive() {
                ReceiveResult::Message(AttributionReport::Denied(refused), _) => {
                    refusals.push(refused.into())
                }
                ReceiveResult::Message(AttributionReport::ModeRequested(notification), _) => {
                    self.mode_requests.push(notification);
                }
                ReceiveResult::WouldBlock => return refusals,
                ReceiveResult::Closed => {
                    self.has_exited.set(true);
                    return refusals;
                }
            }
        }
    }

    fn take_mode_requests(&mut self) -> Vec<SyscallNotification> {
        std::mem::take(&mut self.mode_requests)
    }
}
