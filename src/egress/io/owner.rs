//! Which program of the sandbox a socket belongs to, where the kernel tells.
//!
//! The kernel lists the sockets of a network namespace under each of its processes (proc_pid_net(5)), and the sockets
//! of a process among its descriptors. Both are looked through only for refusals that are about to be told.

use procfs::process::{FDTarget, Process};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

/// Programs that are looked for in one [`PERIOD`].
const OFTEN: u32 = 16;
const PERIOD: Duration = Duration::from_secs(1);
/// How far is looked: bytes of a list of sockets, processes, and descriptors of all of them.
const LIST: u64 = 1 << 20;
const PROCESSES: usize = 1024;
const DESCRIPTORS: usize = 8192;

/// A program, as it was when it was looked for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Program {
    /// Its pid on the host.
    pub pid: i32,
    /// Its name (`comm`), which it can choose itself.
    pub name: String,
}

/// Whose socket is looked for.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub enum Socket {
    /// A stream that has this local address.
    Stream(SocketAddr),
    /// A socket for datagrams, likewise.
    Datagram(SocketAddr),
    /// One that was to call this address, where no socket hears it.
    Caller(SocketAddr),
}

/// Looks for the programs of one sandbox.
#[derive(Debug)]
pub(super) struct Owners {
    /// Its pid 1, on the host.
    init: i32,
    /// How many were looked for since when.
    asked: u32,
    since: Instant,
}

impl Owners {
    /// Those of the sandbox of this pid 1.
    pub(super) fn new(init: i32) -> Self {
        Owners { init, asked: 0, since: Instant::now() }
    }

    /// Pid 1 of the sandbox, on the host.
    pub(super) fn init(&self) -> i32 {
        self.init
    }

    /// Who has this socket; `None` also when too many are asked for, or there is too much to look through.
    pub(super) fn of(&mut self, socket: Socket) -> Option<Program> {
        if self.since.elapsed() >= PERIOD {
            (self.asked, self.since) = (0, Instant::now());
        }
        self.asked += 1;
        if self.asked > OFTEN {
            return None;
        }
        let inode = match socket {
            // The kernel has forgotten it: see `callers`.
            Socket::Caller(_) => None,
            Socket::Stream(local) => self.inode("tcp", &[local]).or_else(|| self.inode("tcp6", &[local])),
            // One that sends without having been connected stands there with its port alone.
            Socket::Datagram(local) => {
                let any = |ip: IpAddr| SocketAddr::new(ip, local.port());
                let any_four = any(Ipv4Addr::UNSPECIFIED.into());
                self.inode("udp", &[local, any_four])
                    .or_else(|| self.inode("udp6", &[local, any(Ipv6Addr::UNSPECIFIED.into())]))
            }
        };
        self.holder(inode?)
    }

    /// The socket of the first of these addresses that is in a list of the namespace.
    fn inode(&self, list: &str, locals: &[SocketAddr]) -> Option<u64> {
        let mut text = String::new();
        let file = File::open(format!("/proc/{}/net/{list}", self.init)).ok()?;
        file.take(LIST).read_to_string(&mut text).ok()?;
        locals.iter().find_map(|local| inode(&text, &shown(*local, list.ends_with('6'))))
    }

    /// Who has the socket open, of pid 1 and all that descends from it.
    fn holder(&self, inode: u64) -> Option<Program> {
        let mut next = VecDeque::from([self.init]);
        let (mut processes, mut descriptors) = (0, 0);
        while let Some(pid) = next.pop_front() {
            let Ok(process) = Process::new(pid) else { continue };
            let tasks = process.tasks().into_iter().flatten().flatten();
            let children = tasks.filter_map(|task| task.children().ok()).flatten();
            next.extend(children.filter_map(|child| i32::try_from(child).ok()));
            for descriptor in process.fd().into_iter().flatten().flatten() {
                descriptors += 1;
                if matches!(descriptor.target, FDTarget::Socket(of) if of == inode) {
                    return Some(Program { pid, name: process.stat().ok()?.comm });
                }
            }
            processes += 1;
            if processes >= PROCESSES || descriptors >= DESCRIPTORS {
                return None;
            }
        }
        None
    }
}

/// The program of a thread, by its number on the host.
pub(super) fn of_thread(thread: i32) -> Option<Program> {
    let pid = Process::new(thread).ok()?.status().ok()?.tgid;
    Some(Program { pid, name: Process::new(pid).ok()?.stat().ok()?.comm })
}

/// An address as the lists have it: each 32 bits of it as a number of this machine.
fn shown(address: SocketAddr, six: bool) -> String {
    let mut bytes = match address.ip() {
        IpAddr::V4(ip) if six => ip.to_ipv6_mapped().octets().to_vec(),
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => match ip.to_ipv4_mapped() {
            Some(ip) if !six => ip.octets().to_vec(),
            _ => ip.octets().to_vec(),
        },
    };
    if cfg!(target_endian = "little") {
        bytes.chunks_mut(4).for_each(<[u8]>::reverse);
    }
    let mut text = String::new();
    for byte in bytes {
        // Into memory: this cannot fail.
        let _ = write!(text, "{byte:02X}");
    }
    let _ = write!(text, ":{:04X}", address.port());
    text
}

/// The inode of the socket that has this address in such a list (proc_pid_net(5): the second field, and the tenth).
fn inode(list: &str, address: &str) -> Option<u64> {
    let inodes = list.lines().filter_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        (fields.nth(1)? == address).then(|| fields.nth(7)?.parse().ok())?
    });
    // What was closed and not let go yet has none.
    inodes.into_iter().find(|inode| *inode != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, UdpSocket};

    fn here() -> Owners {
        Owners::new(i32::try_from(std::process::id()).unwrap())
    }

    #[test]
    fn our_own_sockets_are_ours() {
        for ip in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
            let Ok(listener) = TcpListener::bind((ip, 0)) else { continue };
            let found = here().of(Socket::Stream(listener.local_addr().unwrap())).unwrap();
            assert_eq!(found.pid.unsigned_abs(), std::process::id());
            let socket = UdpSocket::bind((ip, 0)).unwrap();
            let local = socket.local_addr().unwrap();
            assert!(here().of(Socket::Datagram(local)).is_some());
            drop(socket);
            assert_eq!(here().of(Socket::Datagram(local)), None);
        }
    }

    /// Its address is in the datagram, and not in the list.
    #[test]
    fn a_socket_that_was_never_connected_is_found_by_its_port() {
        for (any, ip) in [
            (IpAddr::from(Ipv4Addr::UNSPECIFIED), IpAddr::from(Ipv4Addr::LOCALHOST)),
            (Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::LOCALHOST.into()),
        ] {
            let Ok(socket) = UdpSocket::bind((any, 0)) else { continue };
            let sends = SocketAddr::new(ip, socket.local_addr().unwrap().port());
            assert!(here().of(Socket::Datagram(sends)).is_some());
        }
    }

    #[test]
    fn no_more_are_looked_for_than_may_be() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (mut owners, socket) = (here(), Socket::Stream(listener.local_addr().unwrap()));
        owners.since = Instant::now() + Duration::from_secs(60);
        let found = (0..2 * OFTEN).filter(|_| owners.of(socket).is_some()).count();
        assert_eq!(found, 16);
    }

    #[test]
    fn addresses_are_shown_as_the_kernel_shows_them() {
        let four = "192.0.2.1:443".parse().unwrap();
        let mapped = "[::ffff:192.0.2.1]:443".parse().unwrap();
        assert_eq!(shown(four, false), "010200C0:01BB");
        assert_eq!(shown(mapped, false), shown(four, false));
        assert_eq!(shown(four, true), "0000000000000000FFFF0000010200C0:01BB");
        assert_eq!(shown("[2001:db8::1]:80".parse().unwrap(), true), "B80D0120000000000000000001000000:0050");
    }

    #[test]
    fn a_list_is_read_by_its_fields() {
        let list = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n                       0: 0100007F:0016 00000000:0000 06 00000000:00000000 00:00000000 00000000     0        0 0\n                       1: 0100007F:0016 00000000:0000 01 00000000:00000000 00:00000000 00000000     0        0 77 1\n                       2: 0100007F:00";
        assert_eq!(inode(list, "0100007F:0016"), Some(77));
        assert_eq!(inode(list, "0100007F:0017"), None);
        assert_eq!(inode("", "0100007F:0016"), None);
    }
}
