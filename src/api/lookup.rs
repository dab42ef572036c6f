//! The addresses of the upstream, by the hosts file and the resolvers of this machine: what `egress` knows of both,
//! for a process that may wait.

use crate::egress::dns::{self, Asking, Taken};
use crate::egress::hosts;
use crate::sys::random;
use std::fs::read_to_string;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

/// The longest datagram that is read: what is asked for by EDNS0 is less.
const DATAGRAM: usize = 4096;
const TOO_LONG: &str = "an answer is too long";

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
    let mut failure = "no resolver answers";
    for _ in 0..options.attempts {
        for server in &servers {
            match timeout(options.timeout, ask(*server, name, options.over_tcp)).await {
                Ok(Ok(Asking { addresses, failure: None, .. })) if addresses.is_empty() => {
                    return Err("has no address".into());
                }
                Ok(Ok(Asking { addresses, failure: Some(why), .. })) if addresses.is_empty() => failure = why,
                Ok(Ok(Asking { addresses, .. })) => {
                    let mut found: Vec<IpAddr> = addresses.iter().map(|(address, _)| *address).collect();
                    found.sort_by_key(IpAddr::is_ipv6);
                    return Ok(found);
                }
                Ok(Err(_)) => failure = "no resolver can be reached",
                Err(_) => {}
            }
        }
    }
    Err(format!("cannot be looked up: {failure}"))
}

/// What one resolver says to both questions: by datagram, and over TCP what does not fit one.
async fn ask(server: SocketAddr, name: &str, over_tcp: bool) -> io::Result<Asking> {
    let mut asking = Asking::about(name);
    if !over_tcp {
        ask_by_datagram(server, &mut asking).await?;
    }
    // As long as each connection brings an answer: a resolver may take one question on each.
    while !asking.is_over() && ask_over_tcp(server, &mut asking).await? {}
    Ok(asking)
}

/// Until all is answered, or an answer was cut off.
async fn ask_by_datagram(server: SocketAddr, asking: &mut Asking) -> io::Result<()> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    for question in asking.questions(random::number)? {
        socket.send(&question).await?;
    }
    let mut bytes = [0; DATAGRAM];
    while !asking.is_over() {
        let count = socket.recv(&mut bytes).await?;
        if asking.take(bytes.get(..count).unwrap_or_default()) == Taken::Truncated {
            break;
        }
    }
    Ok(())
}

/// Whether the connection has brought an answer.
async fn ask_over_tcp(server: SocketAddr, asking: &mut Asking) -> io::Result<bool> {
    let mut stream = TcpStream::connect(server).await?;
    let questions = asking.questions(random::number)?;
    stream
        .write_all(&questions.iter().filter_map(|one| dns::framed(one)).flatten().collect::<Vec<_>>())
        .await?;
    let mut has_answered = false;
    while !asking.is_over() {
        let length = match stream.read_u16().await {
            Ok(length) => usize::from(length),
            Err(_) if has_answered => break,
            Err(error) => return Err(error),
        };
        if length > dns::LONGEST {
            asking.failure = Some(TOO_LONG);
            return Ok(false);
        }
        let mut message = vec![0; length];
        stream.read_exact(&mut message).await?;
        match asking.take(&message) {
            Taken::Answer => has_answered = true,
            Taken::Truncated => {
                asking.failure = Some(TOO_LONG);
                return Ok(false);
            }
            Taken::Stranger => {
                asking.failure = Some("a resolver answers what it was not asked");
                return Ok(false);
            }
        }
    }
    Ok(has_answered)
}
