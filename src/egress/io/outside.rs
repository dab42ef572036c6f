//! What the relay needs and has no right to: it parses what programs and hosts send, so it looks into no process and
//! opens no file. Another process does both for it ([`crate::relay`]).

use super::owner::{Program, Socket};
use super::refusals::Refusal;
use serde::{Deserialize, Serialize};
use std::os::fd::OwnedFd;

/// A file that says where names are looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum File {
    /// hosts(5)
    Hosts,
    /// resolv.conf(5)
    Resolvers,
}

impl File {
    /// Where it is on this host.
    pub fn path(self) -> &'static str {
        match self {
            File::Hosts => "/etc/hosts",
            File::Resolvers => "/etc/resolv.conf",
        }
    }
}

/// What is done for the relay elsewhere.
pub trait Outside {
    /// The program of this socket; `None` where the kernel does not say, or too many are asked for.
    fn program(&mut self, of: Socket) -> Option<Program>;

    /// The text of this file as it is now; nothing where it cannot be read.
    fn text(&mut self, file: File) -> String;

    /// The relay hears this port: a call to it needs no [`Socket::Caller`].
    fn hears(&mut self, port: u16);

    /// Answers what pid 1's filter asks about, from now on.
    fn answer_for(&mut self, listener: OwnedFd);

    /// What was refused by that since the last call.
    fn refusals(&mut self) -> Vec<Refusal>;
}
