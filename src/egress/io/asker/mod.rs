//! What programs have to wait for: pid 1's filter asks about sockets that they do not get, and about calls
//! (`seccomp/telling.json`).

mod address;
mod kind;
mod listed;

use super::refusals::Refusal;
use crate::sys::seccomp::listener::{self, Asked};
use crate::sys::{Errno, SysResult};
use address::{Address, Name};
use kind::Kind;
use listed::Listed;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::Mode;
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::time::Duration;

/// Answers what the filter asks.
#[derive(Debug)]
pub(super) struct Asker {
    listener: OwnedFd,
    /// The unix sockets of the host.
    outside: Listed,
    /// Those of the sandbox, whose programs make some and call them at once.
    inside: Listed,
}

/// A call that waits for its answer.
#[derive(Debug)]
pub(super) struct Wanted {
    asked: Asked,
    what: What,
}

#[derive(Debug)]
enum What {
    /// A socket that it does not get.
    Socket(Kind),
    /// Somebody is called, where that could be read. The kernel has the last word: it reads the address again,
    /// and what is asked here is asked for the telling alone.
    Call(Option<Address>),
}

impl Asker {
    /// Takes the listener over, of the sandbox of this pid 1.
    pub(super) fn new(listener: OwnedFd, init: i32) -> Self {
        listener::take_turns(listener.as_fd());
        let outside = Listed::new("/proc/self/net/unix".into(), Duration::from_secs(1));
        let inside = Listed::new(format!("/proc/{init}/net/unix").into(), Duration::from_millis(100));
        Asker { listener, outside, inside }
    }

    /// The listener, readable when there is a question.
    pub(super) fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// The next question; nothing when there is none for now.
    ///
    /// # Errors
    /// Nothing is to be answered: who asked is gone.
    pub(super) fn next(&self) -> SysResult<Option<Wanted>> {
        let Some(asked) = listener::next(self.listener.as_fd())? else { return Ok(None) };
        let [_, second, third, _, fifth, sixth] = asked.args;
        let what = match i64::from(asked.number) {
            libc::SYS_connect => What::Call(Address::read(asked.thread, second, third)),
            libc::SYS_sendto => What::Call(Address::read(asked.thread, fifth, sixth)),
            _ => What::Socket(Kind::of(asked.number, &asked.args)),
        };
        Ok(Some(Wanted { asked, what }))
    }

    /// Whether who asked still does: what was read of its thread until now is its own.
    pub(super) fn still_waits(&self, wanted: &Wanted) -> bool {
        listener::still_waits(self.listener.as_fd(), &wanted.asked)
    }

    /// What there is to tell of it, if anything is.
    pub(super) fn refusal(&mut self, wanted: &Wanted) -> Option<Refusal> {
        let (socket, why, is_usual) = match &wanted.what {
            What::Socket(kind) => (kind.to_string(), "no sandbox gives sockets of this kind", false),
            What::Call(Some(Address::Unix(name))) => {
                let is_apart =
                    self.outside.has(name) && !self.is_inside(wanted, name) && self.still_waits(wanted);
                (is_apart.then(|| name.to_string())?, name.why(), name.is_of_name_service())
            }
            What::Call(_) => return None,
        };
        Some(Refusal { socket: Some(socket), why: why.into(), is_usual, ..Refusal::default() })
    }

    /// Whether who asks may have something of its own there, in its network or its tree.
    fn is_inside(&mut self, wanted: &Wanted, name: &Name) -> bool {
        match name {
            Name::Abstract(_) => self.inside.has(name),
            Name::Path(path) => may_exist(wanted.thread(), path),
        }
    }

    /// Says no to a socket, and lets a call go on. To whom is gone, nothing has to be said.
    pub(super) fn answer(&self, wanted: &Wanted) {
        let listener = self.listener.as_fd();
        let _ = match &wanted.what {
            What::Socket(kind) => listener::refuse(listener, &wanted.asked, kind.error()),
            What::Call(_) => listener::let_go_on(listener, &wanted.asked),
        };
    }
}

impl Wanted {
    /// The thread that asks, as the host numbers it.
    pub(super) fn thread(&self) -> i32 {
        self.asked.thread
    }

    /// The port of another host that it calls, if it does.
    pub(super) fn host(&self) -> Option<SocketAddr> {
        match self.what {
            What::Call(Some(Address::Internet(to))) => {
                Some(to).filter(|to| !to.ip().is_loopback() && !to.ip().is_unspecified())
            }
            _ => None,
        }
    }
}

/// Whether a thread may find something at this absolute path: not where a directory on the way surely has no such name.
/// A link, or a directory that this process cannot search, leaves it open.
///
/// Each part is opened by itself and no link is followed, so that nothing inside leads this process anywhere else.
fn may_exist(thread: i32, path: &[u8]) -> bool {
    let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
    let Ok(mut at) = open(format!("/proc/{thread}/root").as_str(), flags, Mode::empty()) else { return true };
    for part in Path::new(OsStr::from_bytes(path)).components() {
        let Component::Normal(name) = part else { continue };
        match openat(&at, name, flags | OFlag::O_NOFOLLOW, Mode::empty()) {
            Ok(found) => at = found,
            Err(errno) => return errno != Errno::ENOENT,
        }
    }
    true
}
