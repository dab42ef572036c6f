//! Attributes network activity to programs, for the relay: it inspects the processes of the sandbox and answers the
//! notifications of pid 1's seccomp filter. It runs with the rights of the sandbox's owner and therefore parses no
//! network data.

use super::MAX_PER_SOCKET;
use super::denials::{DenialLog, NetworkDenial};
use super::recent_calls::RecentCalls;
use super::seccomp_notify::SeccompNotifyHandler;
use super::socket_owner::{self, CallingProgram, SocketOwnerQuery, SocketOwners};
use saggar_sys::seccomp::listener::SyscallNotification;
use std::collections::BTreeSet;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Instant;

/// A report about a call, sent while its program waits.
#[derive(Debug)]
pub enum CallReport {
    /// The call is denied.
    Denied(Box<NetworkDenial>),
    /// The call sets the mode of a directory. The receiver of the report has it answered.
    ModeRequested(SyscallNotification),
}

/// The attribution for one sandbox.
#[derive(Debug)]
pub struct Attribution {
    owners: SocketOwners,
    recent_calls: RecentCalls,
    notify_handler: Option<SeccompNotifyHandler>,
    /// Ports on which the relay listens.
    listened_ports: BTreeSet<u16>,
    denials: DenialLog,
}

impl Attribution {
    /// Creates the attribution for the sandbox with this pid 1.
    pub fn new(init: i32) -> Self {
        Attribution {
            owners: SocketOwners::new(init),
            recent_calls: RecentCalls::default(),
            notify_handler: None,
            listened_ports: BTreeSet::new(),
            denials: DenialLog::default(),
        }
    }

    /// The program that owns this socket. `None` also if a lookup limit is reached.
    pub fn find_program(&mut self, of: SocketOwnerQuery) -> Option<CallingProgram> {
        match of {
            SocketOwnerQuery::Unconnected(to) => self.recent_calls.find_program(to),
            socket => self.owners.find_program(socket),
        }
    }

    /// Adds a port on which the relay listens.
    pub(crate) fn add_listened_port(&mut self, port: u16) {
        self.listened_ports.insert(port);
    }

    /// Sets the seccomp listener of pid 1's filter, whose notifications are answered from now on.
    pub(crate) fn set_seccomp_listener(&mut self, listener: OwnedFd) {
        self.notify_handler = Some(SeccompNotifyHandler::new(listener, self.owners.init()));
    }

    /// The seccomp listener, readable when a notification is pending.
    pub fn listener(&self) -> Option<BorrowedFd<'_>> {
        self.notify_handler.as_ref().map(SeccompNotifyHandler::listener)
    }

    /// Closes the seccomp listener. Pending and later calls fail.
    pub(crate) fn stop_answering(&mut self) {
        self.notify_handler = None;
    }

    /// The relay has exited: denies the calls that it was to pass on, and that may wait for a response forever.
    pub(crate) fn deny_forwarded(&mut self) {
        self.notify_handler.iter_mut().for_each(SeccompNotifyHandler::deny_forwarded);
    }

    /// Answers pending notifications, up to a limit. Calls `report` for a denial before the program continues, so that
    /// it is reported even if the program then exits. `report` returns whether the report was sent.
    pub(crate) fn answer_calls(&mut self, report: &mut dyn FnMut(CallReport) -> bool) {
        let Some(asker) = &mut self.notify_handler else { return };
        for _ in 0..MAX_PER_SOCKET {
            let wanted = match asker.next_call() {
                Ok(Some(wanted)) => wanted,
                Ok(None) => return,
                // The caller was killed before the notification was read.
                Err(_) => continue,
            };
            if let Some(notification) = wanted.mode_request() {
                if report(CallReport::ModeRequested(notification)) {
                    asker.add_forwarded(wanted);
                } else {
                    asker.respond(&wanted);
                }
                continue;
            }
            let unheard = wanted.remote_host().filter(|to| !self.listened_ports.contains(&to.port()));
            let (refusal, now) = (asker.denial(&wanted), Instant::now());
            let program = || {
                socket_owner::program_of_thread(wanted.thread()).filter(|_| asker.is_still_waiting(&wanted))
            };
            match (refusal, unheard) {
                (Some(refusal), _) => {
                    self.denials.add(refusal, now, program);
                    for refusal in self.denials.take_due(now) {
                        report(CallReport::Denied(Box::new(refusal)));
                    }
                }
                (None, Some(to)) => self.recent_calls.record(to, wanted.thread(), now, program),
                (None, None) => {}
            }
            asker.respond(&wanted);
        }
    }

    /// Repeated denials that are due for a report.
    pub(crate) fn take_denials(&mut self) -> Vec<NetworkDenial> {
        self.denials.take_due(Instant::now())
    }

    /// When the next repeated denial is due.
    pub fn deadline(&self) -> Option<Instant> {
        self.denials.deadline()
    }
}
