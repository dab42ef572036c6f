//! Shell commands that a server runs in the sandbox beside the agent (BP-21 to BP-24): their output is kept
//! up to a limit, and the whole tree of one can be killed. Where the sandbox has a cgroup each has a leaf of its own
//! ([`Leaves`]), which ends with it; elsewhere it is a subreaper, and what it leaves behind lives on.

use super::process::{Process, Read1, look_again, read, watched};
use crate::bridge::core::{ExecId, Outcome};
use crate::cgroup::agent::leaf::{Leaf, Leaves};
use crate::error::{Error, Result};
use crate::spec::Program;
use crate::supervise::sandbox::Ended;
use crate::supervise::status::{ExecEnd, Marks, Met, Reason};
use crate::supervise::tree;
use crate::sys::file::waiting;
use mio::{Registry, Token};
use nix::fcntl::OFlag;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// What is kept of one stream (BP-23); the rest is read and dropped, so that the command is not held up.
const OUTPUT_LIMIT: usize = 10 << 20;

/// The exit code of a command that was killed at its time limit (BP-22).
const TIMED_OUT: i32 = 124;

/// Tokens: two for each run.
const FIRST: usize = 1 << 19;

/// How long until it is looked again whether a leaf is empty that was killed: at first, and at most. A process in it
/// may hang in the kernel.
const SOON: Duration = Duration::from_millis(1);
const LATE: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Run {
    exec: ExecId,
    pid: i32,
    leaf: Option<Leaf>,
    killed: bool,
    streams: [Option<File>; 2],
    kept: [Vec<u8>; 2],
    truncated: bool,
}

/// A run that is over.
#[derive(Debug)]
pub(in crate::supervise) struct Over {
    pub(in crate::supervise) exec: ExecId,
    pub(in crate::supervise) outcome: Outcome,
    pub(in crate::supervise) pid: i32,
    pub(in crate::supervise) end: ExecEnd,
}

/// The runs that go on, by the sandbox's number.
#[derive(Debug)]
pub(in crate::supervise) struct Execs {
    runs: BTreeMap<u32, Run>,
    leaves: Option<Leaves>,
    /// Leaves are still to be removed; when that was tried last, and how long until it is tried again.
    unswept: Option<(Instant, Duration)>,
    environment: Vec<(OsString, OsString)>,
    workspace: PathBuf,
    /// Their standard input.
    null: File,
    killer: Killer,
}

/// What kills a process, which has not been reaped, with everything that it has started.
pub(in crate::supervise) struct Killer(Box<dyn Fn(i32)>);

impl Killer {
    pub(in crate::supervise) fn new(kill_tree: impl Fn(i32) + 'static) -> Self {
        Killer(Box::new(kill_tree))
    }
}

impl fmt::Debug for Killer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Killer")
    }
}

impl Execs {
    /// Commands with this environment in this directory; each in a leaf of its own, if there are leaves.
    ///
    /// # Errors
    /// [`crate::error::Code::System`].
    pub(in crate::supervise) fn new(
        environment: Vec<(OsString, OsString)>,
        workspace: PathBuf,
        leaves: Option<Leaves>,
    ) -> Result<Self> {
        let null = File::open("/dev/null").map_err(|e| Error::system("open /dev/null", e))?;
        let killer = Killer::new(tree::kill);
        Ok(Execs { runs: BTreeMap::new(), leaves, unswept: None, environment, workspace, null, killer })
    }

    /// Has this kill them from now on.
    pub(in crate::supervise) fn part(&mut self, killer: Killer) {
        self.killer = killer;
    }

    /// Whether a command must stop at its gate, to be put in its leaf.
    pub(in crate::supervise) fn hold(&self) -> bool {
        self.leaves.is_some()
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
        let (out_read, out) = nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(fail)?;
        let (err_read, err) = nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(fail)?;
        let program = Program {
            argv: ["/bin/sh".into(), "-c".into(), command.into()].into(),
            file: None,
            env: self.environment.clone(),
            cwd: self.workspace.clone(),
        };
        let streams = [self.null.as_fd(), out.as_fd(), err.as_fd()];
        let id = start(&program, streams)?;
        let token = |stream: usize| Token(FIRST + 2 * id as usize + stream);
        let streams =
            [Some(watched(out_read, registry, token(0))?), Some(watched(err_read, registry, token(1))?)];
        let run = Run {
            exec,
            pid: 0,
            leaf: None,
            killed: false,
            streams,
            kept: Default::default(),
            truncated: false,
        };
        self.runs.insert(id, run);
        // pid 1 has a fork to do meanwhile.
        self.leaves.iter_mut().for_each(Leaves::make_spare);
        Ok(())
    }

    /// Its pid on the host is known; true when it is now in a leaf of its own. `is_it` says whether it still stops
    /// at its gate.
    pub(in crate::supervise) fn waiting(&mut self, id: u32, pid: i32, is_it: impl FnOnce() -> bool) -> bool {
        let Some(run) = self.runs.get_mut(&id) else { return false };
        run.pid = pid;
        if run.killed {
            (self.killer.0)(pid);
            return false;
        }
        let Some(leaves) = &mut self.leaves else { return false };
        let put = leaves.take().map_err(|error| error.to_string()).and_then(|leaf| {
            let put = leaf.put(pid, is_it);
            run.leaf = Some(leaf);
            put
        });
        // It runs all the same, as it does where there are no cgroups.
        let Err(why) = put else { return true };
        log::warn!("a command has no cgroup of its own: {why}");
        if let Some(leaf) = run.leaf.take() {
            leaves.end(leaf);
            self.unswept = Some((Instant::now(), SOON));
        }
        false
    }

    /// Kills a run with everything that it started; what it wrote is still told.
    pub(in crate::supervise) fn kill(&mut self, exec: ExecId) {
        if let Some(run) = self.runs.values_mut().find(|run| run.exec == exec) {
            run.killed = true;
            let is_dead = run.leaf.as_ref().is_some_and(Leaf::kill);
            if run.pid != 0 && !is_dead {
                (self.killer.0)(run.pid);
            }
        }
    }

    /// The process of a run, once it is known.
    pub(in crate::supervise) fn pid(&self, id: u32) -> Option<i32> {
        self.runs.get(&id).map(|run| run.pid).filter(|pid| *pid != 0)
    }

    /// Removes leaves of runs that are over; when to look again, if some are left.
    pub(in crate::supervise) fn sweep(&mut self) -> Option<Duration> {
        let (tried, wait) = self.unswept?;
        let left = wait.saturating_sub(tried.elapsed());
        if !left.is_zero() {
            return Some(left);
        }
        let is_left = self.leaves.as_mut().is_some_and(Leaves::sweep);
        self.unswept = is_left.then(|| (Instant::now(), (wait * 2).min(LATE)));
        self.unswept.map(|(_, wait)| wait)
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
    ) -> Option<Over> {
        let mut run = self.runs.remove(&id)?;
        let end = run.end(how);
        self.end_leaf(&mut run);
        for stream in 0..2 {
            // What comes later is of something that it left behind, which may write for ever.
            let left = run.streams[stream].as_ref().map_or(0, |file| waiting(file.as_fd()));
            run.drain(stream, left, registry, chunk);
        }
        run.forget(registry);
        let [stdout, stderr] = run.kept;
        let exit_code = if run.killed { TIMED_OUT } else { how.exit_status().into() };
        let outcome = Outcome { exit_code, stdout, stderr, truncated: run.truncated };
        Some(Over { exec: run.exec, outcome, pid: run.pid, end })
    }

    /// What it left running goes with it when it was killed, and else lives on, as it does without cgroups.
    fn end_leaf(&mut self, run: &mut Run) {
        match (&mut self.leaves, run.leaf.take()) {
            (Some(leaves), Some(leaf)) if run.killed => {
                leaves.end(leaf);
                self.unswept = Some((Instant::now(), SOON));
            }
            (Some(leaves), Some(leaf)) => leaves.leave(leaf),
            _ => {}
        }
    }

    /// A run could not even begin.
    pub(in crate::supervise) fn not_run(&mut self, id: u32, registry: &Registry) -> Option<ExecId> {
        let mut run = self.runs.remove(&id)?;
        self.end_leaf(&mut run);
        run.forget(registry);
        Some(run.exec)
    }
}

impl Run {
    /// Why it ended. In a leaf that the kernel killed for want of memory nothing is left, the command's shell
    /// neither; what somebody else killed is told from that.
    fn end(&self, how: Ended) -> ExecEnd {
        let (exit_code, signal) = match how {
            Ended::Exit(code) => (Some(code), None),
            Ended::Signal(signal) => (None, Some(signal)),
        };
        let killed = signal == Some(libc::SIGKILL);
        let reason = match signal {
            Some(_) if killed && self.leaf.as_ref().is_some_and(|leaf| leaf.oom_kills() > 0) => Reason::Oom,
            Some(_) => Reason::Signal,
            None => Reason::Exit,
        };
        ExecEnd {
            reason,
            exit_code,
            signal,
            limit: Met::of(reason, Marks { signal, ..Marks::default() }),
            memory_peak: self.leaf.as_ref().and_then(Leaf::memory_peak),
            cpu_usec: self.leaf.as_ref().and_then(Leaf::cpu_usec),
        }
    }

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
