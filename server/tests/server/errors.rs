//! The shapes of errors.

use crate::support::{Server, hello_body};
use serde_json::{Value, json};

const SESSION: &str = "/api/sessions/7c3ef3b8-98b8-4f5b-a3f9-4e0d6a2f2b11";

#[test]
fn an_unknown_route_is_named() {
    let server = Server::start();
    let client = server.client();
    let expected = |text: &str| json!({ "message": text, "error": "Not Found", "statusCode": 404 });
    assert_eq!(client.get("/api/none?x=1").expect(404), expected("Route GET:/api/none not found"));
    let answer = client.request("PUT", "/api/agents", &[], b"");
    assert_eq!(answer.expect(404), expected("Route PUT:/api/agents not found"));
}

#[test]
fn a_bad_body_is_a_bad_request_with_the_reason() {
    let server = Server::start();
    let client = server.client();
    let refused = |path: &str, body: &[u8], part: &str| {
        let answer = client.request("POST", path, &[("content-type", "application/json")], body).expect(400);
        assert_eq!((&answer["error"], &answer["statusCode"]), (&json!("Bad Request"), &json!(400)));
        assert!(answer["message"].as_str().unwrap().contains(part), "{answer}");
    };
    refused("/api/agents", b"{", "EOF");
    refused("/api/agents", b"[1]", "body");
    refused("/api/agents", b"{}", "name");
    refused("/api/agents", b"", "name");
    refused("/api/agents", b"\xff{}", "body");
    refused("/api/sessions", b"{\"agent\":7}", "agent");
    let session = format!("/api/sessions/{}", server.session());
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
    // Nothing of it was said.
    assert_eq!(client.get(&messages).expect(200)["messages"], json!([]));
}

#[test]
fn a_bad_id_or_query_is_named() {
    let server = Server::start();
    let client = server.client();
    let code =
        |answer: &Value| (answer["code"].clone(), answer["error"].clone(), answer["statusCode"].clone());
    let expected = (json!("FST_ERR_VALIDATION"), json!("Bad Request"), json!(400));
    for id in
        ["x", "1", "%2e%2e", "7c3ef3b898b84f5ba3f94e0d6a2f2b11", "{7c3ef3b8-98b8-4f5b-a3f9-4e0d6a2f2b11}"]
    {
        let answer = client.get(&format!("/api/sessions/{id}")).expect(400);
        assert_eq!(code(&answer), expected, "{id}");
        assert_eq!(answer["message"], "params/id must match format \"uuid\"");
    }
    for query in ["limit=0", "limit=1001", "limit=x", "after=-1"] {
        let answer = client.get(&format!("{SESSION}/messages?{query}")).expect(400);
        assert_eq!(code(&answer), expected, "{query}");
        assert!(answer["message"].as_str().unwrap().starts_with("querystring"), "{answer}");
    }
}

#[test]
fn a_session_that_is_not_there_is_not_found() {
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
    let answer = client.post("/api/sessions", &json!({ "agent": "none" })).expect(404);
    assert_eq!(answer, json!({ "error": "Agent \"none\" not found", "statusCode": 404 }));
}

#[test]
fn a_body_has_a_limit() {
    let server = Server::start();
    let client = server.client();
    let mut body = hello_body("hello");
    body["description"] = json!("x".repeat(1 << 20));
    let answer = client.post("/api/agents", &body).expect(413);
    assert_eq!(answer, json!({ "error": "Request body is too large", "statusCode": 413 }));
}
