//! The address that a program passes to connect(2).

use crate::address::canonical;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use std::ffi::OsStr;
use std::fmt::{Display, Formatter, Result};
use std::io::IoSliceMut;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

/// Maximum length of an address that the kernel accepts, and that is read here, in bytes.
const MAX_ADDRESS_LENGTH: usize = size_of::<libc::sockaddr_storage>();
const MAX_PARSED_LENGTH: usize = size_of::<libc::sockaddr_un>();
/// Offset of the address after its family, in bytes.
const FAMILY_SIZE: usize = size_of::<libc::sa_family_t>();

/// Paths of the sockets of name services (nss(5)).
const NAME_SERVICES: [&str; 6] = [
    "/run/avahi-daemon/",
    "/run/nscd/",
    "/run/nslcd/",
    "/run/systemd/resolve/",
    "/run/systemd/userdb/",
    "/var/lib/sss/pipes/",
];

/// The address of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CallAddress {
    /// An address and port.
    Internet(SocketAddr),
    /// A unix socket.
    Unix(UnixSocketName),
}

/// The name of a unix socket (unix(7)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum UnixSocketName {
    /// An absolute path, normalised without following links.
    Path(Vec<u8>),
    /// An abstract name in the network namespace.
    Abstract(Vec<u8>),
}

impl CallAddress {
    /// Reads the address at `at`, of this length, from a thread's memory. `None` if it cannot be read, or cannot name
    /// a socket of the host: a relative path stays in the sandbox.
    pub(super) fn read_from_thread(thread: i32, at: u64, length: u64) -> Option<Self> {
        // The kernel reads the length as an int.
        let length = usize::try_from(length & u64::from(u32::MAX))
            .ok()
            .filter(|length| *length <= MAX_ADDRESS_LENGTH)?;
        let mut bytes = [0; MAX_PARSED_LENGTH];
        let mut here = [IoSliceMut::new(bytes.get_mut(..length.min(MAX_PARSED_LENGTH))?)];
        let there = [RemoteIoVec { base: usize::try_from(at).ok()?, len: length.min(MAX_PARSED_LENGTH) }];
        let read = process_vm_readv(Pid::from_raw(thread), &mut here, &there).ok()?;
        let is_whole = |address: &CallAddress| {
            length <= MAX_PARSED_LENGTH || matches!(address, CallAddress::Internet(_))
        };
        CallAddress::parse(bytes.get(..read)?).filter(is_whole)
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (family, rest) = bytes.split_first_chunk::<FAMILY_SIZE>()?;
        match i32::from(libc::sa_family_t::from_ne_bytes(*family)) {
            libc::AF_UNIX => UnixSocketName::parse(rest).map(CallAddress::Unix),
            libc::AF_INET => {
                let (port, rest) = rest.split_first_chunk::<2>()?;
                let ip = Ipv4Addr::from(*rest.first_chunk::<4>()?);
                Some(CallAddress::Internet((ip, u16::from_be_bytes(*port)).into()))
            }
            libc::AF_INET6 => {
                let (port, rest) = rest.split_first_chunk::<2>()?;
                let (_flow, rest) = rest.split_first_chunk::<4>()?;
                let ip = canonical(Ipv6Addr::from(*rest.first_chunk::<16>()?).into());
                Some(CallAddress::Internet((ip, u16::from_be_bytes(*port)).into()))
            }
            _ => None,
        }
    }
}

impl UnixSocketName {
    fn parse(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [] => None,
            [0, name @ ..] => Some(UnixSocketName::Abstract(name.to_vec())),
            path => UnixSocketName::from_path(path.split(|byte| *byte == 0).next()?),
        }
    }

    /// Creates a name from an absolute path.
    pub(super) fn from_path(path: &[u8]) -> Option<Self> {
        let mut straight = PathBuf::from("/");
        for part in Path::new(OsStr::from_bytes(path)).strip_prefix("/").ok()?.components() {
            match part {
                Component::ParentDir => _ = straight.pop(),
                part => straight.push(part),
            }
        }
        // `/var/run` is a link to `/run` wherever both exist.
        if let Ok(rest) = straight.strip_prefix("/var/run") {
            straight = Path::new("/run").join(rest);
        }
        Some(UnixSocketName::Path(straight.into_os_string().into_vec()))
    }

    /// Whether it is a socket of a name service, which programs call routinely: nscd, sssd, nslcd, avahi or systemd.
    pub(super) fn is_name_service(&self) -> bool {
        let UnixSocketName::Path(path) = self else { return false };
        NAME_SERVICES.iter().any(|directory| path.starts_with(directory.as_bytes()))
    }

    /// Why a program cannot connect to the host's socket with this name.
    pub(super) fn denial_reason(&self) -> &'static str {
        match self {
            UnixSocketName::Path(_) => "it is the host's, and not inside (network.sockets)",
            UnixSocketName::Abstract(_) => {
                "it is the host's, and no sandbox has abstract names in common with it"
            }
        }
    }
}

impl Display for UnixSocketName {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            UnixSocketName::Path(path) => write!(f, "the unix socket {}", String::from_utf8_lossy(path)),
            UnixSocketName::Abstract(name) => {
                write!(f, "the abstract socket @{}", String::from_utf8_lossy(name))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(path: &str) -> Option<UnixSocketName> {
        Some(UnixSocketName::Path(path.into()))
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
            assert_eq!(UnixSocketName::parse(spelled.as_bytes()), path("/run/a.sock"), "{spelled}");
        }
        assert_eq!(UnixSocketName::parse(b"/var/runner/a"), path("/var/runner/a"));
    }

    #[test]
    fn every_program_asks_name_services() {
        for (spelled, is_one) in
            [("/var/run/nscd/socket", true), ("/var/lib/sss/pipes/nss", true), ("/run/nscd.sock", false)]
        {
            assert_eq!(
                UnixSocketName::from_path(spelled.as_bytes()).unwrap().is_name_service(),
                is_one,
                "{spelled}"
            );
        }
        assert!(!UnixSocketName::Abstract(b"/run/nscd/socket".to_vec()).is_name_service());
    }

    #[test]
    fn an_abstract_name_has_all_its_bytes() {
        assert_eq!(UnixSocketName::parse(b"\0a\0b\0"), Some(UnixSocketName::Abstract(b"a\0b\0".to_vec())));
        assert_eq!(UnixSocketName::parse(b"\0a").unwrap().to_string(), "the abstract socket @a");
    }

    #[test]
    fn a_host_has_an_address_of_one_kind() {
        let four = [&2_u16.to_ne_bytes()[..], &[0, 80, 10, 1, 2, 3], &[0; 8]].concat();
        assert_eq!(CallAddress::parse(&four), Some(CallAddress::Internet("10.1.2.3:80".parse().unwrap())));
        for (ip, same) in [("2001:db8::1", "[2001:db8::1]:80"), ("::ffff:10.1.2.3", "10.1.2.3:80")] {
            let ip: Ipv6Addr = ip.parse().unwrap();
            let six = [&10_u16.to_ne_bytes()[..], &[0, 80, 9, 9, 9, 9], &ip.octets(), &[0; 4]].concat();
            assert_eq!(CallAddress::parse(&six), Some(CallAddress::Internet(same.parse().unwrap())));
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
            assert_eq!(CallAddress::parse(bytes), None, "{bytes:?}");
        }
        for name in ["a.sock", "./a.sock", "../run/a.sock"] {
            assert_eq!(UnixSocketName::parse(name.as_bytes()), None, "{name}");
        }
    }

    #[test]
    fn it_is_read_where_a_thread_has_it() {
        let own = i32::try_from(std::process::id()).unwrap();
        let bytes = [&1_u16.to_ne_bytes(), &b"/run/a.sock\0"[..]].concat();
        let at = bytes.as_ptr() as u64;
        let length = bytes.len() as u64;
        let unix = |name| path(name).map(CallAddress::Unix);
        assert_eq!(
            CallAddress::read_from_thread(own, at, length | 7 << 32),
            unix("/run/a.sock"),
            "an int is an int"
        );
        assert_eq!(CallAddress::read_from_thread(own, at, length - 6), unix("/run/a"));
        assert_eq!(CallAddress::read_from_thread(own, 8, length), None);
        let long = [bytes, vec![0; 200]].concat();
        let at = long.as_ptr() as u64;
        assert_eq!(CallAddress::read_from_thread(own, at, 110), unix("/run/a.sock"));
        assert_eq!(CallAddress::read_from_thread(own, at, 111), None, "longer than any");
        let four = [&2_u16.to_ne_bytes()[..], &[0, 80, 10, 1, 2, 3], &[0; 200]].concat();
        let at = four.as_ptr() as u64;
        assert_eq!(
            CallAddress::read_from_thread(own, at, 128),
            Some(CallAddress::Internet("10.1.2.3:80".parse().unwrap()))
        );
        assert_eq!(CallAddress::read_from_thread(own, at, 129), None);
        assert_eq!(CallAddress::read_from_thread(own, u64::MAX, u64::MAX), None);
    }
}
