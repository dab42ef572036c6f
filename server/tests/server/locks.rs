//! A data directory and a database belong to one server at a time.

use crate::support::postgres::{TestDatabase, shared_url};
use crate::support::{Server, report_skip};
use rustix::process::Signal;
use std::process::Command;

/// Starts a server that must not start, and returns its error.
#[track_caller]
fn startup_error(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn second_server_on_same_data_directory_is_refused() {
    let mut server = Server::start();
    let error = startup_error(&mut server.command());
    assert!(error.contains("another saggar-server uses it") && error.contains("--data"), "{error}");
    server.client().get("/api/agents").expect(200);
    // A killed server leaves no lock, although its sessions continue.
    server.create_session();
    server.stop(Signal::KILL);
    server.restart();
}

#[test]
fn second_server_on_same_postgres_database_is_refused() {
    let database = match shared_url() {
        Ok(url) => TestDatabase::create(&url),
        Err(reason) => return report_skip(&reason),
    };
    let mut server = Server::start_on_postgres(database);
    let directory = tempfile::tempdir().unwrap();
    let mut second = server.command_with_data(&directory.path().join("data"));
    let error = startup_error(&mut second);
    assert!(error.contains("another saggar-server uses it") && error.contains("--database-url"), "{error}");
    server.client().get("/api/agents").expect(200);
    server.stop(Signal::KILL);
    server.restart();
}

#[test]
fn password_of_database_is_not_logged() {
    let mut server = Server::start();
    server.stop(Signal::TERM);
    for url in ["postgres://ann:hidden@127.0.0.1:1/db", "postgres://127.0.0.1:1/db?user=ann&passwd=hidden"] {
        let mut command = server.command();
        let error = startup_error(command.args(["--database-url", url]).env_remove("RUST_LOG"));
        assert!(error.contains("PostgreSQL") && !error.contains("hidden"), "{error}");
    }
}
