//! A supervisor that outlives its creator.
//!
//! ```text
//!  creator ── forks, before anything is made ──> supervisor: a session (setsid(2)) of its own,
//!      │                                             /dev/null as its standard streams
//!      └──<── "R", or the error as JSON ── pipe ──<──────┘
//! ```
//! Nothing is executed again: the supervisor is a copy of its creator, which had one thread and nothing open.

use crate::app::agent::{self, AgentRequest, DetachedStart};
use crate::error::{Code, Error, Result};
use crate::session::record::SessionOptions;
use crate::sys::pidfd;
use crate::sys::spawn;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout, pipe2, setsid};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// The most that a supervisor has to say of its failure.
const MAX_ERROR: u64 = 64 << 10;

/// Starts a supervisor; its bridge listens and its agent runs when this returns.
///
/// # Errors
/// What kept it from that; then nothing is left of it.
pub(super) fn start(request: AgentRequest, options: SessionOptions) -> Result<()> {
    let fail = |e: nix::Error| Error::system("start a supervisor", e);
    let (read, write) = pipe2(OFlag::O_CLOEXEC).map_err(fail)?;
    let child = || supervise(request, options, &write);
    let (_, process) = spawn::fork_keeping(&[write.as_fd()], child).map_err(fail)?;
    drop(write);
    let mut output = Vec::new();
    let mut report = File::from(read).take(MAX_ERROR);
    let mut first = [0];
    // One that is ready goes on, and closes its end; one that is not says why, and ends.
    while report.read(&mut first).map_err(|e| Error::system("receive from the supervisor", e))? == 1 {
        if output.is_empty() && first == *b"R" {
            return Ok(());
        }
        output.push(first[0]);
        report.read_to_end(&mut output).map_err(|e| Error::system("receive from the supervisor", e))?;
    }
    let _ = pidfd::reap(process.as_fd());
    Err(serde_json::from_slice(&output)
        .unwrap_or_else(|_| Error::new(Code::System, "the supervisor was killed before it was ready")))
}

/// The life of the supervisor; its exit status is nobody's business.
fn supervise(request: AgentRequest, options: SessionOptions, report: &OwnedFd) -> i32 {
    let ready = report.try_clone().map(File::from);
    let (Ok(ready), Ok(mut words)) = (ready, report.try_clone().map(File::from)) else { return 125 };
    // It is not dropped here: this process ends without that.
    let _ = nix::unistd::close(report.as_raw_fd());
    let served = leave_caller(&options).and_then(|()| serve(request, DetachedStart { ready, options }));
    match served {
        Ok(_) => 0,
        Err(error) => {
            let _ = words.write_all(&serde_json::to_vec(&error).unwrap_or_default());
            1
        }
    }
}

fn serve(request: AgentRequest, detached: DetachedStart) -> Result<u8> {
    agent::check_detached(request, detached)?.open()?.prepare()?.supervise().status
}

/// Leaves the terminal and the streams of the caller.
fn leave_caller(options: &SessionOptions) -> Result<()> {
    let fail = |e: nix::Error| Error::system("leave the caller's terminal", e);
    setsid().map_err(fail)?;
    let null = open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty())
        .map_err(|e| Error::system("open /dev/null", e))?;
    dup2_stdin(&null).map_err(fail)?;
    dup2_stdout(&null).map_err(fail)?;
    dup2_stderr(&null).map_err(fail)?;
    std::env::set_current_dir(&options.directory)
        .map_err(|e| Error::system(format_args!("go to {}", options.directory.display()), e))
}
