//! Clients that are told of a proxy, on two ports of the sandbox's loopback: HTTP (CONNECT, and single requests), SOCKS5.

use super::refusals::Kind;
use crate::egress::connect::{self, Status};
use crate::egress::socks::{self, Outcome, Socks};
use crate::plan::PROXIES;

/// A proxy, as its client sees it.
#[derive(Debug)]
pub(super) enum Proxy {
    /// The HTTP one.
    Http,
    /// The SOCKS5 one.
    Socks(Socks),
}

/// What a client has said.
#[derive(Debug)]
pub(super) enum Said {
    /// Not enough.
    More,
    /// Something that has an answer before it says more.
    Greeting {
        /// Bytes that are done with.
        consumed: usize,
        /// The answer.
        answer: Vec<u8>,
    },
    /// Whom it wants.
    Host {
        /// Bytes that are done with.
        consumed: usize,
        /// A name or an address.
        host: String,
        /// The port.
        port: u16,
        /// What the host is told in place of those bytes; nothing for a tunnel.
        request: Option<Vec<u8>>,
    },
    /// Nothing that it should.
    Wrong(&'static str),
}

impl Proxy {
    /// The proxy on this port of loopback.
    pub(super) fn on(port: u16) -> Option<Self> {
        let [socks, http] = PROXIES;
        match port {
            _ if port == http => Some(Proxy::Http),
            _ if port == socks => Some(Proxy::Socks(Socks::new())),
            _ => None,
        }
    }

    /// What a client says with all bytes that are not done with.
    pub(super) fn hear(&mut self, bytes: &[u8]) -> Said {
        match self {
            Proxy::Http => match connect::next(bytes) {
                connect::Step::More => Said::More,
                connect::Step::Connect { consumed, host, port } => {
                    Said::Host { consumed, host, port, request: None }
                }
                connect::Step::Request { consumed, host, port, head } => {
                    Said::Host { consumed, host, port, request: Some(head) }
                }
                connect::Step::Wrong(why) => Said::Wrong(why),
            },
            Proxy::Socks(client) => match client.next(bytes) {
                socks::Step::More => Said::More,
                socks::Step::Reply { consumed, bytes } => Said::Greeting { consumed, answer: bytes },
                socks::Step::Connect { consumed, host, port } => {
                    Said::Host { consumed, host, port, request: None }
                }
                socks::Step::Wrong(why) => Said::Wrong(why),
            },
        }
    }

    /// What a client hears when its tunnel stands.
    pub(super) fn granted(&self) -> Vec<u8> {
        match self {
            Proxy::Http => connect::ESTABLISHED.to_vec(),
            Proxy::Socks(_) => socks::reply(Outcome::Granted).to_vec(),
        }
    }

    /// What a client hears that gets nothing, for this reason.
    pub(super) fn refused(&self, kind: Kind, why: &str) -> Vec<u8> {
        let (status, outcome) = match kind {
            Kind::Policy => (Status::Forbidden, Outcome::NotAllowed),
            Kind::Malformed => (Status::BadRequest, Outcome::Failed),
            Kind::Limit => (Status::Unavailable, Outcome::Failed),
            Kind::Unreachable => (Status::BadGateway, Outcome::HostUnreachable),
        };
        match self {
            Proxy::Http => connect::answer(status, why),
            Proxy::Socks(_) => socks::reply(outcome).to_vec(),
        }
    }
}
