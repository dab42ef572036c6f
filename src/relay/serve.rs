//! The loop of the relay: it does what the supervisor says, and reports what that is to know.
//!
//! Who runs here: the program that the supervisor has executed, confined ([`super::confine::relay`]).

use super::channel::{Channel, Received};
use super::outside::Elsewhere;
use super::wire::{AT_ONCE, Down, Start, Up};
use crate::egress::io::publish::Publisher;
use crate::egress::io::{Consent, Question, Relay};
use crate::error::{Code, Error, Result};
use crate::spec::policy::hosts::Rules;
use crate::sys::Errno;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::cell::Cell;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::time::Duration;

/// The sockets to the supervisor and to the attribution.
const SUPERVISOR: Token = Token(0);
const REPORTS: Token = Token(1);
/// Descriptors that are no connection's.
const OTHERS: u64 = 128;
/// Messages of the supervisor before connections have their turn.
const MESSAGES: usize = 64;

/// What the loop holds.
struct Serving {
    supervisor: Channel,
    relay: Option<Relay>,
    publisher: Publisher,
    /// Rules that are not whole yet.
    rules: Rules,
    /// There may be more to receive, though no event says so.
    unread: bool,
    settling: Settling,
    attribution_is_gone: Rc<Cell<bool>>,
}

/// How far it is with what programs sent last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Settling {
    /// Programs may still run.
    No,
    /// None does; what they did last may not have been received yet.
    Begun,
    /// All that they did was received.
    Received,
}

/// Relays until the supervisor is gone.
///
/// # Errors
/// What kept the loop from running; that the attribution is gone.
pub(super) fn serve(
    supervisor: OwnedFd,
    start: &Start,
    descriptors: usize,
    outside: Option<Elsewhere>,
) -> Result<()> {
    let poll = Poll::new().map_err(|e| Error::system("make an event loop", e))?;
    let both = Interest::READABLE | Interest::WRITABLE;
    watch(poll.registry(), supervisor.as_raw_fd(), SUPERVISOR, both)?;
    if let Some(outside) = &outside {
        watch(poll.registry(), outside.reports(), REPORTS, Interest::READABLE)?;
    }
    // Connections from the host have their share, where there may be any.
    let share = if start.publishes { Publisher::share(descriptors) } else { 0 };
    let attribution_is_gone = outside.as_ref().map(Elsewhere::is_gone).unwrap_or_default();
    let mut it = Serving {
        supervisor: Channel::new(supervisor)?,
        relay: outside.map(|outside| Relay::new(Box::new(outside), descriptors - share)),
        publisher: Publisher::new(share),
        rules: Rules::default(),
        unread: true,
        settling: Settling::No,
        attribution_is_gone,
    };
    it.run(poll)
}

impl Serving {
    fn run(&mut self, mut poll: Poll) -> Result<()> {
        let mut events = Events::with_capacity(256);
        loop {
            if std::mem::take(&mut self.unread) && !self.receive(poll.registry())? {
                return Ok(());
            }
            self.publisher.tick(poll.registry());
            if let Some(relay) = &mut self.relay {
                relay.tick(poll.registry());
            }
            if self.report().is_err() || self.wait_for_room().is_err() {
                return Ok(());
            }
            if self.attribution_is_gone.get() {
                return Err(Error::new(Code::State, "the process that looks into the sandbox is gone"));
            }
            match poll.poll(&mut events, self.patience()) {
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                other => other.map_err(|e| Error::system("wait for events", e))?,
            }
            for event in &events {
                match event.token() {
                    SUPERVISOR => self.unread = true,
                    REPORTS => {}
                    _ if self.publisher.ready(poll.registry(), event) => {}
                    _ => _ = self.relay.as_mut().is_some_and(|relay| relay.ready(poll.registry(), event)),
                }
            }
            if self.settling == Settling::Begun && !self.unread {
                self.settling = Settling::Received;
            }
        }
    }

    /// How long the loop may wait at most.
    fn patience(&self) -> Option<Duration> {
        if self.unread || self.settling == Settling::Begun {
            return Some(Duration::ZERO);
        }
        let relay = self.relay.as_ref().and_then(Relay::patience);
        relay.into_iter().chain(self.publisher.patience()).min()
    }

    /// Does what the supervisor says; false when it is gone.
    fn receive(&mut self, registry: &Registry) -> Result<bool> {
        if self.supervisor.flush().is_err() {
            return Ok(false);
        }
        for _ in 0..MESSAGES {
            match self.supervisor.receive() {
                Received::Message(message, beside) => self.take(registry, message, beside)?,
                Received::Nothing => return Ok(true),
                Received::Over => return Ok(false),
            }
        }
        self.unread = true;
        Ok(true)
    }

    fn take(&mut self, registry: &Registry, message: Down, beside: Option<OwnedFd>) -> Result<()> {
        match (message, beside, &mut self.relay) {
            (Down::Publish(published), Some(socket), relay) => {
                relay.iter_mut().for_each(|relay| relay.publishes(published.to));
                self.publisher.publish(registry, published, socket)?;
            }
            (Down::Socket(family, None), Some(socket), _) => {
                self.publisher.supply(registry, family, Ok(socket))
            }
            (Down::Socket(family, errno), _, _) => {
                let errno = errno.map_or(Errno::EMFILE, Errno::from_raw);
                self.publisher.supply(registry, family, Err(errno));
            }
            (Down::Settle, ..) => self.settling = Settling::Begun,
            (Down::Account, _, relay) => {
                let (stand, rows) = relay.as_ref().map(Relay::account).unwrap_or_default();
                // The last message may have no rows.
                for rows in rows.chunks(AT_ONCE) {
                    self.send(&Up::Account(stand, rows.to_vec(), false))?;
                }
                self.send(&Up::Account(stand, Vec::new(), true))?;
            }
            (Down::Rules(some), _, Some(relay)) => match some.add_to(&mut self.rules) {
                Some(true) => relay.change(registry, std::mem::take(&mut self.rules)),
                Some(false) => {}
                None => return Err(Error::new(Code::Invalid, "the supervisor sends what is no rule")),
            },
            (Down::Hear(kind, port), Some(socket), Some(relay)) => {
                relay.hear(registry, kind, port, socket)?
            }
            (Down::Witness(family, answer), Some(socket), Some(relay)) => {
                relay.witness(registry, (family, answer), socket)?;
            }
            (Down::Listener, Some(listener), Some(relay)) => relay.answer_for(listener),
            (Down::MayAsk, _, Some(relay)) => relay.may_ask(),
            (Down::Consent(host), _, Some(relay)) => {
                host.parse().into_iter().for_each(|to| relay.consent(to))
            }
            (Down::Answer { number, withheld, keep }, _, Some(relay)) => {
                let consent = withheld.map_or(Consent::Given, Consent::Withheld);
                relay.answer(registry, number, &consent, keep);
            }
            _ => {}
        }
        Ok(())
    }

    fn send(&mut self, message: &Up) -> Result<()> {
        let sent = self.supervisor.send(message, None);
        sent.map_err(|e| Error::system("report to the supervisor", e.desc()))
    }

    /// Reports what the supervisor is to know.
    fn report(&mut self) -> Result<(), Errno> {
        let channel = &mut self.supervisor;
        self.publisher.ask(|family| channel.send(&Up::Wanted(family), None).is_ok());
        for unanswered in self.publisher.unanswered() {
            channel.send(&Up::Unanswered(unanswered), None)?;
        }
        let mut has_unsent = self.publisher.has_unsent();
        if let Some(relay) = &mut self.relay {
            for question in relay.questions() {
                channel.send(&as_message(question), None)?;
            }
            for refusal in relay.refusals() {
                channel.send(&Up::Refused(refusal.into()), None)?;
            }
            has_unsent |= relay.has_unsent();
        }
        if self.settling == Settling::Received && !has_unsent {
            self.settling = Settling::No;
            channel.send(&Up::Settled, None)?;
        }
        Ok(())
    }

    /// A supervisor that does not read, as one that is stopped, has no more reported, and nothing relayed.
    fn wait_for_room(&mut self) -> Result<(), Errno> {
        while self.supervisor.is_full() {
            let mut fds = [PollFd::new(self.supervisor.as_fd(), PollFlags::POLLOUT)];
            poll(&mut fds, PollTimeout::NONE)?;
            self.supervisor.flush()?;
        }
        Ok(())
    }
}

fn as_message(question: Question) -> Up {
    match question {
        Question::Asked { number, to, program } => Up::Asked { number, to: to.to_string(), program },
        Question::Withdrawn { number } => Up::Withdrawn(number),
    }
}

fn watch(registry: &Registry, fd: RawFd, token: Token, interest: Interest) -> Result<()> {
    registry.register(&mut SourceFd(&fd), token, interest).map_err(|e| Error::system("watch a descriptor", e))
}

/// How many descriptors there may be: every connection takes two, so it is as many as the host lets this process have.
pub(super) fn descriptors() -> usize {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return 0 };
    let most = if setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() { hard } else { soft };
    usize::try_from(most.saturating_sub(OTHERS)).unwrap_or(usize::MAX)
}
