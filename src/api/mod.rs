//! The way to the model API: a process of its own that takes requests from a sandbox and sends them on with a key
//! that the sandbox never sees.
//!
//! ```text
//!  program ── /run/api.sock, 127.0.0.1:274 ──> this process ── http or https, with the key ──> upstream
//!                     ^ made inside by pid 1,        ^ started by the supervisor, which opens the file of the key
//!                       passed by the supervisor       and never reads it
//! ```
//! It is the only process that has the key, and it has little else: no rights of root, no file but what looking a name
//! up takes, no program to execute, no connection but to the upstream's port ([`confine`]). It ends with its
//! supervisor. HTTP is hyper's, TLS is rustls'; what is ours is which requests go on, and with which fields
//! ([`request`]).
//!
//! | file | its one job |
//! |---|---|
//! | `wire` | what supervisor and process say to each other |
//! | `key` | the key: its file, and its header field |
//! | `confine` | gives up what is not needed |
//! | `request` | a request as it goes on, an answer as it comes back |
//! | `lookup` `upstream` | connections to the upstream |
//! | `serve` | connections from inside |

mod confine;
pub mod key;
mod lookup;
mod request;
mod serve;
mod upstream;
pub mod wire;

pub use upstream::trusted;

use crate::error::{Code, Error, Result};
use crate::launch::set_nonblocking;
use crate::spec::{KeyHeader, Upstream};
use crate::stage::beside;
use crate::sys::{file, process, scm};
use key::Key;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use upstream::Way;
use wire::{Errand, LONGEST, Said};

/// The first argument of saggar when it executes itself for this.
pub const ENTRY: &str = "__api";

/// The process. Standard input is its socket to the supervisor, and it knows nothing else of its caller.
pub fn run() -> u8 {
    let Ok(supervisor) = beside::close_inherited().and_then(|()| file::duplicate_number(0)) else { return 1 };
    let _ = process::set_name(c"saggar:api");
    match prepare(&supervisor) {
        Ok((way, key)) => u8::from(serve::serve(way, key, supervisor).is_err()),
        Err(error) => {
            let _ = scm::send(supervisor.as_fd(), &Said::Failed(error).encode(), &[]);
            1
        }
    }
}

/// Reads the key, gives all rights up, and says that it is ready.
fn prepare(supervisor: &OwnedFd) -> Result<(Way, Key)> {
    let mut buffer = [0; LONGEST];
    let mut received = scm::receive(supervisor.as_fd(), &mut buffer)
        .map_err(|e| Error::system("hear from the supervisor", e.desc()))?;
    let errand = buffer.get(..received.len).and_then(Errand::decode);
    let (Some(errand), Some(file)) = (errand, received.fds[0].take()) else {
        return Err(Error::new(Code::Usage, "the model API is served for a supervisor alone"));
    };
    let upstream: Upstream = known(&errand.upstream)?;
    let header: KeyHeader = known(&errand.header)?;
    let key = key::read(File::from(file), header)?;
    let way = Way::new(upstream, errand.ca_file.as_deref())?;
    confine::confine(way.port(), errand.supervisor)?;
    let ready = scm::send(supervisor.as_fd(), &Said::Ready.encode(), &[]);
    ready
        .map_err(|e| Error::system("speak to the supervisor", e.desc()))
        .and_then(|()| set_nonblocking(supervisor.as_fd()))?;
    Ok((way, key))
}

/// A value that the supervisor has from a policy.
fn known<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T> {
    text.parse().map_err(|e: T::Err| Error::new(Code::Invalid, e.to_string()))
}
