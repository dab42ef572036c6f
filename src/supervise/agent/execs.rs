//! Shell commands that a server runs in the sandbox beside the agent (BP-21 to BP-24): their output is kept
//! up to a limit, and the whole tree of one can be killed.

use super::process::{Process, Read1, look_again, read, watched};
use crate::bridge::core::{ExecId, Outcome};
use crate::error::{Error, Result};
use crate::spec::Program;
use crate::supervise::sandbox::Ended;
use crate::supervise::tree;
use crate::sys::file::waiting;
use mio::{Registry, Token};
use nix::fcntl::OFlag;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

/// What is kept of one stream (BP-23); the rest is read and dropped, so that the command is not held up.
const OUTPUT_LIMIT: usize = 10 << 20;

/// The exit code of a command that was killed at its time limit (BP-22).
const TIMED_OUT: i32 = 124;

/// Tokens: two for each run.
const FIRST: usize = 1 << 19;

#[derive(Debug)]
struct Run {
    exec: ExecId,
    pid: i32,
    killed: bool,
    streams: [Option<File>; 2],
    kept: [Vec<u8>; 2],
    truncated: bool,
}

/// The runs that go on, by the sandbox's number.
#[derive(Debug)]
pub(in crate::supervise) struct Execs {
    runs: BTreeMap<u32, Run>,
    environment: Vec<(OsString, OsString)>,
    workspace: PathBuf,
}

impl Execs {
    pub(in crate::supervise) fn new(environment: Vec<(OsString, OsString)>, workspace: PathBuf) -> Self {
        Execs { runs: BTreeMap::new(), environment, workspace }
    }

    /// Starts `/bin/sh -c command`; `start` gives it a number.
    pub(in crate::supervise) fn run(
        &mut self,
        registry: &Registry,
        exec: ExecId,
        command: String,
        start: impl FnOnce(&Program, [BorrowedFd<'_>; 3]) -> Result<u32>,
    ) -> Result<()> {
        let fail = |e: nix::Error| Error::system("make the streams of a command", e);
        let null = File::open("/dev/null").map_err(|e| Error::system("open /dev/null", e))?;
        let (out_read, out) = nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(fail)?;
        let (err_read, err) = nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(fail)?;
        let program = Program {
            argv: ["/bin/sh".into(), "-c".into(), command.into()].into(),
            file: None,
            env: self.environment.clone(),
            cwd: self.workspace.clone(),
        };
        let streams = [null.as_fd(), out.as_fd(), err.as_fd()];
        let id = start(&program, streams)?;
        let token = |stream: usize| Token(FIRST + 2 * id as usize + stream);
        let streams =
            [Some(watched(out_read, registry, token(0))?), Some(watched(err_read, registry, token(1))?)];
        let run = Run { exec, pid: 0, killed: false, streams, kept: Default::default(), truncated: false };
        self.runs.insert(id, run);
        Ok(())
    }

    /// Its pid on the host is known.
    pub(in crate::supervise) fn waiting(&mut self, id: u32, pid: i32) {
        if let Some(run) = self.runs.get_mut(&id) {
            run.pid = pid;
            if run.killed {
                tree::kill(pid);
            }
        }
    }

    /// Kills a run with everything that it started; what it wrote is still told.
    pub(in crate::supervise) fn kill(&mut self, exec: ExecId) {
        if let Some(run) = self.runs.values_mut().find(|run| run.exec == exec) {
            run.killed = true;
            if run.pid != 0 {
                tree::kill(run.pid);
            }
        }
    }

    /// Handles an event; false when the token is somebody else's.
    pub(in crate::supervise) fn ready(
        &mut self,
        registry: &Registry,
        token: Token,
        chunk: &mut [u8],
    ) -> bool {
        let Some(number) = token.0.checked_sub(FIRST) else { return false };
        if let Some(run) = u32::try_from(number / 2).ok().and_then(|id| self.runs.get_mut(&id)) {
            let stream = number % 2;
            run.drain(stream, Process::share(), registry, chunk);
            if let Some(file) = &run.streams[stream] {
                look_again(file, registry, token);
            }
        }
        true
    }

    /// A run has ended: what it came to.
    pub(in crate::supervise) fn exited(
        &mut self,
        id: u32,
        how: Ended,
        registry: &Registry,
        chunk: &mut [u8],
    ) -> Option<(ExecId, Outcome)> {
        let mut run = self.runs.remove(&id)?;
        for stream in 0..2 {
            // What comes later is of something that it left behind, which may write for ever.
            let left = run.streams[stream].as_ref().map_or(0, |file| waiting(file.as_fd()));
            run.drain(stream, left, registry, chunk);
        }
        run.forget(registry);
        let [stdout, stderr] = run.kept;
        let exit_code = if run.killed { TIMED_OUT } else { how.exit_status().into() };
        Some((run.exec, Outcome { exit_code, stdout, stderr, truncated: run.truncated }))
    }

    /// A run could not even begin.
    pub(in crate::supervise) fn not_run(&mut self, id: u32, registry: &Registry) -> Option<ExecId> {
        let mut run = self.runs.remove(&id)?;
        run.forget(registry);
        Some(run.exec)
    }
}

impl Run {
    /// Reads a stream, `most` bytes of it: one that is written to without end has others wait.
    fn drain(&mut self, stream: usize, mut most: usize, registry: &Registry, chunk: &mut [u8]) {
        while most > 0 {
            let size = most.min(chunk.len());
            let Read1::Some(count) = read(&mut self.streams[stream], registry, &mut chunk[..size]) else {
                return;
            };
            most -= count;
            let kept = &mut self.kept[stream];
            let room = OUTPUT_LIMIT - kept.len();
            self.truncated |= count > room;
            kept.extend_from_slice(&chunk[..count.min(room)]);
        }
    }

    fn forget(&mut self, registry: &Registry) {
        for stream in self.streams.iter_mut().filter_map(Option::take) {
            let fd = std::os::fd::AsRawFd::as_raw_fd(&stream);
            let _ = registry.deregister(&mut mio::unix::SourceFd(&fd));
        }
    }
}
