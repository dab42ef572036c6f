//! Sockets of the sandbox's network, made by its pid 1 on request and kept for those who call: a socket belongs to the
//! network that it was made in, and the supervisor, which is in the host's, never enters another.

use crate::sys::Errno;
use crate::sys::net::Family;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;

/// Sockets that lie ready, so that who calls does not wait.
const READY: usize = 8;
/// Sockets that are asked for at once.
const ASKED: usize = 16;

/// What there is of a family.
#[derive(Debug, Default)]
pub(super) struct Stock {
    sockets: Vec<OwnedFd>,
    asked: usize,
    /// Who waits for one, in order.
    waiting: VecDeque<usize>,
    /// The last one could not be made.
    failed: Option<Errno>,
}

/// An answer to who wants a socket.
#[derive(Debug)]
pub(super) enum Supply {
    /// Here it is.
    Socket(OwnedFd),
    /// It comes.
    Waits,
    /// There is none.
    Missing(Errno),
}

impl Stock {
    /// A socket for this caller.
    pub(super) fn take(&mut self, caller: usize) -> Supply {
        match (self.sockets.pop(), self.failed) {
            (Some(socket), _) => {
                self.forget(caller);
                Supply::Socket(socket)
            }
            // A kernel without the family will not get it.
            (None, Some(errno @ Errno::EAFNOSUPPORT)) => Supply::Missing(errno),
            (None, _) => {
                // Who asks again keeps its place.
                if !self.waiting.contains(&caller) {
                    self.waiting.push_back(caller);
                }
                Supply::Waits
            }
        }
    }

    /// Takes what was asked for in; who has waited longest.
    pub(super) fn put(&mut self, socket: Result<OwnedFd, Errno>) -> Option<usize> {
        self.asked = self.asked.saturating_sub(1);
        self.failed = socket.as_ref().err().copied();
        self.sockets.extend(socket);
        self.waiting.pop_front()
    }

    /// Nobody waits under this name any more.
    pub(super) fn forget(&mut self, caller: usize) {
        self.waiting.retain(|waiting| *waiting != caller);
    }

    /// How many more are to be asked for now.
    pub(super) fn wanted(&self) -> usize {
        // Where none could be made, none is asked for in advance.
        let ready = if self.failed.is_some() { 0 } else { READY };
        let wanted = (ready + self.waiting.len()).saturating_sub(self.sockets.len() + self.asked);
        wanted.min(ASKED.saturating_sub(self.asked))
    }

    /// One more was asked for.
    pub(super) fn ask(&mut self) {
        self.asked += 1;
    }
}

/// The stock of each family.
#[derive(Debug, Default)]
pub(super) struct Stocks {
    four: Stock,
    six: Stock,
}

impl Stocks {
    pub(super) fn of(&mut self, family: Family) -> &mut Stock {
        match family {
            Family::Four => &mut self.four,
            Family::Six => &mut self.six,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket() -> OwnedFd {
        crate::sys::net::stream_socket(Family::Four).unwrap()
    }

    fn ask(stock: &mut Stock) -> usize {
        let wanted = stock.wanted();
        (0..wanted).for_each(|_| stock.ask());
        wanted
    }

    #[test]
    fn some_lie_ready_and_more_come_for_who_waits() {
        let mut stock = Stock::default();
        assert_eq!(ask(&mut stock), READY);
        assert_eq!(stock.wanted(), 0);
        for caller in 0..100 {
            assert!(matches!(stock.take(caller), Supply::Waits));
        }
        assert_eq!(ask(&mut stock), ASKED - READY);
        assert_eq!(stock.put(Ok(socket())), Some(0), "who has waited longest is first");
        assert!(matches!(stock.take(0), Supply::Socket(_)));
        stock.forget(1);
        assert_eq!(stock.put(Ok(socket())), Some(2));
    }

    #[test]
    fn what_cannot_be_made_is_not_asked_for_again_and_again() {
        let mut stock = Stock::default();
        for _ in 0..ask(&mut stock) {
            assert_eq!(stock.put(Err(Errno::ENOMEM)), None);
        }
        assert_eq!(stock.wanted(), 0);
        assert!(matches!(stock.take(7), Supply::Waits));
        assert_eq!(ask(&mut stock), 1, "but for who wants one");
        assert_eq!(stock.put(Err(Errno::EAFNOSUPPORT)), Some(7));
        assert!(matches!(stock.take(7), Supply::Missing(Errno::EAFNOSUPPORT)));
        assert_eq!(stock.wanted(), 0);
    }
}
