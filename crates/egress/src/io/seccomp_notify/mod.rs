//! Answers the notifications of pid 1's seccomp filter, for which programs wait: about denied sockets and about calls
//! (`seccomp/telling.json`). Those about modes of directories are answered elsewhere.

mod address;
mod requested_socket;
mod unix_sockets;

use super::denials::NetworkDenial;
use address::{CallAddress, UnixSocketName};
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::Mode;
use requested_socket::RequestedSocket;
use saggar_sys::seccomp::listener::{self, SyscallNotification};
use saggar_sys::{Errno, SysResult};
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::time::Duration;
use unix_sockets::UnixSocketList;

/// Answers the notifications of the filter.
#[derive(Debug)]
pub(super) struct SeccompNotifyHandler {
    listener: OwnedFd,
    /// Calls that another process answers, unless that is done.
    forwarded: Vec<PendingCall>,
    /// The unix sockets of the host.
    host_sockets: UnixSocketList,
    /// The unix sockets of the sandbox, re-read more often because programs create sockets and call them at once.
    sandbox_sockets: UnixSocketList,
}

/// A system call that waits for its response.
#[derive(Debug)]
pub(super) struct PendingCall {
    notification: SyscallNotification,
    target: CallTarget,
}

#[derive(Debug)]
enum CallTarget {
    /// A denied socket.
    Socket(RequestedSocket),
    /// The mode of a file or directory, which another process sets.
    Mode,
    /// A call to an address, if it could be read. The kernel reads the address again and decides. The value here is
    /// used for reports only.
    Address(Option<CallAddress>),
}

impl SeccompNotifyHandler {
    /// Takes over the listener of the sandbox with this pid 1.
    pub(super) fn new(listener: OwnedFd, init: i32) -> Self {
        listener::set_sync_wake_up(listener.as_fd());
        let outside = UnixSocketList::new("/proc/self/net/unix".into(), Duration::from_secs(1));
        let inside = UnixSocketList::new(format!("/proc/{init}/net/unix").into(), Duration::from_millis(100));
        SeccompNotifyHandler {
            listener,
            forwarded: Vec::new(),
            host_sockets: outside,
            sandbox_sockets: inside,
        }
    }

    /// The listener, readable when a notification is pending.
    pub(super) fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// The next notification; `None` if there is none now.
    ///
    /// # Errors
    /// The caller has gone and needs no response.
    pub(super) fn next_call(&self) -> SysResult<Option<PendingCall>> {
        let Some(asked) = listener::receive(self.listener.as_fd())? else { return Ok(None) };
        let [_, second, third, _, fifth, sixth] = asked.args;
        let what = match i64::from(asked.number) {
            libc::SYS_connect => {
                CallTarget::Address(CallAddress::read_from_thread(asked.thread, second, third))
            }
            libc::SYS_sendto => {
                CallTarget::Address(CallAddress::read_from_thread(asked.thread, fifth, sixth))
            }
            libc::SYS_socket | libc::SYS_socketpair => {
                CallTarget::Socket(RequestedSocket::from_call(asked.number, &asked.args))
            }
            _ => CallTarget::Mode,
        };
        Ok(Some(PendingCall { notification: asked, target: what }))
    }

    /// Whether the caller is still waiting. Only then does the data read so far belong to its thread.
    pub(super) fn is_still_waiting(&self, wanted: &PendingCall) -> bool {
        listener::is_valid(self.listener.as_fd(), &wanted.notification)
    }

    /// The denial to report, if there is one.
    pub(super) fn denial(&mut self, wanted: &PendingCall) -> Option<NetworkDenial> {
        let (socket, why, is_usual) = match &wanted.target {
            CallTarget::Socket(kind) => (kind.to_string(), "no sandbox gives sockets of this kind", false),
            CallTarget::Address(Some(CallAddress::Unix(name))) => {
                let is_apart = self.host_sockets.contains(name)
                    && !self.may_be_inside(wanted, name)
                    && self.is_still_waiting(wanted);
                (is_apart.then(|| name.to_string())?, name.denial_reason(), name.is_name_service())
            }
            CallTarget::Mode | CallTarget::Address(_) => return None,
        };
        Some(NetworkDenial { socket: Some(socket), why: why.into(), is_usual, ..NetworkDenial::default() })
    }

    /// Whether the caller may have a socket of this name in its own network namespace or file tree.
    fn may_be_inside(&mut self, wanted: &PendingCall, name: &UnixSocketName) -> bool {
        match name {
            UnixSocketName::Abstract(_) => self.sandbox_sockets.contains(name),
            UnixSocketName::Path(path) => may_exist(wanted.thread(), path),
        }
    }

    /// Records a call that another process answers.
    pub(super) fn add_forwarded(&mut self, call: PendingCall) {
        if self.forwarded.len() == self.forwarded.capacity() {
            let listener = self.listener.as_fd();
            self.forwarded.retain(|call| listener::is_valid(listener, &call.notification));
        }
        self.forwarded.push(call);
    }

    /// Denies the calls that no process answers any more.
    pub(super) fn deny_forwarded(&mut self) {
        for call in std::mem::take(&mut self.forwarded) {
            self.respond(&call);
        }
    }

    /// Denies a socket or a mode, and continues a call. It is not an error if the caller has gone.
    pub(super) fn respond(&self, wanted: &PendingCall) {
        let listener = self.listener.as_fd();
        let _ = match &wanted.target {
            CallTarget::Socket(kind) => listener::respond_error(listener, &wanted.notification, kind.errno()),
            CallTarget::Mode => listener::respond_error(listener, &wanted.notification, Errno::EPERM),
            CallTarget::Address(_) => listener::respond_continue(listener, &wanted.notification),
        };
    }
}

impl PendingCall {
    /// The calling thread, by its id on the host.
    pub(super) fn thread(&self) -> i32 {
        self.notification.thread
    }

    /// The notification, if the call sets the mode of a file or directory.
    pub(super) fn mode_request(&self) -> Option<SyscallNotification> {
        matches!(self.target, CallTarget::Mode).then_some(self.notification)
    }

    /// The address of another host that it calls, if it does.
    pub(super) fn remote_host(&self) -> Option<SocketAddr> {
        match self.target {
            CallTarget::Address(Some(CallAddress::Internet(to))) => {
                Some(to).filter(|to| !to.ip().is_loopback() && !to.ip().is_unspecified())
            }
            _ => None,
        }
    }
}

/// Whether a thread may find a file at this absolute path. False only if a directory on the path certainly has no such
/// entry. A link, or a directory that this process cannot search, leaves it open.
///
/// Each component is opened separately and no link is followed, so that nothing in the sandbox can redirect this
/// process.
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
