//! The name server of a sandbox. It answers a question to any resolver, from the policy alone. No question leaves the
//! machine. An allowed name gets stand-in addresses and is looked up when a program connects to them.

use super::denials::NetworkDenial;
use super::pump::{Flow, retry_interrupted};
use super::socket_owner;
use super::{MAX_PER_SOCKET, parse_name};
use crate::dns::{self, DnsAnswer, RecordType};
use crate::stand_in_table::StandInTable;
use mio::net::TcpStream;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg};
use saggar_policy::hosts::{HostRules, HostVerdict};
use std::io::{IoSlice, IoSliceMut, Read, Result, Write};
use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// Time to live of answers. A stand-in address stays assigned to its name unless many other names are requested.
const ANSWER_TTL: Duration = Duration::from_secs(60);
/// Maximum duration of a TCP connection with questions.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// The outcome of a question.
#[derive(Debug, Default)]
pub(super) struct NameAnswer {
    /// The response; `None` if the message is not a question.
    pub(super) response: Option<Vec<u8>>,
    /// The denial, if the policy denies the name.
    pub(super) denial: Option<NetworkDenial>,
}

impl From<Option<Vec<u8>>> for NameAnswer {
    fn from(answer: Option<Vec<u8>>) -> Self {
        NameAnswer { response: answer, denial: None }
    }
}

/// Answers a question.
pub(super) fn answer_query(query: &[u8], rules: &HostRules, names: &mut StandInTable) -> NameAnswer {
    let question = match dns::parse_question(query) {
        Ok(question) => question,
        Err(malformed) => return malformed.id.map(|_| dns::encode_answer(query, &DnsAnswer::FormErr)).into(),
    };
    let no = || Some(dns::encode_answer(query, &DnsAnswer::NxDomain));
    let refuse = |why: &str, rule: Option<String>| {
        let name = Some(question.name.clone());
        NameAnswer {
            response: no(),
            denial: Some(NetworkDenial { name, why: why.into(), rule, ..NetworkDenial::default() }),
        }
    };
    let Some(name) = parse_name(&question.name) else { return refuse("it is no name of a host", None) };
    // Programs routinely request the names of addresses for display. This is not reported.
    if [".in-addr.arpa", ".ip6.arpa"].iter().any(|end| question.name.ends_with(end)) {
        return no().into();
    }
    match rules.check_name(&name) {
        HostVerdict::Denied(rule) => return refuse("it is denied", Some(rule.to_string())),
        HostVerdict::NoRule => return refuse("no rule names it", None),
        HostVerdict::Allowed(_) | HostVerdict::NeedsConsent(_) => {}
    }
    let (four, six) = names.addresses_of(name.as_str());
    let addresses = match question.record_type {
        RecordType::A => [IpAddr::V4(four)],
        RecordType::Aaaa => [IpAddr::V6(six)],
        RecordType::Other(_) => return Some(dns::encode_answer(query, &DnsAnswer::NoData)).into(),
    };
    Some(dns::encode_answer(query, &DnsAnswer::Addresses(&addresses, ANSWER_TTL))).into()
}

/// The destination address of a question, which must be the source of its answer.
#[derive(Debug, Clone, Copy)]
pub(super) enum QueryDestination {
    V4(libc::in_pktinfo),
    V6(libc::in6_pktinfo),
}

/// The client's socket, as the kernel lists it.
pub(super) fn querying_socket(from: &SockaddrStorage) -> Option<socket_owner::SocketOwnerQuery> {
    let four = from.as_sockaddr_in().map(|from| SocketAddr::from(SocketAddrV4::from(*from)));
    let six = || from.as_sockaddr_in6().map(|from| SocketAddr::from(SocketAddrV6::from(*from)));
    four.or_else(six).map(socket_owner::SocketOwnerQuery::Datagram)
}

/// The socket for questions over UDP.
pub(super) struct UdpNameServer(OwnedFd);

impl UdpNameServer {
    /// Takes over the socket.
    ///
    /// # Errors
    /// Those of epoll_ctl(2).
    pub(super) fn new(socket: OwnedFd, registry: &Registry, token: Token) -> Result<Self> {
        registry.register(&mut SourceFd(&socket.as_raw_fd()), token, Interest::READABLE)?;
        Ok(UdpNameServer(socket))
    }

    /// Receives the next question: its length in `chunk`, its source and its destination.
    pub(super) fn receive(&self, chunk: &mut [u8]) -> Option<(usize, SockaddrStorage, QueryDestination)> {
        let mut room = nix::cmsg_space!(libc::in6_pktinfo, libc::in_pktinfo);
        for _ in 0..MAX_PER_SOCKET {
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
                // A pending error, for example because a client did not accept an answer. It is reported once.
                Err(_) => continue,
            };
            let asked = message.cmsgs().into_iter().flatten().find_map(|control| match control {
                ControlMessageOwned::Ipv4PacketInfo(info) => Some(QueryDestination::V4(info)),
                ControlMessageOwned::Ipv6PacketInfo(info) => Some(QueryDestination::V6(info)),
                _ => None,
            });
            if let (Some(from), Some(asked)) = (message.address, asked) {
                return Some((message.bytes, from, asked));
            }
        }
        None
    }

    /// Sends an answer. If this fails, the datagram is lost.
    pub(super) fn send(&self, answer: &[u8], to: SockaddrStorage, from: QueryDestination) {
        let control = match &from {
            QueryDestination::V4(info) => ControlMessage::Ipv4PacketInfo(info),
            QueryDestination::V6(info) => ControlMessage::Ipv6PacketInfo(info),
        };
        let parts = [IoSlice::new(answer)];
        let _ = sendmsg(self.0.as_raw_fd(), &parts, &[control], MsgFlags::MSG_DONTWAIT, Some(&to));
    }
}

/// A TCP connection with questions (RFC 1035, 4.2.2: each has its length before it).
pub(super) struct TcpNameConnection {
    stream: TcpStream,
    received: Vec<u8>,
    unsent: Vec<u8>,
    deadline: Instant,
}

impl TcpNameConnection {
    /// Takes over the connection.
    ///
    /// # Errors
    /// Those of epoll_ctl(2).
    pub(super) fn new(mut stream: TcpStream, registry: &Registry, token: Token) -> Result<Self> {
        registry.register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
        Ok(TcpNameConnection {
            stream,
            received: Vec::new(),
            unsent: Vec::new(),
            deadline: Instant::now() + CONNECTION_TIMEOUT,
        })
    }

    /// When the connection is closed.
    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// The program's socket.
    pub(super) fn client_socket(&self) -> Option<socket_owner::SocketOwnerQuery> {
        self.stream.peer_addr().ok().map(socket_owner::SocketOwnerQuery::Stream)
    }

    /// Answers the questions received so far.
    pub(super) fn serve(
        &mut self,
        chunk: &mut [u8],
        answer: &mut dyn FnMut(&[u8]) -> Option<Vec<u8>>,
    ) -> Flow {
        let late = self.deadline <= Instant::now();
        if late { Flow::Finished } else { self.serve_some(chunk, answer).unwrap_or(Flow::Finished) }
    }

    fn serve_some(
        &mut self,
        chunk: &mut [u8],
        answer: &mut dyn FnMut(&[u8]) -> Option<Vec<u8>>,
    ) -> Result<Flow> {
        for _ in 0..MAX_PER_SOCKET {
            while !self.unsent.is_empty() {
                match retry_interrupted(|| self.stream.write(&self.unsent))? {
                    Some(count) => drop(self.unsent.drain(..count)),
                    None => return Ok(Flow::Blocked),
                }
            }
            if let Some((message, rest)) = dns::first_frame(&self.received) {
                // A message that is not a question gets no answer.
                let answer = answer(message).filter(|answer| !answer.is_empty());
                self.received = rest.to_vec();
                let Some(answer) = answer.and_then(|answer| dns::with_length_prefix(&answer)) else {
                    return Ok(Flow::Finished);
                };
                self.unsent.extend(answer);
                continue;
            }
            match retry_interrupted(|| self.stream.read(chunk))? {
                None => return Ok(Flow::Blocked),
                Some(0) => return Ok(Flow::Finished),
                Some(count) => self.received.extend_from_slice(chunk.get(..count).unwrap_or_default()),
            }
        }
        Ok(Flow::More)
    }
}
