//! TLS of the listening socket: a certificate and its key in files, which are read again at SIGHUP, so that a renewed
//! certificate needs no restart.

use crate::error::{Context, Error, Result};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use tokio_rustls::TlsAcceptor;
use tracing::info;

/// The files of a certificate, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate of the server, which those of intermediate authorities can follow.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// The certificate that is presented to clients.
#[derive(Debug)]
pub struct ServerCertificate {
    files: TlsFiles,
    provider: Arc<CryptoProvider>,
    current: RwLock<Arc<CertifiedKey>>,
}

impl ServerCertificate {
    /// Reads the files.
    ///
    /// # Errors
    /// Fails if a file cannot be read, the key belongs to another certificate, or others can read the key.
    pub fn load(files: TlsFiles) -> Result<Self> {
        let provider = Arc::new(ring::default_provider());
        let current = RwLock::new(Arc::new(read(&files, &provider)?));
        Ok(ServerCertificate { files, provider, current })
    }

    /// Reads the files again. After an error, the former certificate is used on.
    ///
    /// # Errors
    /// As [`ServerCertificate::load`].
    pub fn reload(&self) -> Result<()> {
        let read = Arc::new(read(&self.files, &self.provider)?);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = read;
        info!("read the certificate {} again", self.files.certificate.display());
        Ok(())
    }

    /// Returns what accepts connections with this certificate: TLS 1.2 and 1.3, HTTP/1.1.
    ///
    /// # Errors
    /// Fails if the library supports none of the versions.
    pub fn acceptor(self: Arc<Self>) -> Result<TlsAcceptor> {
        self.acceptor_for(None)
    }

    /// The same; if there are `authorities`, only for clients with a certificate of theirs.
    ///
    /// # Errors
    /// Fails if the library supports none of the versions, or if there is no authority.
    pub fn acceptor_for(self: Arc<Self>, authorities: Option<RootCertStore>) -> Result<TlsAcceptor> {
        let builder = ServerConfig::builder_with_provider(Arc::clone(&self.provider));
        let versions = builder.with_safe_default_protocol_versions().context(|| "cannot configure TLS")?;
        let verified = match authorities {
            None => versions.with_no_client_auth(),
            Some(authorities) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(
                    Arc::new(authorities),
                    Arc::clone(&self.provider),
                );
                versions.with_client_cert_verifier(verifier.build().context(|| "cannot verify clients")?)
            }
        };
        let mut config = verified.with_cert_resolver(self);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

/// Reads the certificates of authorities in a file, in PEM.
///
/// # Errors
/// Fails if the file cannot be read, or has no valid certificate.
pub fn read_authorities(file: &Path) -> Result<RootCertStore> {
    let context = || format!("cannot use the certificates in {}", file.display());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).context(context)? {
        roots.add(certificate.context(context)?).context(context)?;
    }
    match roots.is_empty() {
        true => Err(Error::new(format!("{}: there are none", context()))),
        false => Ok(roots),
    }
}

impl ResolvesServerCert for ServerCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// Reads a certificate, and those of intermediate authorities that follow it, in PEM.
///
/// # Errors
/// Fails if the file cannot be read, or has none.
pub(crate) fn read_chain(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let context = || format!("cannot use TLS file {}", file.display());
    let chain = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>)
        .context(context)?;
    match chain.is_empty() {
        true => Err(Error::new(format!("{}: it contains no certificate", context()))),
        false => Ok(chain),
    }
}

fn read(files: &TlsFiles, provider: &CryptoProvider) -> Result<CertifiedKey> {
    let chain = read_chain(&files.certificate)?;
    let context = |file: &Path| format!("cannot use TLS file {}", file.display());
    // A group may read it, as the group ssl-cert of Debian.
    let metadata = fs::metadata(&files.key).context(|| context(&files.key))?;
    if metadata.permissions().mode() & 0o007 != 0 {
        return Err(Error::new(format!(
            "{}: it is accessible to all users; run chmod o= {}",
            context(&files.key),
            files.key.display()
        )));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key).context(|| context(&files.key))?;
    CertifiedKey::from_der(chain, key, provider).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => Error::new(format!(
            "the key {} does not belong to {}",
            files.key.display(),
            files.certificate.display()
        )),
        error => Error::new(format!(
            "cannot use {} with the key {}: {error}",
            files.certificate.display(),
            files.key.display()
        )),
    })
}
