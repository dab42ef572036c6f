//! Who calls the socket of a sandbox. Its own programs do not: where the socket lies in a directory that is shared with
//! them they would find it, and answer their own questions.

use crate::host::processes::parent_of;
use crate::sys::pidfd;
use mio::net::UnixStream;
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::{PeerCredentials, PeerPidfd};
use nix::unistd::geteuid;
use std::os::fd::AsFd;

/// How often a way up is gone whose processes end meanwhile, and how long it may be.
const TRIES: usize = 3;
const GENERATIONS: usize = 1000;

/// Whether the caller is our own user or root, and no process below `init`, where that is asked for. The mode of the
/// socket says the first already; a file system that ignores modes does not.
pub(super) fn is_welcome(stream: &UnixStream, init: Option<i32>) -> bool {
    let Ok(peer) = getsockopt(stream, PeerCredentials) else { return false };
    let own = geteuid().as_raw();
    if own == 0 || peer.uid() == 0 {
        // Nobody in a sandbox is root of the host.
        return peer.uid() == 0;
    }
    // What has no number here is in no namespace below ours.
    let init = init.filter(|_| peer.pid() != 0);
    peer.uid() == own && init.is_none_or(|init| is_outside(peer.pid(), init) && !is_gone(stream))
}

/// Whether none of a process's ancestors is `init`. One that has ended has none to be seen, and is not outside.
fn is_outside(pid: i32, init: i32) -> bool {
    (0..TRIES).find_map(|_| climb(pid, init)).unwrap_or(false)
}

fn climb(pid: i32, init: i32) -> Option<bool> {
    let mut at = pid;
    for _ in 0..GENERATIONS {
        if at == init || at <= 1 {
            return Some(at != init);
        }
        at = parent_of(at)?;
    }
    None
}

/// Whether the number of the caller may be another's by now (Linux 6.5; before, nobody can say).
fn is_gone(stream: &UnixStream) -> bool {
    getsockopt(stream, PeerPidfd).is_ok_and(|caller| pidfd::has_ended(caller.as_fd()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, id};

    #[test]
    fn whoever_is_below_an_init_is_inside_as_long_as_he_lives() {
        let [own, above] = [id(), std::os::unix::process::parent_id()].map(u32::cast_signed);
        let mut child = Command::new("/bin/sh")
            .args(["-c", "read x"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let below = child.id().cast_signed();
        assert!(!is_outside(below, below) && !is_outside(below, own) && !is_outside(below, above));
        assert!(is_outside(own, below) && is_outside(above, own));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_outside(below, i32::MAX), "nobody knows any more whose child it was");
    }
}
