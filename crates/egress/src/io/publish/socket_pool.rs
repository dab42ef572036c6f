//! Sockets of the sandbox's network, created by its pid 1 on request and kept for new connections. A socket belongs to
//! the network namespace in which it was created. The supervisor is in the host's namespace and never enters another
//! one.

use saggar_sys::Errno;
use saggar_sys::net::IpFamily;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;

/// Maximum number of prepared sockets, so that a connection need not wait.
const MAX_READY: usize = 8;
/// Maximum number of sockets requested at a time.
const MAX_REQUESTED: usize = 16;

/// The sockets of one address family.
#[derive(Debug, Default)]
pub(super) struct SocketPool {
    sockets: Vec<OwnedFd>,
    requested: usize,
    /// Connections that wait for a socket, in order.
    waiting: VecDeque<usize>,
    /// The error of the last request, if it failed.
    last_error: Option<Errno>,
}

/// The result of a request for a socket.
#[derive(Debug)]
pub(super) enum PooledSocket {
    /// A socket.
    Socket(OwnedFd),
    /// A socket was requested from pid 1.
    Pending,
    /// No socket can be created.
    Unavailable(Errno),
}

impl SocketPool {
    /// Takes a socket for this connection.
    pub(super) fn take(&mut self, caller: usize) -> PooledSocket {
        match (self.sockets.pop(), self.last_error) {
            (Some(socket), _) => {
                self.forget(caller);
                PooledSocket::Socket(socket)
            }
            // A kernel without the address family will never support it.
            (None, Some(errno @ Errno::EAFNOSUPPORT)) => PooledSocket::Unavailable(errno),
            (None, _) => {
                // A repeated request keeps its place in the queue.
                if !self.waiting.contains(&caller) {
                    self.waiting.push_back(caller);
                }
                PooledSocket::Pending
            }
        }
    }

    /// Adds a requested socket; returns the connection that has waited longest.
    pub(super) fn add(&mut self, socket: Result<OwnedFd, Errno>) -> Option<usize> {
        self.requested = self.requested.saturating_sub(1);
        self.last_error = socket.as_ref().err().copied();
        self.sockets.extend(socket);
        self.waiting.pop_front()
    }

    /// Removes a waiting connection.
    pub(super) fn forget(&mut self, caller: usize) {
        self.waiting.retain(|waiting| *waiting != caller);
    }

    /// Number of sockets to request now.
    pub(super) fn shortfall(&self) -> usize {
        // After a failure no sockets are requested in advance.
        let ready = if self.last_error.is_some() { 0 } else { MAX_READY };
        let wanted = (ready + self.waiting.len()).saturating_sub(self.sockets.len() + self.requested);
        wanted.min(MAX_REQUESTED.saturating_sub(self.requested))
    }

    /// Counts a request that was sent.
    pub(super) fn count_request(&mut self) {
        self.requested += 1;
    }
}

/// The pool of each address family.
#[derive(Debug, Default)]
pub(super) struct SocketPools {
    v4: SocketPool,
    v6: SocketPool,
}

impl SocketPools {
    pub(super) fn for_family(&mut self, family: IpFamily) -> &mut SocketPool {
        match family {
            IpFamily::V4 => &mut self.v4,
            IpFamily::V6 => &mut self.v6,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket() -> OwnedFd {
        saggar_sys::net::stream_socket(IpFamily::V4).unwrap()
    }

    fn ask(stock: &mut SocketPool) -> usize {
        let wanted = stock.shortfall();
        (0..wanted).for_each(|_| stock.count_request());
        wanted
    }

    #[test]
    fn some_lie_ready_and_more_come_for_who_waits() {
        let mut stock = SocketPool::default();
        assert_eq!(ask(&mut stock), MAX_READY);
        assert_eq!(stock.shortfall(), 0);
        for caller in 0..100 {
            assert!(matches!(stock.take(caller), PooledSocket::Pending));
        }
        assert_eq!(ask(&mut stock), MAX_REQUESTED - MAX_READY);
        assert_eq!(stock.add(Ok(socket())), Some(0), "who has waited longest is first");
        assert!(matches!(stock.take(0), PooledSocket::Socket(_)));
        stock.forget(1);
        assert_eq!(stock.add(Ok(socket())), Some(2));
    }

    #[test]
    fn what_cannot_be_made_is_not_asked_for_again_and_again() {
        let mut stock = SocketPool::default();
        for _ in 0..ask(&mut stock) {
            assert_eq!(stock.add(Err(Errno::ENOMEM)), None);
        }
        assert_eq!(stock.shortfall(), 0);
        assert!(matches!(stock.take(7), PooledSocket::Pending));
        assert_eq!(ask(&mut stock), 1, "but for who wants one");
        assert_eq!(stock.add(Err(Errno::EAFNOSUPPORT)), Some(7));
        assert!(matches!(stock.take(7), PooledSocket::Unavailable(Errno::EAFNOSUPPORT)));
        assert_eq!(stock.shortfall(), 0);
    }
}
