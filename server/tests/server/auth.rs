//! API keys and the check of the Host header.

use crate::support::Server;
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt;

#[test]
fn requests_without_valid_key_are_rejected() {
    let server = Server::start();
    let anonymous = server.client_with(None);
    let refused = |text: &str| json!({ "error": text, "statusCode": 401 });
    for path in ["/api/agents", "/api/none", "/metrics", "/"] {
        assert_eq!(anonymous.get(path).expect(401), refused("Missing Authorization header"), "{path}");
    }
    for header in ["Basic x", "Bearer", "bearer x", "Bearer a b", "x"] {
        let response = anonymous.request("GET", "/api/agents", &[("authorization", header)], b"");
        assert_eq!(response.expect(401), refused("Invalid Authorization header format"), "{header}");
    }
    for key in ["x", "ash_", &"x".repeat(4000)] {
        let response = server.client_with(Some(key)).get("/api/agents");
        assert_eq!(response.expect(401), refused("Invalid API key"), "{key}");
    }
    anonymous.get("/health").expect(200);
    assert_eq!(anonymous.get("/live").expect(200)["ok"], true);
    server.client().get("/api/agents").expect(200);
}

#[test]
fn initial_key_is_created_once_and_readable_by_owner_only() {
    let mut server = Server::start();
    let file = server.data_dir().join("initial-api-key");
    let key = fs::read_to_string(&file).unwrap();
    assert!(server.stdout.contains(key.trim()), "{}", server.stdout);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(server.data_dir()).unwrap().permissions().mode() & 0o777, 0o700);
    for entry in fs::read_dir(server.data_dir()).unwrap().flatten().filter(|entry| entry.path() != file) {
        let bytes = fs::read(entry.path()).unwrap_or_default();
        assert!(
            !bytes.windows(key.trim().len()).any(|part| part == key.trim().as_bytes()),
            "{:?}",
            entry.path()
        );
    }
    server.stop(rustix::process::Signal::TERM);
    server.restart();
    assert!(!server.stdout.contains("ash_"), "{}", server.stdout);
    server.client().get("/api/agents").expect(200);
    // The operator may remove the file: the key remains valid, and no further key is created.
    fs::remove_file(&file).unwrap();
    server.stop(rustix::process::Signal::TERM);
    server.restart();
    assert!(!file.exists());
    server.client_with(Some(key.trim())).get("/api/agents").expect(200);
}

#[test]
fn configured_key_belongs_to_default_tenant() {
    let server = Server::start_with(&[], &[("ASH_API_KEY", "configured")]);
    assert!(!server.data_dir().join("initial-api-key").exists());
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
fn foreign_host_header_is_rejected_before_authentication() {
    let server = Server::start_with(&["--allowed-hosts", "agents.example"], &[]);
    for client in [server.client(), server.client_with(None)] {
        for name in ["evil.example", "localhost.evil.example", "evil.example:4100", "10.0.0.1"] {
            let response = client.request("GET", "/health", &[("host", name)], b"").expect(400);
            assert!(response["error"].as_str().unwrap().contains("--allowed-hosts"), "{response}");
        }
    }
    for name in ["localhost", "127.0.0.1:9", "AGENTS.example:443", "[::1]"] {
        server.client().request("GET", "/api/agents", &[("host", name)], b"").expect(200);
    }
}

#[test]
fn server_keys_are_not_inherited_by_supervisors() {
    let variables = [
        ("ASH_API_KEY", "configured"),
        ("ASH_CREDENTIAL_KEY", "secret-of-it"),
        ("PGPASSWORD", "of-database"),
        ("NOTIFY_SOCKET", "/nowhere/of-manager"),
    ];
    let server = Server::start_with(&[], &variables);
    let client = server.client_with(Some("configured"));
    client.post("/api/agents", &crate::support::deploy_body("hello")).expect(201);
    let session = client.post("/api/sessions", &json!({ "agent": "hello" })).expect(201);
    let supervisor = server.supervisor(session["session"]["id"].as_str().unwrap());
    let environment = fs::read(format!("/proc/{}/environ", supervisor.as_raw_nonzero())).unwrap_or_default();
    let environment = String::from_utf8_lossy(&environment);
    for secret in ["configured", "secret-of-it", "of-database", "of-manager"] {
        assert!(!environment.contains(secret), "{environment}");
    }
}
