//! Snapshots, forks, and the changes of a workspace.

use crate::support::{Server, deploy_body};
use serde_json::json;

fn read(server: &Server, session: &str, file: &str) -> String {
    let path = format!("/api/sessions/{session}/files/{file}?format=json");
    let response = server.client().get(&path);
    if response.status == 404 {
        String::new()
    } else {
        response.expect(200)["content"].as_str().unwrap().to_owned()
    }
}

#[test]
fn fork_has_messages_files_and_conversation_of_its_parent() {
    let server = Server::start();
    let client = server.client();
    client.post("/api/agents", &deploy_body("hello")).expect(201);
    let body = json!({ "agent": "hello", "systemPrompt": "Own prompt.", "extraEnv": { "TOKEN": "t1" }, "model": "m" });
    let parent =
        client.post("/api/sessions", &body).expect(201)["session"]["id"].as_str().unwrap().to_owned();
    client.run_turn(&parent, "my name is Ann");
    client.run_turn(&parent, "run: echo one > file");
    for state in ["active", "stopped", "ended"] {
        match state {
            "stopped" => drop(client.post(&format!("/api/sessions/{parent}/stop"), &json!({})).expect(200)),
            "ended" => drop(client.delete(&format!("/api/sessions/{parent}")).expect(200)),
            _ => {}
        }
        let fork =
            client.post(&format!("/api/sessions/{parent}/fork"), &json!({})).expect(201)["session"].clone();
        let id = fork["id"].as_str().unwrap();
        assert_eq!(
            (&fork["status"], &fork["parentSessionId"]),
            (&json!("paused"), &json!(parent)),
            "{state}"
        );
        assert_eq!((&fork["model"], &fork["agentName"]), (&json!("m"), &json!("hello")));
        assert_eq!(read(&server, id, "file"), "one\n", "{state}");
        assert_eq!(read(&server, id, "CLAUDE.md"), "Own prompt.");
        let messages = |session: &str| {
            let page = client.get(&format!("/api/sessions/{session}/messages")).expect(200);
            page["messages"]
                .as_array()
                .unwrap()
                .iter()
                .map(|row| (row["content"].clone(), row["sequence"].clone()))
                .collect::<Vec<_>>()
        };
        assert_eq!(messages(id), messages(&parent), "{state}");
        client.post(&format!("/api/sessions/{id}/resume"), &json!({})).expect(200);
        let frames = client.run_turn(id, "recall");
        assert!(frames.iter().any(|frame| frame.data.contains("my name is Ann")), "{state}: {frames:?}");
        client.run_turn(id, "run: echo two > file");
        assert_eq!(
            (read(&server, id, "file"), read(&server, &parent, "file")),
            ("two\n".into(), "one\n".into())
        );
        assert!(messages(id).len() > messages(&parent).len());
        let events = client.get(&format!("/api/sessions/{id}/events?type=lifecycle")).expect(200);
        assert!(events["events"][0]["data"].as_str().unwrap().contains(&parent), "{events}");
        if state != "ended" {
            let token = client
                .post(&format!("/api/sessions/{id}/exec"), &json!({ "command": "echo $TOKEN" }))
                .expect(200);
            assert_eq!(token["stdout"], "t1\n", "{state}");
        }
    }
    // The snapshots of the forks are gone.
    assert_eq!(
        client.get(&format!("/api/sessions/{parent}/snapshots")).expect(200),
        json!({ "snapshots": [] })
    );
}

#[test]
fn changes_of_a_fork_of_an_ended_session_do_not_reach_the_agent() {
    let server = Server::start();
    let client = server.client();
    let body = json!({ "name": "own", "systemPrompt": "Own.", "env": { "OF_AGENT": "a" } });
    client.post("/api/agents", &body).expect(201);
    let body = json!({ "agent": "own", "systemPrompt": "Other.", "extraEnv": { "TOKEN": "t" } });
    let parent =
        client.post("/api/sessions", &body).expect(201)["session"]["id"].as_str().unwrap().to_owned();
    // Ended behind the back of the server: the secret is removed nevertheless.
    server.saggar(&["end", &parent]);
    client.delete(&format!("/api/sessions/{parent}")).expect(200);
    assert!(!server.data_dir().join("sessions").join(&parent).exists());

    let fork =
        client.post(&format!("/api/sessions/{parent}/fork"), &json!({})).expect(201)["session"]["id"].clone();
    let path = |part: &str| format!("/api/sessions/{}/{part}", fork.as_str().unwrap());
    client.post(&path("resume"), &json!({})).expect(200);
    let variables = client.post(&path("exec"), &json!({ "command": "echo $OF_AGENT$TOKEN" })).expect(200);
    assert_eq!(variables["stdout"], "a\n");
    client.post(&path("stop"), &json!({})).expect(200);
    client.post(&path("apply"), &json!({})).expect(200);
    let prompt = std::fs::read_to_string(server.data_dir().join("agents/own/CLAUDE.md")).unwrap();
    assert_eq!(prompt, "Own.");
}

#[test]
fn session_starts_from_a_snapshot() {
    let server = Server::start();
    let (client, session) = (server.client(), server.create_session());
    client.run_turn(&session, "my name is Ann");
    client.run_turn(&session, "run: echo one > file");
    let path = format!("/api/sessions/{session}/snapshots");
    let taken = client.post(&path, &json!({})).expect(201)["snapshot"].clone();
    assert!(
        taken["size"].as_u64() > Some(0) && taken["createdAt"].as_str().unwrap().ends_with('Z'),
        "{taken}"
    );
    assert_eq!(client.get(&path).expect(200)["snapshots"], json!([taken]));
    client.run_turn(&session, "run: echo two > file");
    let body = json!({ "agent": "hello", "fromSnapshot": taken["id"] });
    let other = format!("{path}/20000101T000000Z");
    assert_eq!(client.delete(&other).expect(404)["error"], "Snapshot not found");
    server.client_of_tenant("other").delete(&other).expect(404);
    let from = client.post("/api/sessions", &body).expect(201)["session"].clone();
    let id = from["id"].as_str().unwrap();
    assert_eq!((&from["status"], read(&server, id, "file").as_str()), (&json!("active"), "one\n"));
    assert!(client.run_turn(id, "recall").iter().any(|frame| frame.data.contains("my name is Ann")));
    let deleted = format!("{path}/{}", taken["name"].as_str().unwrap());
    assert_eq!(client.delete(&deleted).expect(200), json!({ "ok": true }));
    assert_eq!(client.get(&path).expect(200), json!({ "snapshots": [] }));
    client.post("/api/sessions", &body).expect(400);
    let both = json!({ "agent": "hello", "fromSnapshot": taken["id"], "systemPrompt": "x" });
    client.post("/api/sessions", &both).expect(400);
    for invalid in ["x", "../x", "00000000-0000-4000-8000-000000000000/x", &format!("{session}/../x")] {
        let body = json!({ "agent": "hello", "fromSnapshot": invalid });
        assert_eq!(
            client.post("/api/sessions", &body).expect(400)["error"],
            "Invalid or inaccessible snapshot"
        );
    }
}

#[test]
fn changes_are_shown_applied_and_discarded() {
    let server = Server::start();
    let client = server.client();
    // A folder of its own, since the changes are applied to it.
    client.post("/api/agents", &json!({ "name": "own", "systemPrompt": "Own." })).expect(201);
    let session =
        client.post("/api/sessions", &json!({ "agent": "own" })).expect(201)["session"]["id"].clone();
    let session = session.as_str().unwrap();
    client.run_turn(session, "run: echo one > new; echo two > other; rm CLAUDE.md");
    let path = |name: &str| format!("/api/sessions/{session}/{name}");
    let diff = client.get(&path("diff")).expect(200);
    let change = |name: &str| {
        let files = diff["files"].as_array().unwrap();
        files.iter().find(|file| file["path"] == name).unwrap_or_else(|| panic!("{diff}")).clone()
    };
    assert_eq!(
        (&change("new")["change"], &change("CLAUDE.md")["change"]),
        (&json!("added"), &json!("deleted"))
    );
    assert!(change("new")["protected"].is_null() && change("new")["conflict"].is_null(), "{diff}");
    let (status, headers, patch) = client.download(&path("diff?format=patch"));
    assert_eq!((status, &headers["content-type"]), (200, &"text/x-diff; charset=utf-8".parse().unwrap()));
    assert!(String::from_utf8(patch).unwrap().contains("+one"));
    let running = client.post(&path("apply"), &json!({})).expect(409);
    assert!(running["error"].as_str().unwrap().contains("stop the session"), "{running}");
    client.post(&path("stop"), &json!({})).expect(200);
    let missing = client.post(&path("apply"), &json!({ "paths": ["missing"] })).expect(409);
    assert!(missing["error"].as_str().unwrap().contains("missing"), "{missing}");
    client.post(&path("discard"), &json!({ "paths": ["other", "CLAUDE.md"] })).expect(200);
    client.post(&path("apply"), &json!({ "paths": ["new"] })).expect(200);
    assert_eq!(client.get(&path("diff")).expect(200), json!({ "files": [] }));
    // The folder of the agent has it, and the next session too.
    let next = client.post("/api/sessions", &json!({ "agent": "own" })).expect(201);
    assert_eq!(read(&server, next["session"]["id"].as_str().unwrap(), "new"), "one\n");
}
