//! The messages of a worker to the command that started it: JSON objects, each after its length in four bytes.

use super::Confinement;
use crate::error::{Code, Error, Result};
use crate::{Errno, pidfd};
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

/// Bytes per read.
const READ_SIZE: usize = 64 << 10;

#[derive(Debug, Serialize, Deserialize)]
enum WorkerMessage<T> {
    /// A log entry: its level and its text.
    Log(String, String),
    /// Text that the command forwards.
    Output(String),
    /// The result.
    Done(T),
    /// The error that ended the job.
    Failed(Error),
}

/// The worker's end.
#[derive(Debug, Clone, Copy)]
pub struct WorkerOutput {
    pipe: BorrowedFd<'static>,
}

impl WorkerOutput {
    pub(super) fn new(pipe: BorrowedFd<'static>) -> Self {
        WorkerOutput { pipe }
    }

    /// From now on log entries of this process are sent to the command.
    pub(super) fn redirect_log(self) {
        crate::log::relay(Box::new(move |level, text| {
            let _ = self.send(&WorkerMessage::<()>::Log(level.to_string(), text.to_owned()));
        }));
    }

    /// Sends text to the command.
    ///
    /// # Errors
    /// [`Code::System`] when the command does not read any more.
    pub fn write(&self, text: &str) -> Result<()> {
        self.send(&WorkerMessage::<()>::Output(text.to_owned()))
            .map_err(|e| Error::system("send the output", e))
    }

    /// Sends the result; returns the exit status of the worker.
    pub(super) fn finish<T: Serialize>(self, done: Result<T>) -> u8 {
        let message = done.map_or_else(WorkerMessage::Failed, WorkerMessage::Done);
        self.send(&message).map_or(1, |()| 0)
    }

    fn send<T: Serialize>(self, message: &WorkerMessage<T>) -> io::Result<()> {
        let mut frame = vec![0; 4];
        serde_json::to_writer(&mut frame, message)?;
        let length = u32::try_from(frame.len() - 4).map_err(|_| io::ErrorKind::FileTooLarge)?;
        frame[..4].copy_from_slice(&length.to_ne_bytes());
        crate::file::write_all(self.pipe, &frame).map_err(io::Error::from)
    }
}

/// The command's end: receives everything that the worker behind `pidfd` sends, until its end, and its result.
pub(super) fn receive_output<T: DeserializeOwned>(
    confinement: &Confinement<'_>,
    pipe: File,
    pidfd: BorrowedFd<'_>,
    pass_on: impl FnMut(&str) -> Result<()>,
) -> Result<T> {
    let until = Instant::now() + confinement.limits.time;
    let most = confinement.limits.output_size;
    let received = OutputReceiver { pipe, deadline: until, max_bytes: most, buffer: Vec::new(), total: 0 }
        .receive_result(confinement, pass_on);
    // A worker that has sent its result has nothing left to do; one that has failed must not do anything more.
    let _ = pidfd::signal(pidfd, libc::SIGKILL);
    let ended = pidfd::reap(pidfd);
    received?.unwrap_or_else(|| Err(no_result_error(confinement, ended)))
}

/// The error for a missing result.
fn no_result_error(confinement: &Confinement<'_>, ended: Result<WaitStatus, Errno>) -> Error {
    let task = confinement.task;
    match ended {
        Ok(WaitStatus::Signaled(_, Signal::SIGXCPU, _)) => {
            let most = confinement.limits.cpu_seconds;
            Error::new(Code::Invalid, format!("{task}: it takes more than {most} s of processor time"))
                .hint(SMALLER_HINT)
        }
        Ok(WaitStatus::Signaled(_, Signal::SIGXFSZ, _)) => {
            let most = confinement.limits.file_size;
            Error::new(Code::Invalid, format!("{task}: a file that it writes is larger than {most} bytes"))
                .hint(SMALLER_HINT)
        }
        Ok(WaitStatus::Signaled(_, signal, _)) => {
            Error::new(Code::System, format!("{task}: the worker was ended by {signal}"))
        }
        Ok(_) => Error::new(Code::System, format!("{task}: the worker ended without a result"))
            .hint("it may have needed more memory than a worker gets: name fewer paths"),
        Err(errno) => Error::system(format_args!("{task}: wait for the worker"), errno.desc()),
    }
}

/// The hint when a worker exceeds a limit.
const SMALLER_HINT: &str = "do it in parts: name fewer paths, or make the tree smaller";

struct OutputReceiver {
    pipe: File,
    deadline: Instant,
    /// Most bytes that are accepted.
    max_bytes: usize,
    buffer: Vec<u8>,
    total: usize,
}

impl OutputReceiver {
    /// The result; `None` when the worker has exited without one.
    fn receive_result<T: DeserializeOwned>(
        mut self,
        confinement: &Confinement<'_>,
        mut pass_on: impl FnMut(&str) -> Result<()>,
    ) -> Result<Option<Result<T>>> {
        let task = confinement.task;
        loop {
            match self.next_frame().map_err(|e| Error::system(format_args!("{task}: read the result"), e))? {
                ReceivedFrame::Message(WorkerMessage::Log(level, text)) => {
                    log::log!(level.parse().unwrap_or(Level::Warn), "{text}");
                }
                ReceivedFrame::Message(WorkerMessage::Output(text)) => pass_on(&text)?,
                ReceivedFrame::Message(WorkerMessage::Done(result)) => return Ok(Some(Ok(result))),
                ReceivedFrame::Message(WorkerMessage::Failed(error)) => return Ok(Some(Err(error))),
                ReceivedFrame::End => return Ok(None),
                ReceivedFrame::SizeExceeded => {
                    let message = format!("{task}: the result is larger than {} MiB", self.max_bytes >> 20);
                    return Err(Error::new(Code::Invalid, message).hint(SMALLER_HINT));
                }
                ReceivedFrame::TimedOut => {
                    let seconds = confinement.limits.time.as_secs();
                    let message = format!("{task}: it takes more than {seconds} s");
                    return Err(Error::new(Code::Invalid, message).hint(SMALLER_HINT));
                }
            }
        }
    }

    fn next_frame<T: DeserializeOwned>(&mut self) -> io::Result<ReceivedFrame<T>> {
        loop {
            if let Some((length, rest)) = self.buffer.split_first_chunk::<4>() {
                let length = usize::try_from(u32::from_ne_bytes(*length)).unwrap_or(usize::MAX);
                if length > self.max_bytes {
                    return Ok(ReceivedFrame::SizeExceeded);
                }
                if let Some(message) = rest.get(..length) {
                    let message = serde_json::from_slice(message)?;
                    self.buffer.drain(..4 + length);
                    return Ok(ReceivedFrame::Message(message));
                }
            }
            if self.total > self.max_bytes {
                return Ok(ReceivedFrame::SizeExceeded);
            }
            if !self.wait_readable()? {
                return Ok(ReceivedFrame::TimedOut);
            }
            let length = self.buffer.len();
            self.buffer.resize(length + READ_SIZE, 0);
            let count = match self.pipe.read(&mut self.buffer[length..]) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => 0,
                Ok(0) => return Ok(ReceivedFrame::End),
                other => other?,
            };
            self.buffer.truncate(length + count);
            self.total += count;
        }
    }

    /// Waits until there is data to read; false when the time limit is over.
    fn wait_readable(&self) -> io::Result<bool> {
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            // At most a minute at a time: poll(2) takes milliseconds as an int.
            let left = PollTimeout::try_from(left.min(std::time::Duration::from_secs(60)));
            let mut fds = [PollFd::new(self.pipe.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, left.unwrap_or(PollTimeout::ZERO)) {
                Err(Errno::EINTR) | Ok(0) => {}
                other => return Ok(other? > 0),
            }
        }
    }
}

enum ReceivedFrame<T> {
    Message(WorkerMessage<T>),
    End,
    SizeExceeded,
    TimedOut,
}
