//! Messages to the service manager, and the files for systemd.

use crate::support::certificate::TestCertificate;
use crate::support::{Server, report_skip, send_signal, settings_file, wait_until};
use clap::Parser;
use rustix::process::Signal;
use saggar_server::settings::{Arguments, Settings};
use serde_json::json;
use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// The socket of a service manager.
struct Manager {
    directory: TempDir,
    socket: UnixDatagram,
}

impl Manager {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(directory.path().join("notify")).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Manager { directory, socket }
    }

    fn start_server(&self, arguments: &[&str]) -> Server {
        let path = self.directory.path().join("notify");
        Server::start_with(arguments, &[("NOTIFY_SOCKET", path.to_str().unwrap())])
    }

    /// The next message.
    fn receive(&self) -> String {
        let mut message = [0; 4096];
        let length = self.socket.recv(&mut message).unwrap();
        String::from_utf8_lossy(&message[..length]).into_owned()
    }
}

#[test]
fn service_manager_is_told_each_change_of_state() {
    let manager = Manager::new();
    let mut server = manager.start_server(&[]);
    assert_eq!(manager.receive(), "READY=1\n");
    // No certificate: the signal would end the server if nobody handled it.
    send_signal(server.pid(), Signal::HUP);
    let reloading = manager.receive();
    assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
    assert_eq!(manager.receive(), "READY=1\nSTATUS=\n");
    server.client().get("/api/agents").expect(200);
    assert!(server.stop(Signal::TERM).success());
    assert_eq!(manager.receive(), "STOPPING=1\n");
}

#[test]
fn rejected_certificate_is_the_status_of_the_service() {
    let (manager, directory) = (Manager::new(), tempfile::tempdir().unwrap());
    let files = TestCertificate::create(directory.path());
    let (certificate, key) = (files.certificate.to_str().unwrap(), files.key.to_str().unwrap());
    let server = manager.start_server(&["--tls-certificate", certificate, "--tls-key", key]);
    assert_eq!(manager.receive(), "READY=1\n");
    fs::write(&files.key, "").unwrap();
    send_signal(server.pid(), Signal::HUP);
    assert!(manager.receive().starts_with("RELOADING=1\n"));
    let ready = manager.receive();
    assert!(ready.starts_with("READY=1\nSTATUS=the former certificate stays in use: "), "{ready}");
    assert!(ready.contains(key), "{ready}");
}

#[test]
fn hangup_during_the_shutdown_is_not_reported() {
    let manager = Manager::new();
    let mut server = manager.start_server(&[]);
    let (client, session) = (server.client(), server.create_session());
    let supervisor = server.supervisor(&session).as_raw_nonzero().get();
    assert_eq!(manager.receive(), "READY=1\n");
    // A request in progress delays the exit.
    let command = json!({ "command": "sleep 3" });
    let path = format!("/api/sessions/{session}/exec");
    let request = std::thread::spawn(move || client.post(&path, &command).status);
    wait_until("the command runs", || {
        let commands = process_tree(supervisor)
            .into_iter()
            .map(|process| fs::read_to_string(format!("/proc/{process}/cmdline")).unwrap_or_default());
        commands.into_iter().any(|command| command.starts_with("sleep\0"))
    });
    send_signal(server.pid(), Signal::TERM);
    assert_eq!(manager.receive(), "STOPPING=1\n");
    assert!(server.stop(Signal::HUP).success());
    let _ = request.join();
    manager.socket.set_nonblocking(true).unwrap();
    assert_eq!(manager.socket.recv(&mut [0; 16]).unwrap_err().kind(), ErrorKind::WouldBlock);
}

/// A process and those that descend from it.
fn process_tree(process: i32) -> Vec<i32> {
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
    let children = children.split_whitespace().map(|child| child.parse().unwrap());
    [process].into_iter().chain(children.flat_map(process_tree)).collect()
}

#[test]
fn sessions_do_not_inherit_the_socket() {
    let manager = Manager::new();
    let server = manager.start_server(&[]);
    let session = server.create_session();
    let environment = |process: i32| {
        let variables = fs::read(format!("/proc/{process}/environ"));
        variables.map(|variables| String::from_utf8_lossy(&variables).into_owned())
    };
    let has_socket =
        |process| environment(process).is_ok_and(|variables| variables.contains("NOTIFY_SOCKET"));
    assert!(has_socket(server.pid().as_raw_nonzero().get()));
    let supervisor = server.supervisor(&session).as_raw_nonzero().get();
    // Only root can read it.
    let is_root = rustix::process::geteuid().is_root();
    assert_eq!(environment(supervisor).is_ok_and(|variables| variables.contains("PATH=")), is_root);
    let processes = process_tree(supervisor);
    assert!(processes.len() > 1, "{processes:?}");
    // Programs of the start can exit meanwhile.
    assert!(!processes.into_iter().any(has_socket));
}

#[test]
fn invalid_settings_have_an_exit_status_of_their_own() {
    let used = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let used = used.local_addr().unwrap().to_string();
    let unknown_key = settings_file("unknown_key = 1\n");
    let directory = tempfile::tempdir().unwrap();
    let no_roots = directory.path().join("roots.pem");
    fs::write(&no_roots, "").unwrap();
    let collector = ["--otlp-endpoint", "https://localhost:4318"];
    for (arguments, variable, status, text) in [
        (["--unknown", ""], ("", ""), 2, "--unknown"),
        (["--config", unknown_key.path().to_str().unwrap()], ("", ""), 78, "unknown_key"),
        (["--otlp-endpoint", "localhost:4318"], ("", ""), 78, "--otlp-endpoint"),
        (collector, ("OTEL_TRACES_SAMPLER", "nonsense"), 78, "OTEL_TRACES_SAMPLER=nonsense"),
        (collector, ("SSL_CERT_FILE", no_roots.to_str().unwrap()), 78, "no certificate authority"),
        (["--listen", &used], ("", ""), 1, "--listen"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_saggar-server"));
        command.arg("--data").arg(directory.path().join("data")).args(arguments);
        command.env_remove("SSL_CERT_DIR");
        if !variable.0.is_empty() {
            command.env(variable.0, variable.1);
        }
        let output = command.output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{error}");
        assert!(error.contains(text), "{error}");
    }
    let unit = fs::read_to_string(repository().join("packaging/systemd/saggar-server.service")).unwrap();
    assert!(unit.contains("\nRestartPreventExitStatus=2 78\n"));
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

#[test]
fn unit_is_valid() {
    let unit = fs::read_to_string(repository().join("packaging/systemd/saggar-server.service")).unwrap();
    let installed = "/usr/bin/saggar-server";
    assert_eq!(unit.matches(installed).count(), 1);
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("saggar-server.service");
    fs::write(&copy, unit.replace(installed, env!("CARGO_BIN_EXE_saggar-server"))).unwrap();
    let mut command = Command::new("systemd-analyze");
    let output = match command.args(["verify", "--man=no"]).arg(&copy).output() {
        Ok(output) => output,
        Err(error) => return report_skip(&format!("systemd-analyze of the package systemd: {error}")),
    };
    // It says so of what it does not know, and succeeds.
    let said = String::from_utf8_lossy(&output.stderr);
    let of_unit: Vec<_> = said.lines().filter(|line| line.contains("saggar-server")).collect();
    assert!(output.status.success() && of_unit.is_empty(), "{said}");
}

fn packaged_settings() -> String {
    fs::read_to_string(repository().join("packaging/server.toml")).unwrap()
}

#[test]
fn packaged_settings_are_the_defaults() {
    let read = |text: &str| {
        let file = settings_file(text);
        let arguments = ["saggar-server", "--data", "/d", "--config", file.path().to_str().unwrap()];
        let settings = Settings::read(Arguments::try_parse_from(arguments).unwrap(), |_| None).unwrap();
        // Their examples are not built in.
        let built_in =
            Settings { database_url: None, snapshot_url: None, traces: None, saggar: None, ..settings };
        format!("{built_in:?}")
    };
    let packaged = packaged_settings();
    let defaults = read(&packaged);
    let keys =
        packaged.lines().filter_map(|line| line.strip_prefix('#')).filter(|line| !line.starts_with(' '));
    let mut table = "";
    let keys = keys.filter(|line| {
        table = if line.starts_with('[') { line } else { table };
        // Files that this machine does not have, and a table that needs one of them.
        !line.contains("\"/etc/") && !table.starts_with("[kubernetes")
    });
    let keys: Vec<&str> = keys.collect();
    assert_eq!(read(&keys.join("\n")), defaults);
}

#[test]
fn packaged_settings_have_every_key_of_the_manual() {
    let page = fs::read_to_string(repository().join("man/saggar-server.8")).unwrap();
    let section = page.split(".Sh ").find(|section| section.starts_with("SETTINGS\n")).unwrap();
    let tags = section.lines().filter_map(|line| line.strip_prefix(".It Va "));
    let keys: Vec<&str> = tags.flat_map(|tag| tag.split(" , ")).collect();
    assert!(keys.len() > 15, "{keys:?}");
    let packaged = packaged_settings();
    for key in keys {
        let name = key.rsplit('.').next().unwrap();
        assert!(packaged.contains(&format!("\n#{name} = ")), "packaging/server.toml lacks {key}");
    }
}
