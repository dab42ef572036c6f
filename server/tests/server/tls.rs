//! TLS of the server.

use crate::support::certificate::TestCertificate;
use crate::support::{Server, saggar_program, send_signal, wait_until};
use rustix::process::Signal;
use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

fn start(files: &TestCertificate) -> Server {
    let (certificate, key) = (files.certificate.to_str().unwrap(), files.key.to_str().unwrap());
    Server::start_with(&["--tls-certificate", certificate, "--tls-key", key], &[])
}

/// `saggar remote status`, with the certificates in `ca_file`.
fn status(server: &Server, ca_file: &Path) -> Output {
    let port = server.address().rsplit_once(':').unwrap().1;
    let mut command = Command::new(saggar_program());
    command.args(["remote", "--server", &format!("https://localhost:{port}"), "--ca-file"]).arg(ca_file);
    command.arg("status").env("SAGGAR_REMOTE_KEY", server.key()).output().unwrap()
}

#[test]
fn connections_are_encrypted_and_a_renewed_certificate_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let files = TestCertificate::create(directory.path());
    let server = start(&files);
    assert!(server.stdout.contains("https://127.0.0.1:"), "{}", server.stdout);
    let known = directory.path().join("known.pem");
    fs::copy(&files.certificate, &known).unwrap();
    let output = status(&server, &known);
    assert!(output.status.success(), "{output:?}");

    let renewed = TestCertificate::create(directory.path());
    send_signal(server.pid(), Signal::HUP);
    wait_until("the new certificate is used", || status(&server, &renewed.certificate).status.success());
    let refused = status(&server, &known);
    assert_eq!(refused.status.code(), Some(125), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--ca-file"), "{refused:?}");

    // A file that cannot be used changes nothing.
    fs::write(&renewed.key, "").unwrap();
    send_signal(server.pid(), Signal::HUP);
    assert!(status(&server, &renewed.certificate).status.success());
}

#[test]
fn clients_without_tls_get_no_answer_and_block_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let files = TestCertificate::create(directory.path());
    let mut server = start(&files);
    let address = server.address().to_owned();
    let _silent: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(&address).unwrap()).collect();
    let mut plain = TcpStream::connect(&address).unwrap();
    plain.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = std::io::Read::read_to_end(&mut plain, &mut answer);
    assert!(!String::from_utf8_lossy(&answer).contains("HTTP/"), "{answer:?}");
    assert!(status(&server, &files.certificate).status.success());
    // Silent clients do not delay the exit.
    let exit = server.stop(Signal::TERM);
    assert!(exit.success(), "{exit}");
}

#[test]
fn files_that_cannot_be_used_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let files = TestCertificate::create(directory.path());
    let other = tempfile::tempdir().unwrap();
    let other = TestCertificate::create(other.path());
    let open = directory.path().join("open.pem");
    fs::copy(&files.key, &open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o644)).unwrap();
    let empty = directory.path().join("empty.pem");
    fs::write(&empty, "").unwrap();
    fs::set_permissions(&empty, fs::Permissions::from_mode(0o600)).unwrap();
    let data = tempfile::tempdir().unwrap();
    for (certificate, key, reason) in [
        (Some(&files.certificate), Some(&other.key), "does not belong to"),
        (Some(&files.certificate), Some(&open), "chmod o="),
        (Some(&files.certificate), Some(&empty), "empty.pem"),
        (Some(&empty), Some(&files.key), "no certificate"),
        (Some(&files.certificate), None, "--tls-key"),
        (None, Some(&files.key), "--tls-certificate"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_saggar-server"));
        command.arg("--data").arg(data.path().join("data")).args(["--listen", "127.0.0.1:0"]);
        for (option, file) in [("--tls-certificate", certificate), ("--tls-key", key)] {
            file.map(|file| command.arg(option).arg(file));
        }
        let output = command.output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && error.contains(reason), "{reason}: {error}");
    }
}
