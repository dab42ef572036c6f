//! Reports the programs that the kernel kills because a container has no memory left, while a command waits for one of
//! them. The exit status tells only that a program was killed. For the container of a caller that does not wait,
//! `saggar events` reports them.

use crate::cgroup::CgroupHandle;
use crate::host::kmsg::KernelLog;

/// What was known of a container when the command began to wait.
#[derive(Debug)]
pub(super) struct OomReporter<'a> {
    group: &'a CgroupHandle,
    /// Programs that had been killed before.
    earlier_kills: u64,
    /// The kernel's log, which names the programs.
    kernel_log: Option<KernelLog>,
}

impl<'a> OomReporter<'a> {
    /// Reports all programs of the cgroup.
    pub(super) fn from_start(group: &'a CgroupHandle) -> Self {
        OomReporter { group, earlier_kills: 0, kernel_log: KernelLog::open_at_end() }
    }

    /// Reports those that are killed from now on.
    pub(super) fn from_now(group: &'a CgroupHandle) -> Self {
        let earlier_kills = group.memory_usage().oom_kills.unwrap_or(0);
        OomReporter { earlier_kills, ..OomReporter::from_start(group) }
    }

    /// Logs which programs were killed since. Call it before the cgroup is removed.
    pub(super) fn report(mut self, id: &str) {
        let usage = self.group.memory_usage();
        let kills = usage.oom_kills.unwrap_or(0).saturating_sub(self.earlier_kills);
        if kills == 0 {
            return;
        }
        let name = self.group.memory_cgroup_name();
        let log = self.kernel_log.as_mut().zip(name);
        let victims = log.map(|(log, name)| log.oom_victims_in(name)).unwrap_or_default();
        let what = match victims.as_slice() {
            [victim] if kills == 1 => usage.describe_oom_kill(&victim.name),
            _ => usage.describe_oom_kills(kills),
        };
        log::warn!("container {id:?}: {what}");
    }
}
