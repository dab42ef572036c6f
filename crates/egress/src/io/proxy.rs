//! The proxies for configured clients, on two ports of the sandbox's loopback: HTTP (CONNECT, and single requests) and
//! SOCKS5.

use super::denials::DenialKind;
use crate::http_proxy::{self, HttpProxyStatus};
use crate::request_body::RequestBody;
use crate::socks::{self, SocksHandshake, SocksReply};
use saggar_policy::publish::PROXY_PORTS;

/// The protocol of a proxy client.
#[derive(Debug)]
pub(super) enum ClientProxy {
    /// HTTP proxy.
    Http,
    /// SOCKS5 proxy.
    Socks(SocksHandshake),
}

/// The parsed input of a client.
#[derive(Debug)]
pub(super) enum ProxyRequest {
    /// More bytes are needed.
    NeedMore,
    /// The client needs a reply before it sends more.
    Reply {
        /// Number of consumed bytes.
        consumed: usize,
        /// The reply.
        answer: Vec<u8>,
    },
    /// The client requests a connection.
    Connect {
        /// Number of consumed bytes.
        consumed: usize,
        /// A name or an address.
        host: String,
        /// The port.
        port: u16,
        /// The bytes for the host in place of the consumed ones, and the body that follows; `None` for a tunnel.
        request: Option<(Vec<u8>, RequestBody)>,
    },
    /// Malformed input; the reason.
    Malformed(&'static str),
}

impl ClientProxy {
    /// The proxy on this port of loopback.
    pub(super) fn for_port(port: u16) -> Option<Self> {
        let [socks, http] = PROXY_PORTS;
        match port {
            _ if port == http => Some(ClientProxy::Http),
            _ if port == socks => Some(ClientProxy::Socks(SocksHandshake::new())),
            _ => None,
        }
    }

    /// Parses all bytes of a client that are not consumed yet.
    pub(super) fn parse(&mut self, bytes: &[u8]) -> ProxyRequest {
        match self {
            ClientProxy::Http => match http_proxy::next_step(bytes) {
                http_proxy::HttpProxyStep::NeedMore => ProxyRequest::NeedMore,
                http_proxy::HttpProxyStep::Connect { consumed, host, port } => {
                    ProxyRequest::Connect { consumed, host, port, request: None }
                }
                http_proxy::HttpProxyStep::Request { consumed, host, port, head, body } => {
                    let request = Some((head, RequestBody::new(body)));
                    ProxyRequest::Connect { consumed, host, port, request }
                }
                http_proxy::HttpProxyStep::Malformed(why) => ProxyRequest::Malformed(why),
            },
            ClientProxy::Socks(client) => match client.next_step(bytes) {
                socks::SocksStep::NeedMore => ProxyRequest::NeedMore,
                socks::SocksStep::Reply { consumed, bytes } => {
                    ProxyRequest::Reply { consumed, answer: bytes }
                }
                socks::SocksStep::Connect { consumed, host, port } => {
                    ProxyRequest::Connect { consumed, host, port, request: None }
                }
                socks::SocksStep::Malformed(why) => ProxyRequest::Malformed(why),
            },
        }
    }

    /// The reply for an established tunnel.
    pub(super) fn success_reply(&self) -> Vec<u8> {
        match self {
            ClientProxy::Http => http_proxy::ESTABLISHED.to_vec(),
            ClientProxy::Socks(_) => socks::encode_reply(SocksReply::Granted).to_vec(),
        }
    }

    /// The reply for a failed or denied connection, with this reason.
    pub(super) fn denial_reply(&self, kind: DenialKind, why: &str) -> Vec<u8> {
        let (status, outcome) = match kind {
            DenialKind::Policy => (HttpProxyStatus::Forbidden, SocksReply::NotAllowed),
            DenialKind::Malformed => (HttpProxyStatus::BadRequest, SocksReply::Failed),
            DenialKind::Limit => (HttpProxyStatus::Unavailable, SocksReply::Failed),
            DenialKind::Unreachable => (HttpProxyStatus::BadGateway, SocksReply::HostUnreachable),
        };
        match self {
            ClientProxy::Http => http_proxy::error_response(status, why),
            ClientProxy::Socks(_) => socks::encode_reply(outcome).to_vec(),
        }
    }
}
