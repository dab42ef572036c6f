//! The server on PostgreSQL.

use crate::queue::{BLOCKED, enqueue, message_types, wait_for_status, wait_for_turn};
use crate::support::postgres::{Cluster, TestDatabase, configured_url, shared_url};
use crate::support::{Server, deploy_body, report_skip, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::process::Command;

/// The modules whose tests use the database.
const MODULES: [&str; 19] = [
    "agents::",
    "attachments::",
    "exec::",
    "files::",
    "forks::",
    "lifecycle::",
    "messages::",
    "permissions::",
    "persisted_agents::",
    "persisted_failures::",
    "persisted_sessions::",
    "queue::",
    "queue_restart::",
    "random_kills::",
    "repeated::",
    "restart::",
    "sessions::",
    "stream::",
    "warm_pool::",
];
/// They have at least this number of tests.
const MIN_TESTS: usize = 77;

/// Runs the tests of these modules again in a process whose servers use PostgreSQL.
#[test]
fn tests_of_the_api_pass_on_postgres() {
    if configured_url().is_some() {
        // All tests of this process are run on PostgreSQL.
        return;
    }
    let server = match shared_url() {
        Ok(server) => server,
        Err(reason) => return report_skip(&reason),
    };
    let mut tests = Command::new(std::env::current_exe().unwrap());
    let output = tests.args(MODULES).env("SAGGAR_TEST_POSTGRES", server).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    // Indented, so that .ci/run-tests does not count these tests as those of this process.
    let report: String = text.lines().map(|line| format!("    {line}\n")).collect();
    assert!(output.status.success(), "{report}{}", String::from_utf8_lossy(&output.stderr));
    let passed = text.lines().filter(|line| line.starts_with("test ") && line.contains(" ... ok")).count();
    assert!(passed >= MIN_TESTS, "{report}");
}

#[test]
fn restart_of_postgres_loses_no_event() {
    let mut cluster = match Cluster::start() {
        Ok(cluster) => cluster,
        Err(reason) => return report_skip(&reason),
    };
    let mut server = Server::start_on_postgres(TestDatabase::create(&cluster.url()));
    let session = server.create_session();
    let (client, path) = (server.client(), format!("/api/sessions/{session}/messages?limit=1000"));
    let mut frames = client.send(&session, &json!({ "content": "count: 40" }));
    while frames.next().unwrap().event != "message" {}

    cluster.stop();
    for path in ["/health", "/api/agents", &path] {
        let refused = client.get(path).expect(503);
        assert_eq!(refused["statusCode"], 503);
        assert!(refused["error"].as_str().unwrap().contains("database is unavailable"), "{refused}");
    }
    // The agent continues without the database.
    wait_until("the turn is over", || server.saggar(&["events", &session]).contains("\"type\":\"result\""));
    cluster.restart();

    assert!(frames.any(|frame| frame.event == "done"));
    let listed = client.get(&path).expect(200);
    let stored: Vec<String> =
        listed["messages"].as_array().unwrap().iter().map(|row| row["content"].to_string()).collect();
    let events = server.saggar(&["events", &session]);
    let sent = events.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let sent = sent.filter(|event| {
        event["ev"] == "message" && ["assistant", "result"].iter().any(|kind| event["data"]["type"] == *kind)
    });
    // The first one is the client's.
    assert_eq!(stored.len(), sent.count() + 1, "{stored:?}");
    assert!(client.run_turn(&session, "hi").iter().any(|frame| frame.event == "done"));

    // Without a database, the server exits at SIGTERM, and a start fails with the reason.
    cluster.stop();
    assert!(server.stop(Signal::TERM).success());
    let output = server.command().output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        output.status.code() == Some(1) && error.contains("cannot use the PostgreSQL database"),
        "{error}"
    );
}

#[test]
fn item_that_ends_without_the_database_is_completed_by_the_next_server() {
    let mut cluster = match Cluster::start() {
        Ok(cluster) => cluster,
        Err(reason) => return report_skip(&reason),
    };
    let mut server = Server::start_on_postgres(TestDatabase::create(&cluster.url()));
    let client = server.client();
    client.post("/api/agents", &deploy_body("hello")).expect(201);
    let id = enqueue(&client, &json!({ "agentName": "hello", "prompt": BLOCKED }));
    let session = wait_for_turn(&client, &id);
    cluster.stop();
    server.saggar(&["files", "write", &session, "go"]);
    wait_until("the turn is over", || server.saggar(&["events", &session]).contains("\"ev\":\"done\""));
    // The shutdown does not wait for the database.
    assert!(server.stop(Signal::TERM).success());
    cluster.restart();
    server.restart();
    let client = server.client();
    let done = wait_for_status(&client, &id, "completed");
    assert_eq!((&done["retryCount"], &done["sessionId"]), (&json!(0), &json!(session)));
    assert_eq!(message_types(&client, &session), ["user", "assistant", "assistant", "result"]);
}
