//! Messages to the service manager, and the files for systemd.

use crate::support::{Server, report_skip, send_signal, settings_file};
use clap::Parser;
use rustix::process::Signal;
use saggar_server::settings::{Arguments, Settings};
use std::fs;
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

    fn start_server(&self) -> Server {
        let path = self.directory.path().join("notify");
        Server::start_with(&[], &[("NOTIFY_SOCKET", path.to_str().unwrap())])
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
    let mut server = manager.start_server();
    assert_eq!(manager.receive(), "READY=1\n");
    // No certificate: the signal would end the server if nobody handled it.
    send_signal(server.pid(), Signal::HUP);
    let reloading = manager.receive();
    assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
    assert_eq!(manager.receive(), "READY=1\n");
    server.client().get("/api/agents").expect(200);
    assert!(server.stop(Signal::TERM).success());
    assert_eq!(manager.receive(), "STOPPING=1\n");
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
    // Files that this machine does not have.
    let keys =
        packaged.lines().filter_map(|line| line.strip_prefix('#')).filter(|line| !line.starts_with(' '));
    let keys: Vec<&str> = keys.filter(|line| !line.contains("\"/etc/")).collect();
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
