//! The loop of the attribution: it answers the relay's questions, and what the filter of the sandbox's pid 1 asks.
//!
//! Who runs here: a fork of the relay's program, made before that read anything of the sandbox, with the id of the
//! sandbox's owner ([`super::confine::attribution`]). It ends when the sandbox and the relay are over.

use super::channel::{Channel, Received};
use super::confine;
use super::wire::{Answered, Ask, Refused, Start};
use crate::egress::io::{Attribution, Refusal};
use crate::launch::set_nonblocking;
use crate::sys::{file, process, scm};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Instant;

/// The whole life of the process; its exit status. The sockets are its ends of those to the relay.
pub(super) fn run(start: &Start, pidfd: &OwnedFd, asks: &OwnedFd, reports: &OwnedFd) -> i32 {
    let _ = process::set_name(c"saggar:attrib");
    let ready = set_nonblocking(reports.as_fd()).and_then(|()| confine::attribution(start.owner));
    // Its own copy is closed when the relay is gone; the one that was lent is not this process's to close.
    match ready.and_then(|()| Channel::new(duplicate(asks)?)) {
        Ok(asks) => serve(&mut Attribution::new(start.init), pidfd.as_fd(), asks, reports.as_fd()),
        Err(_) => 1,
    }
}

fn duplicate(fd: &OwnedFd) -> crate::error::Result<OwnedFd> {
    file::duplicate_number(fd.as_raw_fd())
        .map_err(|e| crate::error::Error::system("duplicate a descriptor", e.desc()))
}

fn serve(attribution: &mut Attribution, init: BorrowedFd<'_>, asks: Channel, reports: BorrowedFd<'_>) -> i32 {
    let (mut asks, mut is_over) = (Some(asks), false);
    let report = |refusal: Refusal| {
        // A relay that does not read them misses some.
        if let Ok(bytes) = serde_json::to_vec(&Refused::from(refusal)) {
            let _ = scm::send(reports, &bytes, &[]);
        }
    };
    while asks.is_some() || !is_over {
        let left = attribution.deadline().map(|at| at.saturating_duration_since(Instant::now()));
        let timeout = left.and_then(|left| PollTimeout::try_from(left).ok()).unwrap_or(PollTimeout::NONE);
        let ready = {
            let input = |fd| PollFd::new(fd, PollFlags::POLLIN);
            let listener = attribution.listener();
            let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(3);
            fds.extend(asks.as_ref().map(|asks| input(asks.as_fd())));
            fds.extend(listener.map(input));
            fds.extend((!is_over).then(|| input(init)));
            match poll(&mut fds, timeout) {
                Ok(_) | Err(nix::Error::EINTR) => {}
                Err(_) => return 1,
            }
            let is_ready = |fd: &PollFd<'_>| fd.any().unwrap_or(false);
            !is_over && fds.last().is_some_and(is_ready)
        };
        attribution.answer(&mut |refusal| report(refusal));
        attribution.refusals().into_iter().for_each(&report);
        if let Some(channel) = &mut asks
            && !answer(attribution, channel)
        {
            asks = None;
        }
        if ready {
            is_over = true;
            attribution.close();
        }
    }
    0
}

/// Answers what the relay asks now; false when it is gone.
fn answer(attribution: &mut Attribution, asks: &mut Channel) -> bool {
    if asks.flush().is_err() {
        return false;
    }
    loop {
        let (answered, beside) = match asks.receive() {
            Received::Message(Ask::Program(number, of), _) => {
                (Answered { number, program: attribution.program(of) }, None)
            }
            Received::Message(Ask::File(number, file), _) => {
                (Answered { number, program: None }, File::open(file.path()).ok().map(OwnedFd::from))
            }
            Received::Message(Ask::Hears(port), _) => {
                attribution.hears(port);
                continue;
            }
            Received::Message(Ask::Listener, listener) => {
                listener.into_iter().for_each(|listener| attribution.answer_for(listener));
                continue;
            }
            Received::Nothing => return true,
            Received::Over => return false,
        };
        // A relay that asks and does not read makes no sense.
        if asks.send(&answered, beside).is_err() || asks.is_full() {
            return false;
        }
    }
}
