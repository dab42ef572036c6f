//! `process.scheduler` and `process.ioPriority` (sched_setattr(2), ioprio_set(2)).

use super::super::document::{OciIoPriority, OciScheduler};
use super::super::field_path::FieldPath;
use crate::spec::container::SchedulerAttributes;
use oci_spec::runtime::{IOPriorityClass as Class, LinuxSchedulerPolicy as Policy};
use saggar_sys::error::Result;

/// Names and values of SCHED_FLAG_* (linux/sched.h). The older name of the first is accepted as well.
const SCHEDULER_FLAGS: [(&str, u64); 8] = [
    ("SCHED_FLAG_RESET_ON_FORK", 0x01),
    ("SCHED_FLAG_RECLAIM", 0x02),
    ("SCHED_FLAG_DL_OVERRUN", 0x04),
    ("SCHED_FLAG_KEEP_POLICY", 0x08),
    ("SCHED_FLAG_KEEP_PARAMS", 0x10),
    ("SCHED_FLAG_UTIL_CLAMP_MIN", 0x20),
    ("SCHED_FLAG_UTIL_CLAMP_MAX", 0x40),
    ("SCHED_RESET_ON_FORK", 0x01),
];

/// The SCHED_* number of a policy (linux/sched.h).
fn policy_number(policy: Policy) -> u32 {
    match policy {
        Policy::SchedOther => 0,
        Policy::SchedFifo => 1,
        Policy::SchedRr => 2,
        Policy::SchedBatch => 3,
        Policy::SchedIso => 4,
        Policy::SchedIdle => 5,
        Policy::SchedDeadline => 6,
    }
}

pub(super) fn lower_scheduler(
    entry: Option<OciScheduler>,
    field: FieldPath<'_>,
) -> Result<Option<SchedulerAttributes>> {
    let Some(entry) = entry else { return Ok(None) };
    let nice = entry.nice.unwrap_or(0);
    if !(-20..=19).contains(&nice) {
        return Err(field.key("nice").invalid(format_args!("must be from -20 to 19, is {nice}")));
    }
    let priority = check_priority(&entry, field.key("priority"))?;
    let times = [("runtime", entry.runtime), ("deadline", entry.deadline), ("period", entry.period)];
    let [runtime, deadline, period] = times.map(|(_, time)| time.unwrap_or(0));
    if entry.policy == Policy::SchedDeadline {
        // A period of 0 means the deadline (sched_setattr(2)).
        let period = if period == 0 { deadline } else { period };
        if runtime == 0 || runtime > deadline || deadline > period {
            let error =
                field.invalid(format_args!("has runtime {runtime}, deadline {deadline}, period {period}"));
            return Err(error.hint("SCHED_DEADLINE wants 0 < runtime <= deadline <= period, in nanoseconds"));
        }
    } else if let Some((key, time)) =
        times.into_iter().find_map(|(key, time)| Some((key, time.filter(|t| *t != 0)?)))
    {
        return Err(field.key(key).invalid(format_args!("is for SCHED_DEADLINE alone, is {time}")));
    }
    let mut flags = 0;
    let list = field.key("flags");
    for (index, name) in entry.flags.iter().flatten().enumerate() {
        let Some((_, flag)) = SCHEDULER_FLAGS.iter().find(|(known, _)| known == name) else {
            let known: Vec<&str> = SCHEDULER_FLAGS[..7].iter().map(|(known, _)| *known).collect();
            let error = list.index(index).invalid(format_args!("is not a flag of the scheduler: {name:?}"));
            return Err(error.hint(format!("the flags are {}", known.join(" "))));
        };
        flags |= flag;
    }
    let policy = policy_number(entry.policy);
    Ok(Some(SchedulerAttributes { policy, flags, nice, priority, runtime, deadline, period }))
}

fn check_priority(entry: &OciScheduler, field: FieldPath<'_>) -> Result<u32> {
    let value = entry.priority.unwrap_or(0);
    let real_time = matches!(entry.policy, Policy::SchedFifo | Policy::SchedRr);
    match u32::try_from(value) {
        Ok(value @ 1..=99) if real_time => Ok(value),
        _ if real_time => Err(field.invalid(format_args!("must be from 1 to 99, is {value}"))),
        Ok(0) => Ok(0),
        _ => Err(field.invalid(format_args!("is for SCHED_FIFO and SCHED_RR alone, is {value}"))),
    }
}

/// Class and priority, packed as for ioprio_set(2).
pub(super) fn lower_io_priority(entry: Option<OciIoPriority>, field: FieldPath<'_>) -> Result<Option<i32>> {
    let Some(entry) = entry else { return Ok(None) };
    let class = match entry.class {
        Class::IoprioClassRt => 1,
        Class::IoprioClassBe => 2,
        Class::IoprioClassIdle => 3,
    };
    // The idle class has no priority levels (ioprio_set(2)).
    let idle = (entry.class == Class::IoprioClassIdle).then_some(0);
    let priority = entry.priority.or(idle).ok_or_else(|| field.key("priority").missing())?;
    match i32::try_from(priority) {
        Ok(priority @ 0..=7) => Ok(Some(class << 13 | priority)),
        _ => Err(field.key("priority").invalid(format_args!("must be from 0 to 7, is {priority}"))),
    }
}
