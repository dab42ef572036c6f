//! What one tenant has, no other finds: every route of the OpenAPI document that names a thing.

use crate::queue::{enqueue, wait_for_status};
use crate::support::{Client, DOCUMENT, Response, Server, base64, wait_until};
use serde_json::{Value, json};

/// A tenant's things, all of which exist.
struct Things {
    agent: String,
    /// The id of the version 1 of the agent.
    version: String,
    session: String,
    /// The name of a snapshot of the session.
    snapshot: String,
    attachment: String,
    /// The session runs its turn, which waits for the permission.
    running_item: String,
    /// Waits for the end of that turn.
    pending_item: String,
    credential: String,
    key: String,
    permission: String,
}

impl Things {
    /// Makes the things of the tenant of this client.
    fn create(client: &Client) -> Self {
        let agent = "agent-of-first".to_owned();
        // Files of its own: a broken server would let the other tenant change those of the examples.
        let files = json!([
            { "path": "CLAUDE.md", "content": base64(b"Be the first.") },
            { "path": "saggar.toml", "content": base64(b"adapter = \"demo\"\n") },
        ]);
        client.post("/api/agents", &json!({ "name": agent, "files": files })).expect(201);
        let created = |path: &str, body: Value, name: &str, field: &str| {
            let created = client.post(path, &body).expect(201);
            created[name][field].as_str().unwrap_or_else(|| panic!("{path}: {created}")).to_owned()
        };
        let version = created(
            &format!("/api/agents/{agent}/versions"),
            json!({ "systemPrompt": "p" }),
            "version",
            "id",
        );
        let session = created("/api/sessions", json!({ "agent": agent }), "session", "id");
        let path = format!("/api/sessions/{session}");
        client.run_turn(&session, "run: echo one > file");
        let snapshot = created(&format!("{path}/snapshots"), json!({}), "snapshot", "name");
        let body = json!({ "filename": "a", "content": base64(b"x") });
        let attachment = created(&format!("{path}/attachments"), body, "attachment", "id");
        let body = json!({ "type": "openai", "key": "k" });
        let credential = created("/api/credentials", body, "credential", "id");
        let key = client.post("/api/api-keys", &json!({ "label": "of first" })).body;
        let key = find_id(&key).unwrap_or_else(|| panic!("no id: {key}"));
        let item = |prompt: &str| json!({ "agentName": agent, "prompt": prompt, "sessionId": session });
        let running_item = enqueue(client, &item("ask: echo two > file"));
        let permissions = format!("{path}/permissions");
        wait_until("the turn asks for a permission", || {
            client.get(&permissions).expect(200)["permissions"] != json!([])
        });
        let permission =
            client.get(&permissions).expect(200)["permissions"][0]["id"].as_str().unwrap().to_owned();
        let pending_item = enqueue(client, &item("hi"));
        Things {
            agent,
            version,
            session,
            snapshot,
            attachment,
            running_item,
            pending_item,
            credential,
            key,
            permission,
        }
    }

    /// The texts that no answer to another tenant contains.
    fn names(&self) -> [&str; 10] {
        [
            &self.agent,
            &self.version,
            &self.session,
            &self.snapshot,
            &self.attachment,
            &self.running_item,
            &self.pending_item,
            &self.credential,
            &self.key,
            &self.permission,
        ]
    }

    /// The paths of a template, each with the names of things in place of its parameters. A template whose parameters
    /// this test does not know fails it: add the thing.
    fn paths(&self, template: &str) -> Vec<String> {
        let mut paths = vec![String::new()];
        let mut collection = "";
        for part in template.split('/').skip(1) {
            let names: Vec<&str> = match (part, collection) {
                ("{id}", "sessions") => vec![&self.session],
                ("{id}", "attachments") => vec![&self.attachment],
                ("{id}", "queue") => vec![&self.running_item, &self.pending_item],
                ("{id}", "credentials") => vec![&self.credential],
                ("{id}", "api-keys") => vec![&self.key],
                ("{name}", "agents") => vec![&self.agent],
                ("{name}", "snapshots") => vec![&self.snapshot],
                ("{version}", "versions") => vec!["1", &self.version],
                ("{permission}", "permissions") => vec![&self.permission],
                ("{path}", "files") => vec!["CLAUDE.md"],
                (part, _) if part.starts_with('{') => {
                    panic!("{template}: the test knows no thing for {part}")
                }
                (part, _) => vec![part],
            };
            let longer =
                |path: &String| names.iter().map(|name| format!("{path}/{name}")).collect::<Vec<_>>();
            paths = paths.iter().flat_map(longer).collect();
            collection = part;
        }
        paths
    }
}

/// The id of an object, or of an object in it.
fn find_id(value: &Value) -> Option<String> {
    let own = value["id"].as_str().map(str::to_owned);
    own.or_else(|| value.as_object()?.values().find_map(find_id))
}

/// A valid body of an operation: nothing but the tenant is a reason to refuse it.
fn body(operation: &str) -> Value {
    match operation {
        "answerPermission" => json!({ "behavior": "allow" }),
        "allowHosts" => json!({ "allow": ["example.com:443"] }),
        "exec" => json!({ "command": "echo three > file" }),
        "releaseQuarantine" => json!({ "action": "restore" }),
        "sendMessage" => json!({ "content": "hi" }),
        "updateAgent" => json!({ "env": { "A": "b" } }),
        "updateAgentConfig" | "updateSessionConfig" => json!({ "model": "m" }),
        "uploadAgentFiles" | "writeSessionFiles" => {
            json!({ "files": [{ "path": "file", "content": base64(b"four") }] })
        }
        "uploadAttachment" => json!({ "filename": "b", "content": base64(b"y") }),
        "uploadWorkspace" => json!({ "bundle": base64(b"bundle") }),
        // No field is required. An operation that requires one answers 400, and fails the test: add its body.
        _ => json!({}),
    }
}

/// The operations of the document: method in upper case, template of the path, and id.
fn operations() -> Vec<(String, &'static str, &'static str)> {
    let mut operations = Vec::new();
    for (path, item) in DOCUMENT["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            if let Some(id) = operation["operationId"].as_str() {
                operations.push((method.to_uppercase(), path.as_str(), id));
            }
        }
    }
    operations
}

/// The answer to a request of another tenant.
fn send(client: &Client, method: &str, path: &str, operation: &str) -> Response {
    match method {
        "GET" | "DELETE" => client.request_refused(method, path, &[], b""),
        _ => {
            let headers = [("content-type", "application/json")];
            client.request_refused(method, path, &headers, body(operation).to_string().as_bytes())
        }
    }
}

/// The answers to all requests of the owner that change nothing. All of them succeed.
fn contents(client: &Client, things: &Things) -> Vec<(String, Vec<u8>)> {
    // The first has no end; the second is an archive with times of its own; the third changes by itself.
    let left_out = ["streamSession", "downloadWorkspace", "getSessionUsage"];
    let mut contents = Vec::new();
    for (method, template, operation) in operations() {
        if method == "GET" && template.contains('{') && !left_out.contains(&operation) {
            for path in things.paths(template) {
                let (status, _, bytes) = client.download(&path);
                assert_eq!(status, 200, "{path}: {}", String::from_utf8_lossy(&bytes));
                contents.push((path, bytes));
            }
        }
    }
    contents
}

#[test]
fn nothing_of_another_tenant_is_found_or_changed_by_any_route() {
    let server = Server::start();
    let (client, other) = (server.client(), server.client_of_tenant("other"));
    let things = Things::create(&client);
    let mut before = contents(&client, &things);
    wait_until("the turn changes nothing more", || {
        let former = std::mem::replace(&mut before, contents(&client, &things));
        former == before
    });
    let (mut refused, mut found) = (0, Vec::new());
    for (method, template, operation) in operations() {
        if !template.contains('{') {
            continue;
        }
        for path in things.paths(template) {
            let answer = send(&other, &method, &path, operation);
            let is_unknown = answer.body["message"].as_str().is_some_and(|text| text.starts_with("Route "));
            assert!(!is_unknown, "{method} {path} is no route");
            refused += usize::from(answer.status == 404);
            if answer.status != 404 {
                found.push(format!("{method} {path}: {} {}", answer.status, answer.body));
            }
        }
    }
    assert!(found.is_empty(), "not 404:\n{}", found.join("\n"));
    assert!(refused > 50, "{refused}");
    for ((path, before), (_, after)) in before.iter().zip(contents(&client, &things)) {
        assert_eq!(String::from_utf8_lossy(before), String::from_utf8_lossy(&after), "{path}");
    }

    // All that the other tenant wanted to use or to end is still of use to its owner.
    let path = format!("/api/sessions/{}", things.session);
    assert_eq!(client.get(&path).expect(200)["session"]["status"], "active");
    let answer = format!("{path}/permissions/{}", things.permission);
    client.post(&answer, &json!({ "behavior": "allow" })).expect(200);
    wait_for_status(&client, &things.running_item, "completed");
    wait_for_status(&client, &things.pending_item, "completed");
    assert_eq!(client.get(&format!("{path}/files/file?format=json")).expect(200)["content"], "two\n");
    assert_eq!(client.run_turn(&things.session, "hi").last().unwrap().event, "done");
    for owned in [
        format!("/api/attachments/{}", things.attachment),
        format!("/api/credentials/{}", things.credential),
        format!("/api/api-keys/{}", things.key),
        format!("{path}/snapshots/{}", things.snapshot),
    ] {
        client.delete(&owned).expect(200);
    }
}

#[test]
fn parts_of_things_of_another_tenant_are_not_found_in_own_things() {
    let server = Server::start();
    let (client, other) = (server.client(), server.client_of_tenant("other"));
    let of_first = Things::create(&client);
    other.post("/api/agents", &json!({ "name": "own", "systemPrompt": "x" })).expect(201);
    let own = find_id(&other.post("/api/sessions", &json!({ "agent": "own" })).expect(201)).unwrap();
    let (snapshot, permission) = (of_first.snapshot.clone(), of_first.permission.clone());
    let mixed = Things { agent: "own".into(), session: own, ..of_first };
    let mut refused = 0;
    for (method, template, operation) in operations() {
        // Own things have own files.
        if template.matches('{').count() < 2 || template.ends_with("{path}") {
            continue;
        }
        for path in mixed.paths(template) {
            let answer = send(&other, &method, &path, operation);
            assert_eq!(answer.status, 404, "{method} {path}: {answer:?}");
            refused += 1;
        }
    }
    assert!(refused >= 8, "{refused}");
    let session = client.get("/api/sessions").expect(200)["sessions"][0]["id"].as_str().unwrap().to_owned();
    let path = format!("/api/sessions/{session}");
    client.post(&format!("{path}/permissions/{permission}"), &json!({ "behavior": "deny" })).expect(200);
    client.delete(&format!("{path}/snapshots/{snapshot}")).expect(200);
}

#[test]
fn lists_and_sums_of_one_tenant_leave_out_things_of_another() {
    let server = Server::start();
    let (client, other) = (server.client(), server.client_of_tenant("other"));
    let things = Things::create(&client);
    let lists = |client: &Client, query: &str| -> Vec<(&str, String)> {
        let lists =
            operations().into_iter().filter(|(method, path, _)| method == "GET" && !path.contains('{'));
        let texts = lists.map(|(_, path, _)| {
            let (status, _, text) = client.download(&format!("{path}{query}"));
            assert_eq!(status, 200, "{path}");
            (path, String::from_utf8(text).unwrap())
        });
        texts.collect()
    };
    let session = format!("?sessionId={}", things.session);
    for query in ["", "?agent=agent-of-first", "?agentName=agent-of-first", &session] {
        for (path, text) in lists(&other, query) {
            for name in things.names() {
                assert!(!text.contains(name), "{path}{query} contains {name}: {text}");
            }
        }
    }
    // The same texts are in the lists of their owner.
    let own: Vec<_> = lists(&client, "");
    for name in [&things.agent, &things.session, &things.pending_item, &things.credential, &things.key] {
        assert!(own.iter().any(|(_, text)| text.contains(name)), "no list has {name}");
    }
    let third = server.client_of_tenant("third");
    for path in ["/api/usage/stats", "/api/queue/stats", "/api/analytics"] {
        let of_third = third.get(path).expect(200);
        assert_eq!(other.get(path).expect(200), of_third, "{path}");
        assert_ne!(client.get(path).expect(200), of_third, "{path}");
    }
}

#[test]
fn things_of_another_tenant_cannot_be_named_in_bodies() {
    let server = Server::start();
    let (client, other) = (server.client(), server.client_of_tenant("other"));
    let things = Things::create(&client);
    other.post("/api/agents", &json!({ "name": "own", "systemPrompt": "x" })).expect(201);
    let own = other.post("/api/sessions", &json!({ "agent": "own" })).expect(201);
    let snapshot = |session: &str| format!("{session}/{}", things.snapshot);
    let unknown = "00000000-0000-4000-8000-000000000000";
    // Each body with a thing of the first tenant, and the same with one that does not exist.
    let requests = [
        ("/api/sessions", "agent", json!({}), things.agent.clone(), "none".to_owned()),
        (
            "/api/sessions",
            "credentialId",
            json!({ "agent": "own" }),
            things.credential.clone(),
            unknown.to_owned(),
        ),
        (
            "/api/sessions",
            "fromSnapshot",
            json!({ "agent": "own" }),
            snapshot(&things.session),
            snapshot(unknown),
        ),
        (
            "/api/queue",
            "sessionId",
            json!({ "agentName": "own", "prompt": "hi" }),
            things.session.clone(),
            unknown.to_owned(),
        ),
        ("/api/agents/own/versions", "cloneFrom", json!({}), things.version.clone(), unknown.to_owned()),
    ];
    for (path, field, rest, of_first, absent) in requests {
        let answer = |name: &str| {
            let mut body = rest.clone();
            body[field] = json!(name);
            let answer = other.post(path, &body);
            (answer.status, answer.body.to_string().replace(name, "NAME"))
        };
        let refused = answer(&of_first);
        assert!([400, 404].contains(&refused.0), "{path}, {field}: {refused:?}");
        // The answer does not even show that the thing exists.
        assert_eq!(refused, answer(&absent), "{path}, {field}");
    }
    let sessions = other.get("/api/sessions").expect(200);
    assert_eq!(sessions["sessions"], json!([own["session"]]));
    assert_eq!(other.get("/api/queue").expect(200), json!({ "items": [] }));
    // The agent of an item is found when its turn begins.
    let id = enqueue(&other, &json!({ "agentName": things.agent, "prompt": "hi", "maxRetries": 0 }));
    let failed = wait_for_status(&other, &id, "failed");
    assert_eq!(failed["error"], format!("Agent \"{}\" not found", things.agent));
}
