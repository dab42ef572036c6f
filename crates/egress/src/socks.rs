//! SOCKS5 (RFC 1928), limited to outgoing connections: no authentication, and CONNECT only.
//!
//! ```text
//! Greeting ──methods──▶ Request ──CONNECT──▶ (the caller connects, and sends [`encode_reply`])
//!     └── anything else ──▶ its error reply, if it has one, then Failed permanently ◀──┘
//! ```

use super::authority;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const NO_METHOD: u8 = 255;
const CONNECT: u8 = 1;
/// The reply to SOCKS4 requests, which are not supported: version 0, code 91.
const SOCKS4_REFUSAL: [u8; 8] = [0, 91, 0, 0, 0, 0, 0, 0];

/// The handshake with one client, until it has named its destination.
#[derive(Debug, Default)]
pub(crate) struct SocksHandshake {
    state: SocksState,
}

#[derive(Debug, Default)]
enum SocksState {
    #[default]
    Greeting,
    Request,
    Failed(&'static str),
}

/// The next step of the handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SocksStep {
    /// Wait for more bytes.
    NeedMore,
    /// Send `bytes`, and continue after the consumed bytes. After an error reply the next step is
    /// [`SocksStep::Malformed`].
    Reply {
        /// Number of consumed bytes.
        consumed: usize,
        /// The reply to the client.
        bytes: Vec<u8>,
    },
    /// Connect to this host, and send the result of [`encode_reply`].
    Connect {
        /// Number of consumed bytes; the following bytes are for the server.
        consumed: usize,
        /// A name in lower case, or an address.
        host: String,
        /// Never 0.
        port: u16,
    },
    /// Close the connection; the reason.
    Malformed(&'static str),
}

/// The result of a connection, as a reply code of RFC 1928.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum SocksReply {
    /// The connection is established.
    Granted = 0,
    /// A general failure.
    Failed = 1,
    /// The policy does not allow it.
    NotAllowed = 2,
    /// The host does not exist, has no route or does not answer.
    HostUnreachable = 4,
    /// A command other than CONNECT.
    NoSuchCommand = 7,
    /// An unknown address type.
    NoSuchAddress = 8,
}

/// Encodes the reply to a request. The local address of the connection is not disclosed: 0.0.0.0.
pub(crate) fn encode_reply(outcome: SocksReply) -> [u8; 10] {
    [VERSION, outcome as u8, 0, 1, 0, 0, 0, 0, 0, 0]
}

impl SocksHandshake {
    /// Creates the handshake for a new client.
    pub(crate) fn new() -> Self {
        SocksHandshake::default()
    }

    /// The next step, from all `bytes` received and not consumed.
    pub(crate) fn next_step(&mut self, bytes: &[u8]) -> SocksStep {
        let step = match self.state {
            SocksState::Greeting => self.read_greeting(bytes),
            SocksState::Request => self.read_request(bytes),
            SocksState::Failed(why) => Some(SocksStep::Malformed(why)),
        };
        step.unwrap_or(SocksStep::NeedMore)
    }

    fn read_greeting(&mut self, bytes: &[u8]) -> Option<SocksStep> {
        match *bytes.first()? {
            VERSION => {}
            4 => return Some(self.refuse(1, &SOCKS4_REFUSAL, "SOCKS4, and only SOCKS5 is supported")),
            _ => return Some(self.fail("data that is not SOCKS")),
        }
        let count = usize::from(*bytes.get(1)?);
        let consumed = 2 + count;
        let methods = bytes.get(2..consumed)?;
        if !methods.contains(&NO_AUTHENTICATION) {
            return Some(self.refuse(consumed, &[VERSION, NO_METHOD], "SOCKS5 with authentication alone"));
        }
        self.state = SocksState::Request;
        Some(SocksStep::Reply { consumed, bytes: vec![VERSION, NO_AUTHENTICATION] })
    }

    fn read_request(&mut self, bytes: &[u8]) -> Option<SocksStep> {
        if *bytes.first()? != VERSION {
            return Some(self.fail("a SOCKS5 request of another version"));
        }
        if *bytes.get(1)? != CONNECT {
            let told = encode_reply(SocksReply::NoSuchCommand);
            return Some(self.refuse(2, &told, "a SOCKS5 command other than CONNECT"));
        }
        let kind = *bytes.get(3)?;
        let rest = bytes.get(4..)?;
        let (host, rest, taken) = match kind {
            1 => {
                let (address, rest) = rest.split_first_chunk::<4>()?;
                (Some(Ipv4Addr::from(*address).to_string()), rest, 4)
            }
            3 => {
                let (length, rest) = rest.split_first()?;
                let (text, rest) = rest.split_at_checked(usize::from(*length))?;
                (parse_host(text), rest, 1 + text.len())
            }
            4 => {
                let (address, rest) = rest.split_first_chunk::<16>()?;
                (Some(Ipv6Addr::from(*address).to_string()), rest, 16)
            }
            _ => {
                let told = encode_reply(SocksReply::NoSuchAddress);
                return Some(self.refuse(4, &told, "a SOCKS5 address of no known kind"));
            }
        };
        let port = u16::from_be_bytes(*rest.first_chunk::<2>()?);
        let consumed = 4 + taken + 2;
        match host {
            Some(host) if port != 0 => Some(SocksStep::Connect { consumed, host, port }),
            Some(_) => Some(self.refuse(consumed, &encode_reply(SocksReply::Failed), "port 0")),
            None => Some(self.refuse(
                consumed,
                &encode_reply(SocksReply::Failed),
                "a SOCKS5 name that is no name",
            )),
        }
    }

    fn refuse(&mut self, consumed: usize, told: &[u8], why: &'static str) -> SocksStep {
        self.state = SocksState::Failed(why);
        SocksStep::Reply { consumed, bytes: told.to_vec() }
    }

    fn fail(&mut self, why: &'static str) -> SocksStep {
        self.state = SocksState::Failed(why);
        SocksStep::Malformed(why)
    }
}

/// Parses a name, or an address that a client sent as a name.
fn parse_host(text: &[u8]) -> Option<String> {
    let address = core::str::from_utf8(text).ok().and_then(|text| text.parse::<IpAddr>().ok());
    address.map(|address| address.to_string()).or_else(|| authority::parse_host(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// All replies to a client that sends these bytes in chunks of `size`, the last step, and the number of consumed
    /// bytes.
    fn talk(bytes: &[u8], size: usize) -> (Vec<u8>, SocksStep, usize) {
        let (mut socks, mut told, mut consumed_all) = (SocksHandshake::new(), Vec::new(), 0);
        let mut came = 0;
        loop {
            match socks.next_step(&bytes[consumed_all..came]) {
                SocksStep::NeedMore if came == bytes.len() => {
                    return (told, SocksStep::NeedMore, consumed_all);
                }
                SocksStep::NeedMore => came = (came + size).min(bytes.len()),
                SocksStep::Reply { consumed, bytes } => {
                    consumed_all += consumed;
                    told.extend(bytes);
                }
                step => return (told, step, consumed_all),
            }
        }
    }

    fn asked(kind: u8, address: &[u8], port: [u8; 2]) -> Vec<u8> {
        [&[5, 1, 0, 5, 1, 0, kind], address, &port, b"first bytes"].concat()
    }

    #[test]
    fn a_connection_is_asked_for_by_name_and_by_address() {
        let v6 = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).octets();
        for (kind, address, host) in [
            (1, &[192, 0, 2, 1][..], "192.0.2.1"),
            (3, b"\x0fAPI.Example.com", "api.example.com"),
            (3, b"\x09192.0.2.1", "192.0.2.1"),
            (3, b"\x0b2001:db8::1", "2001:db8::1"),
            (4, &v6, "2001:db8::1"),
        ] {
            let consumed = 4 + address.len() + 2;
            let (told, step, _) = talk(&asked(kind, address, [1, 187]), 999);
            assert_eq!(
                (told, step),
                (vec![5, 0], SocksStep::Connect { consumed, host: host.into(), port: 443 })
            );
        }
        assert_eq!(encode_reply(SocksReply::Granted), [5, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(encode_reply(SocksReply::NotAllowed)[1], 2);
    }

    #[test]
    fn what_is_refused_is_told_and_stays_refused() {
        let cases: [(&[u8], &[u8], &str); 10] = [
            (b"\x04\x01\0P\x7f\0\0\x01\0", &SOCKS4_REFUSAL, "SOCKS4, and only SOCKS5 is supported"),
            (b"GET / HTTP/1.1\r\n", b"", "data that is not SOCKS"),
            (b"\x05\x00", b"\x05\xff", "SOCKS5 with authentication alone"),
            (b"\x05\x02\x01\x02", b"\x05\xff", "SOCKS5 with authentication alone"),
            (b"\x05\x01\x00\x04\x01", b"\x05\x00", "a SOCKS5 request of another version"),
            (
                b"\x05\x01\x00\x05\x02",
                b"\x05\x00\x05\x07\x00\x01\0\0\0\0\0\0",
                "a SOCKS5 command other than CONNECT",
            ),
            (
                b"\x05\x01\x00\x05\x01\x00\x02",
                b"\x05\x00\x05\x08\x00\x01\0\0\0\0\0\0",
                "a SOCKS5 address of no known kind",
            ),
            (
                b"\x05\x01\x00\x05\x01\x00\x01\x01\x01\x01\x01\0\0",
                b"\x05\x00\x05\x01\x00\x01\0\0\0\0\0\0",
                "port 0",
            ),
            (
                b"\x05\x01\x00\x05\x01\x00\x03\x00\0P",
                b"\x05\x00\x05\x01\x00\x01\0\0\0\0\0\0",
                "a SOCKS5 name that is no name",
            ),
            (
                b"\x05\x01\x00\x05\x01\x00\x03\x03a\0b\0P",
                b"\x05\x00\x05\x01\x00\x01\0\0\0\0\0\0",
                "a SOCKS5 name that is no name",
            ),
        ];
        for (bytes, told, why) in cases {
            let (said, step, _) = talk(bytes, 999);
            assert_eq!((said.as_slice(), step), (told, SocksStep::Malformed(why)));
        }
        let mut socks = SocksHandshake::new();
        assert_eq!(socks.next_step(b"\x06"), SocksStep::Malformed("data that is not SOCKS"));
        assert_eq!(socks.next_step(b"\x05\x01\x00"), SocksStep::Malformed("data that is not SOCKS"));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn any_cutting_gives_the_same(
            bytes in proptest::collection::vec(prop_oneof![0u8..6, any::<u8>()], 0..40),
            is_greeted: bool,
            size in 1usize..5,
        ) {
            let bytes = if is_greeted { [&[5, 1, 0, 5, 1, 0], bytes.as_slice()].concat() } else { bytes };
            let (told, step, consumed) = talk(&bytes, size);
            prop_assert_eq!(&(told, step.clone(), consumed), &talk(&bytes, bytes.len().max(1)));
            if let SocksStep::Connect { host, port, .. } = step {
                prop_assert!(port != 0 && parse_host(host.as_bytes()) == Some(host));
            }
        }

        #[test]
        fn a_name_comes_out_as_it_went_in(name in "[a-z0-9_]([a-z0-9_-]{0,18}[a-z0-9_])?\\.[a-z]{1,20}", port in 1u16..) {
            let length = u8::try_from(name.len()).unwrap();
            let bytes = asked(3, &[&[length], name.as_bytes()].concat(), port.to_be_bytes());
            let (_, step, _) = talk(&bytes, 3);
            prop_assert_eq!(step, SocksStep::Connect { consumed: 7 + name.len(), host: name, port });
        }
    }
}
