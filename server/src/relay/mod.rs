//! `saggar-server relay`: on each node of a Kubernetes cluster, it lets a server on another node use the sockets of pods,
//! and read and remove their stored events (saggar-server(8), KUBERNETES).
//!
//! ```text
//!  server ── mutual TLS ──> relay ──> NAME           the bridge
//!                                ──> NAME.control    the control socket
//!                                ──> NAME.events     by `saggar session events --spool`
//! ```
//! A client with such a certificate can do with the agents of all pods of the node what their server can. No relay learns what
//! it takes to be a client of another.

mod routes;

use crate::error::{Context, Result};
use crate::hangup;
use crate::http_server::{self, ConnectionLimits};
use crate::open_files::raise_open_file_limit;
use crate::service_manager::ServiceManager;
use crate::tls::{ServerCertificate, TlsFiles, read_authorities};
use clap::Args;
use routes::Relay;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tracing::warn;

/// The name of the protocol that a connection is upgraded to: the bytes of the socket.
pub(crate) const PROTOCOL: &str = "saggar-socket";
/// The last parts of the paths `/v1/NAME/…`.
pub(crate) const BRIDGE: &str = "bridge";
pub(crate) const CONTROL: &str = "control";
pub(crate) const EVENTS: &str = "events";

/// The options of the relay.
#[derive(Debug, Args)]
pub struct RelayArguments {
    /// Relay the sockets in DIR, which is bridge.directory of the node
    #[arg(long, value_name = "DIR")]
    sockets: PathBuf,
    /// Listen on this address
    #[arg(long, value_name = "ADDR:PORT", default_value = "0.0.0.0:4101")]
    listen: SocketAddr,
    /// Accept clients with a certificate of an authority in FILE, in PEM
    #[arg(long, value_name = "FILE")]
    client_authority: PathBuf,
    /// Present the certificate in FILE, in PEM
    #[arg(long, value_name = "FILE")]
    tls_certificate: PathBuf,
    /// Use the private key in FILE, in PEM
    #[arg(long, value_name = "FILE")]
    tls_key: PathBuf,
    /// Read stored events with PROGRAM [default: saggar next to this program, or in PATH]
    #[arg(long, value_name = "PROGRAM")]
    saggar: Option<PathBuf>,
}

/// Relays until SIGTERM or SIGINT.
///
/// # Errors
/// Fails if a file, or the listening address, cannot be used.
pub async fn serve(arguments: RelayArguments) -> Result<()> {
    let open_files = raise_open_file_limit();
    let files = TlsFiles { certificate: arguments.tls_certificate, key: arguments.tls_key };
    let certificate = Arc::new(ServerCertificate::load(files)?);
    let relay = Relay {
        sockets: std::path::absolute(&arguments.sockets)
            .context(|| format!("cannot use the directory {}", arguments.sockets.display()))?,
        saggar: arguments.saggar.unwrap_or_else(crate::saggar::default_program),
    };
    let (listener, address) = http_server::listen(arguments.listen).await?;
    let manager = Arc::new(ServiceManager::default());
    hangup::reload_at_hangup(Some(Arc::clone(&certificate)), Arc::clone(&manager))?;
    let tls = certificate.acceptor_for(Some(read_authorities(&arguments.client_authority)?))?;
    let shutdown = http_server::end_requested()?;
    if let Err(error) = writeln!(io::stdout().lock(), "saggar-server relays on https://{address}") {
        warn!("cannot print the address https://{address} to standard output: {error}");
    }
    manager.notify_ready();
    let limits =
        ConnectionLimits { upgrades: true, ..ConnectionLimits::for_server(open_files, Duration::ZERO) };
    http_server::serve(listener, Some(tls), routes::router(relay), shutdown, limits).await;
    Ok(())
}
