//! `saggar-server relay`.

use crate::support::saggar_program;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

/// The relay of the node; it ends when it is dropped.
pub(super) struct Relay {
    directory: PathBuf,
    sockets: PathBuf,
    port: u16,
    process: Mutex<Option<Child>>,
}

impl Relay {
    /// Starts it with the certificate in `directory`.
    pub(super) fn start(directory: &Path, sockets: &Path) -> Self {
        let (directory, sockets) = (directory.to_owned(), sockets.to_owned());
        let mut relay = Relay { directory, sockets, port: 0, process: Mutex::default() };
        relay.port = relay.spawn();
        relay
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Starts or ends it.
    pub(super) fn run(&self, runs: bool) {
        match runs {
            true => assert_eq!(self.spawn(), self.port),
            false => self.end(),
        }
    }

    fn spawn(&self) -> u16 {
        let mut command = Command::new(env!("CARGO_BIN_EXE_saggar-server"));
        command.arg("relay").args(["--listen", &format!("127.0.0.1:{}", self.port)]);
        for (option, file) in [
            ("--sockets", self.sockets.clone()),
            ("--client-authority", self.directory.join("cert.pem")),
            ("--tls-certificate", self.directory.join("cert.pem")),
            ("--tls-key", self.directory.join("key.pem")),
            ("--saggar", saggar_program()),
        ] {
            command.arg(option).arg(file);
        }
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        *self.process.lock().unwrap() = Some(process);
        line.trim_end().rsplit_once(':').unwrap().1.parse().unwrap()
    }

    fn end(&self) {
        if let Some(mut process) = self.process.lock().unwrap().take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.end();
    }
}
