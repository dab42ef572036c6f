//! The process that relays a network, seen from the supervisor: it gets its rules and the sockets that pid 1 made, and
//! says what it wants, what it asks and what it refused.
//!
//! ```text
//! Process::start ── rules, sockets ──> relays ── dies, or sends what is no message ──> ended: calls are refused
//! ```
//! It is not started again: what programs believe of addresses that stand for names was in its memory, and a hostile
//! program that can end it could try again and again.

use crate::egress::io::publish::Unanswered;
use crate::egress::io::{Counted, Question, Refusal};
use crate::error::{Error, Result};
use crate::launch::socket_pair;
use crate::relay::ENTRY;
use crate::relay::channel::{Channel, Received};
use crate::relay::wire::{Down, Start, Up};
use crate::spec::policy::hosts::Destination;
use crate::sys::net::Family;
use crate::sys::pidfd;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{Shutdown, shutdown};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The token of its socket.
const RELAY: Token = Token(1 << 38);
/// How long it may take to end, in milliseconds, and to give an account.
const ENDS_WITHIN: u16 = 1000;
const COUNTS_WITHIN: Duration = Duration::from_millis(500);
/// Messages that are received in one round of the loop.
const AT_ONCE: usize = 64;
/// What it may want or ask at once; more makes no sense.
const MOST: usize = 256;
/// Rows of an account: more than a relay counts apart.
const ROWS: usize = 1024;

/// What it has reported since it was last looked at.
#[derive(Debug, Default)]
pub(super) struct Reports {
    /// What programs did not get.
    pub(super) refusals: Vec<Refusal>,
    /// Calls to published ports that no server inside has taken.
    pub(super) unanswered: Vec<Unanswered>,
}

/// The process; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    pidfd: OwnedFd,
    channel: Channel,
    reports: Reports,
    questions: Vec<Question>,
    /// Those that are not answered.
    open: BTreeMap<u64, Destination>,
    wanted: Vec<Family>,
    account: (usize, Vec<Counted>),
    /// The account is being received.
    counting: bool,
    has_settled: bool,
    /// There may be more to receive, though no event says so.
    unread: bool,
    /// Why it is given up.
    over: Option<String>,
}

impl Process {
    /// Starts it, with what it is to do. Whatever is sent waits for it: pid 1 is at work
    /// meanwhile.
    ///
    /// # Errors
    /// [`crate::error::Code::System`].
    pub(super) fn start(start: &Start, registry: &Registry) -> Result<Self> {
        let of_init =
            pidfd::open(start.init).map_err(|e| Error::system("open a pidfd of pid 1", e.desc()))?;
        let (socket, theirs) = socket_pair()?;
        let child = command(theirs).spawn().map_err(|e| Error::system("start the relay", e))?;
        let pidfd = pidfd::open(child.id().cast_signed())
            .map_err(|e| Error::system("open a pidfd of the relay", e.desc()))?;
        let mut it = Process {
            child,
            pidfd,
            channel: Channel::new(socket)?,
            reports: Reports::default(),
            questions: Vec::new(),
            open: BTreeMap::new(),
            wanted: Vec::new(),
            account: (0, Vec::new()),
            counting: false,
            has_settled: false,
            unread: false,
            over: None,
        };
        it.channel
            .send(start, Some(of_init))
            .map_err(|e| Error::system("send the relay what it is to do", e.desc()))?;
        let both = Interest::READABLE | Interest::WRITABLE;
        registry
            .register(&mut SourceFd(&it.channel.as_fd().as_raw_fd()), RELAY, both)
            .map_err(|e| Error::system("watch the relay", e))?;
        Ok(it)
    }

    /// Sends a message.
    pub(super) fn send(&mut self, message: &Down, beside: Option<OwnedFd>) {
        if self.channel.send(message, beside).is_err() || self.channel.is_full() {
            self.over.get_or_insert_with(|| "its process does not listen".into());
        }
    }

    /// Handles an event; false when the token is another's.
    pub(super) fn ready(&mut self, token: Token) -> bool {
        self.unread |= token == RELAY;
        token == RELAY
    }

    /// Whether there is something to receive.
    pub(super) fn has_more(&self) -> bool {
        self.unread || self.over.is_some()
    }

    /// Takes in what it says; false when it is over.
    pub(super) fn receive(&mut self) -> bool {
        if !std::mem::take(&mut self.unread) {
            return self.over.is_none();
        }
        // A relay that is gone may have said why before.
        let _ = self.channel.flush();
        for _ in 0..AT_ONCE {
            if !self.receive_one() {
                return self.over.is_none();
            }
        }
        self.unread = true;
        self.over.is_none()
    }

    /// Takes in one message; false when there is none.
    fn receive_one(&mut self) -> bool {
        match self.channel.receive() {
            Received::Message(message, _) => self.take(message),
            Received::Nothing => return false,
            Received::Over => {
                self.over.get_or_insert_with(|| "its process has died".into());
                return false;
            }
        }
        true
    }

    fn take(&mut self, message: Up) {
        match message {
            Up::Failed(error) => self.over = Some(error.to_string()),
            Up::Asked { number, to, program } => {
                if let Ok(to) = to.parse::<Destination>()
                    && self.open.len() < MOST
                {
                    self.open.insert(number, to.clone());
                    self.questions.push(Question::Asked { number, to, program });
                }
            }
            Up::Withdrawn(number) => {
                if self.open.remove(&number).is_some() {
                    self.questions.push(Question::Withdrawn { number });
                }
            }
            Up::Refused(refused) => self.reports.refusals.push(refused.into()),
            Up::Unanswered(unanswered) => self.reports.unanswered.push(unanswered),
            Up::Wanted(family) if self.wanted.len() < MOST => self.wanted.push(family),
            Up::Wanted(_) => {}
            Up::Account(stand, rows, is_last) if self.account.1.len() <= ROWS => {
                self.account.0 = stand;
                self.account.1.extend(rows);
                self.counting &= !is_last;
            }
            Up::Account(..) => self.counting = false,
            Up::Settled => self.has_settled = true,
        }
    }

    /// What it has reported since the last call.
    pub(super) fn reports(&mut self) -> Reports {
        std::mem::take(&mut self.reports)
    }

    /// What is to be asked, and no longer, since the last call.
    pub(super) fn questions(&mut self) -> Vec<Question> {
        std::mem::take(&mut self.questions)
    }

    /// A question has its answer; whom it was about.
    pub(super) fn close_question(&mut self, number: u64) -> Option<Destination> {
        self.open.remove(&number)
    }

    /// Asks for the sockets that it wants; `ask` says whether it could be asked.
    pub(super) fn wanted(&mut self, mut ask: impl FnMut(Family) -> bool) {
        self.wanted.retain(|family| !ask(*family));
    }

    /// Whether all that programs sent is where it was sent to.
    pub(super) fn has_settled(&self) -> bool {
        self.has_settled
    }

    /// How many connections stand, and what was done for each host: as it is now, or as far as it comes in time.
    pub(super) fn account(&mut self) -> (usize, Vec<Counted>) {
        self.account = (0, Vec::new());
        self.counting = true;
        self.send(&Down::Account, None);
        let until = Instant::now() + COUNTS_WITHIN;
        while self.counting && self.over.is_none() {
            if self.receive_one() {
                continue;
            }
            let left = until.saturating_duration_since(Instant::now());
            let Ok(left) = PollTimeout::try_from(left) else { break };
            let mut fds = [PollFd::new(self.channel.as_fd(), PollFlags::POLLIN)];
            if poll(&mut fds, left) == Ok(0) {
                break;
            }
        }
        std::mem::take(&mut self.account)
    }

    /// Gives it up; what there is to tell of that.
    pub(super) fn end(self, registry: &Registry) -> String {
        let _ = registry.deregister(&mut SourceFd(&self.channel.as_fd().as_raw_fd()));
        let why = self.over.as_deref().unwrap_or("it is not needed any more");
        format!("network: nothing is relayed any more: {why}")
    }
}

impl Drop for Process {
    /// It ends by itself when its socket does, and a supervisor of another id may not kill it.
    fn drop(&mut self) {
        let _ = shutdown(self.channel.as_fd().as_raw_fd(), Shutdown::Both);
        if pidfd::wait_end(self.pidfd.as_fd(), ENDS_WITHIN) {
            let _ = self.child.wait();
        }
    }
}

/// The program of the relay, with its end of the socket.
fn command(socket: OwnedFd) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("saggar").arg(ENTRY).env_clear().current_dir("/");
    command.stdin(Stdio::from(socket)).stdout(Stdio::null()).stderr(Stdio::null());
    // What the terminal sends to the program is not meant for it.
    command.process_group(0);
    command
}
