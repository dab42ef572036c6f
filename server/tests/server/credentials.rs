//! Credentials: storage, encryption, and their variables in sandboxes.

use crate::support::{Server, deploy_body, settings_file};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const CREDENTIALS: &str = "/api/credentials";
const SECRET: &str = "sk-ant-value-of-it";

fn store(server: &Server, body: &Value) -> String {
    let created = server.client().post(CREDENTIALS, body).expect(201);
    created["credential"]["id"].as_str().unwrap().to_owned()
}

fn create_session(server: &Server, body: &Value) -> String {
    server.client().post("/api/sessions", body).expect(201)["session"]["id"].as_str().unwrap().to_owned()
}

/// Runs a command in the sandbox of a session.
fn exec(server: &Server, session: &str, command: &str) -> String {
    let path = format!("/api/sessions/{session}/exec");
    let output = server.client().post(&path, &json!({ "command": command })).expect(200);
    output["stdout"].as_str().unwrap().to_owned()
}

/// Whether a file below a directory contains the secret, except for the variables of running sessions.
fn contains_secret(directory: &Path) -> bool {
    fs::read_dir(directory).unwrap().flatten().any(|entry| {
        let path = entry.path();
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => contains_secret(&path),
            kind if kind.is_file() => {
                fs::read(&path).unwrap().windows(SECRET.len()).any(|part| part == SECRET.as_bytes())
            }
            _ => false,
        }
    })
}

#[test]
fn stored_credential_is_encrypted_and_never_returned() {
    let server = Server::start();
    let client = server.client();
    let body = json!({ "type": "anthropic", "key": SECRET, "label": "main" });
    let created = client.post(CREDENTIALS, &body).expect(201);
    let credential = &created["credential"];
    assert_eq!(
        (&credential["type"], &credential["label"], &credential["active"], &credential["lastUsedAt"]),
        (&json!("anthropic"), &json!("main"), &json!(true), &Value::Null)
    );
    let listed = client.get(CREDENTIALS).expect(200);
    assert_eq!(listed, json!({ "credentials": [credential] }));
    assert!(!contains_secret(&server.data_dir()));
    let key = server.data_dir().join("credential-key");
    assert_eq!(fs::metadata(key).unwrap().permissions().mode() & 0o777, 0o600);
    let path = format!("{CREDENTIALS}/{}", credential["id"].as_str().unwrap());
    assert_eq!(client.delete(&path).expect(200), json!({ "ok": true }));
    let missing = json!({ "error": "Credential not found", "statusCode": 404 });
    assert_eq!(client.delete(&path).expect(404), missing);
    assert_eq!(client.get(CREDENTIALS).expect(200), json!({ "credentials": [] }));
    for bad in [
        json!({ "type": "other", "key": SECRET }),
        json!({ "type": "openai", "key": "" }),
        json!({ "type": "openai" }),
        json!({ "type": "openai", "key": "a\0b" }),
        json!({ "type": "openai", "key": { "secret": SECRET } }),
    ] {
        let error = client.post(CREDENTIALS, &bad).expect(400);
        assert!(!error.to_string().contains(SECRET), "{error}");
    }
}

#[test]
fn variables_of_agent_are_encrypted() {
    let mut server = Server::start();
    let mut agent = deploy_body("hello");
    agent["env"] = json!({ "OWN": SECRET });
    server.client().post("/api/agents", &agent).expect(201);
    assert!(!contains_secret(&server.data_dir()));
    let has_variable = |server: &Server| {
        let session = create_session(server, &json!({ "agent": "hello" }));
        assert_eq!(exec(server, &session, "echo $OWN"), format!("{SECRET}\n"));
        server.client().delete(&format!("/api/sessions/{session}")).expect(200);
        assert!(!contains_secret(&server.data_dir()));
    };
    has_variable(&server);
    server.client().patch("/api/agents/hello", &json!({ "config": { "model": "m" } })).expect(200);
    has_variable(&server);
    server.client().patch("/api/agents/hello", &json!({ "env": { "OWN": SECRET } })).expect(200);
    has_variable(&server);

    let kept = create_session(&server, &json!({ "agent": "hello" }));
    server.stop(Signal::TERM);
    fs::write(server.data_dir().join("credential-key"), "another\n").unwrap();
    server.restart();
    let client = server.client();
    // A fork has the variables of its parent.
    let fork = client.post(&format!("/api/sessions/{kept}/fork"), &json!({})).expect(201);
    let fork = fork["session"]["id"].as_str().unwrap().to_owned();
    client.post(&format!("/api/sessions/{fork}/resume"), &json!({})).expect(200);
    assert_eq!(exec(&server, &fork, "echo $OWN"), format!("{SECRET}\n"));
    for session in [&kept, &fork] {
        client.delete(&format!("/api/sessions/{session}")).expect(200);
    }
    let refused = client.post("/api/sessions", &json!({ "agent": "hello" })).expect(500);
    let text = "Cannot decrypt the variables of agent \"hello\": the key of the server has changed. Deploy it with its variables again";
    assert_eq!(refused["error"], text);
    assert_eq!(client.get("/api/agents/hello").expect(200)["agent"]["env"], json!({ "OWN": "***" }));
    server.client().post("/api/agents", &agent).expect(201);
    has_variable(&server);
}

#[test]
fn session_has_variables_of_its_credential() {
    let settings = settings_file("[credentials]\nanthropic_api = \"\"\nopenai_api = \"\"\n");
    let server = Server::start_with(&["--config", settings.path().to_str().unwrap()], &[]);
    let client = server.client();
    let mut agent = deploy_body("hello");
    agent["env"] = json!({ "ANTHROPIC_API_KEY": "of-the-agent", "OTHER": "1" });
    client.post("/api/agents", &agent).expect(201);
    let id = store(&server, &json!({ "type": "anthropic", "key": SECRET }));
    let body = json!({ "agent": "hello", "credentialId": id });
    let session = create_session(&server, &body);
    assert_eq!(exec(&server, &session, "echo $ANTHROPIC_API_KEY $OTHER"), format!("{SECRET} 1\n"));
    let listed = client.get(CREDENTIALS).expect(200);
    assert!(listed["credentials"][0]["lastUsedAt"].as_str().unwrap().ends_with('Z'), "{listed}");
    let events = client.get(&format!("/api/sessions/{session}/events")).expect(200);
    let shown = client.get(&format!("/api/sessions/{session}")).expect(200);
    assert!(!format!("{events}{shown}").contains(SECRET));

    let own = json!({ "agent": "hello", "credentialId": id, "extraEnv": { "ANTHROPIC_API_KEY": "own" } });
    let session = create_session(&server, &own);
    assert_eq!(exec(&server, &session, "echo $ANTHROPIC_API_KEY"), "own\n");
    for (service, variable) in [("openai", "OPENAI_API_KEY"), ("custom", "ASH_CUSTOM_API_KEY")] {
        let id = store(&server, &json!({ "type": service, "key": "k" }));
        let session = create_session(&server, &json!({ "agent": "hello", "credentialId": id }));
        assert_eq!(exec(&server, &session, &format!("echo ${variable}")), "k\n");
    }
    let aws = json!({ "accessKeyId": "a", "secretAccessKey": "s", "region": "r" }).to_string();
    let id = store(&server, &json!({ "type": "bedrock", "key": aws }));
    let session = create_session(&server, &json!({ "agent": "hello", "credentialId": id }));
    let command = "echo $CLAUDE_CODE_USE_BEDROCK $AWS_ACCESS_KEY_ID $AWS_SECRET_ACCESS_KEY $AWS_REGION";
    assert_eq!(exec(&server, &session, command), "1 a s r\n");
}

#[test]
fn unusable_credential_is_rejected_before_session_exists() {
    let server = Server::start_with(&[], &[("ASH_INTERNAL_SECRET", "platform")]);
    let client = server.client();
    client.post("/api/agents", &deploy_body("hello")).expect(201);
    let refused = |id: &str, text: &str| {
        let error =
            client.post("/api/sessions", &json!({ "agent": "hello", "credentialId": id })).expect(400);
        assert_eq!(error, json!({ "error": text, "statusCode": 400 }));
    };
    refused("none", "Invalid or inaccessible credential");
    let id = store(&server, &json!({ "type": "bedrock", "key": "no JSON" }));
    refused(&id, "Bedrock credential must be a JSON object with accessKeyId, secretAccessKey, and region");
    let id = store(&server, &json!({ "type": "bedrock", "key": "{\"region\":\"r\"}" }));
    refused(&id, "Bedrock credential requires accessKeyId, secretAccessKey, and region");
    // Of another tenant.
    let key =
        server.client_with(Some("platform")).post("/api/internal/api-keys", &json!({ "tenantId": "t" }));
    let tenant = server.client_with(key.expect(200)["key"].as_str());
    let other = tenant.post(CREDENTIALS, &json!({ "type": "openai", "key": "k" })).expect(201);
    let other = other["credential"]["id"].as_str().unwrap();
    refused(other, "Invalid or inaccessible credential");
    client.delete(&format!("{CREDENTIALS}/{other}")).expect(404);
    assert_eq!(client.get("/api/sessions").expect(200)["total"], 0);
}

#[test]
fn credential_survives_restart_and_not_another_key() {
    let mut server = Server::start();
    server.client().post("/api/agents", &deploy_body("hello")).expect(201);
    let id = store(&server, &json!({ "type": "anthropic", "key": SECRET }));
    server.stop(Signal::TERM);
    server.restart();
    let body = json!({ "agent": "hello", "credentialId": id });
    create_session(&server, &body);
    server.stop(Signal::TERM);
    fs::remove_file(server.data_dir().join("credential-key")).unwrap();
    server.restart();
    let error = server.client().post("/api/sessions", &body).expect(500);
    assert!(error["error"].as_str().unwrap().contains("store it again"), "{error}");

    let server = Server::start_with(&[], &[("ASH_CREDENTIAL_KEY", "any text")]);
    store(&server, &json!({ "type": "anthropic", "key": SECRET }));
    assert!(!server.data_dir().join("credential-key").exists());
}
