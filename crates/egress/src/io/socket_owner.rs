//! Finds the program of the sandbox that owns a socket, if the kernel shows it.
//!
//! The kernel lists the sockets of a network namespace under each of its processes (proc_pid_net(5)), and the sockets
//! of a process among its descriptors. Both are searched only for denials that are about to be reported.

use procfs::process::{FDTarget, Process};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

/// Maximum number of lookups in one [`PERIOD`].
const MAX_LOOKUPS: u32 = 16;
const PERIOD: Duration = Duration::from_secs(1);
/// Limits of a lookup: bytes of a socket list, processes, and descriptors of all processes.
const MAX_LIST_SIZE: u64 = 1 << 20;
const MAX_PROCESSES: usize = 1024;
const MAX_DESCRIPTORS: usize = 8192;

/// A program at the time of its lookup.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CallingProgram {
    /// Its pid on the host.
    pub pid: i32,
    /// Its name (`comm`), which the program can set itself.
    pub name: String,
}

/// The socket whose owner is wanted.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub enum SocketOwnerQuery {
    /// A stream socket with this local address.
    Stream(SocketAddr),
    /// A datagram socket with this local address.
    Datagram(SocketAddr),
    /// A connection to this address, which no socket accepted.
    Unconnected(SocketAddr),
}

/// Finds the programs of one sandbox.
#[derive(Debug)]
pub(super) struct SocketOwners {
    /// The host pid of its pid 1.
    init: i32,
    /// Number of lookups since `since`.
    lookups: u32,
    since: Instant,
}

impl SocketOwners {
    /// Creates the lookup for the sandbox with this pid 1.
    pub(super) fn new(init: i32) -> Self {
        SocketOwners { init, lookups: 0, since: Instant::now() }
    }

    /// The host pid of the sandbox's pid 1.
    pub(super) fn init(&self) -> i32 {
        self.init
    }

    /// The program that owns this socket. `None` also if a lookup limit is reached.
    pub(super) fn find_program(&mut self, socket: SocketOwnerQuery) -> Option<CallingProgram> {
        if self.since.elapsed() >= PERIOD {
            (self.lookups, self.since) = (0, Instant::now());
        }
        self.lookups += 1;
        if self.lookups > MAX_LOOKUPS {
            return None;
        }
        let inode = match socket {
            // The kernel no longer knows the socket; see `recent_calls`.
            SocketOwnerQuery::Unconnected(_) => None,
            SocketOwnerQuery::Stream(local) => {
                self.find_inode("tcp", &[local]).or_else(|| self.find_inode("tcp6", &[local]))
            }
            // A datagram socket that is not connected is listed with its port alone.
            SocketOwnerQuery::Datagram(local) => {
                let any = |ip: IpAddr| SocketAddr::new(ip, local.port());
                let any_four = any(Ipv4Addr::UNSPECIFIED.into());
                self.find_inode("udp", &[local, any_four])
                    .or_else(|| self.find_inode("udp6", &[local, any(Ipv6Addr::UNSPECIFIED.into())]))
            }
        };
        self.find_holder(inode?)
    }

    /// The socket in a list of the namespace with the first of these addresses that is found.
    fn find_inode(&self, list: &str, locals: &[SocketAddr]) -> Option<u64> {
        let mut text = String::new();
        let file = File::open(format!("/proc/{}/net/{list}", self.init)).ok()?;
        file.take(MAX_LIST_SIZE).read_to_string(&mut text).ok()?;
        locals.iter().find_map(|local| inode_in_list(&text, &format_address(*local, list.ends_with('6'))))
    }

    /// The process that has the socket open: pid 1 or one of its descendants.
    fn find_holder(&self, inode: u64) -> Option<CallingProgram> {
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
                    return Some(CallingProgram { pid, name: process.stat().ok()?.comm });
                }
            }
            processes += 1;
            if processes >= MAX_PROCESSES || descriptors >= MAX_DESCRIPTORS {
                return None;
            }
        }
        None
    }
}

/// The program of a thread, by its id on the host.
pub(super) fn program_of_thread(thread: i32) -> Option<CallingProgram> {
    let pid = Process::new(thread).ok()?.status().ok()?.tgid;
    Some(CallingProgram { pid, name: Process::new(pid).ok()?.stat().ok()?.comm })
}

/// Formats an address as in the kernel's lists: each 32 bits as a number in the byte order of this machine.
fn format_address(address: SocketAddr, six: bool) -> String {
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
        // A write to a string cannot fail.
        let _ = write!(text, "{byte:02X}");
    }
    let _ = write!(text, ":{:04X}", address.port());
    text
}

/// The inode of the socket with this address in such a list (proc_pid_net(5): the second field, and the tenth).
fn inode_in_list(list: &str, address: &str) -> Option<u64> {
    let inodes = list.lines().filter_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        (fields.nth(1)? == address).then(|| fields.nth(7)?.parse().ok())?
    });
    // A socket that is closed and not yet released has inode 0.
    inodes.into_iter().find(|inode| *inode != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, UdpSocket};

    fn here() -> SocketOwners {
        SocketOwners::new(i32::try_from(std::process::id()).unwrap())
    }

    #[test]
    fn our_own_sockets_are_ours() {
        for ip in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
            let Ok(listener) = TcpListener::bind((ip, 0)) else { continue };
            let found =
                here().find_program(SocketOwnerQuery::Stream(listener.local_addr().unwrap())).unwrap();
            assert_eq!(found.pid.unsigned_abs(), std::process::id());
            let socket = UdpSocket::bind((ip, 0)).unwrap();
            let local = socket.local_addr().unwrap();
            assert!(here().find_program(SocketOwnerQuery::Datagram(local)).is_some());
            drop(socket);
            assert_eq!(here().find_program(SocketOwnerQuery::Datagram(local)), None);
        }
    }

    /// The address is in the datagram, and not in the list.
    #[test]
    fn a_socket_that_was_never_connected_is_found_by_its_port() {
        for (any, ip) in [
            (IpAddr::from(Ipv4Addr::UNSPECIFIED), IpAddr::from(Ipv4Addr::LOCALHOST)),
            (Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::LOCALHOST.into()),
        ] {
            let Ok(socket) = UdpSocket::bind((any, 0)) else { continue };
            let sends = SocketAddr::new(ip, socket.local_addr().unwrap().port());
            assert!(here().find_program(SocketOwnerQuery::Datagram(sends)).is_some());
        }
    }

    #[test]
    fn no_more_are_looked_for_than_may_be() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (mut owners, socket) = (here(), SocketOwnerQuery::Stream(listener.local_addr().unwrap()));
        owners.since = Instant::now() + Duration::from_secs(60);
        let found = (0..2 * MAX_LOOKUPS).filter(|_| owners.find_program(socket).is_some()).count();
        assert_eq!(found, 16);
    }

    #[test]
    fn addresses_are_shown_as_the_kernel_shows_them() {
        let four = "192.0.2.1:443".parse().unwrap();
        let mapped = "[::ffff:192.0.2.1]:443".parse().unwrap();
        assert_eq!(format_address(four, false), "010200C0:01BB");
        assert_eq!(format_address(mapped, false), format_address(four, false));
        assert_eq!(format_address(four, true), "0000000000000000FFFF0000010200C0:01BB");
        assert_eq!(
            format_address("[2001:db8::1]:80".parse().unwrap(), true),
            "B80D0120000000000000000001000000:0050"
        );
    }

    #[test]
    fn a_list_is_read_by_its_fields() {
        let list = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n                       0: 0100007F:0016 00000000:0000 06 00000000:00000000 00:00000000 00000000     0        0 0\n                       1: 0100007F:0016 00000000:0000 01 00000000:00000000 00:00000000 00000000     0        0 77 1\n                       2: 0100007F:00";
        assert_eq!(inode_in_list(list, "0100007F:0016"), Some(77));
        assert_eq!(inode_in_list(list, "0100007F:0017"), None);
        assert_eq!(inode_in_list("", "0100007F:0016"), None);
    }
}
