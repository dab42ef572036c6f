//! API keys: creation, deletion, scopes and tenants.

use crate::support::{Client, Server, deploy_body};
use serde_json::{Value, json};

const KEYS: &str = "/api/api-keys";

/// Creates a key and returns its id and a client that uses it.
fn create(server: &Server, client: &Client, body: &Value) -> (String, Client) {
    let created = client.post(KEYS, body).expect(201);
    let text = |field: &str| created[field].as_str().unwrap().to_owned();
    (text("id"), server.client_with(Some(&text("key"))))
}

fn labels(client: &Client) -> Vec<String> {
    let keys = client.get(KEYS).expect(200);
    let keys = keys["keys"].as_array().unwrap().iter();
    keys.map(|key| format!("{} {}", key["label"].as_str().unwrap(), key["scope"].as_str().unwrap())).collect()
}

#[test]
fn created_key_is_valid_until_deleted() {
    let server = Server::start();
    let client = server.client();
    let created = client.post(KEYS, &json!({ "label": "ci" })).expect(201);
    let key = created["key"].as_str().unwrap();
    assert!(key.starts_with("ash_") && key.len() == 36);
    let listed = client.get(KEYS).expect(200);
    assert!(!listed.to_string().contains(key), "{listed}");
    assert_eq!(labels(&client), ["initial key admin", "ci admin"]);
    assert!(listed["keys"][1]["createdAt"].as_str().unwrap().ends_with('Z'));
    let other = server.client_with(Some(key));
    other.post("/api/agents", &deploy_body("hello")).expect(201);
    let path = format!("{KEYS}/{}", created["id"].as_str().unwrap());
    assert_eq!(client.delete(&path).expect(200), json!({ "ok": true }));
    assert_eq!(other.get("/api/agents").expect(401)["error"], "Invalid API key");
    assert_eq!(client.delete(&path).expect(404), json!({ "error": "API key not found" }));
    assert_eq!(client.delete(&format!("{KEYS}/env")).expect(404), json!({ "error": "API key not found" }));
    for bad in [json!({ "label": 7 }), json!({ "scope": "root" }), json!({ "label": "x".repeat(256) })] {
        client.post(KEYS, &bad).expect(400);
    }
}

#[test]
fn scopes_limit_what_a_key_may_do() {
    let server = Server::start();
    let client = server.client();
    let session = server.create_session();
    let (_, read) = create(&server, &client, &json!({ "scope": "read" }));
    let (_, agent) = create(&server, &client, &json!({ "scope": "agent", "label": "app" }));
    assert_eq!(labels(&client), ["initial key admin", "unnamed key read", "app agent"]);
    for path in ["/api/agents", "/api/agents/hello", "/api/sessions", &format!("/api/sessions/{session}")] {
        read.get(path).expect(200);
        agent.get(path).expect(200);
    }
    let refused = |response: crate::support::Response, scope: &str| {
        let error = response.expect(403);
        assert_eq!(error["statusCode"], 403);
        assert!(error["error"].as_str().unwrap().contains(&format!("the scope {scope}")), "{error}");
    };
    refused(read.post("/api/sessions", &json!({ "agent": "hello" })), "agent");
    refused(read.post(&format!("/api/sessions/{session}/messages"), &json!({ "content": "x" })), "agent");
    refused(read.delete(&format!("/api/sessions/{session}")), "agent");
    assert!(!agent.run_turn(&session, "hi").is_empty());
    let own = agent.post("/api/sessions", &json!({ "agent": "hello" })).expect(201);
    agent.delete(&format!("/api/sessions/{}", own["session"]["id"].as_str().unwrap())).expect(200);
    for limited in [&read, &agent] {
        refused(limited.post("/api/agents", &deploy_body("x")), "admin");
        refused(limited.patch("/api/agents/hello", &json!({})), "admin");
        refused(limited.delete("/api/agents/hello"), "admin");
        refused(limited.post("/api/agents/hello/files", &json!({ "files": [] })), "admin");
        refused(limited.get(KEYS), "admin");
        refused(limited.post(KEYS, &json!({})), "admin");
        refused(limited.delete(&format!("{KEYS}/x")), "admin");
    }
}

#[test]
fn operator_cannot_delete_last_admin_key() {
    let server = Server::start();
    let client = server.client();
    create(&server, &client, &json!({ "scope": "agent" }));
    let initial = client.get(KEYS).expect(200)["keys"][0]["id"].as_str().unwrap().to_owned();
    let error = client.delete(&format!("{KEYS}/{initial}")).expect(400);
    assert!(error["error"].as_str().unwrap().contains("ASH_API_KEY"), "{error}");
    let (_, other) = create(&server, &client, &json!({}));
    client.delete(&format!("{KEYS}/{initial}")).expect(200);
    client.get(KEYS).expect(401);
    assert_eq!(labels(&other).len(), 2);
}

#[test]
fn configured_key_is_listed_and_not_deleted() {
    let server = Server::start_with(&[], &[("ASH_API_KEY", "configured")]);
    let client = server.client_with(Some("configured"));
    let (id, other) = create(&server, &client, &json!({ "label": "only" }));
    let listed = client.get(KEYS).expect(200);
    assert_eq!((&listed["keys"][0]["id"], &listed["keys"][1]["id"]), (&json!("env"), &json!(id)));
    assert!(!listed.to_string().contains("configured\""), "{listed}");
    let error = client.delete(&format!("{KEYS}/env")).expect(400);
    assert!(error["error"].as_str().unwrap().contains("settings"), "{error}");
    // The last one in the database, while the configured key remains.
    other.delete(&format!("{KEYS}/{id}")).expect(200);
    client.get(KEYS).expect(200);
}

#[test]
fn internal_route_creates_keys_of_other_tenants() {
    const ROUTE: &str = "/api/internal/api-keys";
    let disabled = Server::start();
    let error = disabled.client().post(ROUTE, &json!({ "tenantId": "t" })).expect(503);
    assert!(error["error"].as_str().unwrap().contains("ASH_INTERNAL_SECRET"), "{error}");

    let server = Server::start_with(&[], &[("ASH_INTERNAL_SECRET", "platform")]);
    let client = server.client();
    for other in [client.clone(), server.client_with(None), server.client_with(Some("platfor"))] {
        let error = other.post(ROUTE, &json!({ "tenantId": "t" })).expect(401);
        assert_eq!(error, json!({ "error": "Unauthorized — invalid or missing internal secret" }));
    }
    let platform = server.client_with(Some("platform"));
    platform.get("/api/agents").expect(401);
    for tenant in ["", "../x", "a/b", "."] {
        platform.post(ROUTE, &json!({ "tenantId": tenant })).expect(400);
    }
    let created = platform.post(ROUTE, &json!({ "tenantId": "acme" })).expect(200);
    assert_eq!(created["tenantId"], "acme");
    let tenant = server.client_with(created["key"].as_str());
    assert_eq!(labels(&tenant), ["platform-acme admin"]);
    // Nothing of one tenant is visible to the other.
    client.post("/api/agents", &deploy_body("hello")).expect(201);
    assert_eq!(tenant.get("/api/agents").expect(200), json!({ "agents": [] }));
    for path in ["/api/agents/hello", "/api/agents/hello/files", "/api/agents/hello/config"] {
        tenant.get(path).expect(404);
    }
    let id = created["id"].as_str().unwrap();
    client.delete(&format!("{KEYS}/{id}")).expect(404);
    // Only the operator is protected from losing the last key.
    tenant.delete(&format!("{KEYS}/{id}")).expect(200);
    tenant.get("/api/agents").expect(401);
}
