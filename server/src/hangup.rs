//! What SIGHUP does: the server reads its certificate again.

use crate::error::{Context, Result};
use crate::service_manager;
use crate::tls::ServerCertificate;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};
use tracing::info;

/// Reads the certificate again at each SIGHUP. Without a certificate, a service manager may still send the signal, and it
/// has no effect; without both, its default effect remains: a server ends with the terminal that it was started in.
///
/// # Errors
/// Fails if the signal cannot be handled.
pub fn reload_at_hangup(certificate: Option<Arc<ServerCertificate>>) -> Result<()> {
    if certificate.is_none() && !service_manager::is_present() {
        return Ok(());
    }
    let mut hangup = signal(SignalKind::hangup()).context(|| "cannot handle SIGHUP")?;
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            service_manager::notify_reloading();
            match &certificate {
                Some(certificate) => certificate.reload_or_log(),
                None => info!("SIGHUP has no effect: the server has no certificate to read again"),
            }
            service_manager::notify_ready();
        }
    });
    Ok(())
}
