//! What the loops beside an agent and beside a container share: the hub with its servers on one side, the
//! program's streams on the other.

pub(super) mod control;
pub(super) mod execs;
#[cfg_attr(not(test), deny(clippy::disallowed_methods))]
pub(super) mod files;
pub(super) mod process;

use crate::bridge::core::{Bridge, Exit};
use crate::bridge::io::Hub;
use crate::bridge::proto::LogLevel;
use crate::error::{Error, Result};
use mio::{Events, Poll, Registry};
use process::{Process, Read1};
use std::time::{Duration, Instant, SystemTime};

/// The size of one read.
const CHUNK: usize = 64 << 10;
/// How long the last words of the bridge may take, and how often it is looked whether they are said.
const LAST_WORDS: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A program and its servers.
pub(super) struct Talk {
    pub(super) poll: Poll,
    pub(super) hub: Hub,
    /// The program, until its end is told.
    pub(super) agent: Option<Process>,
    pub(super) chunk: Box<[u8]>,
    started: Instant,
}

/// How a program ended that has been heard to its end.
pub(super) struct Over {
    pub(super) exit: Exit,
    /// It had not read all that was written to it.
    pub(super) left_input: bool,
}

impl Talk {
    pub(super) fn new(poll: Poll, hub: Hub, agent: Option<Process>) -> Self {
        Talk { poll, hub, agent, chunk: vec![0; CHUNK].into_boxed_slice(), started: Instant::now() }
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Tells the hub the time.
    pub(super) fn tick(&mut self) {
        self.hub.tick(self.now());
    }

    /// How long the hub can wait.
    pub(super) fn patience(&self) -> Option<Duration> {
        self.hub.next_deadline().map(|at| at.saturating_sub(self.now()))
    }

    /// Waits for events, at most so long, and tells the hub the time.
    pub(super) fn wait(&mut self, events: &mut Events, most: Option<Duration>) -> Result<()> {
        match self.poll.poll(events, most) {
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            other => other.map_err(|e| Error::system("wait for events", e))?,
        }
        self.tick();
        Ok(())
    }

    /// Reads what the program says, as long as the core wants it. When the process is gone and all of it is
    /// read, its streams are closed, and the caller tells the core of the end; a descendant that keeps the
    /// stream open does not hold that up.
    pub(super) fn read_agent(&mut self) -> Option<Over> {
        let mut share = Process::share();
        while self.hub.state().wants_agent_output() && share > 0 {
            match self.agent.as_mut()?.read_output(self.poll.registry(), &mut self.chunk) {
                Read1::Some(count) => {
                    share = share.saturating_sub(count);
                    let bytes = &self.chunk[..count];
                    self.hub.bridge(|bridge| bridge.agent_output(bytes));
                }
                Read1::Nothing | Read1::End | Read1::Reset => {
                    let agent = self.agent.take_if(|agent| agent.exit.is_some())?;
                    let over = Over { exit: agent.exit.clone()?, left_input: agent.left_input() };
                    agent.close(self.poll.registry());
                    return Some(over);
                }
            }
        }
        if share == 0
            && let Some(agent) = &self.agent
        {
            agent.look_again(self.poll.registry());
        }
        None
    }

    /// Queues bytes for the program, and writes what it takes of them now.
    pub(super) fn say(&mut self, bytes: Vec<u8>) {
        if let Some(agent) = &mut self.agent {
            agent.push(bytes);
        }
        self.write_agent();
    }

    /// Writes what is queued for the program.
    pub(super) fn write_agent(&mut self) {
        if let Some(agent) = self.agent.as_mut().filter(|agent| agent.is_connected()) {
            let written = agent.write(self.poll.registry());
            if written > 0 {
                self.hub.bridge(|bridge| bridge.agent_input_written(written));
            }
        }
    }

    /// The program is not to be had (again), for this reason.
    pub(super) fn not_started(&mut self, why: String) {
        let exit = Exit::NotStarted(why);
        self.hub.bridge(|bridge: &mut Bridge| bridge.agent_exited(&exit));
    }

    /// The bridge is over: nobody connects any more, and its last words go out, for a second at most; and for as
    /// long as the caller has something else to get rid of.
    pub(super) fn last_words(&mut self, mut busy: impl FnMut(&Registry) -> bool) {
        let until = Instant::now() + LAST_WORDS;
        let mut events = Events::with_capacity(64);
        while busy(self.poll.registry()) || (!self.hub.is_drained() && Instant::now() < until) {
            let _ = self.poll.poll(&mut events, Some(LOOK_EVERY));
            self.tick();
            for event in &events {
                if self.hub.owns(event.token()) {
                    self.hub.ready(event);
                }
            }
        }
    }
}

/// Milliseconds since 1970, which tell the ids of one bridge from those of the next.
pub(super) fn epoch_ms() -> u64 {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_1970.as_millis()).unwrap_or(0)
}

/// Writes what the core has to say to the supervisor's own log.
pub(super) fn log(level: LogLevel, text: &str) {
    let level = match level {
        LogLevel::Warn => log::Level::Warn,
        LogLevel::Info => log::Level::Info,
        LogLevel::Debug => log::Level::Debug,
    };
    log::log!(level, "{text}");
}
