//! Who is killed when the sandbox of an agent runs out of memory: a tool, and never the agent as long as there is
//! one. DECISIONS 10. Of a command ([`MemoryGuard::that_tells`]) nobody can say which of its processes matters most:
//! there the kernel chooses, and is only listened to.
//!
//! ```text
//! memory.high is passed ── POLLPRI on memory.events ──> oom_score_adj of every process but pid 1 and the agent
//! memory.max is reached ── the kernel kills ── POLLPRI ──> an event and a line in the log, with the name
//! ```
//! A process inherits its oom_score_adj from its parent, so that nobody can give the agent's children another one
//! ahead of time. But to raise one needs no privilege, and near the limit the kernel slows everything inside down
//! ([`MemoryWatch`]): by the time that the limit is reached, all that runs beside the agent has been raised. Nothing
//! is looked at before that.

use super::privileged::Privileged;
use super::status::{Event, Status};
use crate::cgroup::agent::leaf;
use crate::cgroup::agent::memory::MemoryWatch;
use crate::cgroup::agent::usage::{Usage, oom_kills};
use crate::host::kmsg::{KernelLog, Killed};
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

/// Raised as far as it goes: whatever the agent has, the kernel takes another process first.
const FIRST: &[u8] = b"1000";
/// While it stays near the limit, how long until new processes are looked for again. The kernel leaves several
/// times that ([`MemoryWatch`]).
const REST: Duration = Duration::from_millis(50);
/// An end by SIGKILL so soon after the kernel has killed something for want of memory was that, where the kernel
/// does not tell us whom it killed.
const AT_ONCE: Duration = Duration::from_millis(500);
/// How many killed processes are remembered.
const REMEMBERED: usize = 64;

/// Watches the memory of one sandbox.
#[derive(Debug)]
pub(super) struct MemoryGuard {
    sandbox: PathBuf,
    /// The name of its cgroup.
    name: String,
    watch: MemoryWatch,
    /// Whether it has a say in who is killed, and tells people of it.
    chooses: bool,
    kernel: Option<KernelLog>,
    /// What the kernel said that it killed.
    killed: Vec<Killed>,
    /// Kills in the agent's own cgroup: how many, and when the last was seen.
    own_kills: (u64, Option<Instant>),
    /// Nobody is looked for before.
    rests_until: Option<Instant>,
    /// It was near the limit since.
    again: bool,
    /// Who was there at the last look, and has been raised.
    raised: BTreeSet<i32>,
    /// How many kills were counted.
    counted: u64,
}

impl MemoryGuard {
    /// Begins to watch; `None` where there is no account of memory. `kernel` is what [`kernel_log`] has opened.
    pub(super) fn new(
        sandbox: &Path,
        kernel: Option<KernelLog>,
        registry: &Registry,
        token: Token,
    ) -> Option<Self> {
        MemoryGuard::with(MemoryWatch::new(sandbox)?, (true, kernel), sandbox, registry, token)
    }

    /// The same without a say in who is killed; kills since the cgroup was made count. See [`MemoryGuard::hear`].
    pub(super) fn that_tells(sandbox: &Path, registry: &Registry, token: Token) -> Option<Self> {
        MemoryGuard::with(MemoryWatch::of_kills(sandbox)?, (false, kernel_log()), sandbox, registry, token)
    }

    fn with(
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
            chooses,
            kernel,
            killed: Vec::new(),
            own_kills: (0, None),
            rests_until: None,
            again: false,
            raised: BTreeSet::new(),
            counted: 0,
        })
    }

    /// Handles an event, or the end of a rest. `spared` are pid 1 and the agent; nobody is known to be neither while
    /// an agent is on its way.
    pub(super) fn look(
        &mut self,
        id: &str,
        spared: Option<[i32; 2]>,
        privileged: &Privileged,
        status: &mut Status,
    ) {
        let new = self.watch.look();
        self.again |= new.near > 0 || self.watch.is_free();
        if self.again && self.rests_until.is_none_or(|until| until <= Instant::now()) {
            if let Some(spared) = spared {
                self.raise_all(spared, privileged);
                self.watch.ease();
                self.again = self.watch.is_free();
            }
            self.rests_until = Some(Instant::now() + REST);
        }
        if new.kills > 0 {
            self.tell(id, new.kills, status);
        }
    }

    /// Handles an event where nobody is to be raised.
    pub(super) fn hear(&mut self, id: &str, status: &mut Status) {
        let new = self.watch.look();
        if new.kills > 0 {
            self.tell(id, new.kills, status);
        }
    }

    /// Only those that are new cost anything: a sandbox that stays near its limit with many processes gets no more of
    /// the supervisor's time.
    fn raise_all(&mut self, spared: [i32; 2], privileged: &Privileged) {
        let all: BTreeSet<i32> = leaf::processes(&self.sandbox).into_iter().collect();
        if all.difference(&self.raised).any(|pid| !spared.contains(pid)) {
            privileged.kill_last(spared, &self.sandbox);
        }
        self.raised = all;
    }

    /// The limit is about to change.
    pub(super) fn let_go(&mut self) {
        self.watch.let_go();
    }

    /// The limit has changed, or not.
    pub(super) fn take_hold(&mut self) {
        self.watch.take_hold();
        self.again = true;
    }

    /// When to look again.
    pub(super) fn patience(&self) -> Option<Duration> {
        let now = Instant::now();
        self.again
            .then(|| self.rests_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now)))
    }

    /// Says what was killed, one by one where the kernel names them.
    fn tell(&mut self, id: &str, kills: u64, status: &mut Status) {
        // Those of a command are counted at its end ([`count_rest`]), all at once.
        if self.chooses {
            self.counted += kills;
            counters::add(Counter::OomKills, kills);
        }
        self.count_own();
        let killed = self.kernel.as_mut().map(|log| log.killed_in(&self.name)).unwrap_or_default();
        let usage = Usage::of(&self.sandbox).unwrap_or_default();
        let mut tell = |program: Option<&Killed>| {
            let name = program.map(|program| program.name.as_str());
            if self.chooses {
                log::warn!("{}", usage.out_of_memory(name.unwrap_or("a program")));
            }
            status.say(&Event::Oom { id, program: name, pid: program.map(|program| program.pid), usage });
        };
        killed.iter().for_each(|program| tell(Some(program)));
        // One line of the kernel's stands for a whole leaf that was killed; and it does not write all of them.
        if killed.is_empty() && kills > 0 {
            tell(None);
        }
        self.killed.extend(killed);
        let over = self.killed.len().saturating_sub(REMEMBERED);
        self.killed.drain(..over);
    }

    /// Whether the agent, which was killed just now, was killed for want of memory.
    pub(super) fn has_killed(&mut self, pid: i32, id: &str, status: &mut Status) -> bool {
        // The word of its end may be here before the event.
        let new = self.watch.look();
        self.again |= new.near > 0;
        if new.kills > 0 {
            self.tell(id, new.kills, status);
        }
        if self.killed.iter().any(|killed| killed.pid == pid) {
            return true;
        }
        // A log that tells of kills tells of this one too.
        let told = self.kernel.is_some() && !self.killed.is_empty();
        !told && self.own_kills.1.is_some_and(|at| at.elapsed() < AT_ONCE)
    }

    /// Counts what was killed where the agent is, and not in a command of a server.
    fn count_own(&mut self) {
        let main = self.sandbox.join("main");
        let own = if main.join("memory.events").exists() { &main } else { &self.sandbox };
        let kills = oom_kills(own);
        if kills > self.own_kills.0 {
            self.own_kills = (kills, Some(Instant::now()));
        }
    }
}

/// Where the kernel says whom it kills from now on, if it says so by our pids and to us.
pub(super) fn kernel_log() -> Option<KernelLog> {
    is_first_pid_namespace().then(KernelLog::from_now).flatten()
}

/// Counts what was killed in a sandbox, at its end, and has not been counted while it ran.
pub(super) fn count_rest(guard: Option<&MemoryGuard>, cgroup: Option<&Path>) {
    let all = cgroup.map_or(0, oom_kills);
    counters::add(Counter::OomKills, all.saturating_sub(guard.map_or(0, |guard| guard.counted)));
}

/// Has the kernel take all processes of a sandbox before these.
pub(super) fn kill_last(spared: [i32; 2], sandbox: &Path) {
    let Some(name) = sandbox.file_name().and_then(|name| name.to_str()) else { return };
    for pid in leaf::processes(sandbox).into_iter().filter(|pid| !spared.contains(pid)) {
        kill_first(pid, name);
    }
}

/// Has the kernel take this process before others, if it is one of the cgroup of this name. One that may not be
/// traced is left as it is: it belongs to the host's root until it executes a program.
pub(super) fn kill_first(pid: i32, cgroup: &str) {
    let Ok(process) = File::open(format!("/proc/{pid}")) else { return };
    // Beneath this directory the number means the same process for ever.
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
        let _ = score.write_all(FIRST);
    }
}

/// Whether our pids are those that the kernel's log names (PROC_PID_INIT_INO in linux/proc_ns.h).
fn is_first_pid_namespace() -> bool {
    std::fs::read_link("/proc/self/ns/pid").is_ok_and(|link| link == Path::new("pid:[4026531836]"))
}
