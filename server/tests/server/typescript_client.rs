//! The TypeScript client of `server/clients/typescript`: its types are strict, its generated files are current, its own
//! tests pass, and each of its methods works with this server.

use crate::support::{Server, hello_folder, report_skip, settings_file};
use rustix::process::Signal;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// The oldest major version of Node.js that the client supports.
const MIN_NODE: u32 = 20;

/// The sources of the client.
fn client_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/typescript")
}

/// Where `.ci/install-agent` installs what the client is built and tested with: `target/agent/typescript`.
fn installed() -> Result<PathBuf, String> {
    let version = Command::new("node").arg("--version").output().map_err(|error| format!("node: {error}"))?;
    let version = String::from_utf8_lossy(&version.stdout).trim().to_owned();
    let major = version.trim_start_matches('v').split('.').next().and_then(|major| major.parse().ok());
    if major.is_none_or(|major: u32| major < MIN_NODE) {
        return Err(format!("node has the version {version}; install Node.js {MIN_NODE} or later"));
    }
    let server = Path::new(env!("CARGO_BIN_EXE_saggar-server"));
    let modules = server.ancestors().nth(2).unwrap().join("agent/typescript/node_modules");
    match modules.join("typescript/bin/tsc").is_file() {
        true => Ok(modules),
        false => Err(format!("{} has no typescript: run .ci/install-agent", modules.display())),
    }
}

/// Copies the files below a folder.
fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_folder(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// Runs node in a folder, and returns what it printed.
fn node(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new("node").args(arguments).current_dir(folder).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{arguments:?}: {text}\n{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// A copy of the client that is compiled to `out`. Nothing is written to the sources.
fn compiled(modules: &Path) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    for name in ["src", "scripts", "tests"] {
        copy_folder(&client_folder().join(name), &copy.path().join(name));
    }
    for name in ["package.json", "tsconfig.json", "tsconfig.build.json"] {
        fs::copy(client_folder().join(name), copy.path().join(name)).unwrap();
    }
    symlink(modules, copy.path().join("node_modules")).unwrap();
    node(copy.path(), &["node_modules/typescript/bin/tsc", "--outDir", "out"]);
    copy
}

fn check_generated_files(copy: &Path, document: &str) {
    let generated = copy.join("generated");
    fs::create_dir(&generated).unwrap();
    node(copy, &["out/scripts/generate.js", document, "generated"]);
    for entry in fs::read_dir(&generated).unwrap().map(Result::unwrap) {
        let committed = client_folder().join("src/generated").join(entry.file_name());
        // Without assert_eq: the files are long.
        assert!(
            fs::read(entry.path()).unwrap() == fs::read(&committed).unwrap_or_default(),
            "{} is not that of server/openapi.json; update it: npm run generate in server/clients/typescript",
            committed.display()
        );
    }
}

fn run_own_tests(copy: &Path) {
    let mut arguments = vec!["--test".to_owned()];
    for entry in fs::read_dir(copy.join("out/tests")).unwrap().map(Result::unwrap) {
        let path = entry.path().display().to_string();
        arguments.extend(path.ends_with(".test.js").then_some(path));
    }
    assert!(arguments.len() > 5, "{arguments:?}");
    node(copy, &arguments.iter().map(String::as_str).collect::<Vec<_>>());
}

/// Runs the script that calls every method, and restarts the server when the script asks for it.
fn call_every_method(copy: &Path, document: &str) {
    // An address for documentation, which no host has.
    let config = settings_file("[sandbox]\noptions = [\"--allow-host\", \"192.0.2.1:80\"]\n");
    let arguments = ["--config", config.path().to_str().unwrap()];
    let mut server = Server::start_with(&arguments, &[("ASH_INTERNAL_SECRET", "s3cret")]);
    let port = |server: &Server| server.address().rsplit_once(':').unwrap().1.to_owned();
    let mut command = Command::new("node");
    command.arg(copy.join("out/tests/live/every-method.js"));
    command.args([&port(&server), &server.key(), "s3cret"]).arg(hello_folder()).arg(document);
    let mut script = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = script.stdin.take().unwrap();
    let mut restarts = 0;
    let mut text = String::new();
    for line in BufReader::new(script.stdout.take().unwrap()).lines().map(Result::unwrap) {
        if line == "restart" {
            server.stop(Signal::KILL);
            server.restart();
            restarts += 1;
            writeln!(input, "{}", port(&server)).unwrap();
        }
        text.push_str(&line);
        text.push('\n');
    }
    assert!(script.wait().unwrap().success(), "{text}");
    assert!(
        restarts == 1 && text.contains("passed cutTurn\n") && text.contains("passed permission\n"),
        "{text}"
    );
}

#[test]
fn typescript_client_is_current_and_every_method_of_it_passes() {
    let modules = match installed() {
        Ok(modules) => modules,
        Err(reason) => return report_skip(&reason),
    };
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");
    let copy = compiled(&modules);
    check_generated_files(copy.path(), document);
    // The package has no types of Node.js, since it runs in browsers too.
    let package = ["node_modules/typescript/bin/tsc", "-p", "tsconfig.build.json", "--outDir", "package"];
    node(copy.path(), &package);
    run_own_tests(copy.path());
    call_every_method(copy.path(), document);
}
