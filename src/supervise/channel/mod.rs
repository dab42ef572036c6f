//! What the loops of agents and of containers share: the hub with its servers on one side, and the streams of the
//! program on the other.

pub(super) mod agent_process;
pub(super) mod control;
pub(super) mod execs;
#[cfg_attr(not(test), deny(clippy::disallowed_methods))]
pub(super) mod file_calls;

use crate::bridge::core::{AgentExitStatus, Bridge};
use crate::bridge::io::ConnectionHub;
use crate::bridge::proto::LogLevel;
use crate::error::{Error, Result};
use agent_process::{AgentProcess, ReadResult};
use mio::{Events, Poll, Registry};
use std::time::{Duration, Instant};

/// Bytes per read.
const READ_SIZE: usize = 64 << 10;
/// Longest time to send the bridge's last messages, and the interval of the checks for their end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
const CLOSE_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A program and its servers.
pub(super) struct AgentChannel {
    pub(super) poll: Poll,
    pub(super) hub: ConnectionHub,
    /// The program, until its exit has been reported.
    pub(super) agent: Option<AgentProcess>,
    pub(super) chunk: Box<[u8]>,
    started: Instant,
}

/// The exit of a program whose output has been read to the end.
pub(super) struct AgentExit {
    pub(super) exit: AgentExitStatus,
    /// It exited without reading all of its input.
    pub(super) unread_input: bool,
}

impl AgentChannel {
    pub(super) fn new(poll: Poll, hub: ConnectionHub, agent: Option<AgentProcess>) -> Self {
        AgentChannel {
            poll,
            hub,
            agent,
            chunk: vec![0; READ_SIZE].into_boxed_slice(),
            started: Instant::now(),
        }
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Updates the clock of the hub.
    pub(super) fn tick(&mut self) {
        self.hub.tick(self.now());
    }

    /// Longest time that the hub may wait.
    pub(super) fn poll_timeout(&self) -> Option<Duration> {
        self.hub.next_deadline().map(|at| at.saturating_sub(self.now()))
    }

    /// Waits for events, at most `most`, and updates the clock of the hub.
    pub(super) fn wait(&mut self, events: &mut Events, most: Option<Duration>) -> Result<()> {
        match self.poll.poll(events, most) {
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            other => other.map_err(|e| Error::system("wait for events", e))?,
        }
        self.tick();
        Ok(())
    }

    /// Reads the program's output while the core wants it. When the process has exited and all of its output is read,
    /// closes its streams and returns the exit, which the caller reports to the core; a descendant that keeps the
    /// stream open does not delay that.
    pub(super) fn read_agent(&mut self) -> Option<AgentExit> {
        let mut share = AgentProcess::read_budget();
        while self.hub.core().wants_agent_output() && share > 0 {
            match self.agent.as_mut()?.read_output(self.poll.registry(), &mut self.chunk) {
                ReadResult::Some(count) => {
                    share = share.saturating_sub(count);
                    let bytes = &self.chunk[..count];
                    self.hub.with_bridge(|bridge| bridge.agent_output(bytes));
                }
                ReadResult::WouldBlock | ReadResult::End | ReadResult::Reset => {
                    let agent = self.agent.take_if(|agent| agent.exit.is_some())?;
                    let over =
                        AgentExit { exit: agent.exit.clone()?, unread_input: agent.has_unread_input() };
                    agent.close(self.poll.registry());
                    return Some(over);
                }
            }
        }
        if share == 0
            && let Some(agent) = &self.agent
        {
            agent.rearm_output(self.poll.registry());
        }
        None
    }

    /// Queues input for the program, and writes what the stream has room for.
    pub(super) fn send(&mut self, bytes: Vec<u8>) {
        if let Some(agent) = &mut self.agent {
            agent.queue(bytes);
        }
        self.write_agent();
    }

    /// Writes queued input of the program.
    pub(super) fn write_agent(&mut self) {
        if let Some(agent) = self.agent.as_mut().filter(|agent| agent.is_connected()) {
            let written = agent.write(self.poll.registry());
            if written > 0 {
                self.hub.with_bridge(|bridge| bridge.agent_input_written(written));
            }
        }
    }

    /// Reports that the program could not be started or restarted, with the reason.
    pub(super) fn report_start_failure(&mut self, why: String) {
        let exit = AgentExitStatus::NotStarted(why);
        self.hub.with_bridge(|bridge: &mut Bridge| bridge.agent_exited(&exit));
    }

    /// The bridge is shut down and accepts no connections: sends its last messages, for at most [`CLOSE_TIMEOUT`], and
    /// returns no earlier than `busy` returns false.
    pub(super) fn flush_and_close(&mut self, mut busy: impl FnMut(&Registry) -> bool) {
        let until = Instant::now() + CLOSE_TIMEOUT;
        let mut events = Events::with_capacity(64);
        while busy(self.poll.registry()) || (!self.hub.is_drained() && Instant::now() < until) {
            let _ = self.poll.poll(&mut events, Some(CLOSE_POLL_INTERVAL));
            self.tick();
            for event in &events {
                if self.hub.owns_token(event.token()) {
                    self.hub.on_event(event);
                }
            }
        }
    }
}

/// Writes a message of the core to the supervisor's own log.
pub(super) fn log_bridge_message(level: LogLevel, text: &str) {
    let level = match level {
        LogLevel::Warn => log::Level::Warn,
        LogLevel::Info => log::Level::Info,
        LogLevel::Debug => log::Level::Debug,
    };
    log::log!(level, "{text}");
}
