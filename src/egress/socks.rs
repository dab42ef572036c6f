//! SOCKS5 (RFC 1928), as far as an outgoing connection takes it: no authentication, and CONNECT alone.
//!
//! ```text
//! Greeting ──methods──▶ Request ──CONNECT──▶ (the caller dials, and sends [`reply`])
//!     └── anything else ──▶ its refusal, if it has one, then Wrong for good ◀──┘
//! ```

use super::authority;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const NO_METHOD: u8 = 255;
const CONNECT: u8 = 1;
/// What SOCKS4 answers to what it does not do: version 0, code 91.
const SOCKS4_REFUSAL: [u8; 8] = [0, 91, 0, 0, 0, 0, 0, 0];

/// One client, until it has said where to.
#[derive(Debug, Default)]
pub struct Socks {
    state: State,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Greeting,
    Request,
    Wrong(&'static str),
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Wait for more bytes.
    More,
    /// Send `bytes`, and go on behind those consumed. After a refusal the next step is [`Step::Wrong`].
    Reply {
        /// How many bytes are done with.
        consumed: usize,
        /// What the client is told.
        bytes: Vec<u8>,
    },
    /// Connect there, and send [`reply`].
    Connect {
        /// How many bytes are done with; what follows is for the server.
        consumed: usize,
        /// A name in lower case, or an address.
        host: String,
        /// Never 0.
        port: u16,
    },
    /// Close the connection; what is wrong with it.
    Wrong(&'static str),
}

/// What became of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Outcome {
    /// It is there.
    Granted = 0,
    /// Something failed here.
    Failed = 1,
    /// The policy does not allow it.
    NotAllowed = 2,
    /// There is no such host, no way to it, or nobody there.
    HostUnreachable = 4,
    /// Another command than CONNECT.
    NoSuchCommand = 7,
    /// An address of a kind that is not known.
    NoSuchAddress = 8,
}

/// The reply to a request. The address of our side of the connection is of no use to anybody: 0.0.0.0.
pub fn reply(outcome: Outcome) -> [u8; 10] {
    [VERSION, outcome as u8, 0, 1, 0, 0, 0, 0, 0, 0]
}

impl Socks {
    /// A client that has said nothing.
    pub fn new() -> Self {
        Socks::default()
    }

    /// The next step, with all `bytes` that came and were not consumed.
    pub fn next(&mut self, bytes: &[u8]) -> Step {
        let step = match self.state {
            State::Greeting => self.greeting(bytes),
            State::Request => self.request(bytes),
            State::Wrong(why) => Some(Step::Wrong(why)),
        };
        step.unwrap_or(Step::More)
    }

    fn greeting(&mut self, bytes: &[u8]) -> Option<Step> {
        match *bytes.first()? {
            VERSION => {}
            4 => return Some(self.refuse(1, &SOCKS4_REFUSAL, "SOCKS4, and only SOCKS5 is spoken here")),
            _ => return Some(self.wrong("what is no SOCKS")),
        }
        let count = usize::from(*bytes.get(1)?);
        let consumed = 2 + count;
        let methods = bytes.get(2..consumed)?;
        if !methods.contains(&NO_AUTHENTICATION) {
            return Some(self.refuse(consumed, &[VERSION, NO_METHOD], "SOCKS5 with authentication alone"));
        }
        self.state = State::Request;
        Some(Step::Reply { consumed, bytes: vec![VERSION, NO_AUTHENTICATION] })
    }

    fn request(&mut self, bytes: &[u8]) -> Option<Step> {
        if *bytes.first()? != VERSION {
            return Some(self.wrong("a SOCKS5 request of another version"));
        }
        if *bytes.get(1)? != CONNECT {
            let told = reply(Outcome::NoSuchCommand);
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
                (host(text), rest, 1 + text.len())
            }
            4 => {
                let (address, rest) = rest.split_first_chunk::<16>()?;
                (Some(Ipv6Addr::from(*address).to_string()), rest, 16)
            }
            _ => {
                let told = reply(Outcome::NoSuchAddress);
                return Some(self.refuse(4, &told, "a SOCKS5 address of no known kind"));
            }
        };
        let port = u16::from_be_bytes(*rest.first_chunk::<2>()?);
        let consumed = 4 + taken + 2;
        match host {
            Some(host) if port != 0 => Some(Step::Connect { consumed, host, port }),
            Some(_) => Some(self.refuse(consumed, &reply(Outcome::Failed), "port 0")),
            None => Some(self.refuse(consumed, &reply(Outcome::Failed), "a SOCKS5 name that is no name")),
        }
    }

    fn refuse(&mut self, consumed: usize, told: &[u8], why: &'static str) -> Step {
        self.state = State::Wrong(why);
        Step::Reply { consumed, bytes: told.to_vec() }
    }

    fn wrong(&mut self, why: &'static str) -> Step {
        self.state = State::Wrong(why);
        Step::Wrong(why)
    }
}

/// A name, or an address that a client has sent as one.
fn host(text: &[u8]) -> Option<String> {
    let address = core::str::from_utf8(text).ok().and_then(|text| text.parse::<IpAddr>().ok());
    address.map(|address| address.to_string()).or_else(|| authority::host(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Everything that a client with these bytes is told, and where it ends; fed in pieces of `size`.
    fn talk(bytes: &[u8], size: usize) -> (Vec<u8>, Step, usize) {
        let (mut socks, mut told, mut consumed_all) = (Socks::new(), Vec::new(), 0);
        let mut came = 0;
        loop {
            match socks.next(&bytes[consumed_all..came]) {
                Step::More if came == bytes.len() => return (told, Step::More, consumed_all),
                Step::More => came = (came + size).min(bytes.len()),
                Step::Reply { consumed, bytes } => {
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
            assert_eq!((told, step), (vec![5, 0], Step::Connect { consumed, host: host.into(), port: 443 }));
        }
        assert_eq!(reply(Outcome::Granted), [5, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(reply(Outcome::NotAllowed)[1], 2);
    }

    #[test]
    fn what_is_refused_is_told_and_stays_refused() {
        let cases: [(&[u8], &[u8], &str); 10] = [
            (b"\x04\x01\0P\x7f\0\0\x01\0", &SOCKS4_REFUSAL, "SOCKS4, and only SOCKS5 is spoken here"),
            (b"GET / HTTP/1.1\r\n", b"", "what is no SOCKS"),
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
            assert_eq!((said.as_slice(), step), (told, Step::Wrong(why)));
        }
        let mut socks = Socks::new();
        assert_eq!(socks.next(b"\x06"), Step::Wrong("what is no SOCKS"));
        assert_eq!(socks.next(b"\x05\x01\x00"), Step::Wrong("what is no SOCKS"));
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
            if let Step::Connect { host, port, .. } = step {
                prop_assert!(port != 0 && super::host(host.as_bytes()) == Some(host));
            }
        }

        #[test]
        fn a_name_comes_out_as_it_went_in(name in "[a-z0-9_]([a-z0-9_-]{0,18}[a-z0-9_])?\\.[a-z]{1,20}", port in 1u16..) {
            let length = u8::try_from(name.len()).unwrap();
            let bytes = asked(3, &[&[length], name.as_bytes()].concat(), port.to_be_bytes());
            let (_, step, _) = talk(&bytes, 3);
            prop_assert_eq!(step, Step::Connect { consumed: 7 + name.len(), host: name, port });
        }
    }
}
