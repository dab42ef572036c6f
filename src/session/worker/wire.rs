//! What a worker sends to the verb that started it: JSON objects, each after its length in four bytes.

use super::Confinement;
use crate::error::{Code, Error, Result};
use crate::sys::{Errno, pidfd};
use log::Level;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::sys::wait::WaitStatus;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

/// The most that one worker sends, in bytes: a manifest of 200 000 names, or a long patch.
const MOST: usize = 256 << 20;
/// How much is read at once.
const PIECE: usize = 64 << 10;

#[derive(Debug, Serialize, Deserialize)]
enum Message<T> {
    /// An entry of the log: its level and its text.
    Log(String, String),
    /// Text that the verb passes on.
    Output(String),
    /// The result.
    Done(T),
    /// The error that ended the work.
    Failed(Error),
}

/// The worker's end.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    pipe: BorrowedFd<'static>,
}

impl Output {
    pub(super) fn new(pipe: BorrowedFd<'static>) -> Self {
        Output { pipe }
    }

    /// From now on the log of this process goes to the verb.
    pub(super) fn take_log(self) {
        crate::log::relay(Box::new(move |level, text| {
            let _ = self.send(&Message::<()>::Log(level.to_string(), text.to_owned()));
        }));
    }

    /// Passes text on to the verb.
    ///
    /// # Errors
    /// [`Code::System`] when the verb does not read it any more.
    pub fn write(&self, text: &str) -> Result<()> {
        self.send(&Message::<()>::Output(text.to_owned())).map_err(|e| Error::system("send the output", e))
    }

    /// Sends the result; the exit status of the worker.
    pub(super) fn finish<T: Serialize>(self, done: Result<T>) -> u8 {
        let message = done.map_or_else(Message::Failed, Message::Done);
        self.send(&message).map_or(1, |()| 0)
    }

    fn send<T: Serialize>(self, message: &Message<T>) -> io::Result<()> {
        let mut frame = vec![0; 4];
        serde_json::to_writer(&mut frame, message)?;
        let length = u32::try_from(frame.len() - 4).map_err(|_| io::ErrorKind::FileTooLarge)?;
        frame[..4].copy_from_slice(&length.to_ne_bytes());
        crate::sys::file::write_all(self.pipe, &frame).map_err(io::Error::from)
    }
}

/// The verb's end: everything that the worker behind `pidfd` sends, until its end, and its result.
pub(super) fn receive<T: DeserializeOwned>(
    confinement: &Confinement<'_>,
    pipe: File,
    pidfd: BorrowedFd<'_>,
    pass_on: impl FnMut(&str) -> Result<()>,
) -> Result<T> {
    let until = Instant::now() + confinement.limits.time;
    let received = Receiver { pipe, until, buffer: Vec::new(), total: 0 }.result(confinement, pass_on);
    // One that has sent its result has nothing left to do; one that is at fault is to do nothing more.
    let _ = pidfd::signal(pidfd, libc::SIGKILL);
    let ended = pidfd::reap(pidfd);
    received?.unwrap_or_else(|| Err(died(confinement, ended)))
}

/// Why there is no result.
fn died(confinement: &Confinement<'_>, ended: Result<WaitStatus, Errno>) -> Error {
    let task = confinement.task;
    match ended {
        Ok(WaitStatus::Signaled(_, Signal::SIGXCPU, _)) => {
            let most = confinement.limits.cpu;
            Error::new(Code::Invalid, format!("{task}: it takes more than {most} s of processor time"))
                .hint(SMALLER)
        }
        Ok(WaitStatus::Signaled(_, signal, _)) => {
            Error::new(Code::System, format!("{task}: the worker was ended by {signal}"))
        }
        Ok(_) => Error::new(Code::System, format!("{task}: the worker ended without a result"))
            .hint("it may have needed more memory than a worker gets: name fewer paths"),
        Err(errno) => Error::system(format_args!("{task}: wait for the worker"), errno.desc()),
    }
}

/// What to do when a limit of a worker is exceeded.
const SMALLER: &str = "do it in parts: name fewer paths, or make the tree smaller";

struct Receiver {
    pipe: File,
    until: Instant,
    buffer: Vec<u8>,
    total: usize,
}

impl Receiver {
    /// The result; `None` when the worker has ended without one.
    fn result<T: DeserializeOwned>(
        mut self,
        confinement: &Confinement<'_>,
        mut pass_on: impl FnMut(&str) -> Result<()>,
    ) -> Result<Option<Result<T>>> {
        let task = confinement.task;
        loop {
            match self.next().map_err(|e| Error::system(format_args!("{task}: read the result"), e))? {
                Next::Message(Message::Log(level, text)) => {
                    log::log!(level.parse().unwrap_or(Level::Warn), "{text}");
                }
                Next::Message(Message::Output(text)) => pass_on(&text)?,
                Next::Message(Message::Done(result)) => return Ok(Some(Ok(result))),
                Next::Message(Message::Failed(error)) => return Ok(Some(Err(error))),
                Next::End => return Ok(None),
                Next::TooMuch => {
                    let message = format!("{task}: the result is larger than {} MiB", MOST >> 20);
                    return Err(Error::new(Code::Invalid, message).hint(SMALLER));
                }
                Next::TooLate => {
                    let seconds = confinement.limits.time.as_secs();
                    let message = format!("{task}: it takes more than {seconds} s");
                    return Err(Error::new(Code::Invalid, message).hint(SMALLER));
                }
            }
        }
    }

    fn next<T: DeserializeOwned>(&mut self) -> io::Result<Next<T>> {
        loop {
            if let Some((length, rest)) = self.buffer.split_first_chunk::<4>() {
                let length = usize::try_from(u32::from_ne_bytes(*length)).unwrap_or(usize::MAX);
                if length > MOST {
                    return Ok(Next::TooMuch);
                }
                if let Some(message) = rest.get(..length) {
                    let message = serde_json::from_slice(message)?;
                    self.buffer.drain(..4 + length);
                    return Ok(Next::Message(message));
                }
            }
            if self.total > MOST {
                return Ok(Next::TooMuch);
            }
            if !self.wait()? {
                return Ok(Next::TooLate);
            }
            let length = self.buffer.len();
            self.buffer.resize(length + PIECE, 0);
            let count = match self.pipe.read(&mut self.buffer[length..]) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => 0,
                Ok(0) => return Ok(Next::End),
                other => other?,
            };
            self.buffer.truncate(length + count);
            self.total += count;
        }
    }

    /// Waits until there is something to read; false when the time is over.
    fn wait(&self) -> io::Result<bool> {
        loop {
            let left = self.until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            // Never longer than a minute: the argument has milliseconds in an int.
            let left = PollTimeout::try_from(left.min(std::time::Duration::from_secs(60)));
            let mut fds = [PollFd::new(self.pipe.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, left.unwrap_or(PollTimeout::ZERO)) {
                Err(Errno::EINTR) | Ok(0) => {}
                other => return Ok(other? > 0),
            }
        }
    }
}

enum Next<T> {
    Message(Message<T>),
    End,
    TooMuch,
    TooLate,
}
