//! The network of a sandbox by policy, and its published ports, in processes of their own: a hostile program and a
//! hostile host speak with a process that has neither files nor rights.
//!
//! ```text
//!                    sockets, rules, answers            the files of names, programs of sockets
//!  supervisor ───────────────────────────────> relay ─────────────────────────────────────> attribution
//!             <─────────────────────────────── │ ^  <───────────────────────────────────── │ ^
//!                questions, refusals, counts   │ │    programs, texts, refused sockets     │ │ pid 1's filter asks
//!                                              v │                                         v │
//!                                 programs inside, hosts, resolvers               /proc of the sandbox
//! ```
//! Both begin as one program that the supervisor executes, so that neither has a copy of its memory. That program forks
//! the attribution before either has read anything of the sandbox. The bytes of connections never leave the relay.
//!
//! | process | it parses | it may | ends |
//! |---|---|---|---|
//! | relay | DNS, TLS, HTTP, SOCKS | call hosts, no file, no program ([`confine::relay`]) | with its supervisor |
//! | attribution | /proc, addresses of calls | read, look into processes of its user ([`confine::attribution`]) | with the relay, and not before the sandbox |
//!
//! The attribution outlives a relay that dies, so that the sandbox's programs do not wait for ever for what their filter
//! asks: their calls go on, and no socket hears them.
//!
//! | file | its one job |
//! |---|---|
//! | `wire` | the messages between the three |
//! | `channel` | sends and receives them without waiting |
//! | `confine` | gives up what is not needed |
//! | `serve` | the loop of the relay |
//! | `outside` | the relay's side of the attribution |
//! | `attribution` | the loop of the attribution |

mod attribution;
pub mod channel;
mod confine;
mod outside;
mod serve;
pub mod wire;

use crate::error::{Code, Error, Result};
use crate::launch::socket_pair;
use crate::stage::beside;
use crate::sys::{file, process, scm};
use channel::Channel;
use outside::Elsewhere;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use wire::{LONGEST, Start, Up};

/// The first argument of saggar when it executes itself for this.
pub const ENTRY: &str = "__relay";

/// The process. Standard input is its socket to the supervisor, and it knows nothing else of its caller.
pub fn run() -> u8 {
    let _ = process::set_name(c"saggar:relay");
    let Ok(supervisor) = beside::close_inherited().and_then(|()| file::duplicate_number(0)) else { return 1 };
    match prepare(&supervisor) {
        Ok((start, outside, most)) => u8::from(serve::serve(supervisor, &start, most, outside).is_err()),
        Err(error) => {
            let failed = serde_json::to_vec(&Up::Failed(error)).unwrap_or_default();
            let _ = scm::send(supervisor.as_fd(), &failed, &[]);
            1
        }
    }
}

/// Forks the attribution where the network goes by policy, and gives all rights up. What there is to do, the
/// attribution, and how many descriptors there may be.
fn prepare(supervisor: &OwnedFd) -> Result<(Start, Option<Elsewhere>, usize)> {
    let mut buffer = [0; LONGEST];
    let mut received = scm::receive(supervisor.as_fd(), &mut buffer)
        .map_err(|e| Error::system("receive from the supervisor", e.desc()))?;
    let start = buffer.get(..received.len).and_then(|bytes| serde_json::from_slice::<Start>(bytes).ok());
    let (Some(start), Some(init)) = (start, received.fds[0].take()) else {
        return Err(Error::new(Code::Usage, "a network is relayed for a supervisor alone"));
    };
    let outside = start.by_policy.then(|| fork(&start, &init)).transpose()?;
    let descriptors = serve::descriptors();
    confine::relay(start.id, start.supervisor)?;
    Ok((start, outside, descriptors))
}

/// Forks the attribution, with a pidfd of the sandbox's pid 1.
fn fork(start: &Start, pidfd: &OwnedFd) -> Result<Elsewhere> {
    // The other process is not to keep our end of the supervisor's socket open.
    let nothing = File::open("/dev/null").map_err(|e| Error::system("open /dev/null", e))?;
    nix::unistd::dup2_stdin(&nothing).map_err(|e| Error::system("let go of standard input", e.desc()))?;
    let (asks, theirs) = socket_pair()?;
    let (reports, their_reports) = socket_pair()?;
    let kept = [theirs.as_fd(), their_reports.as_fd(), pidfd.as_fd()];
    let (_, child) = beside::fork(&kept, || attribution::run(start, pidfd, &theirs, &their_reports))
        .map_err(|e| Error::system("start the process that looks into the sandbox", e.desc()))?;
    Ok(Elsewhere::new(Channel::new(asks)?, Channel::new(reports)?, child))
}
