//! Looks up the addresses of the upstream in the hosts file and through the resolvers of this machine. It uses the
//! parsers of `egress`, and may wait for replies.

use crate::dns::{self, ReceivedResponse, ResolverQuery};
use crate::resolver_files;
use saggar_sys::random;
use std::fs::read_to_string;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

/// Size of the receive buffer for a datagram, in bytes. The EDNS0 size in queries is smaller.
const DATAGRAM: usize = 4096;
const TOO_LONG: &str = "an answer is too long";

/// The addresses of a name, IPv4 first: connections are tried one after the other, and a broken IPv6 route is the more
/// frequent fault.
///
/// # Errors
/// The reason, as the end of a sentence that begins with the name.
pub(super) async fn lookup_addresses(name: &str) -> Result<Vec<IpAddr>, String> {
    let written = resolver_files::hosts_addresses(&read_to_string("/etc/hosts").unwrap_or_default(), name);
    if !written.is_empty() {
        return Ok(written);
    }
    // RFC 6761, section 6.3: resolvers need not know the name.
    if name == "localhost" {
        return Ok(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]);
    }
    let text = read_to_string("/etc/resolv.conf").unwrap_or_default();
    let (servers, options) = (resolver_files::nameservers(&text), resolver_files::resolver_options(&text));
    let mut failure = "no resolver answers";
    for _ in 0..options.attempts {
        for server in &servers {
            match timeout(options.timeout, query_server(*server, name, options.over_tcp)).await {
                Ok(Ok(ResolverQuery { addresses, failure: None, .. })) if addresses.is_empty() => {
                    return Err("has no address".into());
                }
                Ok(Ok(ResolverQuery { addresses, failure: Some(why), .. })) if addresses.is_empty() => {
                    failure = why
                }
                Ok(Ok(ResolverQuery { addresses, .. })) => {
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

/// Sends both questions to one resolver: over UDP, and over TCP after a truncated response.
async fn query_server(server: SocketAddr, name: &str, over_tcp: bool) -> io::Result<ResolverQuery> {
    let mut asking = ResolverQuery::for_name(name);
    if !over_tcp {
        query_over_udp(server, &mut asking).await?;
    }
    // Repeated while each connection brings a response, because a resolver may answer one question per connection.
    while !asking.is_complete() && query_over_tcp(server, &mut asking).await? {}
    Ok(asking)
}

/// Returns when both questions are answered, or when a response was truncated.
async fn query_over_udp(server: SocketAddr, asking: &mut ResolverQuery) -> io::Result<()> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    for question in asking.encode_questions(random::number)? {
        socket.send(&question).await?;
    }
    let mut bytes = [0; DATAGRAM];
    while !asking.is_complete() {
        let count = socket.recv(&mut bytes).await?;
        if asking.receive(bytes.get(..count).unwrap_or_default()) == ReceivedResponse::Truncated {
            break;
        }
    }
    Ok(())
}

/// Returns whether the connection brought a response.
async fn query_over_tcp(server: SocketAddr, asking: &mut ResolverQuery) -> io::Result<bool> {
    let mut stream = TcpStream::connect(server).await?;
    let questions = asking.encode_questions(random::number)?;
    stream
        .write_all(
            &questions.iter().filter_map(|one| dns::with_length_prefix(one)).flatten().collect::<Vec<_>>(),
        )
        .await?;
    let mut has_answered = false;
    while !asking.is_complete() {
        let length = match stream.read_u16().await {
            Ok(length) => usize::from(length),
            Err(_) if has_answered => break,
            Err(error) => return Err(error),
        };
        if length > dns::MAX_MESSAGE_LENGTH {
            asking.failure = Some(TOO_LONG);
            return Ok(false);
        }
        let mut message = vec![0; length];
        stream.read_exact(&mut message).await?;
        match asking.receive(&message) {
            ReceivedResponse::Answer => has_answered = true,
            ReceivedResponse::Truncated => {
                asking.failure = Some(TOO_LONG);
                return Ok(false);
            }
            ReceivedResponse::Unrelated => {
                asking.failure = Some("a resolver answers what it was not asked");
                return Ok(false);
            }
        }
    }
    Ok(has_answered)
}
