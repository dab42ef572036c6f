//! Our Python client (`server/clients/python`): its types, its tests, and each operation on a real server.

use crate::support::{hello_folder, report_skip, saggar_program};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where `.ci/install-agent` installs its tools: `target/agent/own-python`.
fn tools() -> Result<PathBuf, String> {
    let server = Path::new(env!("CARGO_BIN_EXE_saggar-server"));
    let tools = server.ancestors().nth(2).unwrap().join("agent/own-python");
    match tools.join("installed").is_file() {
        true => Ok(tools),
        false => Err(format!("{} has no tools: run .ci/install-agent", tools.display())),
    }
}

fn client() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/python")
}

/// Runs Python with these arguments in the folder of the client, and returns its standard output. Nothing is written
/// there.
fn python(tools: &Path, arguments: &[&str]) -> String {
    let client = client();
    let paths = [tools.to_owned(), client.join("src"), client.clone(), client.join("tests")];
    let mut command = Command::new("python3");
    command.args(arguments).current_dir(&client);
    command.env("PYTHONPATH", std::env::join_paths(paths).unwrap()).env("PYTHONDONTWRITEBYTECODE", "1");
    for name in ["NO_PROXY", "no_proxy"] {
        command.env(name, "127.0.0.1,localhost");
    }
    let output = command.output().expect("python3");
    let (text, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{arguments:?}: {text}\n{error}");
    text.into_owned()
}

#[test]
fn python_client_is_typed() {
    let tools = match tools() {
        Ok(tools) => tools,
        Err(reason) => return report_skip(&reason),
    };
    python(&tools, &["-m", "mypy", "--cache-dir", "/dev/null", "src", "generator", "tests"]);
}

#[test]
fn parts_of_the_python_client_pass_their_tests_and_are_generated_from_the_document() {
    let tools = match tools() {
        Ok(tools) => tools,
        Err(reason) => return report_skip(&reason),
    };
    python(&tools, &["-W", "error", "-m", "unittest", "discover", "-s", "tests"]);
}

#[test]
fn every_method_of_the_python_client_works_and_streams_survive_lost_connections() {
    let tools = match tools() {
        Ok(tools) => tools,
        Err(reason) => return report_skip(&reason),
    };
    let (saggar, folder) = (saggar_program(), hello_folder());
    let (saggar, folder) = (saggar.to_str().unwrap(), folder.to_str().unwrap());
    let text = python(&tools, &["-m", "live", env!("CARGO_BIN_EXE_saggar-server"), saggar, folder]);
    assert!(text.starts_with("passed "), "{text}");
}
