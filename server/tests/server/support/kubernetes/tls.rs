//! TLS: the API server behind it, and clients of a relay.

use super::api::ApiState;
use crate::support::certificate::TestCertificate;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;

/// What a relay answers to a client with this certificate, or with none.
pub(super) fn ask_relay(
    port: u16,
    authority: &Path,
    identity: Option<&TestCertificate>,
) -> io::Result<String> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match identity {
        Some(files) => builder
            .with_client_auth_cert(
                vec![CertificateDer::from_pem_file(&files.certificate).unwrap()],
                PrivateKeyDer::from_pem_file(&files.key).unwrap(),
            )
            .unwrap(),
        None => builder.with_no_client_auth(),
    };
    let connection = ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
    let mut stream = StreamOwned::new(connection, TcpStream::connect(("127.0.0.1", port))?);
    stream.write_all(b"GET /v1/saggar-1/events HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    match stream.read_to_string(&mut answer) {
        Ok(_) => Ok(answer),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && !answer.is_empty() => Ok(answer),
        Err(error) => Err(error),
    }
}

/// Serves until the process exits.
pub(super) fn serve(listener: TcpListener, files: &TestCertificate, state: Arc<ApiState>) {
    let certificates =
        CertificateDer::pem_file_iter(&files.certificate).unwrap().map(Result::unwrap).collect();
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(certificates, PrivateKeyDer::from_pem_file(&files.key).unwrap())
        .unwrap();
    let config = Arc::new(config);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (config, state) = (Arc::clone(&config), Arc::clone(&state));
            std::thread::spawn(move || {
                let mut stream = StreamOwned::new(ServerConnection::new(config).unwrap(), stream);
                // A client that has been killed is no failure of a test.
                if state.serve(&mut stream).is_ok() {
                    stream.conn.send_close_notify();
                    let _ = stream.conn.complete_io(&mut stream.sock);
                }
            });
        }
    });
}
