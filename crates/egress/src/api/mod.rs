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

pub use confine::{API_RIGHTS, NOBODY};
pub use upstream::count_trusted_certificates;

use crate::service::{self, ServiceConfig};
use key::ApiKey;
use saggar_policy::{ApiUpstream, KeyHeader};
use saggar_sys::error::{Code, Error, Result};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use upstream::UpstreamRoute;

/// The first argument of saggar when it executes itself as the API process.
pub const API_SUBCOMMAND: &str = "__api";

/// What the process is configured with, beside the descriptor of the key.
#[derive(Debug, Serialize, Deserialize)]
pub struct ModelApiConfig {
    /// The URL of the upstream.
    pub upstream: String,
    /// The name of the header field for the key.
    pub header: String,
    /// The file of trusted certificates; `None` for those that this host trusts.
    pub ca_file: Option<PathBuf>,
}

/// Runs the API process. Standard input is its socket to the supervisor.
pub fn run_api_process() -> u8 {
    service::run(API_RIGHTS.name, prepare, |(route, key), supervisor| {
        serve::serve_requests(route, key, supervisor)
    })
}

/// Reads the key and drops all rights.
fn prepare(
    config: ServiceConfig<ModelApiConfig>,
    key_file: Option<OwnedFd>,
) -> Result<(UpstreamRoute, ApiKey)> {
    let ServiceConfig { parent, service: ModelApiConfig { upstream, header, ca_file } } = config;
    let upstream: ApiUpstream = parse_setting(&upstream)?;
    let header: KeyHeader = parse_setting(&header)?;
    let key_file = key_file.ok_or_else(|| Error::new(Code::Usage, "the model API has no key"))?;
    let key = key::read_key(File::from(key_file), header)?;
    let route = UpstreamRoute::new(upstream, ca_file.as_deref())?;
    confine::confine(route.port(), parent)?;
    Ok((route, key))
}

/// Parses a setting that the supervisor took from a policy.
fn parse_setting<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T> {
    text.parse().map_err(|e: T::Err| Error::new(Code::Invalid, e.to_string()))
}
