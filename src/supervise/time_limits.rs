//! The time limits of a sandbox (DECISIONS 13): wall-clock time, processor time, and idle time.

use super::status::ExceededLimit;
use crate::cgroup::SandboxCgroups;
use crate::cgroup::agent::usage::cpu_time;
use crate::spec::policy::{EffectivePolicy, Setting, TimeSpan};
use std::path::PathBuf;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

/// Least interval between two reads of processor time; each processor may exceed the limit by this much.
const MIN_CPU_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// The time limits of a policy; `None` is no limit.
#[derive(Debug, Clone, Default)]
pub struct TimeLimits {
    /// Wall-clock time.
    pub wall: Option<Duration>,
    /// Processor time of all processes on all processors, and the cgroup that counts it.
    pub cpu: Option<(Duration, PathBuf)>,
    /// Time without a command of a server.
    pub idle: Option<Duration>,
}

impl TimeLimits {
    /// The limits of this policy; processor time is limited only with a cgroup.
    pub fn from_policy(policy: &EffectivePolicy, cgroups: &SandboxCgroups) -> Self {
        let limits = &policy.limits;
        let span = |time: &Option<Setting<TimeSpan>>| Some(time.as_ref()?.value.duration());
        let cpu = span(&limits.cpu_time).zip(cgroups.unified.clone());
        TimeLimits { wall: span(&limits.timeout), cpu, idle: span(&limits.idle) }
    }
}

/// The clock that checks the limits of a running sandbox.
#[derive(Debug)]
pub(super) struct LimitClock {
    limits: TimeLimits,
    /// When the sandbox started.
    started: Instant,
    wall: Option<Instant>,
    /// When processor time is read again: the limit cannot be reached before.
    cpu_check_at: Option<Instant>,
    /// Since when no command runs; `None` while one runs.
    idle_since: Option<Instant>,
    /// No limit is checked any more.
    stopped: bool,
}

impl LimitClock {
    /// Starts the clock.
    pub(super) fn new(limits: TimeLimits) -> Self {
        let now = Instant::now();
        let wall = limits.wall.map(|limit| now + limit);
        let look = limits.cpu.as_ref().map(|(limit, _)| now + least_time_until(*limit));
        LimitClock { wall, cpu_check_at: look, started: now, idle_since: None, stopped: false, limits }
    }

    /// Replaces the limits. Each counts from the same time as the old one, so a lower limit may be exceeded at once.
    pub(super) fn set_limits(&mut self, limits: TimeLimits) {
        if !self.stopped {
            self.wall = limits.wall.map(|limit| self.started + limit);
            self.cpu_check_at = limits.cpu.as_ref().map(|_| Instant::now());
        }
        self.limits = limits;
    }

    /// Sets whether a command runs now, and whether one has ended since the last call.
    pub(super) fn set_busy(&mut self, busy: bool, has_ended: bool) {
        if busy {
            self.idle_since = None;
        } else if has_ended || self.idle_since.is_none() {
            self.idle_since = Some(Instant::now());
        }
    }

    /// When the idle limit is reached.
    fn idle_deadline(&self) -> Option<Instant> {
        Some(self.idle_since? + self.limits.idle.filter(|_| !self.stopped)?)
    }

    /// Time until the next check.
    pub(super) fn poll_timeout(&self) -> Option<Duration> {
        let next = [self.wall, self.cpu_check_at, self.idle_deadline()].into_iter().flatten().min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    /// The limit that is exceeded now, and a message for it.
    pub(super) fn exceeded(&mut self) -> Option<(ExceededLimit, String)> {
        let now = Instant::now();
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        let over = |limit: Option<Duration>, met: ExceededLimit, what: &str| {
            let limit = limit.unwrap_or_default();
            Some((met, format!("the limit of {limit:?} {what} is reached: everything was killed")))
        };
        if is_due(self.wall) {
            return over(self.limits.wall, ExceededLimit::Timeout, "by the clock (timeout)");
        }
        if is_due(self.idle_deadline()) {
            return over(self.limits.idle, ExceededLimit::Idle, "without a command (idle)");
        }
        if is_due(self.cpu_check_at)
            && let Some((limit, cgroup)) = &self.limits.cpu
        {
            let used = cpu_time(cgroup).unwrap_or_default();
            if used >= *limit {
                return over(Some(*limit), ExceededLimit::CpuTime, "of processor time (cpu_time)");
            }
            self.cpu_check_at = Some(now + least_time_until(*limit - used));
        }
        None
    }

    /// Restarts the limits after the caller has handled an exceeded one.
    pub(super) fn restart(&mut self) {
        *self = LimitClock::new(std::mem::take(&mut self.limits));
    }

    /// Stops the clock.
    pub(super) fn stop(&mut self) {
        (self.wall, self.cpu_check_at, self.stopped) = (None, None, true);
    }
}

/// The least wall-clock time in which this much processor time can be used.
fn least_time_until(left: Duration) -> Duration {
    let processors =
        available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX));
    (left / processors).max(MIN_CPU_CHECK_INTERVAL)
}
