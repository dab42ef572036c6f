//! `saggar events`: statistics and out-of-memory events, one JSON object a line, until the container stops.

use super::Context;
use super::container::{Found, Status};
use crate::cgroup::oom::OomEvent;
use crate::cgroup::{Group, OomWatch};
use crate::cli::oci::EventsArgs;
use crate::error::{Code, Error, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::json;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

pub(super) fn run(context: &Context, args: &EventsArgs) -> Result<u8> {
    let found = Found::new(context.find(&args.id)?)?;
    if matches!(found.status(), Status::Stopped | Status::Creating) {
        let id = &found.record.id;
        return Err(Error::new(Code::Refused, format!("events of container {id:?}: container not running")));
    }
    let group = found.group()?;
    if args.stats {
        stats(&found.record.id, &group)?;
        return Ok(0);
    }
    let (init, _) = found.init()?;
    let oom = group
        .watch_oom()
        .inspect_err(|error| log::warn!("out-of-memory events cannot be told: {error}"))
        .ok();
    follow(&found.record.id, &group, &init, oom, args.interval.duration())
}

/// How long after the first process's end the kernel is given to tell why it ended: it holds changes of a
/// cgroup's files back for a while.
const LAST_WORDS: Duration = Duration::from_millis(200);

fn follow(
    id: &str,
    group: &Group,
    init: &OwnedFd,
    mut oom: Option<OomWatch>,
    interval: Duration,
) -> Result<u8> {
    let mut next = Instant::now();
    let mut end: Option<Instant> = None;
    loop {
        if end.is_none() && Instant::now() >= next {
            stats(id, group)?;
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
            match watch.look()? {
                OomEvent::OutOfMemory => say(&json!({ "type": "oom", "id": id }))?,
                OomEvent::Over => oom = None,
                OomEvent::Nothing => {}
            }
        }
        if ended {
            end = Some(Instant::now() + LAST_WORDS);
        }
        if end.is_some_and(|end| oom.is_none() || Instant::now() >= end) {
            return Ok(0);
        }
    }
}

fn stats(id: &str, group: &Group) -> Result<()> {
    let data = group.stats()?;
    say(&json!({ "type": "stats", "id": id, "data": data }))
}

fn say(event: &serde_json::Value) -> Result<()> {
    crate::cmd::say_exactly(&format!("{event}\n"))
}
