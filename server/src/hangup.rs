//! What SIGHUP does: the server reads its certificate again.

use crate::error::{Context, Error, Result};
use crate::service_manager::{self, ServiceManager};
use crate::tls::ServerCertificate;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};
use tracing::info;

/// Reads the certificate again at each SIGHUP. Without a certificate, a service manager may still send the signal, and it
/// has no effect; without both, its default effect remains: a server ends with the terminal that it was started in.
///
/// # Errors
/// Fails if the signal cannot be handled.
pub fn reload_at_hangup(
    certificate: Option<Arc<ServerCertificate>>,
    manager: Arc<ServiceManager>,
) -> Result<()> {
    if certificate.is_none() && !service_manager::is_present() {
        return Ok(());
    }
    let mut hangup = signal(SignalKind::hangup()).context(|| "cannot handle SIGHUP")?;
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            manager.reload(|| match &certificate {
                Some(certificate) => certificate
                    .reload()
                    .map_err(|error| Error::new(format!("the former certificate stays in use: {error}"))),
                None => {
                    info!("SIGHUP has no effect: the server has no certificate to read again");
                    Ok(())
                }
            });
        }
    });
    Ok(())
}
