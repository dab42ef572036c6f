//! Whom a program calls, as it says it to the kernel (connect(2)).

use crate::egress::address::plain;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use std::ffi::OsStr;
use std::fmt::{Display, Formatter, Result};
use std::io::IoSliceMut;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

/// The longest address that the kernel takes, and the longest of those that are read here.
const STORAGE: usize = size_of::<libc::sockaddr_storage>();
const LONGEST: usize = size_of::<libc::sockaddr_un>();
/// Where it begins, after its family.
const BEGIN: usize = size_of::<libc::sa_family_t>();

/// Where name services have their sockets (nss(5)).
const NAME_SERVICES: [&str; 6] = [
    "/run/avahi-daemon/",
    "/run/nscd/",
    "/run/nslcd/",
    "/run/systemd/resolve/",
    "/run/systemd/userdb/",
    "/var/lib/sss/pipes/",
];

/// Whom it calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Address {
    /// A port of a host.
    Internet(SocketAddr),
    /// A unix socket.
    Unix(Name),
}

/// Where a unix socket is (unix(7)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Name {
    /// A path from the root, without detours by its words.
    Path(Vec<u8>),
    /// A name of the network namespace.
    Abstract(Vec<u8>),
}

impl Address {
    /// The one that a thread has at `at`, of so many bytes; `None` also when that cannot be read, or is nothing that
    /// the host could have: a relative path stays inside.
    pub(super) fn read(thread: i32, at: u64, length: u64) -> Option<Self> {
        // The kernel takes an int.
        let length =
            usize::try_from(length & u64::from(u32::MAX)).ok().filter(|length| *length <= STORAGE)?;
        let mut bytes = [0; LONGEST];
        let mut here = [IoSliceMut::new(bytes.get_mut(..length.min(LONGEST))?)];
        let there = [RemoteIoVec { base: usize::try_from(at).ok()?, len: length.min(LONGEST) }];
        let read = process_vm_readv(Pid::from_raw(thread), &mut here, &there).ok()?;
        let is_whole = |address: &Address| length <= LONGEST || matches!(address, Address::Internet(_));
        Address::parse(bytes.get(..read)?).filter(is_whole)
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (family, rest) = bytes.split_first_chunk::<BEGIN>()?;
        match i32::from(libc::sa_family_t::from_ne_bytes(*family)) {
            libc::AF_UNIX => Name::parse(rest).map(Address::Unix),
            libc::AF_INET => {
                let (port, rest) = rest.split_first_chunk::<2>()?;
                let ip = Ipv4Addr::from(*rest.first_chunk::<4>()?);
                Some(Address::Internet((ip, u16::from_be_bytes(*port)).into()))
            }
            libc::AF_INET6 => {
                let (port, rest) = rest.split_first_chunk::<2>()?;
                let (_flow, rest) = rest.split_first_chunk::<4>()?;
                let ip = plain(Ipv6Addr::from(*rest.first_chunk::<16>()?).into());
                Some(Address::Internet((ip, u16::from_be_bytes(*port)).into()))
            }
            _ => None,
        }
    }
}

impl Name {
    fn parse(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [] => None,
            [0, name @ ..] => Some(Name::Abstract(name.to_vec())),
            path => Name::path(path.split(|byte| *byte == 0).next()?),
        }
    }

    /// A path that is absolute.
    pub(super) fn path(path: &[u8]) -> Option<Self> {
        let mut straight = PathBuf::from("/");
        for part in Path::new(OsStr::from_bytes(path)).strip_prefix("/").ok()?.components() {
            match part {
                Component::ParentDir => _ = straight.pop(),
                part => straight.push(part),
            }
        }
        // The one is a link to the other wherever both are there.
        if let Ok(rest) = straight.strip_prefix("/var/run") {
            straight = Path::new("/run").join(rest);
        }
        Some(Name::Path(straight.into_os_string().into_vec()))
    }

    /// Whether it is a socket of a name service, which every program calls in passing: of nscd, sssd, nslcd, avahi or
    /// systemd.
    pub(super) fn is_of_name_service(&self) -> bool {
        let Name::Path(path) = self else { return false };
        NAME_SERVICES.iter().any(|directory| path.starts_with(directory.as_bytes()))
    }

    /// Why a program does not reach the host's socket there.
    pub(super) fn why(&self) -> &'static str {
        match self {
            Name::Path(_) => "it is the host's, and not inside (network.sockets)",
            Name::Abstract(_) => "it is the host's, and no sandbox has abstract names in common with it",
        }
    }
}

impl Display for Name {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Name::Path(path) => write!(f, "the unix socket {}", String::from_utf8_lossy(path)),
            Name::Abstract(name) => write!(f, "the abstract socket @{}", String::from_utf8_lossy(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(path: &str) -> Option<Name> {
        Some(Name::Path(path.into()))
    }

    #[test]
    fn a_path_ends_at_its_zero_and_has_one_spelling() {
        for spelled in [
            "/run/a.sock",
            "/run/a.sock\0garbage",
            "//run/./b/..//a.sock",
            "/var/run/a.sock",
            "/../run/a.sock",
        ] {
            assert_eq!(Name::parse(spelled.as_bytes()), path("/run/a.sock"), "{spelled}");
        }
        assert_eq!(Name::parse(b"/var/runner/a"), path("/var/runner/a"));
    }

    #[test]
    fn every_program_asks_name_services() {
        for (spelled, is_one) in
            [("/var/run/nscd/socket", true), ("/var/lib/sss/pipes/nss", true), ("/run/nscd.sock", false)]
        {
            assert_eq!(Name::path(spelled.as_bytes()).unwrap().is_of_name_service(), is_one, "{spelled}");
        }
        assert!(!Name::Abstract(b"/run/nscd/socket".to_vec()).is_of_name_service());
    }

    #[test]
    fn an_abstract_name_has_all_its_bytes() {
        assert_eq!(Name::parse(b"\0a\0b\0"), Some(Name::Abstract(b"a\0b\0".to_vec())));
        assert_eq!(Name::parse(b"\0a").unwrap().to_string(), "the abstract socket @a");
    }

    #[test]
    fn a_host_has_an_address_of_one_kind() {
        let four = [&2_u16.to_ne_bytes()[..], &[0, 80, 10, 1, 2, 3], &[0; 8]].concat();
        assert_eq!(Address::parse(&four), Some(Address::Internet("10.1.2.3:80".parse().unwrap())));
        for (ip, same) in [("2001:db8::1", "[2001:db8::1]:80"), ("::ffff:10.1.2.3", "10.1.2.3:80")] {
            let ip: Ipv6Addr = ip.parse().unwrap();
            let six = [&10_u16.to_ne_bytes()[..], &[0, 80, 9, 9, 9, 9], &ip.octets(), &[0; 4]].concat();
            assert_eq!(Address::parse(&six), Some(Address::Internet(same.parse().unwrap())));
        }
    }

    #[test]
    fn nothing_else_is_one() {
        for bytes in [
            &[][..],
            &[1],
            &[1, 0],
            &[2, 0, 0, 80, 127, 0, 0],
            &[10, 0, 0, 80, 0, 0, 0, 0, 1],
            &[16, 0, 0, 0],
        ] {
            assert_eq!(Address::parse(bytes), None, "{bytes:?}");
        }
        for name in ["a.sock", "./a.sock", "../run/a.sock"] {
            assert_eq!(Name::parse(name.as_bytes()), None, "{name}");
        }
    }

    #[test]
    fn it_is_read_where_a_thread_has_it() {
        let own = i32::try_from(std::process::id()).unwrap();
        let bytes = [&1_u16.to_ne_bytes(), &b"/run/a.sock\0"[..]].concat();
        let at = bytes.as_ptr() as u64;
        let length = bytes.len() as u64;
        let unix = |name| path(name).map(Address::Unix);
        assert_eq!(Address::read(own, at, length | 7 << 32), unix("/run/a.sock"), "an int is an int");
        assert_eq!(Address::read(own, at, length - 6), unix("/run/a"));
        assert_eq!(Address::read(own, 8, length), None);
        let long = [bytes, vec![0; 200]].concat();
        let at = long.as_ptr() as u64;
        assert_eq!(Address::read(own, at, 110), unix("/run/a.sock"));
        assert_eq!(Address::read(own, at, 111), None, "longer than any");
        let four = [&2_u16.to_ne_bytes()[..], &[0, 80, 10, 1, 2, 3], &[0; 200]].concat();
        let at = four.as_ptr() as u64;
        assert_eq!(Address::read(own, at, 128), Some(Address::Internet("10.1.2.3:80".parse().unwrap())));
        assert_eq!(Address::read(own, at, 129), None);
        assert_eq!(Address::read(own, u64::MAX, u64::MAX), None);
    }
}
