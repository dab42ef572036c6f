//! What programs have to wait for: pid 1's filter asks about sockets that they do not get, and about calls
//! (`seccomp/telling.json`).

mod address;
mod kind;
mod listed;

use super::refusals::Refusal;
use crate::sys::SysResult;
use crate::sys::file::{self, Resolve};
use crate::sys::seccomp::listener::{self, Asked};
use address::{Address, Name};
use kind::Kind;
use listed::Listed;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use std::ffi::CString;
use std::io::Result;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
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
    ///
    /// # Errors
    /// Those of epoll_ctl(2).
    pub(super) fn new(listener: OwnedFd, init: i32, registry: &Registry, token: Token) -> Result<Self> {
        registry.register(&mut SourceFd(&listener.as_raw_fd()), token, Interest::READABLE)?;
        listener::take_turns(listener.as_fd());
        let outside = Listed::new("/proc/self/net/unix".into(), Duration::from_secs(1));
        let inside = Listed::new(format!("/proc/{init}/net/unix").into(), Duration::from_millis(100));
        Ok(Asker { listener, outside, inside })
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

    /// Whether who asks has something of its own there, in its network or its tree.
    fn is_inside(&mut self, wanted: &Wanted, name: &Name) -> bool {
        match name {
            Name::Abstract(_) => self.inside.has(name),
            Name::Path(path) => exists(wanted.thread(), path).unwrap_or(false),
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

/// Whether a thread finds something at this path.
fn exists(thread: i32, path: &[u8]) -> Option<bool> {
    let (root, path) = (CString::new(format!("/proc/{thread}/root")).ok()?, CString::new(path).ok()?);
    let root = file::open(file::cwd(), &root, libc::O_PATH, 0, Resolve::Ordinary).ok()?;
    Some(file::open(root.as_fd(), &path, libc::O_PATH, 0, Resolve::InRoot).is_ok())
}
