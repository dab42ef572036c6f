//! Rate limits, and CORS.

use crate::support::{Client, Response, Server, deploy_body, settings_file};
use serde_json::json;
use std::io::Write;

/// Starts a server with these settings.
fn start(settings: &str) -> (tempfile::NamedTempFile, Server) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(settings.as_bytes()).unwrap();
    let server = Server::start_with(&["--config", file.path().to_str().unwrap()], &[]);
    (file, server)
}

fn header(response: &Response, name: &str) -> Option<String> {
    response.headers.get(name).map(|value| value.to_str().unwrap().to_owned())
}

#[test]
fn default_limits_are_those_of_ash() {
    let server = Server::start();
    let client = server.client();
    let response = client.get("/api/agents");
    assert_eq!(header(&response, "x-ratelimit-limit").unwrap(), "1500");
    // What succeeds does not count: all clients of a server may have one address.
    for _ in 0..25 {
        client.post("/api/agents", &deploy_body("hello")).expect(201);
    }
    assert_eq!(header(&response, "x-ratelimit-remaining").unwrap(), "1500");
    // Invalid requests count, also those without a key.
    for remaining in (0..20).rev() {
        let response = server.client_with(None).post("/api/agents", &deploy_body("hello"));
        assert_eq!(header(&response, "x-ratelimit-remaining").unwrap(), remaining.to_string());
        response.expect(401);
    }
    let response = client.post("/api/agents", &deploy_body("hello"));
    assert_eq!(header(&response, "x-ratelimit-limit").unwrap(), "20");
    let seconds: u64 = header(&response, "retry-after").unwrap().parse().unwrap();
    assert!((1..=900).contains(&seconds), "{seconds}");
    let error = response.expect(429);
    assert_eq!((&error["statusCode"], &error["error"]), (&json!(429), &json!("Too Many Requests")));
    assert!(error["message"].as_str().unwrap().starts_with("Rate limit exceeded, retry in "), "{error}");
    client.get("/api/agents").expect(200);
}

#[test]
fn limits_are_configured_separately_and_zero_is_none() {
    let (_file, server) =
        start("[rate_limit]\nrequests = 2\ndeployments = 0\nsessions = 1\ncount_successful = true\n");
    let client = server.client();
    for _ in 0..25 {
        let response = client.post("/api/agents", &deploy_body("hello"));
        assert_eq!(header(&response, "x-ratelimit-limit"), None);
        response.expect(201);
    }
    client.post("/api/sessions", &json!({ "agent": "none" })).expect(404);
    client.post("/api/sessions", &json!({ "agent": "hello" })).expect(429);
    client.get("/health").expect(200);
    client.get("/api/agents").expect(200);
    client.get("/health").expect(429);
}

#[test]
fn only_allowed_origins_get_cors_headers() {
    let preflight = |client: &Client, origin: &str| {
        let headers = [("origin", origin), ("access-control-request-method", "POST")];
        client.request("OPTIONS", "/api/sessions", &headers, b"")
    };
    let without = Server::start();
    let response = preflight(&without.client_with(None), "https://app.example");
    assert_eq!((response.status, header(&response, "access-control-allow-origin")), (401, None));

    let (_file, server) = start("allowed_origins = [\"https://app.example\"]\n");
    let anonymous = server.client_with(None);
    let response = preflight(&anonymous, "https://app.example");
    assert_eq!(response.status, 204);
    assert!(header(&response, "access-control-allow-headers").unwrap().contains("authorization"));
    for (client, status) in [(&server.client(), 200), (&anonymous, 401)] {
        let response = client.request("GET", "/api/agents", &[("origin", "https://app.example")], b"");
        assert_eq!(response.status, status);
        assert_eq!(header(&response, "access-control-allow-origin").unwrap(), "https://app.example");
        assert_eq!(header(&response, "vary").unwrap(), "origin");
    }
    for origin in ["https://evil.example", "http://app.example", "https://app.example.evil", "null"] {
        assert_eq!(preflight(&anonymous, origin).status, 401, "{origin}");
        let response = server.client().request("GET", "/api/agents", &[("origin", origin)], b"");
        assert_eq!(header(&response, "access-control-allow-origin"), None, "{origin}");
    }
}

#[test]
fn guesses_of_keys_end_in_429() {
    const INTERNAL: &str = "/api/internal/api-keys";
    const GUESSES: usize = 6;
    let file = settings_file(&format!("[rate_limit]\nrequests = {GUESSES}\n"));
    let settings = ["--config", file.path().to_str().unwrap()];
    for (method, path, key) in [
        ("GET", "/api/sessions", "ash_guess"),
        ("DELETE", "/api/api-keys/00000000-0000-4000-8000-000000000000", "ash_guess"),
        ("POST", INTERNAL, "guess"),
        // A route that does not exist needs the secret as well.
        ("GET", "/api/internal/none", "guess"),
    ] {
        let server = Server::start_with(&settings, &[("ASH_INTERNAL_SECRET", "s3cret")]);
        let send = |key: &str, path: &str| {
            let headers = [("content-type", "application/json")];
            server.client_with(Some(key)).request(method, path, &headers, b"{\"tenantId\":\"t\"}")
        };
        // Each attempt with a key of its own, after a request that needs none.
        for number in 0..GUESSES {
            server.client_with(None).get("/docs/json").expect(200);
            send(&format!("{key}-{number}"), path).expect(401);
        }
        // Also a correct guess is refused now, on every route: nobody learns that it was correct.
        for (key, path) in [
            (format!("{key}-{GUESSES}"), path),
            (server.key(), path),
            (server.key(), "/api/agents/none"),
            ("s3cret".to_owned(), INTERNAL),
        ] {
            let response = send(&key, path);
            let seconds: u64 =
                header(&response, "retry-after").unwrap_or_default().parse().unwrap_or_default();
            assert!((1..=900).contains(&seconds), "{method} {path}: {response:?}");
            assert_eq!(response.expect(429)["error"], "Too Many Requests");
        }
    }
}
