//! Verifies peers for the supervisor: reading the user namespace of a peer needs the right to trace it. The launcher does
//! it, from a few short files of the kernel: the fork of a worker would take longer than all else of a connection. Before
//! Linux 6.5, a worker does it, since the check that the pid was not reused reads all descriptors of the peer.

use super::VERIFY_PEER;
use crate::host::peer::{PeerPolicy, PeerRefusal, REFUSAL_REASONS, UNVERIFIABLE_PID};
use crate::stage::agent::launcher::Launcher;
use nix::fcntl::OFlag;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

/// The verdict of a worker for an accepted peer; for a rejected one it is the index in [`REFUSAL_REASONS`].
const ACCEPTED: u8 = 100;

/// From now on the launcher and its workers verify peers.
pub(in crate::supervise) fn verify_in_launcher_or_worker(launcher: &Rc<Launcher>) {
    let launcher = Rc::clone(launcher);
    crate::host::peer::set_peer_check(Box::new(move |connection| match launcher.verify_peer(connection) {
        Ok(Some(verdict)) => decode_verdict(verdict),
        Ok(None) => verify_in_worker(&launcher, connection),
        Err(_) => Err(UNVERIFIABLE_PID),
    }));
}

fn verify_in_worker(launcher: &Launcher, connection: BorrowedFd<'_>) -> Result<(), &'static str> {
    let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(|_| UNVERIFIABLE_PID)?;
    let asked = launcher.start_worker(VERIFY_PEER, 0, &[write.as_raw_fd(), connection.as_raw_fd()]);
    asked.map_err(|_| UNVERIFIABLE_PID)?;
    drop(write);
    let mut said = [u8::MAX];
    match File::from(read).read(&mut said) {
        Ok(1) => decode_verdict(said[0]),
        _ => Err(UNVERIFIABLE_PID),
    }
}

/// Decodes a verdict.
pub(in crate::supervise) fn decode_verdict(number: u8) -> Result<(), &'static str> {
    match number {
        ACCEPTED => Ok(()),
        other => Err(REFUSAL_REASONS.get(usize::from(other)).copied().unwrap_or(UNVERIFIABLE_PID)),
    }
}

/// Verifies the peer of a connection; returns the encoded verdict.
pub(in crate::supervise) fn encode_verdict(peers: &PeerPolicy, connection: BorrowedFd<'_>) -> u8 {
    encode(peers.check_connection(connection))
}

fn encode(verdict: Result<(), PeerRefusal>) -> u8 {
    match verdict {
        Ok(()) => ACCEPTED,
        Err(refusal) => REFUSAL_REASONS
            .iter()
            .position(|reason| *reason == refusal.reason)
            .and_then(|at| u8::try_from(at).ok())
            .unwrap_or(u8::MAX),
    }
}

/// In the launcher: verifies the peer of a connection; `None` if it takes a worker.
pub(super) fn verify_in_launcher(connection: BorrowedFd<'_>) -> Option<u8> {
    // A worker fails as this does, and then the peer is refused.
    let peers = PeerPolicy::of_this_process().ok()?;
    peers.check_held_connection(connection).map(encode)
}

/// In the worker: serves one request.
pub(super) fn serve_request(to: OwnedFd, connection: Option<OwnedFd>) {
    let (Ok(peers), Some(connection)) = (PeerPolicy::of_this_process(), connection) else { return };
    let _ = nix::unistd::write(&to, &[encode_verdict(&peers, connection.as_fd())]);
}
