//! Sessions in pods of Kubernetes: saggar-server(8), KUBERNETES. A stand-in for a cluster runs the pods with saggar as an OCI
//! runtime.

use crate::support::certificate::TestCertificate;
use crate::support::kubernetes::{Cluster, DEMO_POD};
use crate::support::{Client, Server, settings_file, wait_until};
use clap::Parser;
use rustix::process::Signal;
use saggar_server::settings::{Arguments, Settings};
use serde_json::{Value, json};
use std::path::Path;
use yaml_rust2::YamlLoader;

fn create(server: &Server, rest: Value) -> String {
    let client = server.client();
    client.post("/api/agents", &agent()).expect(201);
    let mut body = json!({ "agent": "hello" });
    body.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    let session = client.post("/api/sessions", &body).expect(201);
    session["session"]["id"].as_str().unwrap().to_owned()
}

/// The body that deploys an agent whose folder has no policy.
fn agent() -> Value {
    json!({ "name": "hello", "files": [{ "path": "CLAUDE.md", "content": crate::support::base64(b"Say hello.") }] })
}

fn pod_name(session: &str) -> String {
    format!("saggar-{session}")
}

fn status(client: &Client, session: &str) -> Value {
    client.get(&format!("/api/sessions/{session}")).expect(200)["session"]["status"].clone()
}

fn exec(client: &Client, session: &str, command: &str) -> String {
    let done = client.post(&format!("/api/sessions/{session}/exec"), &json!({ "command": command }));
    done.expect(200)["stdout"].as_str().unwrap().to_owned()
}

fn results(client: &Client, session: &str) -> usize {
    let listed = client.get(&format!("/api/sessions/{session}/messages?limit=1000")).expect(200);
    let messages = listed["messages"].as_array().unwrap().clone();
    let is_result = |message: &&Value| message["content"].as_str().unwrap().contains("\"type\":\"result\"");
    messages.iter().filter(is_result).count()
}

#[test]
fn session_runs_in_a_pod_of_its_own_to_its_end() {
    let cluster = Cluster::start();
    let (server, _settings) = cluster.server(DEMO_POD);
    let session =
        create(&server, json!({ "extraEnv": { "SECRET_WORD": "plum" }, "systemPrompt": "Be brief." }));
    let (client, name) = (server.client(), pod_name(&session));

    let pod = cluster.pods()[&name].clone();
    assert_eq!(pod["metadata"]["labels"]["org.saggar/session"], session);
    assert_eq!(pod["spec"]["runtimeClassName"], "saggar");
    // Who may read pods may not read secrets.
    assert!(!pod.to_string().contains("plum"), "{pod}");
    assert_eq!(cluster.secrets()[&name]["data"]["variable-0"], crate::support::base64(b"plum"));

    let frames = client.run_turn(&session, "my name is Ann");
    assert_eq!(frames.last().unwrap().event, "done", "{frames:?}");
    assert!(client.run_turn(&session, "recall").iter().any(|frame| frame.data.contains("my name is Ann")));
    assert_eq!(exec(&client, &session, "echo $SECRET_WORD $FROM_MANIFEST"), "plum yes-it-is\n");
    assert_eq!(exec(&client, &session, "cat CLAUDE.md"), "Be brief.");
    let used = client.get(&format!("/api/sessions/{session}/usage")).expect(200);
    // An ordinary user has no cgroups here.
    let has_cgroup = rustix::process::geteuid().is_root();
    let memory = used["usage"]["sandbox"]["memory"]["current"].as_u64();
    assert_eq!(memory > Some(0), has_cgroup, "{used}");

    client.request("DELETE", &format!("/api/sessions/{session}"), &[], b"").expect(200);
    assert_eq!(status(&client, &session), "ended");
    assert!(cluster.pods().is_empty() && cluster.secrets().is_empty() && !cluster.runs_agent(&name));
    assert_eq!(results(&client, &session), 2);
    // A client that comes back still gets what it has missed: the node has it.
    assert_eq!(client.stream(&session, 0).filter(|frame| frame.event == "done").count(), 2);
}

#[test]
fn two_sessions_have_a_pod_each() {
    let cluster = Cluster::start();
    let (server, _settings) = cluster.server(DEMO_POD);
    let sessions = [create(&server, json!({})), create(&server, json!({}))];
    let client = server.client();
    for (session, name) in sessions.iter().zip(["Ann", "Bob"]) {
        client.run_turn(session, &format!("my name is {name}"));
    }
    for (session, name) in sessions.iter().zip(["Ann", "Bob"]) {
        assert!(client.run_turn(session, "recall").iter().any(|frame| frame.data.contains(name)));
    }
    assert_eq!(cluster.pods().len(), 2);
}

#[test]
fn session_in_a_pod_continues_after_server_restart() {
    let cluster = Cluster::start();
    let (mut server, _settings) = cluster.server(DEMO_POD);
    let session = create(&server, json!({}));
    for signal in [Signal::KILL, Signal::TERM] {
        let mut frames = server.client().send(&session, &json!({ "content": "count: 40" }));
        while frames.next().unwrap().event != "message" {}
        server.stop(signal);
        drop(frames);
        server.restart();
    }
    let client = server.client();
    wait_until("the results of both turns are stored", || results(&client, &session) == 2);
    assert_eq!(status(&client, &session), "active");
    assert_eq!(cluster.pods()[&pod_name(&session)]["metadata"]["uid"], "uid-1");
}

#[test]
fn events_of_a_pod_that_ended_without_a_server_are_recorded() {
    let cluster = Cluster::start();
    let (mut server, _settings) = cluster.server(DEMO_POD);
    let sessions = [create(&server, json!({})), create(&server, json!({}))];
    let client = server.client();
    let mut frames: Vec<_> = sessions
        .iter()
        .map(|session| client.send(session, &json!({ "content": "run: sleep 0.2; echo late" })))
        .collect();
    for frames in &mut frames {
        while frames.next().unwrap().event != "tool_use" {}
    }
    server.stop(Signal::KILL);
    drop(frames);
    let events = |session: &str| {
        let spool = cluster.sockets().join(format!("{}.events", pod_name(session)));
        server.saggar(&["events", "--spool", spool.to_str().unwrap()])
    };
    for session in &sessions {
        wait_until("the turn is over", || events(session).contains("\"type\":\"result\""));
    }
    cluster.kill_agent(&pod_name(&sessions[0]));
    cluster.delete_pod(&pod_name(&sessions[1]));
    wait_until("the containers are gone", || {
        sessions.iter().all(|session| !cluster.runs_agent(&pod_name(session))) && cluster.pods().len() == 1
    });
    server.restart();
    let client = server.client();
    for session in &sessions {
        assert_eq!(status(&client, session), "error");
        assert_eq!(results(&client, session), 1);
        let refused = client.post(&format!("/api/sessions/{session}/resume"), &json!({})).expect(500);
        assert!(refused["error"].as_str().unwrap().contains("its pod has ended"), "{refused}");
        client.request("DELETE", &format!("/api/sessions/{session}"), &[], b"").expect(200);
    }
    assert!(cluster.pods().is_empty());
}

#[test]
fn pod_that_ends_by_itself_ends_the_turn() {
    let cluster = Cluster::start();
    let (server, _settings) = cluster.server(DEMO_POD);
    let session = create(&server, json!({}));
    let client = server.client();
    let mut frames = client.send(&session, &json!({ "content": "run: sleep 60" }));
    while frames.next().unwrap().event != "tool_use" {}
    cluster.kill_agent(&pod_name(&session));
    assert_eq!(frames.last().unwrap().event, "error");
    wait_until("the session has failed", || status(&client, &session) == "error");
}

#[test]
fn pod_that_does_not_start_leaves_nothing() {
    let cluster = Cluster::start();
    let first = "initContainers: [{name: first, image: i, command: [/bin/false], volumeMounts: []}]";
    let (server, _settings) = cluster.server(&DEMO_POD.replace("spec:", &format!("spec:\n  {first}")));
    let client = server.client();
    client.post("/api/agents", &agent()).expect(201);
    let body = json!({ "agent": "hello", "extraEnv": { "A": "b" } });
    let refused = client.post("/api/sessions", &body).expect(500);
    let error = refused["error"].as_str().unwrap();
    assert!(error.contains("Failed to create session: the container first exited with 1"), "{error}");
    assert!(cluster.pods().is_empty() && cluster.secrets().is_empty());
    assert_eq!(std::fs::read_dir(cluster.sockets()).unwrap().count(), 0);
    assert_eq!(client.get("/api/sessions").expect(200)["total"], 0);
}

#[test]
fn failure_of_the_kubernetes_api_is_reported_and_ends_no_session() {
    let cluster = Cluster::start();
    let (mut server, _settings) = cluster.server(DEMO_POD);
    let session = create(&server, json!({}));
    cluster.fail(Some((403, "pods is forbidden: no")));
    let client = server.client();
    let refused = client.post("/api/sessions", &json!({ "agent": "hello" })).expect(500);
    let error = refused["error"].as_str().unwrap();
    assert!(
        error.contains("cannot create pods/saggar-") && error.contains("pods is forbidden: no"),
        "{error}"
    );
    assert_eq!(client.run_turn(&session, "hello").last().unwrap().event, "done");
    server.stop(Signal::KILL);
    server.restart();
    cluster.fail(None);
    assert_eq!(server.client().run_turn(&session, "hello").last().unwrap().event, "done");
}

#[test]
fn session_outlasts_an_outage_of_its_relay() {
    let cluster = Cluster::start();
    let (server, _settings) = cluster.server(DEMO_POD);
    let session = create(&server, json!({}));
    let client = server.client();
    client.run_turn(&session, "my name is Ann");
    cluster.run_relay(false);
    let refused = client.post(&format!("/api/sessions/{session}/exec"), &json!({ "command": "true" }));
    assert!(refused.status >= 500, "{refused:?}");
    assert_eq!(status(&client, &session), "active");
    cluster.run_relay(true);
    assert!(client.run_turn(&session, "recall").iter().any(|frame| frame.data.contains("Ann")));
    wait_until("both results are stored", || results(&client, &session) == 2);
}

#[test]
fn relay_answers_clients_with_a_certificate_of_its_authority_alone() {
    let cluster = Cluster::start();
    assert!(cluster.ask_relay(Some(cluster.files())).unwrap().starts_with("HTTP/1.1 404"));
    assert!(cluster.ask_relay(None).is_err());
    let other = tempfile::tempdir().unwrap();
    assert!(cluster.ask_relay(Some(&TestCertificate::create(other.path()))).is_err());
}

#[test]
fn what_pods_do_not_have_is_refused_as_not_implemented() {
    let cluster = Cluster::start();
    let (server, _settings) = cluster.server(DEMO_POD);
    let session = create(&server, json!({}));
    let client = server.client();
    for (method, route) in [
        ("POST", "stop"),
        ("POST", "fork"),
        ("GET", "files"),
        ("GET", "files/CLAUDE.md"),
        ("GET", "workspace"),
        ("GET", "diff"),
        ("POST", "apply"),
        ("POST", "discard"),
        ("GET", "snapshots"),
        ("POST", "snapshots"),
        ("GET", "quarantine"),
        ("GET", "network"),
        ("GET", "logs"),
        ("POST", "attachments"),
    ] {
        let refused = client.request(method, &format!("/api/sessions/{session}/{route}"), &[], b"");
        let error = refused.expect(501);
        assert!(error["error"].as_str().unwrap().contains("in pods"), "{route}: {error}");
    }
    client.get(&format!("/api/sessions/{session}/attachments")).expect(200);
    for body in [
        json!({ "agent": "hello", "permissionMode": "bypassPermissions" }),
        json!({ "agent": "hello", "fromSnapshot": format!("{session}/1") }),
        json!({ "agent": "hello", "allowedTools": ["Read"] }),
    ] {
        client.post("/api/sessions", &body).expect(501);
    }
    let config = json!({ "allowedTools": ["Read"] }).to_string();
    let json = [("content-type", "application/json")];
    let path = format!("/api/sessions/{session}/config");
    client.request("PATCH", &path, &json, config.as_bytes()).expect(501);
    let refused =
        client.post(&format!("/api/sessions/{session}/messages"), &json!({ "content": "x", "maxTurns": 1 }));
    assert!(refused.expect(501)["error"].as_str().unwrap().contains("maxTurns"));
    let file = json!({ "path": "saggar.toml", "content": "" });
    let prompt = json!({ "path": "CLAUDE.md", "content": crate::support::base64(b"x") });
    client.post("/api/agents", &json!({ "name": "with-policy", "files": [file, prompt] })).expect(201);
    let refused = client.post("/api/sessions", &json!({ "agent": "with-policy" })).expect(501);
    assert!(refused["error"].as_str().unwrap().contains("saggar.toml"), "{refused}");
    assert_eq!(cluster.pods().len(), 1);
}

/// Neither a pod whose session the server has not stored, nor one that nobody knows, runs on.
#[test]
fn pods_of_a_start_that_was_interrupted_are_deleted() {
    let cluster = Cluster::start();
    let (mut server, _settings) = cluster.server(DEMO_POD);
    let sessions = [create(&server, json!({})), create(&server, json!({}))];
    server.stop(Signal::KILL);
    server.execute(&format!(
        "UPDATE sessions SET status = 'starting', sandbox_id = '' WHERE id = '{}'",
        sessions[0]
    ));
    server.execute(&format!("DELETE FROM sessions WHERE id = '{}'", sessions[1]));
    server.restart();
    wait_until("both pods are gone", || cluster.pods().is_empty());
    let client = server.client();
    wait_until("no session is left", || client.get("/api/sessions").expect(200)["total"] == 0);
}

#[test]
fn server_that_starts_without_the_kubernetes_api_attaches_later() {
    let cluster = Cluster::start();
    let (mut server, _settings) = cluster.server(DEMO_POD);
    let [running, ended] = [create(&server, json!({})), create(&server, json!({}))];
    let mut frames = server.client().send(&running, &json!({ "content": "count: 40" }));
    while frames.next().unwrap().event != "message" {}
    server.stop(Signal::KILL);
    drop(frames);
    cluster.fail(Some((500, "etcdserver: leader changed")));
    server.restart();
    cluster.kill_agent(&pod_name(&ended));
    cluster.fail(None);
    // No client asks for them.
    let row = |session: &str, column: &str| {
        server.query_value::<String>(&format!(
            "SELECT CAST({column} AS TEXT) FROM sessions WHERE id = '{session}'"
        ))
    };
    wait_until("the pod that has ended is noticed", || row(&ended, "status") == "error");
    wait_until("the events are recorded", || results(&server.client(), &running) == 1);
    assert_eq!(row(&running, "status"), "active");
}

#[test]
fn session_in_a_pod_is_paused_and_continues() {
    if !rustix::process::geteuid().is_root() {
        // Its containers have no cgroup.
        return;
    }
    let cluster = Cluster::start();
    let (server, _settings) = cluster.server(DEMO_POD);
    let session = create(&server, json!({}));
    let client = server.client();
    client.run_turn(&session, "my name is Ann");
    client.post(&format!("/api/sessions/{session}/pause"), &json!({})).expect(200);
    assert_eq!(status(&client, &session), "paused");
    client.post(&format!("/api/sessions/{session}/resume"), &json!({})).expect(200);
    assert_eq!(status(&client, &session), "active");
    assert!(client.run_turn(&session, "recall").iter().any(|frame| frame.data.contains("Ann")));
    assert_eq!(cluster.pods()[&pod_name(&session)]["metadata"]["uid"], "uid-1");
}

#[test]
fn permission_is_granted_and_a_turn_interrupted_in_a_pod() {
    let cluster = Cluster::start();
    let (server, _settings) = cluster.server(DEMO_POD);
    let session = create(&server, json!({}));
    let client = server.client();
    let mut turn = client.send(&session, &json!({ "content": "ask: echo ran >> ran" }));
    let request = turn.find(|frame| frame.event == "permission_request").unwrap().json();
    let answer = format!("/api/sessions/{session}/permissions/{}", request["id"].as_str().unwrap());
    assert_eq!(exec(&client, &session, "cat ran || echo none"), "none\n");
    client.post(&answer, &json!({ "behavior": "allow" })).expect(200);
    assert_eq!(turn.last().unwrap().event, "done");
    assert_eq!(exec(&client, &session, "cat ran"), "ran\n");

    let mut turn = client.send(&session, &json!({ "content": "run: sleep 600" }));
    while turn.next().unwrap().event != "tool_use" {}
    client.post(&format!("/api/sessions/{session}/interrupt"), &json!({})).expect(200);
    assert_eq!(turn.last().unwrap().event, "done");
}

#[test]
fn warm_pod_becomes_that_of_a_session_and_of_a_queue_item() {
    let cluster = Cluster::start();
    let (server, _settings) = cluster.server(DEMO_POD);
    let client = server.client();
    client.post("/api/agents", &agent()).expect(201);
    client.patch("/api/agents/hello/config", &json!({ "preWarmCount": 1 })).expect(200);
    let wait_until_warm = || {
        let warm = || client.get("/health").expect(200)["pool"]["warm"] == 1;
        wait_until("a pod is warm", warm);
    };
    wait_until_warm();
    let [warm] = <[String; 1]>::try_from(cluster.pods().into_keys().collect::<Vec<_>>()).unwrap();
    let created = client.post("/api/sessions", &json!({ "agent": "hello" })).expect(201);
    let session = created["session"]["id"].as_str().unwrap();
    assert_eq!(pod_name(session), warm);
    assert_eq!(client.run_turn(session, "hi").last().unwrap().event, "done");

    wait_until_warm();
    assert_eq!(cluster.pods().len(), 2);
    let queued = client.post("/api/queue", &json!({ "agentName": "hello", "prompt": "hi" })).expect(201);
    let path = format!("/api/queue/{}", queued["item"]["id"].as_str().unwrap());
    let item = || client.get(&path).expect(200)["item"].clone();
    wait_until("the item is completed", || item()["status"] == "completed");
    assert_eq!(results(&client, item()["sessionId"].as_str().unwrap()), 1);
}

#[test]
fn settings_that_do_not_fit_pods_are_refused() {
    let cluster = Cluster::start();
    let settings = std::fs::read_to_string(cluster.settings(DEMO_POD).path()).unwrap();
    let server = Server::start();
    for (more, named) in [
        ("snapshot_url = 'file:///snapshots'\n", "snapshot store"),
        ("[sandbox]\noptions = ['--pids=9']\n", "sandbox.options"),
        ("[sandbox]\npermission_mode = 'bypassPermissions'\n", "bypassPermissions"),
    ] {
        let file = settings_file(&format!("{more}{settings}"));
        let data = tempfile::tempdir().unwrap();
        let mut command = server.command_with_data(&data.path().join("data"));
        let output = command.arg("--config").arg(file.path()).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && error.contains(named), "{error}");
    }
}

/// `packaging/runtimes/kubernetes-server.yaml`: the files of the ConfigMap, the arguments of both containers, and the rights.
#[test]
fn packaged_manifest_fits_the_program() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/runtimes/kubernetes-server.yaml");
    let objects = YamlLoader::load_from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let object = |kind: &str| objects.iter().find(|object| object["kind"].as_str() == Some(kind)).unwrap();
    let container = |kind: &str| &object(kind)["spec"]["template"]["spec"]["containers"][0];
    let arguments = |kind: &str| {
        let arguments = container(kind)["args"].as_vec().unwrap().iter();
        arguments.map(|argument| argument.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let parse = |arguments: Vec<String>| {
        Arguments::try_parse_from(std::iter::once("saggar-server".to_owned()).chain(arguments)).unwrap()
    };
    assert!(parse(arguments("DaemonSet")).mode.is_some());

    let directory = tempfile::tempdir().unwrap();
    let files = object("ConfigMap")["data"].as_hash().unwrap();
    for (name, text) in files {
        let text = text
            .as_str()
            .unwrap()
            .replace("/etc/saggar-server/", &format!("{}/", directory.path().display()));
        std::fs::write(directory.path().join(name.as_str().unwrap()), text).unwrap();
    }
    let of_server = arguments("Deployment");
    let own = of_server
        .iter()
        .map(|argument| argument.replace("/etc/saggar-server/", &format!("{}/", directory.path().display())));
    let variable = |name: &str| (name == "KUBERNETES_SERVICE_HOST").then(|| "10.0.0.1".to_owned());
    let settings = Settings::read(parse(own.collect()), variable).unwrap();
    assert!(settings.kubernetes.is_some());

    let verbs = |rule: usize| {
        let rule = &object("Role")["rules"][rule];
        let verbs = rule["verbs"].as_vec().unwrap().iter().map(|verb| verb.as_str().unwrap());
        (rule["resources"][0].as_str().unwrap(), verbs.collect::<Vec<_>>())
    };
    assert_eq!(verbs(0), ("pods", vec!["create", "get", "list", "delete"]));
    assert_eq!(verbs(1), ("secrets", vec!["create"]));
}
