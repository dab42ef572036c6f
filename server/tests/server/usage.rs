//! Usage and analytics.

use crate::support::{Client, Server, deploy_body};
use serde_json::{Value, json};

fn events(client: &Client, query: &str) -> Vec<(String, i64)> {
    let listed = client.get(&format!("/api/usage{query}")).expect(200);
    let pair =
        |event: &Value| (event["eventType"].as_str().unwrap().to_owned(), event["value"].as_i64().unwrap());
    let mut events: Vec<_> = listed["events"].as_array().unwrap().iter().map(pair).collect();
    events.sort();
    events
}

#[test]
fn each_turn_is_counted_once() {
    let server = Server::start();
    let (client, session) = (server.client(), server.create_session());
    client.run_turn(&session, "run: echo hi");
    let turn = [("message".to_owned(), 1), ("tool_call".to_owned(), 1)];
    assert_eq!(events(&client, ""), turn);
    client.run_turn(&session, "hi");
    let stats = client.get("/api/usage/stats").expect(200);
    assert_eq!(
        stats,
        json!({ "stats": {
            "totalInputTokens": 0, "totalOutputTokens": 0, "totalCacheCreationTokens": 0, "totalCacheReadTokens": 0,
            "totalToolCalls": 1, "totalMessages": 2, "totalComputeSeconds": 0, "totalCostUsd": 0.0,
        } })
    );
    let listed = client.get(&format!("/api/usage?sessionId={session}&limit=1")).expect(200);
    let event = &listed["events"][0];
    assert_eq!((&event["sessionId"], &event["agentName"]), (&json!(session), &json!("hello")));
    assert_eq!((&event["eventType"], &event["tenantId"]), (&json!("message"), &json!("default")));
    assert_eq!(events(&client, &format!("?sessionId={session}")).len(), 3);
    assert_eq!(events(&client, "?agentName=hello&after=2020-01-01").len(), 3);
    for query in ["?agentName=other", "?after=2100-01-01", "?before=2020-01-01T00:00:00Z", "?sessionId=x"] {
        assert!(events(&client, query).is_empty(), "{query}");
        assert_eq!(client.get(&format!("/api/usage/stats{query}")).expect(200)["stats"]["totalMessages"], 0);
    }
    for query in ["limit=0", "limit=1001", "limit=x", "after=x", "before=yesterday"] {
        client.get(&format!("/api/usage?{query}")).expect(400);
    }
}

#[test]
fn usage_of_a_session_has_its_sums_and_what_its_sandbox_uses() {
    let server = Server::start();
    let (client, session) = (server.client(), server.create_session());
    client.run_turn(&session, "run: echo hi");
    let path = format!("/api/sessions/{session}/usage");
    let usage = client.get(&path).expect(200)["usage"].take();
    assert_eq!((&usage["stats"]["totalMessages"], &usage["stats"]["totalToolCalls"]), (&json!(1), &json!(1)));
    let sandbox = &usage["sandbox"];
    assert_eq!(sandbox["hosts"], json!([]));
    // Without a cgroup nothing is counted.
    for resource in ["cpu", "memory", "pids"] {
        assert!(sandbox[resource].is_object() || sandbox[resource].is_null(), "{sandbox}");
    }
    client.post(&format!("/api/sessions/{session}/stop"), &json!({})).expect(200);
    let stopped = client.get(&path).expect(200)["usage"].take();
    assert_eq!((&stopped["stats"], &stopped["sandbox"]), (&usage["stats"], &json!(null)));
    client.get(&path.replace(&session, "00000000-0000-4000-8000-000000000000")).expect(404);
}

#[test]
fn analytics_count_agents_sessions_and_usage_of_tenant() {
    let server = Server::start_with(&[], &[("ASH_INTERNAL_SECRET", "platform")]);
    let (client, session) = (server.client(), server.create_session());
    client.post("/api/agents", &deploy_body("other")).expect(201);
    client.post("/api/sessions", &json!({ "agent": "other" })).expect(201);
    client.run_turn(&session, "hi");
    client.delete(&format!("/api/sessions/{session}")).expect(200);
    let analytics = client.get("/api/analytics").expect(200);
    assert_eq!(analytics["agents"], json!({ "total": 2 }));
    assert_eq!(analytics["sessions"], json!({ "total": 2, "byStatus": { "active": 1, "ended": 1 } }));
    assert_eq!(analytics["usage"]["totalMessages"], 1);
    assert_eq!(analytics["evals"], json!({ "totalRuns": 0, "byStatus": {} }));
    let before = client.get("/api/analytics?before=2020-01-01").expect(200);
    assert_eq!((&before["sessions"]["total"], &before["usage"]["totalMessages"]), (&json!(0), &json!(0)));
    client.get("/api/analytics?after=x").expect(400);

    let platform = server.client_with(Some("platform"));
    let key = platform.post("/api/internal/api-keys", &json!({ "tenantId": "t" })).expect(200);
    let tenant = server.client_with(key["key"].as_str());
    assert!(events(&tenant, "").is_empty());
    assert_eq!(tenant.get("/api/analytics").expect(200)["sessions"]["total"], 0);
    // Usage remains after the agent and its sessions have been deleted.
    client.delete("/api/agents/hello").expect(200);
    assert_eq!(client.get("/api/usage/stats?agentName=hello").expect(200)["stats"]["totalMessages"], 1);
}
