//! The limit on open files.

use crate::support::Server;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// Kills the process at the end of the test, whatever its result.
struct KilledAtEnd(Child);

impl Drop for KilledAtEnd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn server_raises_its_limit_on_open_files() {
    let server = Server::start();
    let directory = tempfile::tempdir().unwrap();
    let command = server.command_with_data(directory.path());
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -S -n 64 && ulimit -H -n 512 && exec \"$@\"", "sh"]);
    limited.arg(command.get_program()).args(command.get_args()).env_remove("ASH_DATABASE_URL");
    let mut process = KilledAtEnd(limited.stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(process.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let limits = fs::read_to_string(format!("/proc/{}/limits", process.0.id())).unwrap();
    let limit = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    assert_eq!(limit.split_whitespace().nth(3), Some("512"), "{limit}");
}
