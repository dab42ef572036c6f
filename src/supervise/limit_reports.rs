//! Reports the limits that the programs of a sandbox met, each once: by an event and a message.
//!
//! | limit | reported | source |
//! |---|---|---|
//! | pids | when the first fork fails; with version 1 perhaps at the end | `pids.events` |
//! | cpu | at the end, if programs waited for long | `cpu.stat` |
//! | memory | at the end, if other programs than the main one were killed | `memory.events`; `memory.oom_control` |
//! | disk, fsize | at the end | the disk is full; the program was killed by SIGXFSZ |
//!
//! A main program that is killed at the memory limit is reported as the reason of the end, and commands of a server as
//! they are killed ([`super::memory`]). A limit of time ends the sandbox ([`super::time_limits`]).

use super::status::{ExceededLimit, StatusEvent, StatusWriter};
use crate::cgroup::SandboxCgroups;
use crate::cgroup::agent::pids::PidsWatch;
use crate::cgroup::agent::usage::SandboxUsage;
use crate::spec::policy::EffectivePolicy;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

/// Programs that waited less for processor time are not slow because of the limit.
const NOTABLE_WAIT: Duration = Duration::from_secs(1);
/// The least part of the time of the sandbox that is a notable wait: one in this number.
const NOTABLE_SHARE: u32 = 10;

/// Token of the watch for forks that fail.
pub(super) const TOKEN: Token = Token(13);

/// What was reported of one sandbox.
#[derive(Debug)]
pub(super) struct LimitReports {
    began: Instant,
    pids: Option<PidsWatch>,
    is_pids_reported: bool,
}

impl LimitReports {
    pub(super) fn new() -> Self {
        LimitReports { began: Instant::now(), pids: None, is_pids_reported: false }
    }

    /// Watches for forks that fail.
    pub(super) fn watch(&mut self, cgroups: &SandboxCgroups, registry: &Registry) {
        self.pids = PidsWatch::new(cgroups).filter(|watch| {
            let fd = watch.as_fd().as_raw_fd();
            registry.register(&mut SourceFd(&fd), TOKEN, Interest::PRIORITY).is_ok()
        });
    }

    /// Handles an event of the watch. Later events of it are of no interest, and a program can cause many.
    pub(super) fn check_pids(
        &mut self,
        id: &str,
        policy: &EffectivePolicy,
        registry: &Registry,
        status: &mut StatusWriter,
    ) {
        if self.pids.as_mut().is_some_and(|watch| watch.refused() > 0)
            && let Some(watch) = self.pids.take()
        {
            let _ = registry.deregister(&mut SourceFd(&watch.as_fd().as_raw_fd()));
            self.report_pids(id, policy, status);
        }
    }

    fn report_pids(&mut self, id: &str, policy: &EffectivePolicy, status: &mut StatusWriter) {
        if !std::mem::replace(&mut self.is_pids_reported, true) {
            let most = policy.limits.pids.value;
            let why = format!("a program could not start another one: {most} processes run (limits.pids)");
            report(id, ExceededLimit::Pids, &why, status);
        }
    }

    /// Reports at the end what was not reported before. `limit` is what is known of the end of the program, and
    /// `reported_kills` the number of programs whose end at the memory limit was reported.
    pub(super) fn finish(
        &mut self,
        id: &str,
        (limit, usage, reported_kills): (Option<ExceededLimit>, Option<&SandboxUsage>, u64),
        policy: &EffectivePolicy,
        status: &mut StatusWriter,
    ) {
        if usage.is_some_and(SandboxUsage::has_refused_forks) {
            self.report_pids(id, policy, status);
        }
        if let Some(usage) = usage.filter(|_| limit != Some(ExceededLimit::Memory)) {
            let kills = usage.oom_kills.unwrap_or(0).saturating_sub(reported_kills);
            if kills > 0 {
                report(id, ExceededLimit::Memory, &usage.describe_oom_kills(kills), status);
            }
        }
        let waited = usage.and_then(|usage| usage.cpu_throttled_usec).map(Duration::from_micros);
        if let Some(waited) = waited.filter(|waited| is_notable(*waited, self.began.elapsed())) {
            let cpus = policy.limits.cpus.value;
            let why = format!(
                "programs waited {:.1} s for processor time: {cpus} CPUs (limits.cpus)",
                waited.as_secs_f64()
            );
            report(id, ExceededLimit::Cpu, &why, status);
        }
        let why = match limit {
            Some(ExceededLimit::Disk) => {
                let limits = &policy.limits;
                format!(
                    "the disk is full: {} and {} inodes (limits.disk, limits.inodes)",
                    limits.disk.value, limits.inodes.value
                )
            }
            Some(ExceededLimit::Fsize) => {
                format!(
                    "the program was killed when it wrote a file of more than {} (limits.fsize)",
                    policy.fsize().value
                )
            }
            _ => return,
        };
        limit.iter().for_each(|limit| report(id, *limit, &why, status));
    }
}

fn report(id: &str, limit: ExceededLimit, why: &str, status: &mut StatusWriter) {
    log::warn!("{why}");
    status.write(&StatusEvent::Limit { id, limit, why });
}

fn is_notable(waited: Duration, all: Duration) -> bool {
    waited >= NOTABLE_WAIT && waited * NOTABLE_SHARE >= all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_notable_when_it_is_long_and_a_good_part_of_the_time() {
        let notable = |waited, all| is_notable(Duration::from_secs(waited), Duration::from_secs(all));
        assert!(notable(1, 10) && notable(60, 61) && notable(5, 2));
        assert!(!notable(0, 0) && !notable(1, 11) && !notable(9, 100));
    }
}
