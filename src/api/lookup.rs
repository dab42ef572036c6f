//! The addresses of the upstream, by the hosts file and the resolvers of this machine: what `egress` knows of both,
//! for a process that may wait.

use crate::egress::dns::{self, Kind, Reply};
use crate::egress::hosts;
use crate::sys::random;
use std::fs::read_to_string;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use tokio::net::UdpSocket;
use tokio::time::timeout;

/// The longest answer: what is asked for by EDNS0 is less.
const LONGEST: usize = 4096;

/// The addresses of a name, IPv4 first: there is one connection at a time, and a way for IPv6 that leads nowhere is the
/// more usual fault.
///
/// # Errors
/// Why there are none, as the end of a sentence that begins with the name.
pub(super) async fn addresses(name: &str) -> Result<Vec<IpAddr>, String> {
    let written = hosts::addresses(&read_to_string("/etc/hosts").unwrap_or_default(), name);
    if !written.is_empty() {
        return Ok(written);
    }
    // RFC 6761, section 6.3: resolvers may not know it.
    if name == "localhost" {
        return Ok(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]);
    }
    let text = read_to_string("/etc/resolv.conf").unwrap_or_default();
    let (servers, options) = (hosts::servers(&text), hosts::options(&text));
    let mut failure = "cannot be looked up: no resolver answers";
    for _ in 0..options.attempts {
        for server in &servers {
            match timeout(options.timeout, ask(*server, name)).await {
                Ok(Ok(Asked::Addresses(mut found))) => {
                    found.sort_by_key(IpAddr::is_ipv6);
                    return Ok(found);
                }
                Ok(Ok(Asked::None)) => return Err("has no address".into()),
                Ok(Ok(Asked::Failed(why))) => failure = why,
                Ok(Err(_)) => failure = "cannot be looked up: no resolver can be reached",
                Err(_) => {}
            }
        }
    }
    Err(failure.into())
}

/// What one resolver says to both questions.
enum Asked {
    Addresses(Vec<IpAddr>),
    None,
    Failed(&'static str),
}

async fn ask(server: SocketAddr, name: &str) -> io::Result<Asked> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    let mut open = Vec::new();
    for kind in [Kind::A, Kind::Aaaa] {
        let mut number = [0; 2];
        random::fill(&mut number)?;
        let number = u16::from_ne_bytes(number);
        let question =
            dns::query(number, name, kind).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        socket.send(&question).await?;
        open.push((number, kind));
    }
    let (mut found, mut failure, mut bytes) = (Vec::new(), None, [0; LONGEST]);
    while !open.is_empty() {
        let count = socket.recv(&mut bytes).await?;
        let message = bytes.get(..count).unwrap_or_default();
        let answered = open.iter().position(|(number, kind)| {
            let reply = dns::reply(message, *number, name, *kind);
            match &reply {
                Some(Reply::Addresses(more)) => found.extend(more.iter().map(|(address, _)| *address)),
                Some(Reply::Failed(_)) => failure = Some("cannot be looked up: the resolver failed"),
                Some(Reply::Truncated) => failure = Some("cannot be looked up: the answer is too long"),
                Some(Reply::None) | None => {}
            }
            reply.is_some()
        });
        if let Some(at) = answered {
            open.remove(at);
        }
    }
    Ok(match (found.is_empty(), failure) {
        (false, _) => Asked::Addresses(found),
        (true, Some(why)) => Asked::Failed(why),
        (true, None) => Asked::None,
    })
}
