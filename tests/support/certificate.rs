//! Certificates for tests, made by openssl(1).

use std::path::{Path, PathBuf};
use std::process::Command;

/// A certificate of its own authority for `localhost`, and its key.
pub(crate) struct TestCertificate {
    /// In PEM.
    pub(crate) certificate: PathBuf,
    /// In PEM.
    pub(crate) key: PathBuf,
}

impl TestCertificate {
    /// Creates the files in a directory, or replaces them.
    pub(crate) fn create(directory: &Path) -> Self {
        let (certificate, key) = (directory.join("cert.pem"), directory.join("key.pem"));
        let output = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
            .args([
                "-days",
                "2",
                "-subj",
                "/CN=localhost",
                "-addext",
                "subjectAltName=DNS:localhost,IP:127.0.0.1",
            ])
            // Otherwise it would be one of an authority, which no server may present.
            .args(["-addext", "basicConstraints=critical,CA:FALSE"])
            .args(["-keyout".as_ref(), key.as_os_str(), "-out".as_ref(), certificate.as_os_str()])
            .output()
            .expect("openssl");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        TestCertificate { certificate, key }
    }
}
