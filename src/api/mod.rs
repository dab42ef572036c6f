//! The model API process: takes requests from a sandbox and forwards them with a key that the sandbox never sees.
//!
//! ```text
//!  program ── /run/api.sock, 127.0.0.1:274 ──> API process ── http or https, with the key ──> upstream
//!                     ^ created inside by pid 1,    ^ started by the supervisor, which opens the key file
//!                       passed by the supervisor      and never reads it
//! ```
//! It is the only process that holds the key, and it has few other rights: no root privileges, no files except those
//! that name lookups need, no programs to execute, and connections only to the ports of the upstream and of DNS
//! ([`confine`]). It exits with its supervisor. hyper implements HTTP and rustls implements TLS. This module decides
//! which requests are forwarded, and with which fields ([`request`]).
//!
//! | file | contents |
//! |---|---|
//! | `wire` | messages between supervisor and process |
//! | `key` | the key: its file and its header field |
//! | `confine` | drops the rights that the process does not need |
//! | `request` | rewrites forwarded requests and responses |
//! | `lookup` `upstream` | connections to the upstream |
//! | `serve` | connections from the sandbox |
//! | `linger` | closes a connection so that its client gets the last response |

mod confine;
pub mod key;
mod linger;
mod lookup;
mod request;
mod serve;
mod upstream;
pub mod wire;

pub use confine::{API_RIGHTS, NOBODY};
pub use upstream::count_trusted_certificates;

use crate::error::{Code, Error, Result};
use crate::launch::set_nonblocking;
use crate::spec::{ApiUpstream, KeyHeader};
use crate::stage::sidecar;
use crate::sys::{file, process, scm};
use key::ApiKey;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use upstream::UpstreamRoute;
use wire::{ApiProcessConfig, ApiProcessEvent, MAX_MESSAGE_SIZE};

/// The first argument of saggar when it executes itself as the API process.
pub const API_SUBCOMMAND: &str = "__api";

/// Runs the API process. Standard input is its socket to the supervisor, which sends the whole configuration.
pub fn run_api_process() -> u8 {
    let Ok(supervisor) = sidecar::close_inherited().and_then(|()| file::duplicate(0)) else { return 1 };
    let _ = process::set_name(API_RIGHTS.name);
    match prepare(&supervisor) {
        Ok((way, key)) => u8::from(serve::serve_requests(way, key, supervisor).is_err()),
        Err(error) => {
            let _ = scm::send(supervisor.as_fd(), &ApiProcessEvent::Failed(error).encode(), &[]);
            1
        }
    }
}

/// Reads the configuration and the key, drops all rights, and reports that the process is ready.
fn prepare(supervisor: &OwnedFd) -> Result<(UpstreamRoute, ApiKey)> {
    let mut buffer = [0; MAX_MESSAGE_SIZE];
    let mut received = scm::receive(supervisor.as_fd(), &mut buffer)
        .map_err(|e| Error::system("receive from the supervisor", e.desc()))?;
    let errand = buffer.get(..received.len).and_then(ApiProcessConfig::decode);
    let (Some(errand), Some(file)) = (errand, received.fds[0].take()) else {
        return Err(Error::new(Code::Usage, "the model API is served for a supervisor alone"));
    };
    let upstream: ApiUpstream = parse_setting(&errand.upstream)?;
    let header: KeyHeader = parse_setting(&errand.header)?;
    let key = key::read_key(File::from(file), header)?;
    let way = UpstreamRoute::new(upstream, errand.ca_file.as_deref())?;
    confine::confine(way.port(), errand.supervisor)?;
    let ready = scm::send(supervisor.as_fd(), &ApiProcessEvent::Ready.encode(), &[]);
    ready
        .map_err(|e| Error::system("send to the supervisor", e.desc()))
        .and_then(|()| set_nonblocking(supervisor.as_fd()))?;
    Ok((way, key))
}

/// Parses a setting that the supervisor took from a policy.
fn parse_setting<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T> {
    text.parse().map_err(|e: T::Err| Error::new(Code::Invalid, e.to_string()))
}
