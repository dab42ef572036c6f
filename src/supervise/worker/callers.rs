//! Judges who calls: to see which user namespace a caller is in takes the right to trace it, and so does, before Linux
//! 6.5, to see whether its number is still its own.

use super::JUDGE;
use crate::host::peer::{Peers, REASONS, UNCERTAIN};
use crate::stage::launcher::Launcher;
use nix::fcntl::OFlag;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

/// What a worker says of one that is accepted; of others it says which of [`REASONS`] there is.
const ACCEPTED: u8 = 100;

/// Has workers judge callers from now on.
pub(in crate::supervise) fn judge_by(launcher: &Rc<Launcher>) {
    let launcher = Rc::clone(launcher);
    crate::host::peer::judge_by(Box::new(move |connection| judge(&launcher, connection)));
}

fn judge(launcher: &Launcher, connection: BorrowedFd<'_>) -> Result<(), &'static str> {
    let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(|_| UNCERTAIN)?;
    let asked = launcher.work(JUDGE, 0, &[write.as_raw_fd(), connection.as_raw_fd()]);
    asked.map_err(|_| UNCERTAIN)?;
    drop(write);
    let mut said = [u8::MAX];
    match File::from(read).read(&mut said) {
        Ok(1) => verdict(said[0]),
        _ => Err(UNCERTAIN),
    }
}

/// What the number of a judgement means.
pub(in crate::supervise) fn verdict(number: u8) -> Result<(), &'static str> {
    match number {
        ACCEPTED => Ok(()),
        other => Err(REASONS.get(usize::from(other)).copied().unwrap_or(UNCERTAIN)),
    }
}

/// The number of the judgement of who is at the other end.
pub(in crate::supervise) fn number(peers: &Peers, connection: BorrowedFd<'_>) -> u8 {
    match peers.judge(connection) {
        Ok(()) => ACCEPTED,
        Err(refusal) => REASONS
            .iter()
            .position(|reason| *reason == refusal.reason)
            .and_then(|at| u8::try_from(at).ok())
            .unwrap_or(u8::MAX),
    }
}

/// The worker's side.
pub(super) fn answer(to: OwnedFd, connection: Option<OwnedFd>) {
    let (Ok(peers), Some(connection)) = (Peers::of_this_process(), connection) else { return };
    let _ = nix::unistd::write(&to, &[number(&peers, connection.as_fd())]);
}
