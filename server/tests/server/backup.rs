//! Backup and restore as saggar-server(8) describes them (DATABASES).

use crate::support::postgres::{TestDatabase, shared_url};
use crate::support::{Server, report_skip, send_signal, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;

fn run(program: &str, arguments: &[&str]) {
    let output =
        Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Copies a directory with everything that cp(1) can keep.
fn copy(from: &Path, to: &Path) {
    run("cp", &["-a", from.to_str().unwrap(), to.to_str().unwrap()]);
}

/// Backs the server up, loses its data and its sandboxes, and restores them. `save` and `restore` do the same for a
/// database that is elsewhere.
fn restores_everything(mut server: Server, save: impl FnOnce(&Server), restore: impl FnOnce(&Server)) {
    let session = server.create_session();
    let client = server.client();
    client.run_turn(&session, "my name is Ann");
    let write = json!({ "files": [{ "path": "kept", "content": "eA==" }] });
    client.post(&format!("/api/sessions/{session}/files"), &write).expect(200);
    let messages = client.get(&format!("/api/sessions/{session}/messages")).expect(200);
    let key = server.key();

    assert!(server.stop(Signal::TERM).success());
    let backup = tempfile::tempdir().unwrap();
    let copied = backup.path().join("data");
    copy(&server.data_dir(), &copied);
    save(&server);

    let supervisor = server.supervisor(&session);
    send_signal(supervisor, Signal::KILL);
    wait_until("the supervisor has exited", || crate::support::has_exited(supervisor));
    fs::remove_dir_all(server.data_dir()).unwrap();
    copy(&copied, &server.data_dir());
    restore(&server);
    server.restart();

    assert_eq!(server.key(), key);
    let client = server.client();
    assert_eq!(client.get(&format!("/api/sessions/{session}/messages")).expect(200), messages);
    client.post(&format!("/api/sessions/{session}/resume"), &json!({})).expect(200);
    let frames = client.run_turn(&session, "recall");
    assert!(frames.iter().any(|frame| frame.data.contains("my name is Ann")), "{frames:?}");
    let file: Value = client.get(&format!("/api/sessions/{session}/files/kept?format=json")).expect(200);
    assert_eq!(file["content"], "x");
}

#[test]
fn copy_of_the_data_directory_restores_everything() {
    if crate::support::postgres::configured_url().is_some() {
        // The test below is that for PostgreSQL.
        return;
    }
    restores_everything(Server::start(), |_| {}, |_| {});
}

#[test]
fn dump_of_postgres_and_copy_of_the_data_directory_restore_everything() {
    let url = match shared_url() {
        Ok(url) => url,
        Err(reason) => return report_skip(&reason),
    };
    let database = TestDatabase::create(&url);
    let url = database.url();
    let directory = tempfile::tempdir().unwrap();
    let dump = directory.path().join("dump");
    let dump = dump.to_str().unwrap();
    restores_everything(
        Server::start_on_postgres(database),
        |_| run("pg_dump", &["-Fc", "--file", dump, &url]),
        |server| {
            server.execute("DROP SCHEMA public CASCADE");
            server.execute("CREATE SCHEMA public");
            run("pg_restore", &["--dbname", &url, dump]);
        },
    );
}
