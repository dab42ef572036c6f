//! Keys, and the names of the server.

use crate::support::Server;
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt;

#[test]
fn a_request_without_a_key_that_is_known_is_refused() {
    let server = Server::start();
    let nobody = server.client_with(None);
    let refused = |text: &str| json!({ "error": text, "statusCode": 401 });
    for path in ["/api/agents", "/api/none", "/metrics", "/"] {
        assert_eq!(nobody.get(path).expect(401), refused("Missing Authorization header"), "{path}");
    }
    for header in ["Basic x", "Bearer", "bearer x", "Bearer a b", "x"] {
        let answer = nobody.request("GET", "/api/agents", &[("authorization", header)], b"");
        assert_eq!(answer.expect(401), refused("Invalid Authorization header format"), "{header}");
    }
    for key in ["x", "ash_", &"x".repeat(4000)] {
        let answer = server.client_with(Some(key)).get("/api/agents");
        assert_eq!(answer.expect(401), refused("Invalid API key"), "{key}");
    }
    nobody.get("/health").expect(200);
    server.client().get("/api/agents").expect(200);
}

#[test]
fn the_first_key_is_made_once_and_kept_for_its_owner_alone() {
    let mut server = Server::start();
    let file = server.data().join("initial-api-key");
    let key = fs::read_to_string(&file).unwrap();
    assert!(server.said.contains(key.trim()), "{}", server.said);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(server.data()).unwrap().permissions().mode() & 0o777, 0o700);
    for entry in fs::read_dir(server.data()).unwrap().flatten().filter(|entry| entry.path() != file) {
        let bytes = fs::read(entry.path()).unwrap_or_default();
        assert!(
            !bytes.windows(key.trim().len()).any(|part| part == key.trim().as_bytes()),
            "{:?}",
            entry.path()
        );
    }
    server.end(rustix::process::Signal::TERM);
    server.start_again();
    assert!(!server.said.contains("ash_"), "{}", server.said);
    server.client().get("/api/agents").expect(200);
    // Whoever has taken the key away keeps it.
    fs::remove_file(&file).unwrap();
    server.end(rustix::process::Signal::TERM);
    server.start_again();
    assert!(!file.exists());
    server.client_with(Some(key.trim())).get("/api/agents").expect(200);
}

#[test]
fn a_configured_key_is_one_of_the_default_tenant() {
    let server = Server::start_with(&[], &[("ASH_API_KEY", "configured")]);
    assert!(!server.data().join("initial-api-key").exists());
    server.client_with(Some("configured")).get("/api/agents").expect(200);
    server.client_with(Some("other")).get("/api/agents").expect(401);

    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("key");
    fs::write(&file, "of-the-file\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let server =
        Server::start_with(&["--api-key-file", file.to_str().unwrap()], &[("ASH_API_KEY", "configured")]);
    server.client_with(Some("of-the-file")).get("/api/agents").expect(200);
    server.client_with(Some("configured")).get("/api/agents").expect(401);
}

#[test]
fn a_request_for_another_name_is_refused_before_its_key_is_looked_at() {
    let server = Server::start_with(&["--allowed-hosts", "agents.example"], &[]);
    for client in [server.client(), server.client_with(None)] {
        for name in ["evil.example", "localhost.evil.example", "evil.example:4100", "10.0.0.1"] {
            let answer = client.request("GET", "/health", &[("host", name)], b"").expect(400);
            assert!(answer["error"].as_str().unwrap().contains("--allowed-hosts"), "{answer}");
        }
    }
    for name in ["localhost", "127.0.0.1:9", "AGENTS.example:443", "[::1]"] {
        server.client().request("GET", "/api/agents", &[("host", name)], b"").expect(200);
    }
}

#[test]
fn the_keys_of_the_server_are_not_those_of_its_sandboxes() {
    let server =
        Server::start_with(&[], &[("ASH_API_KEY", "configured"), ("ASH_CREDENTIAL_KEY", "secret-of-it")]);
    let client = server.client_with(Some("configured"));
    client.post("/api/agents", &crate::support::hello_body("hello")).expect(201);
    let session = client.post("/api/sessions", &json!({ "agent": "hello" })).expect(201);
    let supervisor = server.supervisor(session["session"]["id"].as_str().unwrap());
    let environment = fs::read(format!("/proc/{}/environ", supervisor.as_raw_nonzero())).unwrap();
    let environment = String::from_utf8_lossy(&environment);
    assert!(!environment.contains("configured") && !environment.contains("secret-of-it"), "{environment}");
}
