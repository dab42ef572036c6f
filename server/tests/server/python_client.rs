//! The published Python client of Ash, unchanged (`ash-ai-sdk` of the Python package index).

use crate::support::{Server, hello_folder, report_skip};
use std::path::Path;
use std::process::Command;

/// Where `.ci/install-agent` installs it: `target/agent/python`.
fn installed() -> Result<std::path::PathBuf, String> {
    let server = Path::new(env!("CARGO_BIN_EXE_saggar-server"));
    let python = server.ancestors().nth(2).unwrap().join("agent/python");
    match python.join("ash_sdk").is_dir() {
        true => Ok(python),
        false => Err(format!("{} has no ash_sdk: run .ci/install-agent", python.display())),
    }
}

#[test]
fn every_method_of_the_python_client_of_ash_passes() {
    let python = match installed() {
        Ok(python) => python,
        Err(reason) => return report_skip(&reason),
    };
    let server = Server::start_with(&[], &[("ASH_INTERNAL_SECRET", "internal")]);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/server/clients/python_client.py");
    let mut command = Command::new("python3");
    command.arg(script).args([&format!("http://{}", server.address()), &server.key(), "internal"]);
    command.arg(hello_folder());
    command.env("PYTHONPATH", &python).env("PYTHONDONTWRITEBYTECODE", "1");
    let output = command.output().expect("python3");
    let (text, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}\n{error}");
    // All methods of AshClient, and the functions that are generated for the routes.
    for method in [
        "health",
        "deploy_agent",
        "list_agents",
        "get_agent",
        "create_session",
        "send_message_stream",
        "asend_message_stream",
        "list_sessions",
        "get_session",
        "pause_session",
        "resume_session",
        "stop_session",
        "fork_session",
        "end_session",
        "delete_agent",
        "all_generated_functions",
    ] {
        assert!(text.lines().any(|line| line == format!("passed {method}")), "{method}: {text}");
    }
}
