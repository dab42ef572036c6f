//! `saggar session send`: the terminal as a client of a bridge that somebody else serves.

use super::console::{CONSOLE, Console, Progress};
use super::{SIGNALS, Show};
use crate::error::{Error, Result};
use crate::supervise::sandbox::register;
use crate::supervise::signals;
use mio::{Events, Poll};
use nix::sys::signal::Signal;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

/// What a turn has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turned {
    /// It is complete.
    Done,
    /// It was interrupted, or left alone, because of this signal.
    Signal(i32),
    /// It failed, and why.
    Failed(String),
}

/// Says one prompt on a connection and prints what comes back. SIGINT interrupts the turn; a second one, and every
/// other signal that ends a program, leaves it to itself.
///
/// # Errors
/// [`crate::error::Code::System`].
pub fn turn(stream: UnixStream, prompt: &str, session: &str, show: Show) -> Result<Turned> {
    let mut poll = Poll::new().map_err(|e| Error::system("make an event loop", e))?;
    let signals = signals::open()?;
    register(poll.registry(), signals.as_fd(), SIGNALS)?;
    stream.set_nonblocking(true).map_err(|e| Error::system("speak to the bridge", e))?;
    let stream = mio::net::UnixStream::from_std(stream);
    let mut console = Console::over(stream, prompt, session, show, poll.registry())?;
    let mut events = Events::with_capacity(8);
    let mut interrupted = false;
    loop {
        let wait = console.tick();
        match poll.poll(&mut events, wait) {
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            other => other.map_err(|e| Error::system("wait for events", e))?,
        }
        while let Some((signal, _)) = signals::next(&signals) {
            match signal {
                Signal::SIGINT if !interrupted => {
                    interrupted = true;
                    console.interrupt();
                }
                Signal::SIGINT | Signal::SIGTERM | Signal::SIGHUP | Signal::SIGQUIT => {
                    return Ok(Turned::Signal(signal as i32));
                }
                Signal::SIGTSTP => drop(nix::sys::signal::raise(Signal::SIGSTOP)),
                _ => {}
            }
        }
        if events.iter().any(|event| event.token() == CONSOLE) {
            match console.ready(poll.registry())? {
                Progress::Going => {}
                _ if interrupted => return Ok(Turned::Signal(Signal::SIGINT as i32)),
                Progress::Done => return Ok(Turned::Done),
                Progress::Failed(why) => return Ok(Turned::Failed(why)),
            }
        }
    }
}
