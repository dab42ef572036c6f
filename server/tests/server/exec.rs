//! Shell commands in the sandbox, and the log of a session.

use crate::support::{Server, wait_until};
use serde_json::json;

#[test]
fn exec_runs_command_in_sandbox_of_session() {
    let server = Server::start();
    let (client, session) = (server.client(), server.create_session());
    let exec = |body| client.post(&format!("/api/sessions/{session}/exec"), &body).expect(200);
    let response = exec(json!({ "command": "echo out; echo err >&2; exit 3" }));
    assert_eq!(response, json!({ "exitCode": 3, "stdout": "out\n", "stderr": "err\n" }));
    let response = exec(json!({ "command": "cat CLAUDE.md; ls /home /root 2>/dev/null", "timeout": 20_000 }));
    assert!(response["stdout"].as_str().unwrap().contains("friendly assistant"), "{response}");
    assert_eq!(exec(json!({ "command": "sleep 600", "timeout": 50 }))["exitCode"], 124);
    let cut = exec(json!({ "command": "head -c 10485761 /dev/zero | tr '\\0' x" }));
    assert_eq!((cut["stdout"].as_str().unwrap().len(), &cut["truncated"]), (10 << 20, &json!(true)));
}

#[test]
fn log_contains_exit_of_agent() {
    let server = Server::start();
    let (client, session) = (server.client(), server.create_session());
    client.run_turn(&session, "crash");
    let path = format!("/api/sessions/{session}/logs");
    let mut logs = json!([]);
    wait_until("the log contains the exit", || {
        let response = client.get(&path).expect(200);
        assert_eq!(response["source"], "sandbox");
        logs = response["logs"].clone();
        !logs.as_array().unwrap().is_empty()
    });
    let first = &logs[0];
    assert_eq!(first["index"], 0);
    assert!(
        ["stderr", "system"].contains(&first["level"].as_str().unwrap()) && first["ts"].is_string(),
        "{first}"
    );
    let later = client.get(&format!("{path}?after=0")).expect(200);
    assert!(later["logs"].as_array().unwrap().iter().all(|entry| entry["index"].as_u64() > Some(0)));
    client.delete(&format!("/api/sessions/{session}")).expect(200);
    assert_eq!(client.get(&path).expect(200), json!({ "logs": [], "source": "sandbox" }));
}

#[test]
fn exec_is_killed_when_its_client_disconnects() {
    let server = Server::start();
    let (client, session) = (server.client(), server.create_session());
    let path = format!("/api/sessions/{session}/exec");
    let body = json!({ "command": "echo $$ > started; exec sleep 600", "timeout": 300_000 }).to_string();
    let mut connection = std::net::TcpStream::connect(server.address()).unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\ncontent-length: {}\r\n\r\n",
        server.key(),
        body.len()
    );
    std::io::Write::write_all(&mut connection, format!("{head}{body}").as_bytes()).unwrap();
    let exec = |command: &str| {
        let answer = client.post(&path, &json!({ "command": command })).expect(200);
        answer["stdout"].as_str().unwrap().trim().to_owned()
    };
    wait_until("the command runs", || !exec("cat started 2>/dev/null").is_empty());
    assert_eq!(exec("kill -0 $(cat started) && echo runs"), "runs");
    drop(connection);
    wait_until("the command is killed", || exec("kill -0 $(cat started) 2>/dev/null || echo gone") == "gone");
}
