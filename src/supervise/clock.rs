//! The limits of time of a sandbox (DECISIONS 13): by the clock on the wall, of the processors, and without work.

use super::status::Met;
use crate::cgroup::agent::usage::cpu_time;
use crate::spec::policy::{Effective, Setting, TimeSpan};
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

/// How long to wait at least before processor time is read again: so much more may be used on each processor.
const LEAST_WAIT: Duration = Duration::from_millis(10);

/// What a policy says of time; `None` is no limit.
#[derive(Debug, Clone, Default)]
pub struct Times {
    /// By the clock on the wall.
    pub wall: Option<Duration>,
    /// Of all processes together on all processors, and the cgroup that counts it.
    pub cpu: Option<(Duration, PathBuf)>,
    /// Without a command of a server.
    pub idle: Option<Duration>,
}

impl Times {
    /// What this policy says; processor time counts only in a cgroup.
    pub fn of(policy: &Effective, cgroup: Option<&Path>) -> Self {
        let limits = &policy.limits;
        let span = |time: &Option<Setting<TimeSpan>>| Some(time.as_ref()?.value.duration());
        let cpu = span(&limits.cpu_time).zip(cgroup.map(Path::to_owned));
        Times { wall: span(&limits.timeout), cpu, idle: span(&limits.idle) }
    }
}

/// The times of a sandbox that runs.
#[derive(Debug)]
pub(super) struct Clock {
    times: Times,
    /// When it began.
    began: Instant,
    wall: Option<Instant>,
    /// When processor time is looked at again: before that the limit cannot be reached.
    look: Option<Instant>,
    /// Since when no command is at work.
    idle_since: Option<Instant>,
    /// It counts no more.
    stopped: bool,
}

impl Clock {
    /// Begins to count.
    pub(super) fn new(times: Times) -> Self {
        let now = Instant::now();
        let wall = times.wall.map(|limit| now + limit);
        let look = times.cpu.as_ref().map(|(limit, _)| now + soonest(*limit));
        Clock { wall, look, began: now, idle_since: None, stopped: false, times }
    }

    /// Takes other limits: each counts from when the old one did. One that is over by that is reached now.
    pub(super) fn change(&mut self, times: Times) {
        if !self.stopped {
            self.wall = times.wall.map(|limit| self.began + limit);
            self.look = times.cpu.as_ref().map(|_| Instant::now());
        }
        self.times = times;
    }

    /// Says whether a command is at work now, and whether one has ended since this was said last.
    pub(super) fn works(&mut self, works: bool, has_ended: bool) {
        if works {
            self.idle_since = None;
        } else if has_ended || self.idle_since.is_none() {
            self.idle_since = Some(Instant::now());
        }
    }

    /// When it will have been idle for too long.
    fn idle(&self) -> Option<Instant> {
        Some(self.idle_since? + self.times.idle.filter(|_| !self.stopped)?)
    }

    /// How long until something has to be looked at.
    pub(super) fn left(&self) -> Option<Duration> {
        let next = [self.wall, self.look, self.idle()].into_iter().flatten().min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    /// Which limit is reached, and what there is to say of it.
    pub(super) fn over(&mut self) -> Option<(Met, String)> {
        let now = Instant::now();
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        let over = |limit: Option<Duration>, met: Met, what: &str| {
            let limit = limit.unwrap_or_default();
            Some((met, format!("the limit of {limit:?} {what} is reached: everything was killed")))
        };
        if is_due(self.wall) {
            return over(self.times.wall, Met::Timeout, "by the clock (timeout)");
        }
        if is_due(self.idle()) {
            return over(self.times.idle, Met::Idle, "without a command (idle)");
        }
        if is_due(self.look)
            && let Some((limit, cgroup)) = &self.times.cpu
        {
            let used = cpu_time(cgroup).unwrap_or_default();
            if used >= *limit {
                return over(Some(*limit), Met::CpuTime, "of processor time (cpu_time)");
            }
            self.look = Some(now + soonest(*limit - used));
        }
        None
    }

    /// Begins again: what was reached has been seen to.
    pub(super) fn again(&mut self) {
        *self = Clock::new(std::mem::take(&mut self.times));
    }

    /// No limit counts any more.
    pub(super) fn stop(&mut self) {
        (self.wall, self.look, self.stopped) = (None, None, true);
    }
}

/// When so much processor time can have been used at the soonest.
fn soonest(left: Duration) -> Duration {
    let processors =
        available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX));
    (left / processors).max(LEAST_WAIT)
}
