//! Traces: what a collector receives, and what the agent is told.

use crate::support::collector::{Collector, attribute, hex};
use crate::support::{Client, Frame, Server, deploy_body, saggar_program, settings_file, wait_until};
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";
const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// Spans are sent soon.
const SOON: (&str, &str) = ("OTEL_BSP_SCHEDULE_DELAY", "20");
/// Spans are sent at the exit only.
const NEVER: (&str, &str) = ("OTEL_BSP_SCHEDULE_DELAY", "3600000");

/// Sends back each query that it receives as a message, then a result.
const AGENT: &str = r#"#!/usr/bin/python3
import json, os, socket
server = socket.socket(socket.AF_UNIX)
server.bind(os.environ["ASH_BRIDGE_SOCKET"])
server.listen(1)
peer, _ = server.accept()
peer.sendall(b'{"ev":"ready"}\n')
def send(event):
    peer.sendall(json.dumps(event).encode() + b"\n")
for line in peer.makefile("rb"):
    command = json.loads(line)
    if command["cmd"] == "query":
        usage = {"input_tokens": 3, "cache_read_input_tokens": 4, "output_tokens": 5}
        send({"ev": "message", "data": {"type": "received", "query": command}})
        send({"ev": "message", "data": {"type": "result", "is_error": command["prompt"] == "fail", "usage": usage}})
        send({"ev": "done", "sessionId": command["sessionId"]})
    elif command["cmd"] == "shutdown":
        break
"#;

fn start(collector: &Collector, variables: &[(&str, &str)]) -> Server {
    Server::start_with(&["--otlp-endpoint", &collector.url()], &[&[SOON][..], variables].concat())
}

/// Creates a session of the agent `teller`, which is in `folder`, and returns its id.
fn create_session(client: &Client, folder: &Path) -> String {
    fs::write(folder.join("CLAUDE.md"), "Tell what you receive.").unwrap();
    fs::write(folder.join("saggar.toml"), "adapter = \"bridge\"\nagent_cmd = \"./agent\"\n").unwrap();
    fs::write(folder.join("agent"), AGENT).unwrap();
    fs::set_permissions(folder.join("agent"), fs::Permissions::from_mode(0o755)).unwrap();
    client.post("/api/agents", &json!({ "name": "teller", "path": folder })).expect(201);
    let created = client.post("/api/sessions", &json!({ "agent": "teller", "model": "m-1" })).expect(201);
    created["session"]["id"].as_str().unwrap().to_owned()
}

/// Sends a message below the trace of the tests, and returns the query that the agent received.
fn send_traced(client: &Client, session: &str, text: &str, headers: &[(&str, &str)]) -> Value {
    let frames = client.send_with(session, headers, &json!({ "content": text }));
    let frames: Vec<Frame> = frames.collect();
    assert_eq!(frames.last().unwrap().event, "done", "{frames:?}");
    let mut received = frames.iter().filter(|frame| frame.event == "message").map(Frame::json);
    received.find(|message| message["type"] == "received").unwrap()["query"].clone()
}

fn attribute_of(span: &Span, key: &str) -> String {
    attribute(&span.attributes, key)
}

fn named(name: &str) -> impl Fn(&Span) -> bool {
    move |span| span.name == name
}

#[test]
fn request_is_a_span_in_the_trace_of_its_client() {
    let collector = Collector::start("200 OK");
    let server = start(&collector, &[("OTEL_EXPORTER_OTLP_HEADERS", "x-collector-key=k-1")]);
    let client = server.client();
    let path = format!("/api/sessions/{TRACE}/files");
    let answer = client.request("GET", &path, &[("traceparent", TRACEPARENT)], b"");
    let status = answer.status.to_string();
    assert!(answer.status >= 400);
    let span = collector.wait_for("of the request", named("GET /api/sessions/{id}/files"));
    assert_eq!((hex(&span.trace_id).as_str(), hex(&span.parent_span_id).as_str()), (TRACE, PARENT));
    assert_eq!(span.kind(), SpanKind::Server);
    for (key, value) in [
        ("http.request.method", "GET"),
        ("http.route", "/api/sessions/{id}/files"),
        ("http.response.status_code", status.as_str()),
        ("url.path", path.as_str()),
        ("url.scheme", "http"),
    ] {
        assert_eq!(attribute_of(&span, key), value, "{span:?}");
    }
    // Neither a route nor a parent.
    client.request("GET", "/api/none?key=secret", &[], b"").expect(404);
    let span = collector.wait_for("of a request without a route", named("GET"));
    assert_eq!((span.trace_id.len(), span.parent_span_id.len()), (16, 0));
    assert_ne!(hex(&span.trace_id), TRACE);
    assert_eq!(attribute_of(&span, "url.path"), "/api/none");
    assert_eq!(attribute(&collector.resource(), "service.name"), "saggar-server");
    let head = collector.exports()[0].head.to_lowercase();
    assert!(head.starts_with("post /v1/traces http/1.1\r\n"), "{head}");
    assert!(head.contains("\r\nx-collector-key: k-1\r\n"), "{head}");
    assert!(head.contains("\r\ncontent-type: application/x-protobuf\r\n"), "{head}");
}

#[test]
fn turn_and_runs_of_saggar_are_children_of_their_requests() {
    let collector = Collector::start("200 OK");
    let server = start(&collector, &[("OTEL_SERVICE_NAME", "agents")]);
    let (client, folder) = (server.client(), tempfile::tempdir().unwrap());
    let session = create_session(&client, folder.path());
    let request = collector.wait_for("of the creation", named("POST /api/sessions"));
    let run = collector.wait_for("of saggar", named("saggar session create"));
    assert_eq!((&run.trace_id, &run.parent_span_id), (&request.trace_id, &request.span_id));
    assert_eq!(attribute_of(&run, "process.exit.code"), "0");
    assert!(request.start_time_unix_nano <= run.start_time_unix_nano);
    assert!(run.start_time_unix_nano < run.end_time_unix_nano);

    let query = send_traced(&client, &session, "hi", &[("traceparent", TRACEPARENT)]);
    let turn = collector.wait_for("of the turn", named("invoke_agent teller"));
    let request = collector.wait_for("of the message", named("POST /api/sessions/{id}/messages"));
    assert_eq!(hex(&request.parent_span_id), PARENT);
    assert_eq!((hex(&turn.trace_id).as_str(), &turn.parent_span_id), (TRACE, &request.span_id));
    assert_eq!(query["traceContext"], format!("00-{TRACE}-{}-01", hex(&turn.span_id)));
    for (key, value) in [
        ("gen_ai.operation.name", "invoke_agent"),
        ("gen_ai.agent.name", "teller"),
        ("gen_ai.conversation.id", session.as_str()),
        ("gen_ai.request.model", "m-1"),
        ("gen_ai.usage.input_tokens", "7"),
        ("gen_ai.usage.cache_read.input_tokens", "4"),
        ("gen_ai.usage.output_tokens", "5"),
        ("saggar.tenant", "default"),
        ("saggar.turn.result", "completed"),
    ] {
        assert_eq!(attribute_of(&turn, key), value, "{turn:?}");
    }
    assert_eq!(attribute(&collector.resource(), "service.name"), "agents");

    send_traced(&client, &session, "fail", &[]);
    let is_failed = |span: &Span| attribute_of(span, "saggar.turn.result") == "failed";
    let turn = collector.wait_for("of a failed turn", is_failed);
    assert_eq!(attribute_of(&turn, "error.type"), "agent_error");
}

#[test]
fn repeated_message_is_one_turn() {
    let collector = Collector::start("200 OK");
    let server = start(&collector, &[]);
    let (client, folder) = (server.client(), tempfile::tempdir().unwrap());
    let session = create_session(&client, folder.path());
    for _ in 0..2 {
        send_traced(&client, &session, "hi", &[("idempotency-key", "k")]);
    }
    send_traced(&client, &session, "bye", &[]);
    let is_request = |span: &&Span| span.name == "POST /api/sessions/{id}/messages";
    wait_until("all requests are exported", || collector.spans().iter().filter(is_request).count() == 3);
    drop(server);
    let spans = collector.spans();
    assert_eq!(spans.iter().filter(|span| span.name == "invoke_agent teller").count(), 2);
}

#[test]
fn trace_context_of_client_reaches_agent_without_a_collector() {
    let server = Server::start();
    let (client, folder) = (server.client(), tempfile::tempdir().unwrap());
    let session = create_session(&client, folder.path());
    let query = send_traced(&client, &session, "hi", &[("traceparent", TRACEPARENT)]);
    assert_eq!(query["traceContext"], TRACEPARENT);
    let query = send_traced(&client, &session, "hi", &[("traceparent", "00-invalid")]);
    assert_eq!(query.get("traceContext"), None);
}

#[test]
fn queue_item_is_a_trace_with_its_turn() {
    let collector = Collector::start("200 OK");
    let server = start(&collector, &[]);
    let client = server.client();
    client.post("/api/agents", &deploy_body("hello")).expect(201);
    let item = client.post("/api/queue", &json!({ "agentName": "hello", "prompt": "hi" })).expect(201);
    let span = collector.wait_for("of the item", named("run queue item"));
    assert_eq!(attribute_of(&span, "saggar.queue.item"), item["item"]["id"]);
    assert_eq!(attribute_of(&span, "saggar.queue.result"), "completed");
    assert!(span.parent_span_id.is_empty());
    let turn = collector.wait_for("of the turn", named("invoke_agent hello"));
    assert_eq!((&turn.trace_id, &turn.parent_span_id), (&span.trace_id, &span.span_id));
}

#[test]
fn spans_contain_no_content_and_sandboxes_no_key_of_the_collector() {
    let collector = Collector::start("200 OK");
    let server = start(
        &collector,
        &[
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20secret-header"),
            ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "authorization=Bearer%20secret-header"),
        ],
    );
    let client = server.client();
    let mut agent = deploy_body("hello");
    agent["env"] = json!({ "AGENT_VALUE": "secret-agent" });
    client.post("/api/agents", &agent).expect(201);
    let body = json!({
        "agent": "hello",
        "systemPrompt": "secret-system",
        "extraEnv": { "SESSION_VALUE": "secret-session" },
    });
    let session =
        client.post("/api/sessions", &body).expect(201)["session"]["id"].as_str().unwrap().to_owned();
    client.run_turn(&session, "run: echo secret-prompt; echo secret-error >&2; false");
    let error = json!({ "type": "result", "is_error": true, "result": "secret-result" });
    client.run_turn(&session, &format!("echo-json: {error}"));
    client.run_turn(&session, "crash");
    let bytes = json!({ "command": "echo secret-exec" });
    client.post(&format!("/api/sessions/{session}/exec"), &bytes).expect(200);
    client.post("/api/queue", &json!({ "agentName": "hello", "prompt": "secret-item" })).expect(201);
    collector.wait_for("of the item", named("run queue item"));
    client.get("/api/sessions?agent=secret-query").expect(200);

    let environment = fs::read(format!("/proc/{}/environ", server.supervisor(&session).as_raw_nonzero()));
    // Only root can read it.
    let environment = environment.unwrap_or_default();
    assert_eq!(environment.is_empty(), !rustix::process::geteuid().is_root());
    assert!(!contains(&environment, b"secret-header"));

    client.delete(&format!("/api/sessions/{session}")).expect(200);
    collector.wait_for("of the last request", named("DELETE /api/sessions/{id}"));
    collector.wait_for("of a crash", |span| attribute_of(span, "error.type") == "bridge_error");
    let key = server.key();
    for export in collector.exports() {
        for secret in ["secret-", &key] {
            assert!(!contains(&export.body, secret.as_bytes()), "{}", String::from_utf8_lossy(&export.body));
        }
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[test]
fn spans_are_sent_at_sigterm() {
    let collector = Collector::start("200 OK");
    let mut server = Server::start_with(&["--otlp-endpoint", &collector.url()], &[NEVER]);
    let session = server.create_session();
    let mut frames = server.client().send(&session, &json!({ "content": "run: sleep 600" }));
    while frames.next().unwrap().event != "tool_use" {}
    assert_eq!(collector.exports().len(), 0);
    assert!(server.stop(Signal::TERM).success());
    let spans = collector.spans();
    let turn = spans.iter().find(|span| span.name == "invoke_agent hello").expect("the turn");
    assert_eq!(attribute_of(turn, "saggar.turn.result"), "unfinished");
    let request = spans.iter().find(|span| span.span_id == turn.parent_span_id).expect("its request");
    assert_eq!(request.name, "POST /api/sessions/{id}/messages");
}

/// Starts a server, runs a turn, stops it, and returns its log.
fn log_of_a_turn(endpoint: &str) -> Vec<String> {
    let mut server = Server::start_with(&["--otlp-endpoint", endpoint], &[SOON]);
    assert!(server.stop(Signal::TERM).success());
    let mut process = server.command().stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let log = BufReader::new(process.stderr.take().unwrap());
    let log = std::thread::spawn(move || log.lines().map_while(Result::ok).collect::<Vec<_>>());
    let client = Client::new(line.trim_end().rsplit_once(" on ").unwrap().1, Some(&server.key()));
    client.post("/api/agents", &deploy_body("hello")).expect(201);
    let session = client.post("/api/sessions", &json!({ "agent": "hello" })).expect(201);
    let session = session["session"]["id"].as_str().unwrap().to_owned();
    for _ in 0..3 {
        assert_eq!(client.run_turn(&session, "hi").last().unwrap().event, "done");
    }
    client.delete(&format!("/api/sessions/{session}")).expect(200);
    kill_process(Pid::from_child(&process), Signal::TERM).unwrap();
    assert!(process.wait().unwrap().success());
    log.join().unwrap()
}

fn warnings(log: &[String]) -> usize {
    log.iter().filter(|line| line.contains("cannot send traces")).count()
}

#[test]
fn unreachable_collector_costs_one_warning() {
    // A port on which nobody listens.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let log = log_of_a_turn(&endpoint);
    assert_eq!(warnings(&log), 1, "{log:?}");
}

#[test]
fn collector_that_refuses_costs_one_warning() {
    let collector = Collector::start("403 Forbidden");
    let log = log_of_a_turn(&collector.url());
    assert!(!collector.exports().is_empty());
    assert_eq!(warnings(&log), 1, "{log:?}");
    assert!(log.iter().any(|line| line.contains("status 403")), "{log:?}");
}

#[test]
fn collector_that_never_answers_does_not_keep_the_server() {
    // Connections wait in the queue of the kernel.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let log = log_of_a_turn(&format!("http://{}", listener.local_addr().unwrap()));
    assert!(log.iter().any(|line| line.contains("the last traces were not sent")), "{log:?}");
}

#[test]
fn log_lines_have_the_id_of_the_trace() {
    let collector = Collector::start("200 OK");
    let endpoint = collector.url();
    let mut server = Server::start_with(&["--otlp-endpoint", &endpoint, "--log-format", "json"], &[SOON]);
    assert!(server.stop(Signal::TERM).success());
    let mut command = server.command();
    command.env("RUST_LOG", "warn");
    let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let client = Client::new(line.trim_end().rsplit_once(" on ").unwrap().1, Some(&server.key()));
    server.execute("DROP TABLE usage_events");
    client.request("GET", "/api/usage", &[("traceparent", TRACEPARENT)], b"").expect(500);
    let lines = BufReader::new(process.stderr.take().unwrap()).lines().map_while(Result::ok);
    let mut lines = lines.map(|line| serde_json::from_str::<Value>(&line).unwrap());
    let line = lines.find(|line| line["level"] == "ERROR").unwrap();
    assert_eq!(line["span"]["trace_id"], TRACE, "{line}");
    let span = collector.wait_for("of the request", named("GET /api/usage"));
    assert_eq!(attribute_of(&span, "error.type"), "500");
    kill_process(Pid::from_child(&process), Signal::TERM).unwrap();
    drop(lines);
    assert!(process.wait().unwrap().success());
}

#[test]
fn sampler_and_disabling_variables_are_followed() {
    let collector = Collector::start("200 OK");
    let endpoint = collector.url();
    let settings = settings_file(&format!("otlp_endpoint = \"{endpoint}\"\n"));
    let settings = settings.path().to_str().unwrap();
    for variable in [
        ("OTEL_TRACES_SAMPLER", "always_off"),
        ("OTEL_SDK_DISABLED", "true"),
        ("OTEL_TRACES_EXPORTER", "none"),
    ] {
        let mut server = Server::start_with(&["--config", settings], &[SOON, variable]);
        server.client().get("/health").expect(200);
        assert!(server.stop(Signal::TERM).success());
        assert_eq!(collector.exports().len(), 0, "{variable:?}");
    }
    let url = format!("{endpoint}/v1/traces");
    let variables = [NEVER, ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", url.as_str())];
    let mut server = Server::start_with(&[], &variables);
    server.client().get("/health").expect(200);
    assert!(server.stop(Signal::TERM).success());
    assert!(collector.spans().iter().any(|span| span.name == "GET /health"));
}

#[test]
fn invalid_endpoint_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_saggar-server"));
    command.arg("--data").arg(directory.path()).arg("--saggar").arg(saggar_program());
    let output = command.args(["--otlp-endpoint", "localhost:4318"]).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(78), "{error}");
    assert!(error.contains("invalid --otlp-endpoint"), "{error}");
}
