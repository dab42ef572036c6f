//! Shell commands that a server runs in the sandbox next to the agent (BP-21 to BP-24). Their output is captured up to
//! a limit, and the whole process tree of a command can be killed. If the sandbox has a cgroup, each command has a leaf
//! of its own ([`ExecCgroups`]), which is removed with it. Otherwise the command is a subreaper, and processes that it
//! leaves running survive it.

use super::agent_process::{AgentProcess, ReadResult, read_stream, rearm, register_stream};
use crate::bridge::core::{ExecId, ExecOutcome};
use crate::cgroup::agent::exec::{ExecCgroup, ExecCgroups};
use crate::error::{Error, Result};
use crate::spec::ProgramSpec;
use crate::supervise::process_tree;
use crate::supervise::sandbox::ProgramExit;
use crate::supervise::status::{ExceededLimit, ExecResult, ExitEvidence, ExitReason};
use crate::sys::file::{self, bytes_available};
use mio::{Registry, Token};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Bytes that are captured of each stream (BP-23); the rest is read and dropped, so that the command is not blocked.
const OUTPUT_LIMIT: usize = 10 << 20;

/// The exit code of a command that was killed at its timeout (BP-22).
const TIMED_OUT_EXIT_CODE: i32 = crate::error::status::TIME_LIMIT as i32;

/// First token: two for each run.
const FIRST: usize = 1 << 19;

/// The first and the longest delay between checks whether a killed leaf is empty. A process in it may hang in the
/// kernel.
const MIN_CLEANUP_DELAY: Duration = Duration::from_millis(1);
const MAX_CLEANUP_DELAY: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct ExecRun {
    exec: ExecId,
    pid: i32,
    leaf: Option<ExecCgroup>,
    is_killed: bool,
    streams: [Option<File>; 2],
    captured: [Vec<u8>; 2],
    is_truncated: bool,
}

/// The result of a run.
#[derive(Debug)]
pub(in crate::supervise) struct FinishedExec {
    pub(in crate::supervise) exec: ExecId,
    pub(in crate::supervise) outcome: ExecOutcome,
    pub(in crate::supervise) pid: i32,
    pub(in crate::supervise) result: ExecResult,
}

/// The running commands, by the sandbox's number.
#[derive(Debug)]
pub(in crate::supervise) struct ExecTable {
    running: BTreeMap<u32, ExecRun>,
    leaves: Option<ExecCgroups>,
    /// The last attempt to remove leaves, and the delay until the next one; `None` when no leaf is left.
    leaf_cleanup: Option<(Instant, Duration)>,
    environment: Vec<(OsString, OsString)>,
    workspace: PathBuf,
    /// Standard input of commands.
    null: File,
    killer: TreeKiller,
}

/// Kills a process, which has not been reaped, and all of its descendants.
pub(in crate::supervise) struct TreeKiller(Box<dyn Fn(i32)>);

impl TreeKiller {
    pub(in crate::supervise) fn new(kill_tree: impl Fn(i32) + 'static) -> Self {
        TreeKiller(Box::new(kill_tree))
    }
}

impl fmt::Debug for TreeKiller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Killer")
    }
}

impl ExecTable {
    /// A table for commands with this environment and working directory; each runs in a leaf of its own if there are
    /// leaves.
    ///
    /// # Errors
    /// [`crate::error::Code::System`].
    pub(in crate::supervise) fn new(
        environment: Vec<(OsString, OsString)>,
        workspace: PathBuf,
        leaves: Option<ExecCgroups>,
    ) -> Result<Self> {
        let null = File::open("/dev/null").map_err(|e| Error::system("open /dev/null", e))?;
        let killer = TreeKiller::new(process_tree::kill_tree);
        Ok(ExecTable {
            running: BTreeMap::new(),
            leaves,
            leaf_cleanup: None,
            environment,
            workspace,
            null,
            killer,
        })
    }

    /// Sets the function that kills process trees from now on.
    pub(in crate::supervise) fn set_killer(&mut self, killer: TreeKiller) {
        self.killer = killer;
    }

    /// Whether a command must stop at its exec barrier, to be moved to its leaf.
    pub(in crate::supervise) fn needs_barrier(&self) -> bool {
        self.leaves.is_some()
    }

    /// Starts `/bin/sh -c command`; `start` requests it from the sandbox and returns its number.
    pub(in crate::supervise) fn run(
        &mut self,
        registry: &Registry,
        exec: ExecId,
        command: String,
        start: impl FnOnce(&ProgramSpec, [BorrowedFd<'_>; 3]) -> Result<u32>,
    ) -> Result<()> {
        let fail = |e: nix::Error| Error::system("make the streams of a command", e);
        let (out_read, out) = file::pipe_for_all().map_err(fail)?;
        let (err_read, err) = file::pipe_for_all().map_err(fail)?;
        let program = ProgramSpec {
            argv: ["/bin/sh".into(), "-c".into(), command.into()].into(),
            file: None,
            env: self.environment.clone(),
            cwd: self.workspace.clone(),
        };
        let streams = [self.null.as_fd(), out.as_fd(), err.as_fd()];
        let id = start(&program, streams)?;
        let token = |stream: usize| Token(FIRST + 2 * id as usize + stream);
        let streams = [
            Some(register_stream(out_read, registry, token(0))?),
            Some(register_stream(err_read, registry, token(1))?),
        ];
        let run = ExecRun {
            exec,
            pid: 0,
            leaf: None,
            is_killed: false,
            streams,
            captured: Default::default(),
            is_truncated: false,
        };
        self.running.insert(id, run);
        // pid 1 is busy with a fork meanwhile.
        self.leaves.iter_mut().for_each(ExecCgroups::create_spare);
        Ok(())
    }

    /// Sets the command's pid on the host; true when the command is now in a leaf of its own. `is_it` returns whether
    /// it is still stopped at its exec barrier.
    pub(in crate::supervise) fn on_barrier(
        &mut self,
        id: u32,
        pid: i32,
        is_it: impl FnOnce() -> bool,
    ) -> bool {
        let Some(run) = self.running.get_mut(&id) else { return false };
        run.pid = pid;
        if run.is_killed {
            (self.killer.0)(pid);
            return false;
        }
        let Some(leaves) = &mut self.leaves else { return false };
        let put = leaves.acquire().map_err(|error| error.to_string()).and_then(|leaf| {
            let put = leaf.add_process(pid, is_it);
            run.leaf = Some(leaf);
            put
        });
        // The command runs without a leaf, as on a host without cgroups.
        let Err(why) = put else { return true };
        log::warn!("a command has no cgroup of its own: {why}");
        if let Some(leaf) = run.leaf.take() {
            leaves.kill_and_remove(leaf);
            self.leaf_cleanup = Some((Instant::now(), MIN_CLEANUP_DELAY));
        }
        false
    }

    /// Kills a run with all of its descendants; its output until then is still reported.
    pub(in crate::supervise) fn kill(&mut self, exec: ExecId) {
        if let Some(run) = self.running.values_mut().find(|run| run.exec == exec) {
            run.is_killed = true;
            let is_dead = run.leaf.as_ref().is_some_and(ExecCgroup::kill);
            if run.pid != 0 && !is_dead {
                (self.killer.0)(run.pid);
            }
        }
    }

    /// The pid of a run, once it is known.
    pub(in crate::supervise) fn pid(&self, id: u32) -> Option<i32> {
        self.running.get(&id).map(|run| run.pid).filter(|pid| *pid != 0)
    }

    /// Removes the leaves of finished runs; returns the time until the next attempt if some are left.
    pub(in crate::supervise) fn remove_leaves(&mut self) -> Option<Duration> {
        let (tried, wait) = self.leaf_cleanup?;
        let left = wait.saturating_sub(tried.elapsed());
        if !left.is_zero() {
            return Some(left);
        }
        let is_left = self.leaves.as_mut().is_some_and(ExecCgroups::remove_killed);
        self.leaf_cleanup = is_left.then(|| (Instant::now(), (wait * 2).min(MAX_CLEANUP_DELAY)));
        self.leaf_cleanup.map(|(_, wait)| wait)
    }

    /// Handles an event; false when the token belongs to another module.
    pub(in crate::supervise) fn on_event(
        &mut self,
        registry: &Registry,
        token: Token,
        chunk: &mut [u8],
    ) -> bool {
        let Some(number) = token.0.checked_sub(FIRST) else { return false };
        if let Some(run) = u32::try_from(number / 2).ok().and_then(|id| self.running.get_mut(&id)) {
            let stream = number % 2;
            run.read_stream(stream, AgentProcess::read_budget(), registry, chunk);
            if let Some(file) = &run.streams[stream] {
                rearm(file, registry, token);
            }
        }
        true
    }

    /// A run has exited: returns its result.
    pub(in crate::supervise) fn on_exited(
        &mut self,
        id: u32,
        how: ProgramExit,
        registry: &Registry,
        chunk: &mut [u8],
    ) -> Option<FinishedExec> {
        let mut run = self.running.remove(&id)?;
        let end = run.exec_result(how);
        self.release_leaf(&mut run);
        for stream in 0..2 {
            // Later output comes from descendants, which may write forever.
            let left = run.streams[stream].as_ref().map_or(0, |file| bytes_available(file.as_fd()));
            run.read_stream(stream, left, registry, chunk);
        }
        run.close_streams(registry);
        let [stdout, stderr] = run.captured;
        let exit_code = if run.is_killed { TIMED_OUT_EXIT_CODE } else { how.exit_status().into() };
        let outcome = ExecOutcome { exit_code, stdout, stderr, truncated: run.is_truncated };
        Some(FinishedExec { exec: run.exec, outcome, pid: run.pid, result: end })
    }

    /// If the command was killed, processes that it left running are killed too. Otherwise they survive it, as on a
    /// host without cgroups.
    fn release_leaf(&mut self, run: &mut ExecRun) {
        match (&mut self.leaves, run.leaf.take()) {
            (Some(leaves), Some(leaf)) if run.is_killed => {
                leaves.kill_and_remove(leaf);
                self.leaf_cleanup = Some((Instant::now(), MIN_CLEANUP_DELAY));
            }
            (Some(leaves), Some(leaf)) => leaves.release(leaf),
            _ => {}
        }
    }

    /// A run could not be started.
    pub(in crate::supervise) fn on_start_failed(&mut self, id: u32, registry: &Registry) -> Option<ExecId> {
        let mut run = self.running.remove(&id)?;
        self.release_leaf(&mut run);
        run.close_streams(registry);
        Some(run.exec)
    }
}

impl ExecRun {
    /// Why it ended. An OOM kill of a leaf kills every process in it, the command's shell included; a SIGKILL from
    /// elsewhere is distinguished by that.
    fn exec_result(&self, how: ProgramExit) -> ExecResult {
        let (exit_code, signal) = match how {
            ProgramExit::Exit(code) => (Some(code), None),
            ProgramExit::Signal(signal) => (None, Some(signal)),
        };
        let killed = signal == Some(libc::SIGKILL);
        let reason = match signal {
            Some(_) if killed && self.leaf.as_ref().is_some_and(|leaf| leaf.oom_kills() > 0) => {
                ExitReason::Oom
            }
            Some(_) => ExitReason::Signal,
            None => ExitReason::Exit,
        };
        ExecResult {
            reason,
            exit_code,
            signal,
            limit: ExceededLimit::from_evidence(reason, ExitEvidence { signal, ..ExitEvidence::default() }),
            memory_peak: self.leaf.as_ref().and_then(ExecCgroup::memory_peak),
            cpu_usec: self.leaf.as_ref().and_then(ExecCgroup::cpu_usec),
        }
    }

    /// Reads at most `most` bytes of a stream, so that a stream with endless output does not starve others.
    fn read_stream(&mut self, stream: usize, mut most: usize, registry: &Registry, chunk: &mut [u8]) {
        while most > 0 {
            let size = most.min(chunk.len());
            let ReadResult::Some(count) =
                read_stream(&mut self.streams[stream], registry, &mut chunk[..size])
            else {
                return;
            };
            most -= count;
            let kept = &mut self.captured[stream];
            let room = OUTPUT_LIMIT - kept.len();
            self.is_truncated |= count > room;
            kept.extend_from_slice(&chunk[..count.min(room)]);
        }
    }

    fn close_streams(&mut self, registry: &Registry) {
        for stream in self.streams.iter_mut().filter_map(Option::take) {
            let fd = std::os::fd::AsRawFd::as_raw_fd(&stream);
            let _ = registry.deregister(&mut mio::unix::SourceFd(&fd));
        }
    }
}
