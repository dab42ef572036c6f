//! The name service of a sandbox: it answers whatever resolver a program asks, out of the policy alone. No question
//! leaves the machine; a name that may be called gets stand-in addresses, and is looked up when it is called.

use super::owner;
use super::pump::{Flow, again};
use super::refusals::Refusal;
use super::{AT_ONCE, name_of};
use crate::egress::dns::{self, Answer, Kind};
use crate::egress::names::Names;
use crate::spec::policy::hosts::{Rules, Verdict};
use mio::net::TcpStream;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg};
use std::io::{IoSlice, IoSliceMut, Read, Result, Write};
use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long a program may keep an answer: a stand-in address stays its name's as long as many others are not asked for.
const KEPT: Duration = Duration::from_secs(60);
/// How long a connection for questions may last.
const LASTS: Duration = Duration::from_secs(10);

/// What a question comes to.
#[derive(Debug, Default)]
pub(super) struct Answered {
    /// What is sent back; nothing to what is not even a question.
    pub(super) answer: Option<Vec<u8>>,
    /// Why the answer is no, where the policy says so.
    pub(super) refusal: Option<Refusal>,
}

impl From<Option<Vec<u8>>> for Answered {
    fn from(answer: Option<Vec<u8>>) -> Self {
        Answered { answer, refusal: None }
    }
}

/// The answer to a question.
pub(super) fn answer(query: &[u8], rules: &Rules, names: &mut Names) -> Answered {
    let question = match dns::question(query) {
        Ok(question) => question,
        Err(malformed) => return malformed.id.map(|_| dns::answer(query, &Answer::FormErr)).into(),
    };
    let no = || Some(dns::answer(query, &Answer::NxDomain));
    let refuse = |why: &str, rule: Option<String>| {
        let name = Some(question.name.clone());
        Answered {
            answer: no(),
            refusal: Some(Refusal { name, why: why.into(), rule, ..Refusal::default() }),
        }
    };
    let Some(name) = name_of(&question.name) else { return refuse("it is no name of a host", None) };
    // Programs ask for the names of addresses by the way, to print them: nobody is to hear of that.
    if [".in-addr.arpa", ".ip6.arpa"].iter().any(|end| question.name.ends_with(end)) {
        return no().into();
    }
    match rules.knows(&name) {
        Verdict::Denied(rule) => return refuse("it is denied", Some(rule.to_string())),
        Verdict::Unnamed => return refuse("no rule names it", None),
        Verdict::Allowed(_) | Verdict::Asked(_) => {}
    }
    let (four, six) = names.addresses_of(name.as_str());
    let addresses = match question.kind {
        Kind::A => [IpAddr::V4(four)],
        Kind::Aaaa => [IpAddr::V6(six)],
        Kind::Other(_) => return Some(dns::answer(query, &Answer::NoData)).into(),
    };
    Some(dns::answer(query, &Answer::Addresses(&addresses, KEPT))).into()
}

/// Where a question was sent to, which its answer has to come from.
#[derive(Debug, Clone, Copy)]
pub(super) enum Asked {
    Four(libc::in_pktinfo),
    Six(libc::in6_pktinfo),
}

/// The address of who asks, as the kernel lists it.
pub(super) fn asker(from: &SockaddrStorage) -> Option<owner::Socket> {
    let four = from.as_sockaddr_in().map(|from| SocketAddr::from(SocketAddrV4::from(*from)));
    let six = || from.as_sockaddr_in6().map(|from| SocketAddr::from(SocketAddrV6::from(*from)));
    four.or_else(six).map(owner::Socket::Datagram)
}

/// The socket that hears questions by datagram.
pub(super) struct OverUdp(OwnedFd);

impl OverUdp {
    /// Takes the socket over.
    ///
    /// # Errors
    /// Those of epoll_ctl(2).
    pub(super) fn new(socket: OwnedFd, registry: &Registry, token: Token) -> Result<Self> {
        registry.register(&mut SourceFd(&socket.as_raw_fd()), token, Interest::READABLE)?;
        Ok(OverUdp(socket))
    }

    /// The next question: its length in `chunk`, who asks, and whom.
    pub(super) fn receive(&self, chunk: &mut [u8]) -> Option<(usize, SockaddrStorage, Asked)> {
        let mut room = nix::cmsg_space!(libc::in6_pktinfo, libc::in_pktinfo);
        for _ in 0..AT_ONCE {
            let mut parts = [IoSliceMut::new(chunk)];
            let got = recvmsg::<SockaddrStorage>(
                self.0.as_raw_fd(),
                &mut parts,
                Some(&mut room),
                MsgFlags::MSG_DONTWAIT,
            );
            let message = match got {
                Ok(message) => message,
                Err(nix::errno::Errno::EAGAIN) => return None,
                // As when a program would not hear an answer: that is said here, once.
                Err(_) => continue,
            };
            let asked = message.cmsgs().into_iter().flatten().find_map(|control| match control {
                ControlMessageOwned::Ipv4PacketInfo(info) => Some(Asked::Four(info)),
                ControlMessageOwned::Ipv6PacketInfo(info) => Some(Asked::Six(info)),
                _ => None,
            });
            if let (Some(from), Some(asked)) = (message.address, asked) {
                return Some((message.bytes, from, asked));
            }
        }
        None
    }

    /// Sends an answer. One that cannot be sent is lost, as datagrams are.
    pub(super) fn send(&self, answer: &[u8], to: SockaddrStorage, from: Asked) {
        let control = match &from {
            Asked::Four(info) => ControlMessage::Ipv4PacketInfo(info),
            Asked::Six(info) => ControlMessage::Ipv6PacketInfo(info),
        };
        let parts = [IoSlice::new(answer)];
        let _ = sendmsg(self.0.as_raw_fd(), &parts, &[control], MsgFlags::MSG_DONTWAIT, Some(&to));
    }
}

/// A connection for questions (RFC 1035, 4.2.2: each has its length before it).
pub(super) struct OverTcp {
    stream: TcpStream,
    read: Vec<u8>,
    write: Vec<u8>,
    until: Instant,
}

impl OverTcp {
    /// Takes the connection over.
    ///
    /// # Errors
    /// Those of epoll_ctl(2).
    pub(super) fn new(mut stream: TcpStream, registry: &Registry, token: Token) -> Result<Self> {
        registry.register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
        Ok(OverTcp { stream, read: Vec::new(), write: Vec::new(), until: Instant::now() + LASTS })
    }

    /// When it has lasted long enough.
    pub(super) fn deadline(&self) -> Instant {
        self.until
    }

    /// The program's end of it.
    pub(super) fn caller(&self) -> Option<owner::Socket> {
        self.stream.peer_addr().ok().map(owner::Socket::Stream)
    }

    /// Answers what was asked.
    pub(super) fn serve(
        &mut self,
        chunk: &mut [u8],
        answer: &mut dyn FnMut(&[u8]) -> Option<Vec<u8>>,
    ) -> Flow {
        let late = self.until <= Instant::now();
        if late { Flow::Over } else { self.serve_some(chunk, answer).unwrap_or(Flow::Over) }
    }

    fn serve_some(
        &mut self,
        chunk: &mut [u8],
        answer: &mut dyn FnMut(&[u8]) -> Option<Vec<u8>>,
    ) -> Result<Flow> {
        for _ in 0..AT_ONCE {
            while !self.write.is_empty() {
                match again(|| self.stream.write(&self.write))? {
                    Some(count) => drop(self.write.drain(..count)),
                    None => return Ok(Flow::Waits),
                }
            }
            if let Some((message, rest)) = dns::first(&self.read) {
                // What is no question has no answer.
                let answer = answer(message).filter(|answer| !answer.is_empty());
                self.read = rest.to_vec();
                let Some(answer) = answer.and_then(|answer| dns::framed(&answer)) else {
                    return Ok(Flow::Over);
                };
                self.write.extend(answer);
                continue;
            }
            match again(|| self.stream.read(chunk))? {
                None => return Ok(Flow::Waits),
                Some(0) => return Ok(Flow::Over),
                Some(count) => self.read.extend_from_slice(chunk.get(..count).unwrap_or_default()),
            }
        }
        Ok(Flow::Goes)
    }
}
