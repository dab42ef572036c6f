//! Decides which process the OOM killer takes in an agent's sandbox: a tool, and the agent only when no other process
//! is left (DECISIONS 10). For a command ([`MemoryGuard::observing`]) saggar cannot tell which of its processes matters
//! most: there the kernel chooses, and kills are only reported.
//!
//! ```text
//! memory.high is exceeded ── POLLPRI on memory.events ──> oom_score_adj of every process but pid 1 and the agent
//! memory.max is reached ── the kernel kills ── POLLPRI ──> an event and a line in the log, with the name
//! ```
//! A process inherits its oom_score_adj from its parent, so the agent's children cannot get another value than the
//! agent in advance. Raising a value needs no privilege, and near the limit the kernel slows down every process in the
//! cgroup ([`MemoryWatch`]): by the time the limit is reached, the values of all processes but the agent have been
//! raised. Below memory.high no process is scanned.

use super::privileged_operations::PrivilegedOperations;
use super::status::{StatusEvent, StatusWriter};
use crate::cgroup::SandboxCgroups;
use crate::cgroup::agent::exec;
use crate::cgroup::agent::memory::MemoryWatch;
use crate::cgroup::agent::usage::{SandboxUsage, oom_kills};
use crate::host::kmsg::{KernelLog, OomVictim};
use crate::state::counters::{self, Counter};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::fs::{Mode, OFlags};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The maximum: with any value of the agent, the kernel kills another process first.
const MAX_OOM_SCORE_ADJ: &[u8] = b"1000";
/// Interval at which new processes are scanned for while usage stays near the limit. The kernel's throttling allows
/// several times this interval ([`MemoryWatch`]).
const RAISE_INTERVAL: Duration = Duration::from_millis(50);
/// If the kernel's log does not name the killed processes, an exit by SIGKILL within this time after an OOM kill counts
/// as that kill.
const KILL_ATTRIBUTION_WINDOW: Duration = Duration::from_millis(500);
/// Most killed processes that are remembered.
const MAX_REMEMBERED_KILLS: usize = 64;

/// Watches the memory of one sandbox.
#[derive(Debug)]
pub(super) struct MemoryGuard {
    sandbox: PathBuf,
    /// The name of its cgroup.
    name: String,
    watch: MemoryWatch,
    /// Whether it raises oom_score_adj values and reports kills to the user.
    raises_scores: bool,
    kernel_log: Option<KernelLog>,
    /// Killed processes that the kernel's log has named.
    killed: Vec<OomVictim>,
    /// OOM kills in the agent's own cgroup: their number, and when the last was seen.
    agent_kills: (u64, Option<Instant>),
    /// No scan happens before this time.
    rest_until: Option<Instant>,
    /// Usage has been near the limit since this time.
    near_limit: bool,
    /// Pids of the last scan, whose values have been raised.
    raised: BTreeSet<i32>,
    /// Number of kills that were counted.
    counted_kills: u64,
}

impl MemoryGuard {
    /// Starts to watch; `None` if the cgroup has no memory controller. `kernel` is the result of [`open_kernel_log`].
    pub(super) fn new(
        sandbox: &Path,
        kernel: Option<KernelLog>,
        registry: &Registry,
        token: Token,
    ) -> Option<Self> {
        MemoryGuard::with_watch(MemoryWatch::new(sandbox)?, (true, kernel), sandbox, registry, token)
    }

    /// Like [`MemoryGuard::new`], but raises no values; kills since the creation of the cgroup count. See
    /// [`MemoryGuard::check`].
    pub(super) fn observing(sandbox: &Path, registry: &Registry, token: Token) -> Option<Self> {
        MemoryGuard::with_watch(
            MemoryWatch::kills_only(sandbox)?,
            (false, open_kernel_log()),
            sandbox,
            registry,
            token,
        )
    }

    fn with_watch(
        watch: MemoryWatch,
        (chooses, kernel): (bool, Option<KernelLog>),
        sandbox: &Path,
        registry: &Registry,
        token: Token,
    ) -> Option<Self> {
        let fd = watch.as_fd().as_raw_fd();
        registry.register(&mut SourceFd(&fd), token, Interest::PRIORITY).ok()?;
        Some(MemoryGuard {
            sandbox: sandbox.to_owned(),
            name: sandbox.file_name()?.to_string_lossy().into_owned(),
            watch,
            raises_scores: chooses,
            kernel_log: kernel,
            killed: Vec::new(),
            agent_kills: (0, None),
            rest_until: None,
            near_limit: false,
            raised: BTreeSet::new(),
            counted_kills: 0,
        })
    }

    /// Handles an event, or the end of a rest interval. `spared` are the pids of pid 1 and the agent. While an agent is
    /// being started its pid is not known, and no process is raised.
    pub(super) fn check_and_raise(
        &mut self,
        id: &str,
        spared: Option<[i32; 2]>,
        privileged: &PrivilegedOperations,
        status: &mut StatusWriter,
    ) {
        let new = self.watch.read_new_counts();
        self.near_limit |= new.throttled > 0 || self.watch.is_released();
        if self.near_limit && self.rest_until.is_none_or(|until| until <= Instant::now()) {
            if let Some(spared) = spared {
                self.raise_scores(spared, privileged);
                self.watch.update_throttle();
                self.near_limit = self.watch.is_released();
            }
            self.rest_until = Some(Instant::now() + RAISE_INTERVAL);
        }
        if new.killed > 0 {
            self.report_kills(id, new.killed, status);
        }
    }

    /// Handles an event without raising values.
    pub(super) fn check(&mut self, id: &str, status: &mut StatusWriter) {
        let new = self.watch.read_new_counts();
        if new.killed > 0 {
            self.report_kills(id, new.killed, status);
        }
    }

    /// Raises the values of new processes only, so that a sandbox with many processes near its limit takes no more of
    /// the supervisor's time.
    fn raise_scores(&mut self, spared: [i32; 2], privileged: &PrivilegedOperations) {
        let all: BTreeSet<i32> = exec::sandbox_pids(&self.sandbox).into_iter().collect();
        if all.difference(&self.raised).any(|pid| !spared.contains(pid)) {
            privileged.spare_from_oom(spared, &self.sandbox);
        }
        self.raised = all;
    }

    /// Call before a change of the limit.
    pub(super) fn suspend(&mut self) {
        self.watch.release_throttle();
    }

    /// Call after a change of the limit, whether it succeeded or not.
    pub(super) fn reactivate(&mut self) {
        self.watch.restore_throttle();
        self.near_limit = true;
    }

    /// Time until the next check.
    pub(super) fn poll_timeout(&self) -> Option<Duration> {
        let now = Instant::now();
        self.near_limit
            .then(|| self.rest_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now)))
    }

    /// The number of killed programs that were reported while the sandbox ran.
    pub(super) fn reported_kills(&self) -> u64 {
        self.counted_kills
    }

    /// Reports OOM kills, one event per process if the kernel names them.
    fn report_kills(&mut self, id: &str, kills: u64, status: &mut StatusWriter) {
        // Kills in a command are counted together at its end ([`count_unreported_kills`]).
        if self.raises_scores {
            self.counted_kills += kills;
            counters::add(Counter::OomKills, kills);
        }
        self.count_agent_kills();
        let killed = self.kernel_log.as_mut().map(|log| log.oom_victims_in(&self.name)).unwrap_or_default();
        let usage = SandboxUsage::read(&self.sandbox).unwrap_or_default();
        let mut tell = |program: Option<&OomVictim>| {
            let name = program.map(|program| program.name.as_str());
            if self.raises_scores {
                log::warn!("{}", usage.describe_oom_kill(name.unwrap_or("a program")));
            }
            status.write(&StatusEvent::Oom {
                id,
                program: name,
                pid: program.map(|program| program.pid),
                usage,
            });
        };
        killed.iter().for_each(|program| tell(Some(program)));
        // The kernel writes one line for a whole leaf that was killed, and does not write every line.
        if killed.is_empty() && kills > 0 {
            tell(None);
        }
        self.killed.extend(killed);
        let over = self.killed.len().saturating_sub(MAX_REMEMBERED_KILLS);
        self.killed.drain(..over);
    }

    /// Whether the agent, which was killed just now, was killed by the OOM killer.
    pub(super) fn was_oom_killed(&mut self, pid: i32, id: &str, status: &mut StatusWriter) -> bool {
        // The report of its exit may arrive before the event of memory.events.
        let new = self.watch.read_new_counts();
        self.near_limit |= new.throttled > 0;
        if new.killed > 0 {
            self.report_kills(id, new.killed, status);
        }
        if self.killed.iter().any(|killed| killed.pid == pid) {
            return true;
        }
        // If the log names other kills it names this one too.
        let told = self.kernel_log.is_some() && !self.killed.is_empty();
        !told && self.agent_kills.1.is_some_and(|at| at.elapsed() < KILL_ATTRIBUTION_WINDOW)
    }

    /// Counts the kills in the agent's own cgroup, not those in commands of a server.
    fn count_agent_kills(&mut self) {
        let main = self.sandbox.join("main");
        let own = if main.join("memory.events").exists() { &main } else { &self.sandbox };
        let kills = oom_kills(own);
        if kills > self.agent_kills.0 {
            self.agent_kills = (kills, Some(Instant::now()));
        }
    }
}

/// Opens the kernel's log of OOM kills, if this process may read it and it names pids of our namespace.
pub(super) fn open_kernel_log() -> Option<KernelLog> {
    is_initial_pid_namespace().then(KernelLog::open_at_end).flatten()
}

/// Counts the kills in a sandbox at its end that were not counted while it ran.
pub(super) fn count_unreported_kills(guard: Option<&MemoryGuard>, cgroups: &SandboxCgroups) {
    let all = cgroups.oom_kills();
    counters::add(Counter::OomKills, all.saturating_sub(guard.map_or(0, |guard| guard.counted_kills)));
}

/// Makes the OOM killer prefer all processes of a sandbox to `spared`.
pub(super) fn spare_from_oom(spared: [i32; 2], sandbox: &Path) {
    let Some(name) = sandbox.file_name().and_then(|name| name.to_str()) else { return };
    for pid in exec::sandbox_pids(sandbox).into_iter().filter(|pid| !spared.contains(pid)) {
        prefer_for_oom(pid, name);
    }
}

/// Makes the OOM killer prefer this process, if it is in the cgroup of this name. A process that this user may not
/// trace is left as it is: it belongs to the host's root until it executes a program.
pub(super) fn prefer_for_oom(pid: i32, cgroup: &str) {
    let Ok(process) = File::open(format!("/proc/{pid}")) else { return };
    // Relative to this directory the pid names the same process, even if the pid is reused.
    let open = |name: &str, how| -> Option<File> {
        let flags = how | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        rustix::fs::openat(&process, name, flags, Mode::empty()).ok().map(|fd: OwnedFd| File::from(fd))
    };
    let mut own = String::new();
    let read = open("cgroup", OFlags::RDONLY).and_then(|mut file| file.read_to_string(&mut own).ok());
    let is_in = |line: &str| line.starts_with("0::") && line.split('/').any(|part| part == cgroup);
    if read.is_some()
        && own.lines().any(is_in)
        && let Some(mut score) = open("oom_score_adj", OFlags::WRONLY)
    {
        let _ = score.write_all(MAX_OOM_SCORE_ADJ);
    }
}

/// Whether our pids are those in the kernel's log (PROC_PID_INIT_INO in linux/proc_ns.h).
fn is_initial_pid_namespace() -> bool {
    std::fs::read_link("/proc/self/ns/pid").is_ok_and(|link| link == Path::new("pid:[4026531836]"))
}
