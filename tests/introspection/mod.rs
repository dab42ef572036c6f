//! What saggar says of a sandbox and of the host, against what is so.

mod doctor;
mod explain;
mod hosts;
mod limits;
mod metrics;
mod output;
mod paths;
mod policy;
mod prove;
mod stats;

use crate::support::place::Place;
use serde_json::Value;
use std::process::{Command, Output};

/// Runs `command`; its standard output when it ended with this status.
fn stdout(mut command: Command, status: i32) -> String {
    let Output { status: ended, stdout, stderr } = command.output().unwrap();
    let (stdout, stderr) = (String::from_utf8(stdout).unwrap(), String::from_utf8_lossy(&stderr));
    assert_eq!(ended.code(), Some(status), "{command:?}\n{stdout}\n{stderr}");
    stdout
}

/// The same as JSON.
fn json(command: Command, status: i32) -> Value {
    serde_json::from_str(&stdout(command, status)).unwrap()
}

/// saggar with these arguments.
fn saggar(place: &Place, args: &[&str]) -> Command {
    let mut command = place.saggar();
    command.args(args);
    command
}

/// A shell script whose `$0` is saggar, started by the program `before` and its arguments.
fn around(place: &Place, before: &[&str], script: &str) -> Command {
    let saggar = place.saggar().get_program().to_owned();
    let mut command = place.command(before[0].as_ref());
    command.args(&before[1..]).args(["sh", "-c", script]).arg(saggar);
    command
}
