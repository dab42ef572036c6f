//! `saggar session send`: the terminal as a client of a bridge that another saggar process serves.

use super::console::{AgentConsole, CONSOLE_TOKEN, TurnProgress};
use super::{ConsoleFormat, SIGNALS};
use crate::error::{Error, Result};
use crate::supervise::registration::register;
use crate::supervise::signals;
use mio::{Events, Poll};
use nix::sys::signal::Signal;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The result of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnOutcome {
    /// The turn is complete.
    Done,
    /// This signal interrupted the turn, or made the client disconnect while the turn continues.
    Signal(i32),
    /// The turn failed, with the error message.
    Failed(String),
}

/// How often the caller of a turn does its own work meanwhile.
const MEANWHILE_INTERVAL: Duration = Duration::from_millis(100);

/// Sends one prompt on a connection and prints the response. SIGINT interrupts the turn. A second SIGINT, and every
/// other signal that ends a program, disconnects; the turn continues. `meanwhile` is called several times a second.
///
/// # Errors
/// [`crate::error::Code::System`], and those of `meanwhile`.
pub(crate) fn run_turn(
    stream: UnixStream,
    prompt: &str,
    session: &str,
    show: ConsoleFormat,
    mut meanwhile: Option<&mut dyn FnMut() -> Result<()>>,
) -> Result<TurnOutcome> {
    let mut poll = Poll::new().map_err(|e| Error::system("make an event loop", e))?;
    let signals = signals::open()?;
    register(poll.registry(), signals.as_fd(), SIGNALS)?;
    stream.set_nonblocking(true).map_err(|e| Error::system("connect to the bridge", e))?;
    let stream = mio::net::UnixStream::from_std(stream);
    let mut console = AgentConsole::on_stream(stream, prompt, session, show, poll.registry())?;
    let mut events = Events::with_capacity(8);
    let mut interrupted = false;
    loop {
        let interval = meanwhile.as_ref().map(|_| MEANWHILE_INTERVAL);
        let wait = console.tick().into_iter().chain(interval).min();
        match poll.poll(&mut events, wait) {
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            other => other.map_err(|e| Error::system("wait for events", e))?,
        }
        meanwhile.as_mut().map_or(Ok(()), |meanwhile| meanwhile())?;
        while let Some((signal, _)) = signals::read_next(&signals) {
            match signal {
                libc::SIGINT if !interrupted => {
                    interrupted = true;
                    console.interrupt();
                }
                libc::SIGTSTP => drop(nix::sys::signal::raise(Signal::SIGSTOP)),
                _ if signals::kills_by_default(signal) => return Ok(TurnOutcome::Signal(signal)),
                _ => {}
            }
        }
        if events.iter().any(|event| event.token() == CONSOLE_TOKEN) {
            match console.ready(poll.registry())? {
                TurnProgress::Running => {}
                _ if interrupted => return Ok(TurnOutcome::Signal(Signal::SIGINT as i32)),
                TurnProgress::Done => return Ok(TurnOutcome::Done),
                TurnProgress::Failed(why) => return Ok(TurnOutcome::Failed(why)),
            }
        }
    }
}
