//! Services that the relay needs and may not perform itself. It parses the data of programs and hosts, so it inspects
//! no process and opens no file. Another process does both for it ([`crate::relay`]).

use super::denials::NetworkDenial;
use super::socket_owner::{CallingProgram, SocketOwnerQuery};
use saggar_sys::seccomp::listener::SyscallNotification;
use serde::{Deserialize, Serialize};
use std::os::fd::OwnedFd;

/// A file that configures name lookups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ResolverFile {
    /// hosts(5)
    Hosts,
    /// resolv.conf(5)
    Resolvers,
}

impl ResolverFile {
    /// The path of the file on this host.
    pub fn path(self) -> &'static str {
        match self {
            ResolverFile::Hosts => "/etc/hosts",
            ResolverFile::Resolvers => "/etc/resolv.conf",
        }
    }
}

/// Services that another process performs for the relay.
pub trait RelayServices {
    /// The program that owns this socket; `None` if it is unknown or a lookup limit is reached.
    fn find_program(&mut self, of: SocketOwnerQuery) -> Option<CallingProgram>;

    /// The current text of this file; empty if it cannot be read.
    fn read_file(&mut self, file: ResolverFile) -> String;

    /// Adds a port on which the relay listens. A call to it needs no [`SocketOwnerQuery::Unconnected`].
    fn add_listened_port(&mut self, port: u16);

    /// Sets the seccomp listener of pid 1's filter, whose notifications are answered from now on.
    fn set_seccomp_listener(&mut self, listener: OwnedFd);

    /// Denials of that filter since the last call.
    fn take_denials(&mut self) -> Vec<NetworkDenial>;

    /// Calls since the last call that set the mode of a directory, which another process answers.
    fn take_mode_requests(&mut self) -> Vec<SyscallNotification>;
}
