//! Which program does what, for the relay: it looks into the processes of the sandbox, and answers what pid 1's filter
//! asks about. It has the rights of the sandbox's owner, so it hears nothing of the network.

use super::AT_ONCE;
use super::asker::Asker;
use super::callers::Callers;
use super::owner::{self, Owners, Program, Socket};
use super::refusals::{Refusal, Refusals};
use std::collections::BTreeSet;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Instant;

/// Looks into one sandbox.
#[derive(Debug)]
pub struct Attribution {
    owners: Owners,
    callers: Callers,
    asker: Option<Asker>,
    /// Ports that the relay hears.
    heard: BTreeSet<u16>,
    refusals: Refusals,
}

impl Attribution {
    /// For the sandbox of this pid 1.
    pub fn new(init: i32) -> Self {
        Attribution {
            owners: Owners::new(init),
            callers: Callers::default(),
            asker: None,
            heard: BTreeSet::new(),
            refusals: Refusals::default(),
        }
    }

    /// The program of this socket; `None` also when too many are asked for, or there is too much to look through.
    pub fn program(&mut self, of: Socket) -> Option<Program> {
        match of {
            Socket::Caller(to) => self.callers.of(to),
            socket => self.owners.of(socket),
        }
    }

    /// The relay hears this port.
    pub fn hears(&mut self, port: u16) {
        self.heard.insert(port);
    }

    /// Answers what comes on the listener of pid 1's filter.
    pub fn answer_for(&mut self, listener: OwnedFd) {
        self.asker = Some(Asker::new(listener, self.owners.init()));
    }

    /// That listener, readable when there is something to answer.
    pub fn listener(&self) -> Option<BorrowedFd<'_>> {
        self.asker.as_ref().map(Asker::listener)
    }

    /// No call is answered any more; those that wait fail.
    pub fn close(&mut self) {
        self.asker = None;
    }

    /// Answers what is asked now, up to a bound. `report` gets what was refused before the program goes on: when that
    /// ends, it is reported.
    pub fn answer(&mut self, report: &mut dyn FnMut(Refusal)) {
        let Some(asker) = &mut self.asker else { return };
        for _ in 0..AT_ONCE {
            let wanted = match asker.next() {
                Ok(Some(wanted)) => wanted,
                Ok(None) => return,
                // Killed before it could be asked for.
                Err(_) => continue,
            };
            let unheard = wanted.host().filter(|to| !self.heard.contains(&to.port()));
            let (refusal, now) = (asker.refusal(&wanted), Instant::now());
            let program = || owner::of_thread(wanted.thread()).filter(|_| asker.still_waits(&wanted));
            match (refusal, unheard) {
                (Some(refusal), _) => {
                    self.refusals.add(refusal, now, program);
                    self.refusals.take(now).into_iter().for_each(&mut *report);
                }
                (None, Some(to)) => self.callers.add(to, wanted.thread(), now, program),
                (None, None) => {}
            }
            asker.answer(&wanted);
        }
    }

    /// What was refused again and again, when its time has come.
    pub fn refusals(&mut self) -> Vec<Refusal> {
        self.refusals.take(Instant::now())
    }

    /// When that is.
    pub fn deadline(&self) -> Option<Instant> {
        self.refusals.deadline()
    }
}
