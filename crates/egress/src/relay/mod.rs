//! The network of a sandbox by policy, and its published ports, in two separate processes: hostile programs and hostile
//! hosts exchange data only with a process that has neither files nor privileges.
//!
//! ```text
//!                    sockets, rules, answers            resolver files, programs of sockets
//!  supervisor ───────────────────────────────> relay ─────────────────────────────────────> attribution
//!             <─────────────────────────────── │ ^  <───────────────────────────────────── │ ^
//!                questions, denials, counts    │ │    programs, file content, denials      │ │ seccomp notifications
//!                                              v │                                         v │
//!                                 programs inside, hosts, resolvers               /proc of the sandbox
//! ```
//! The supervisor executes one program for both, so that neither has a copy of the supervisor's memory. That program
//! forks the attribution before either process has read any data of the sandbox. The bytes of connections never leave
//! the relay.
//!
//! | process | parses | rights | ends |
//! |---|---|---|---|
//! | relay | DNS, TLS, HTTP, SOCKS | connects to hosts; no file, no program | with its supervisor |
//! | attribution | /proc, addresses | reads files, inspects processes of its user | after the relay and the sandbox |
//!
//! They drop all other rights in [`confine::confine_relay`] and [`confine::confine_attribution`].
//!
//! The attribution outlives a relay that dies, and still answers seccomp notifications: the system calls of the
//! sandbox's programs continue, and no socket accepts their connections. Otherwise they would wait forever.
//!
//! | file | contents |
//! |---|---|
//! | `wire` | the messages between the three processes |
//! | `message_socket` | sends and receives messages without blocking |
//! | `confine` | drops the rights that a process does not need |
//! | `relay_loop` | the loop of the relay |
//! | `attribution_client` | the relay's connection to the attribution |
//! | `attribution` | the loop of the attribution |

mod attribution;
mod attribution_client;
mod confine;
pub mod message_socket;
mod relay_loop;
pub mod wire;

use attribution_client::AttributionClient;
pub use confine::{ATTRIBUTION_RIGHTS, RELAY_RIGHTS};
use message_socket::MessageSocket;
use saggar_sys::error::{Code, Error, Result};
use saggar_sys::scm::socket_pair;
use saggar_sys::spawn;
use saggar_sys::{file, process, scm};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use wire::{MAX_MESSAGE_SIZE, RelayEvent, RelayStart};

/// The first argument of saggar when it executes itself as the relay.
pub const RELAY_SUBCOMMAND: &str = "__relay";

/// Main function of the relay; returns its exit status. Its standard input is its socket to the supervisor. It gets no
/// other data from its caller.
pub fn run_relay() -> u8 {
    let _ = process::set_name(RELAY_RIGHTS.name);
    let Ok(supervisor) = spawn::close_inherited().and_then(|()| file::duplicate(0)) else { return 1 };
    match start_attribution(&supervisor) {
        Ok((start, outside, most)) => {
            u8::from(relay_loop::run_loop(supervisor, &start, most, outside).is_err())
        }
        Err(failed) => {
            let failed = serde_json::to_vec(&RelayEvent::Failed(failed)).unwrap_or_default();
            let _ = scm::send(supervisor.as_fd(), &failed, &[]);
            1
        }
    }
}

/// Forks the attribution if the network goes by policy, then drops all rights. Returns the start message, the
/// connection to the attribution, and the number of descriptors that the process may open.
fn start_attribution(supervisor: &OwnedFd) -> Result<(RelayStart, Option<AttributionClient>, usize)> {
    let mut buffer = [0; MAX_MESSAGE_SIZE];
    let mut received = scm::receive(supervisor.as_fd(), &mut buffer)
        .map_err(|e| Error::system("receive from the supervisor", e.desc()))?;
    let start = buffer.get(..received.len).and_then(|bytes| serde_json::from_slice::<RelayStart>(bytes).ok());
    let (Some(start), Some(init)) = (start, received.fds[0].take()) else {
        return Err(Error::new(Code::Usage, "a network is relayed for a supervisor alone"));
    };
    let outside = start.network_by_policy.then(|| fork_attribution(&start, &init)).transpose()?;
    let descriptors = relay_loop::max_descriptors();
    confine::confine_relay(start.id, start.supervisor)?;
    Ok((start, outside, descriptors))
}

/// Forks the attribution, with a pidfd of the sandbox's pid 1.
fn fork_attribution(start: &RelayStart, pidfd: &OwnedFd) -> Result<AttributionClient> {
    // Replaces standard input, so that the attribution does not keep the relay's end of the supervisor's socket open.
    let nothing = File::open("/dev/null").map_err(|e| Error::system("open /dev/null", e))?;
    nix::unistd::dup2_stdin(&nothing).map_err(|e| Error::system("let go of standard input", e.desc()))?;
    let (asks, theirs) = socket_pair()?;
    let (reports, their_reports) = socket_pair()?;
    let kept = [theirs.as_fd(), their_reports.as_fd(), pidfd.as_fd()];
    let (_, child) =
        spawn::fork_keeping(&kept, || attribution::run_attribution(start, pidfd, &theirs, &their_reports))
            .map_err(|e| Error::system("start the process that looks into the sandbox", e.desc()))?;
    Ok(AttributionClient::new(MessageSocket::new(asks)?, MessageSocket::new(reports)?, child))
}
