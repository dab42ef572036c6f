//! Status codes and shapes of error responses.

use crate::support::Server;
use serde_json::{Value, json};

const SESSION: &str = "/api/sessions/7c3ef3b8-98b8-4f5b-a3f9-4e0d6a2f2b11";

#[test]
fn unknown_route_returns_404_with_its_name() {
    let server = Server::start();
    let client = server.client();
    let expected = |text: &str| json!({ "message": text, "error": "Not Found", "statusCode": 404 });
    assert_eq!(client.get("/api/none?x=1").expect(404), expected("Route GET:/api/none not found"));
    let response = client.request("PUT", "/api/agents", &[], b"");
    assert_eq!(response.expect(404), expected("Route PUT:/api/agents not found"));
}

#[test]
fn body_of_very_many_values_is_rejected() {
    let server = Server::start();
    let session = server.create_session();
    let body = format!("{{\"content\":[{}0]}}", "0,".repeat(300_000));
    let path = format!("/api/sessions/{session}/messages");
    let response =
        server.client().request("POST", &path, &[("content-type", "application/json")], body.as_bytes());
    assert!(response.expect(400)["message"].as_str().unwrap().contains("200000 values"));
}

#[test]
fn parts_of_ash_that_are_left_out_return_501() {
    let server = Server::start_with(&[], &[("ASH_INTERNAL_SECRET", "platform")]);
    let platform = server.client_with(Some("platform"));
    for path in ["runners", "runners/register", "runners/heartbeat", "runners/deregister"] {
        let response = platform.post(&format!("/api/internal/{path}"), &json!({})).expect(501);
        assert!(response["error"].as_str().unwrap().contains("remote runners"), "{response}");
    }
    let client = server.client();
    client.get("/runner/health").expect(501);
    for path in ["eval-cases", "eval-runs", "eval-runs/1/results", "eval-cases/import"] {
        let response = client.post(&format!("/api/agents/a/{path}"), &json!({})).expect(501);
        assert!(response["error"].as_str().unwrap().contains("evaluations"), "{response}");
    }
    client.get("/api/agents/eval-cases/x").expect(404);
}

#[test]
fn metrics_are_sent_to_keys_only() {
    let server = Server::start();
    let session = server.create_session();
    server.client_with(None).get("/metrics").expect(401);
    let metrics = || {
        let (status, headers, text) = server.client().download("/metrics");
        assert_eq!(
            (status, &headers["content-type"]),
            (200, &"text/plain; version=0.0.4; charset=utf-8".parse().unwrap())
        );
        String::from_utf8(text).unwrap()
    };
    let text = metrics();
    for line in [
        "ash_active_sessions 1",
        "ash_active_sandboxes 1",
        "ash_pool_sandboxes{state=\"waiting\"} 1",
        "ash_sessions{status=\"active\"} 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
    assert!(
        text.contains("ash_up{coordinator=\"") && text.contains("# TYPE ash_uptime_seconds gauge\n"),
        "{text}"
    );
    server.client().delete(&format!("/api/sessions/{session}")).expect(200);
    let text = metrics();
    assert!(
        text.contains("ash_active_sessions 0\n") && text.contains("ash_sessions{status=\"ended\"} 1\n"),
        "{text}"
    );
}

#[test]
fn invalid_bodies_return_400_with_reason() {
    let server = Server::start();
    let client = server.client();
    let refused = |path: &str, body: &[u8], part: &str| {
        let response =
            client.request("POST", path, &[("content-type", "application/json")], body).expect(400);
        assert_eq!((&response["error"], &response["statusCode"]), (&json!("Bad Request"), &json!(400)));
        assert!(response["message"].as_str().unwrap().contains(part), "{response}");
    };
    refused("/api/agents", b"{", "EOF");
    refused("/api/agents", b"[1]", "body");
    refused("/api/agents", b"{}", "name");
    refused("/api/agents", b"", "name");
    refused("/api/agents", b"\xff{}", "body");
    refused("/api/sessions", b"{\"agent\":7}", "agent");
    let session = format!("/api/sessions/{}", server.create_session());
    let messages = format!("{session}/messages");
    refused(&messages, b"{}", "content");
    refused(&messages, b"{\"content\":7}", "content");
    refused(&messages, b"{\"content\":[]}", "blocks");
    refused(&messages, b"{\"content\":[\"x\"]}", "blocks");
    refused(&messages, b"{\"content\":\"x\",\"maxTurns\":0}", "maxTurns");
    refused(&messages, b"{\"content\":\"x\",\"effort\":\"none\"}", "none");
    let long = json!({ "content": "x".repeat(500_001) }).to_string();
    refused(&messages, long.as_bytes(), "500000");
    refused(&format!("{session}/exec"), b"{\"command\":\"x\",\"timeout\":300001}", "timeout");
    refused(&format!("{session}/exec"), b"{\"command\":\"x\",\"timeout\":0}", "timeout");
    // No rejected message was stored.
    assert_eq!(client.get(&messages).expect(200)["messages"], json!([]));
}

#[test]
fn invalid_ids_and_queries_return_400_with_reason() {
    let server = Server::start();
    let client = server.client();
    let code = |response: &Value| {
        (response["code"].clone(), response["error"].clone(), response["statusCode"].clone())
    };
    let expected = (json!("FST_ERR_VALIDATION"), json!("Bad Request"), json!(400));
    for id in
        ["x", "1", "%2e%2e", "7c3ef3b898b84f5ba3f94e0d6a2f2b11", "{7c3ef3b8-98b8-4f5b-a3f9-4e0d6a2f2b11}"]
    {
        let response = client.get(&format!("/api/sessions/{id}")).expect(400);
        assert_eq!(code(&response), expected, "{id}");
        assert_eq!(response["message"], "params/id must match format \"uuid\"");
    }
    for query in ["limit=0", "limit=1001", "limit=x", "after=-1"] {
        let response = client.get(&format!("{SESSION}/messages?{query}")).expect(400);
        assert_eq!(code(&response), expected, "{query}");
        assert!(response["message"].as_str().unwrap().starts_with("querystring"), "{response}");
    }
}

#[test]
fn unknown_session_returns_404() {
    let server = Server::start();
    let client = server.client();
    let expected = json!({ "error": "Session not found", "statusCode": 404 });
    assert_eq!(client.get(SESSION).expect(404), expected);
    assert_eq!(client.delete(SESSION).expect(404), expected);
    for list in ["messages", "events", "logs"] {
        assert_eq!(client.get(&format!("{SESSION}/{list}")).expect(404), expected);
    }
    assert_eq!(client.post(&format!("{SESSION}/messages"), &json!({ "content": "x" })).expect(404), expected);
    assert_eq!(client.post(&format!("{SESSION}/exec"), &json!({ "command": "x" })).expect(404), expected);
    let response = client.post("/api/sessions", &json!({ "agent": "none" })).expect(404);
    assert_eq!(response, json!({ "error": "Agent \"none\" not found", "statusCode": 404 }));
}

#[test]
fn oversized_body_returns_413() {
    let server = Server::start();
    let client = server.client();
    let body = json!({ "agent": "hello", "systemPrompt": "x".repeat(1 << 20) });
    let response = client.post("/api/sessions", &body).expect(413);
    assert_eq!(response, json!({ "error": "Request body is too large", "statusCode": 413 }));
}
