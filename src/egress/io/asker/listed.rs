//! The unix sockets that a network namespace has names for, as the kernel lists them (proc_net_unix(5)). Paths are not
//! looked up: nobody inside makes this process walk the trees of the host.

use super::address::Name;
use crate::sys::read;
use std::collections::HashSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The longest that is read.
const LONGEST: u64 = 4 << 20;
/// The flag of a socket that listens (linux/net.h, `__SO_ACCEPTCON`).
const LISTENS: u32 = 1 << 16;
/// A type that need not listen (SOCK_DGRAM).
const DATAGRAMS: &[u8] = b"0002";

/// Names, as they are listed: an abstract one begins with an `@`, and has one for each zero.
///
/// They are good for some time: whoever calls without a pause makes nobody read without one.
#[derive(Debug)]
pub(super) struct Listed {
    file: PathBuf,
    good: Duration,
    names: HashSet<Vec<u8>>,
    read: Option<Instant>,
}

impl Listed {
    /// Those of the list in this file.
    pub(super) fn new(file: PathBuf, good: Duration) -> Self {
        Listed { file, good, names: HashSet::new(), read: None }
    }

    /// Whether the name is on it, or was a moment ago.
    pub(super) fn has(&mut self, name: &Name) -> bool {
        if self.read.is_none_or(|read| read.elapsed() >= self.good) {
            let text = read::small_file(&self.file, LONGEST).unwrap_or_default();
            self.names = text.split(|byte| *byte == b'\n').filter_map(listed).collect();
            self.read = Some(Instant::now());
        }
        match name {
            Name::Path(path) => self.names.contains(path),
            Name::Abstract(name) => {
                let zeros = name.iter().map(|byte| if *byte == 0 { b'@' } else { *byte });
                self.names.contains(&[b'@'].into_iter().chain(zeros).collect::<Vec<_>>())
            }
        }
    }
}

/// The name of the socket of a line, if it has one that can be called. Seven fields stand before it.
fn listed(line: &[u8]) -> Option<Vec<u8>> {
    let mut rest = line;
    let mut fields = [&[][..]; 7];
    for field in &mut fields {
        rest = rest.trim_ascii_start();
        let end = rest.iter().position(|byte| *byte == b' ')?;
        (*field, rest) = rest.split_at(end);
    }
    let [_, _, _, flags, kind, ..] = fields;
    let flags = u32::from_str_radix(str::from_utf8(flags).ok()?, 16).ok()?;
    let name = rest.strip_prefix(b" ").filter(|_| flags & LISTENS != 0 || kind == DATAGRAMS)?;
    match Name::path(name) {
        Some(Name::Path(path)) => Some(path),
        _ => name.starts_with(b"@").then(|| name.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};

    #[test]
    fn what_can_be_called_is_listed() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        let text = |name: &str| path(name).into_os_string().into_encoded_bytes();
        let unique = format!("saggar-{}\0 two words", std::process::id());
        let listener = UnixListener::bind(path("listens")).unwrap();
        let _caller = UnixStream::connect(path("listens")).unwrap();
        let _accepted = listener.accept().unwrap();
        let _datagrams = UnixDatagram::bind(path("datagrams")).unwrap();
        let _abstract = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&unique).unwrap()).unwrap();
        let mut listed = Listed::new("/proc/self/net/unix".into(), Duration::from_secs(60));
        for name in ["listens", "datagrams"] {
            assert!(listed.has(&Name::Path(text(name))), "{name}");
        }
        assert!(!listed.has(&Name::Path(text("other"))));
        assert!(listed.has(&Name::Abstract(unique.clone().into_bytes())));
        assert!(!listed.has(&Name::Abstract(unique[1..].into())));
        assert!(!listed.has(&Name::Path(format!("@{unique}").into_bytes())));
    }

    #[test]
    fn a_line_is_read_field_by_field() {
        let line = |flags, kind, name| format!("ffff: 00000002 00000000 {flags} {kind} 01    12 {name}");
        let name = |line: String| listed(line.as_bytes()).map(|name| String::from_utf8(name).unwrap());
        assert_eq!(name(line("00010000", "0001", "/run/a b")).unwrap(), "/run/a b");
        assert_eq!(name(line("00010000", "0005", "/var/run/a")).unwrap(), "/run/a");
        assert_eq!(name(line("00000000", "0002", "@a@")).unwrap(), "@a@");
        for (flags, kind, named) in
            [("00000000", "0001", "/run/a"), ("00010000", "0001", "a"), ("", "", "/run/a")]
        {
            assert_eq!(name(line(flags, kind, named)), None);
        }
        for line in [
            "",
            "Num       RefCount Protocol Flags    Type St Inode Path",
            "ffff: 00000002 00000000 00010000 0001 01 12",
        ] {
            assert_eq!(name(line.into()), None);
        }
    }
}
