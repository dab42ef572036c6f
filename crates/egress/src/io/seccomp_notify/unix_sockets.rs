//! The named unix sockets of a network namespace, as the kernel lists them (proc_net_unix(5)). Paths are not resolved,
//! so that no program in the sandbox can make this process walk the file trees of the host.

use super::address::UnixSocketName;
use saggar_sys::read;
use std::collections::HashSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Maximum number of bytes read from the list.
const MAX_LIST_SIZE: u64 = 4 << 20;
/// The flag of a listening socket (linux/net.h, `__SO_ACCEPTCON`).
const LISTENING_FLAG: u32 = 1 << 16;
/// A type that need not listen (SOCK_DGRAM).
const DATAGRAM_TYPE: &[u8] = b"0002";

/// Names in the format of the list: an abstract name begins with `@`, and each zero byte in it is shown as `@`.
///
/// The list is cached for a while, so that frequent calls do not cause frequent reads.
#[derive(Debug)]
pub(super) struct UnixSocketList {
    file: PathBuf,
    max_age: Duration,
    names: HashSet<Vec<u8>>,
    read_at: Option<Instant>,
}

impl UnixSocketList {
    /// Creates a list that is read from this file and cached for `good`.
    pub(super) fn new(file: PathBuf, good: Duration) -> Self {
        UnixSocketList { file, max_age: good, names: HashSet::new(), read_at: None }
    }

    /// Whether the cached list contains the name.
    pub(super) fn contains(&mut self, name: &UnixSocketName) -> bool {
        if self.read_at.is_none_or(|read| read.elapsed() >= self.max_age) {
            let text = read::small_file(&self.file, MAX_LIST_SIZE).unwrap_or_default();
            self.names = text.split(|byte| *byte == b'\n').filter_map(listed_name).collect();
            self.read_at = Some(Instant::now());
        }
        match name {
            UnixSocketName::Path(path) => self.names.contains(path),
            UnixSocketName::Abstract(name) => {
                let zeros = name.iter().map(|byte| if *byte == 0 { b'@' } else { *byte });
                self.names.contains(&[b'@'].into_iter().chain(zeros).collect::<Vec<_>>())
            }
        }
    }
}

/// The name of the socket in a line, if it can be called. Seven fields precede it.
fn listed_name(line: &[u8]) -> Option<Vec<u8>> {
    let mut rest = line;
    let mut fields = [&[][..]; 7];
    for field in &mut fields {
        rest = rest.trim_ascii_start();
        let end = rest.iter().position(|byte| *byte == b' ')?;
        (*field, rest) = rest.split_at(end);
    }
    let [_, _, _, flags, kind, ..] = fields;
    let flags = u32::from_str_radix(str::from_utf8(flags).ok()?, 16).ok()?;
    let name = rest.strip_prefix(b" ").filter(|_| flags & LISTENING_FLAG != 0 || kind == DATAGRAM_TYPE)?;
    match UnixSocketName::from_path(name) {
        Some(UnixSocketName::Path(path)) => Some(path),
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
        let mut listed = UnixSocketList::new("/proc/self/net/unix".into(), Duration::from_secs(60));
        for name in ["listens", "datagrams"] {
            assert!(listed.contains(&UnixSocketName::Path(text(name))), "{name}");
        }
        assert!(!listed.contains(&UnixSocketName::Path(text("other"))));
        assert!(listed.contains(&UnixSocketName::Abstract(unique.clone().into_bytes())));
        assert!(!listed.contains(&UnixSocketName::Abstract(unique[1..].into())));
        assert!(!listed.contains(&UnixSocketName::Path(format!("@{unique}").into_bytes())));
    }

    #[test]
    fn a_line_is_read_field_by_field() {
        let line = |flags, kind, name| format!("ffff: 00000002 00000000 {flags} {kind} 01    12 {name}");
        let name = |line: String| listed_name(line.as_bytes()).map(|name| String::from_utf8(name).unwrap());
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
