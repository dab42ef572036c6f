//! `saggar events`: prints statistics and out-of-memory events, one JSON object per line, until the container
//! stops.

use super::OciContext;
use super::container::{ContainerStatus, LoadedContainer};
use crate::cgroup::oom::OomEvent;
use crate::cgroup::{CgroupHandle, OomWatch};
use crate::cli::oci::EventsArgs;
use crate::error::{Code, Error, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::json;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

pub(super) fn run(context: &OciContext, args: &EventsArgs) -> Result<u8> {
    let found = LoadedContainer::load(context.find(&args.id)?)?;
    if matches!(found.status(), ContainerStatus::Stopped | ContainerStatus::Creating) {
        let id = &found.record.id;
        return Err(Error::new(Code::Refused, format!("events of container {id:?}: container not running")));
    }
    let group = found.group()?;
    if args.stats {
        print_stats(&found.record.id, &group)?;
        return Ok(0);
    }
    let (init, _) = found.init()?;
    let oom = group
        .watch_oom()
        .inspect_err(|error| log::warn!("out-of-memory events cannot be reported: {error}"))
        .ok();
    follow(&found.record.id, &group, &init, oom, args.interval.duration())
}

/// How long to wait for an out-of-memory event after the first process has exited, because the kernel delays
/// notifications of cgroup files.
const OOM_GRACE: Duration = Duration::from_millis(200);

fn follow(
    id: &str,
    group: &CgroupHandle,
    init: &OwnedFd,
    mut oom: Option<OomWatch>,
    interval: Duration,
) -> Result<u8> {
    let mut next = Instant::now();
    let mut end: Option<Instant> = None;
    loop {
        if end.is_none() && Instant::now() >= next {
            print_stats(id, group)?;
            next = Instant::now() + interval;
        }
        let mut fds = Vec::new();
        fds.extend(
            oom.as_ref().map(|watch| PollFd::new(watch.as_fd(), PollFlags::POLLIN | PollFlags::POLLPRI)),
        );
        if end.is_none() {
            fds.push(PollFd::new(init.as_fd(), PollFlags::POLLIN));
        }
        let left = end.unwrap_or(next).saturating_duration_since(Instant::now()).as_micros().div_ceil(1000);
        match poll(&mut fds, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)) {
            Err(nix::errno::Errno::EINTR) => continue,
            Err(errno) => return Err(Error::system("wait for events", errno)),
            Ok(_) => {}
        }
        let ended = end.is_none() && fds.last().is_some_and(|fd| fd.any().unwrap_or(false));
        if let Some(watch) = &mut oom {
            match watch.next_event()? {
                OomEvent::OutOfMemory => print_event(&json!({ "type": "oom", "id": id }))?,
                OomEvent::Ended => oom = None,
                OomEvent::NoChange => {}
            }
        }
        if ended {
            end = Some(Instant::now() + OOM_GRACE);
        }
        if end.is_some_and(|end| oom.is_none() || Instant::now() >= end) {
            return Ok(0);
        }
    }
}

fn print_stats(id: &str, group: &CgroupHandle) -> Result<()> {
    let data = group.stats()?;
    print_event(&json!({ "type": "stats", "id": id, "data": data }))
}

fn print_event(event: &serde_json::Value) -> Result<()> {
    crate::cmd::print_raw(&format!("{event}\n"))
}
