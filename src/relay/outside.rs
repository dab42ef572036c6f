//! The relay's side of the attribution: a question and its answer, in a short time, and what is reported unasked.

use super::channel::{Channel, Received};
use super::wire::{Answered, Ask, Refused};
use crate::egress::io::{File, Outside, Program, Refusal, Whose};
use crate::sys::pidfd;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::cell::Cell;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How long an answer may take: connections wait meanwhile.
const WITHIN: Duration = Duration::from_millis(200);
/// How long the end of the other process may take, in milliseconds.
const ENDS_WITHIN: u16 = 300;
/// The most that is read of a file.
const LONGEST: u64 = 1 << 20;

/// The other process.
#[derive(Debug)]
pub(super) struct Elsewhere {
    asks: Channel,
    reports: Channel,
    next: u64,
    is_gone: Rc<Cell<bool>>,
    _child: Child,
}

/// Waited for when all else of it is closed, so that whoever gets the orphans of this machine has none of ours.
#[derive(Debug)]
struct Child(OwnedFd);

impl Drop for Child {
    fn drop(&mut self) {
        if pidfd::wait_end(self.0.as_fd(), ENDS_WITHIN) {
            let _ = pidfd::reap(self.0.as_fd());
        }
    }
}

impl Elsewhere {
    pub(super) fn new(asks: Channel, reports: Channel, child: OwnedFd) -> Self {
        Elsewhere { asks, reports, next: 0, is_gone: Rc::default(), _child: Child(child) }
    }

    /// Readable when something is reported.
    pub(super) fn reports(&self) -> RawFd {
        self.reports.as_fd().as_raw_fd()
    }

    /// Says whether the other process is gone.
    pub(super) fn is_gone(&self) -> Rc<Cell<bool>> {
        Rc::clone(&self.is_gone)
    }

    fn tell(&mut self, what: &Ask, beside: Option<OwnedFd>) {
        if self.asks.send(what, beside).is_err() {
            self.is_gone.set(true);
        }
    }

    /// Asks, and waits for the answer.
    fn ask(&mut self, question: impl FnOnce(u64) -> Ask) -> Option<(Answered, Option<OwnedFd>)> {
        self.next += 1;
        let (number, until) = (self.next, Instant::now() + WITHIN);
        self.tell(&question(number), None);
        loop {
            match self.asks.receive::<Answered>() {
                // One that came too late for its question.
                Received::Message(answered, _) if answered.number != number => {}
                Received::Message(answered, beside) => return Some((answered, beside)),
                Received::Nothing => {
                    let left = PollTimeout::try_from(until.saturating_duration_since(Instant::now())).ok()?;
                    let mut fds = [PollFd::new(self.asks.as_fd(), PollFlags::POLLIN)];
                    if poll(&mut fds, left) == Ok(0) {
                        return None;
                    }
                }
                Received::Over => {
                    self.is_gone.set(true);
                    return None;
                }
            }
        }
    }
}

impl Outside for Elsewhere {
    fn program(&mut self, of: Whose) -> Option<Program> {
        self.ask(|number| Ask::Program(number, of))?.0.program
    }

    fn text(&mut self, file: File) -> String {
        let mut text = String::new();
        if let Some((_, Some(file))) = self.ask(|number| Ask::File(number, file))
            && std::fs::File::from(file).take(LONGEST).read_to_string(&mut text).is_err()
        {
            text.clear();
        }
        text
    }

    fn hears(&mut self, port: u16) {
        self.tell(&Ask::Hears(port), None);
    }

    fn answer_for(&mut self, listener: OwnedFd) {
        self.tell(&Ask::Listener, Some(listener));
    }

    fn refusals(&mut self) -> Vec<Refusal> {
        let mut refusals = Vec::new();
        loop {
            match self.reports.receive::<Refused>() {
                Received::Message(refused, _) => refusals.push(refused.into()),
                Received::Nothing => return refusals,
                Received::Over => {
                    self.is_gone.set(true);
                    return refusals;
                }
            }
        }
    }
}
