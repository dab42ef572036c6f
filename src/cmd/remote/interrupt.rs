//! SIGINT during a turn interrupts the turn on the server. Otherwise, and the second time, it ends the program, as the
//! other signals of a terminal do.

use crate::error::{Error, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use saggar_remote::Connection;
use serde_json::json;
use std::os::fd::AsFd;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// No turn is running.
const IDLE: u8 = 0;
/// A turn is running.
const RUNNING: u8 = 1;
/// A turn is running, and was interrupted.
const INTERRUPTED: u8 = 2;

/// Waits for signals in a thread of its own, as long as the program runs.
#[derive(Debug)]
pub(super) struct InterruptWatch {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    server: Arc<Connection>,
    session: String,
    state: AtomicU8,
    /// Held while a prompt reads the terminal: it restores the terminal before a signal can end the program.
    prompt: Mutex<()>,
}

impl InterruptWatch {
    /// Blocks the signals and starts the thread. Call it before any other thread is started.
    pub(super) fn start(server: Arc<Connection>, session: String) -> Result<Self> {
        let fail = |errno| Error::system("wait for signals", errno);
        let signals: SigSet =
            [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT].into_iter().collect();
        signals.thread_block().map_err(fail)?;
        let received =
            SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map_err(fail)?;
        let shared = Arc::new(Shared { server, session, state: AtomicU8::new(IDLE), prompt: Mutex::new(()) });
        let watched = Arc::clone(&shared);
        std::thread::spawn(move || watched.handle(&received, signals));
        Ok(InterruptWatch { shared })
    }

    /// A turn begins.
    pub(super) fn begin(&self) {
        self.shared.state.store(RUNNING, SeqCst);
    }

    /// The server has the message. It may have received the interrupt before it.
    pub(super) fn repeat(&self) {
        if self.shared.state.load(SeqCst) == INTERRUPTED {
            send(&self.shared);
        }
    }

    /// The turn is over; true if it was interrupted.
    pub(super) fn finish(&self) -> bool {
        self.shared.state.swap(IDLE, SeqCst) == INTERRUPTED
    }

    /// Delays signals until the returned value is dropped. The prompt ends when it sees one.
    pub(super) fn hold_signals(&self) -> MutexGuard<'_, ()> {
        self.shared.prompt.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    fn handle(self: &Arc<Self>, received: &SignalFd, signals: SigSet) {
        loop {
            let mut polled = [PollFd::new(received.as_fd(), PollFlags::POLLIN)];
            let _ = poll(&mut polled, PollTimeout::NONE);
            let _no_prompt = self.prompt.lock().unwrap_or_else(PoisonError::into_inner);
            let Ok(Some(info)) = received.read_signal() else { continue };
            let signal = i32::try_from(info.ssi_signo).ok().and_then(|number| Signal::try_from(number).ok());
            let is_interrupt = signal == Some(Signal::SIGINT);
            if is_interrupt && self.state.compare_exchange(RUNNING, INTERRUPTED, SeqCst, SeqCst).is_ok() {
                send(self);
            } else if let Some(signal) = signal {
                // With its default action, as if it had not been blocked.
                let _ = signals.thread_unblock().and_then(|()| raise(signal));
                let _ = signals.thread_block();
            }
        }
    }
}

/// Interrupts the turn, in a thread of its own: a server that does not answer must not delay the next signal.
fn send(shared: &Arc<Shared>) {
    let shared = Arc::clone(shared);
    std::thread::spawn(move || {
        let path = ["api", "sessions", &shared.session, "interrupt"];
        if let Err(error) = shared.server.post(&path, &json!({})) {
            log::warn!("cannot interrupt the turn: {error}");
        }
    });
}
