//! Pause, resume, stop, end and interrupt.

use crate::support::{Client, Server, has_exited, send_signal, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};

/// A session, and a client of its server.
struct Session {
    client: Client,
    id: String,
}

impl Session {
    fn start(server: &Server) -> Self {
        Session { client: server.client(), id: server.create_session() }
    }

    fn path(&self, rest: &str) -> String {
        format!("/api/sessions/{}{rest}", self.id)
    }

    /// Requests a change as the Python client of Ash does: with a JSON content type and an empty body.
    fn request_change(&self, verb: &str, status: u16) -> Value {
        let headers = [("content-type", "application/json"), ("content-length", "0")];
        self.client.request("POST", &self.path(&format!("/{verb}")), &headers, b"").expect(status)
    }

    fn status(&self) -> String {
        let session = self.client.get(&self.path("")).expect(200);
        session["session"]["status"].as_str().unwrap().to_owned()
    }

    fn exec(&self, command: &str) -> String {
        let response = self.client.post(&self.path("/exec"), &json!({ "command": command })).expect(200);
        response["stdout"].as_str().unwrap().to_owned()
    }

    fn remembers(&self, text: &str) -> bool {
        self.client.run_turn(&self.id, "recall").iter().any(|frame| frame.data.contains(text))
    }

    fn lifecycle(&self) -> Vec<Value> {
        let events = self.client.get(&self.path("/events?type=lifecycle")).expect(200);
        let data = |event: &Value| serde_json::from_str(event["data"].as_str().unwrap()).unwrap();
        events["events"].as_array().unwrap().iter().map(data).collect()
    }
}

#[test]
fn paused_session_refuses_messages_until_resumed() {
    let server = Server::start();
    let session = Session::start(&server);
    session.client.run_turn(&session.id, "my name is Ann");
    session.exec("echo kept > kept");
    assert_eq!(session.request_change("pause", 200)["session"]["status"], "paused");
    assert_eq!(server.session_record(&session.id)["state"], "paused");
    let refused = json!({ "error": "Cannot pause session with status \"paused\"", "statusCode": 400 });
    assert_eq!(session.request_change("pause", 400), refused);
    let refused = session.client.post(&session.path("/messages"), &json!({ "content": "x" })).expect(400);
    assert_eq!(refused["error"], "Session is paused");
    assert_eq!(session.request_change("interrupt", 400)["error"], "Session is paused");

    assert_eq!(session.request_change("resume", 200)["session"]["status"], "active");
    assert!(session.remembers("my name is Ann"));
    assert_eq!(session.exec("cat kept"), "kept\n");
    assert_eq!(session.request_change("resume", 200)["session"]["status"], "active");
    let actions: Vec<_> = session.lifecycle().into_iter().map(|event| event["action"].clone()).collect();
    assert_eq!(actions, ["created", "paused", "resumed"]);
}

#[test]
fn stopped_session_resumes_in_new_sandbox_with_workspace_and_conversation() {
    let server = Server::start();
    let session = Session::start(&server);
    session.client.run_turn(&session.id, "my name is Ann");
    session.exec("mkdir -p .git && echo kept > .git/kept");
    let (supervisor, sandbox) =
        (server.supervisor(&session.id), server.session_record(&session.id)["sandbox"].clone());
    assert_eq!(session.request_change("stop", 200)["session"]["status"], "stopped");
    wait_until("the supervisor has exited", || has_exited(supervisor));
    assert_eq!(session.request_change("stop", 400)["error"], "Cannot stop session with status \"stopped\"");

    let resumed = session.request_change("resume", 200);
    assert_eq!(resumed["session"]["status"], "active");
    assert_ne!(resumed["session"]["sandboxId"], sandbox);
    assert!(session.remembers("my name is Ann"));
    assert_eq!(session.exec("cat .git/kept"), "kept\n");
    let last = session.lifecycle().pop().unwrap();
    assert_eq!(last, json!({ "action": "resumed", "path": "cold", "source": "local" }));
}

#[test]
fn killed_sandbox_can_be_resumed() {
    let server = Server::start();
    let session = Session::start(&server);
    session.client.run_turn(&session.id, "my name is Ann");
    send_signal(server.supervisor(&session.id), Signal::KILL);
    wait_until("the session has the status error", || session.status() == "error");
    assert_eq!(session.request_change("resume", 200)["session"]["status"], "active");
    assert!(session.remembers("my name is Ann"));
}

#[test]
fn ended_session_cannot_be_resumed() {
    let server = Server::start();
    let session = Session::start(&server);
    session.client.delete(&session.path("")).expect(200);
    let expected = json!({ "error": "Session has ended — create a new session", "statusCode": 410 });
    assert_eq!(session.request_change("resume", 410), expected);
    assert_eq!(session.request_change("pause", 400)["error"], "Cannot pause session with status \"ended\"");
    assert_eq!(session.request_change("stop", 400)["error"], "Cannot stop session with status \"ended\"");
}

#[test]
fn paused_session_remains_paused_after_server_restart() {
    let mut server = Server::start();
    let id = server.create_session();
    server.client().run_turn(&id, "my name is Ann");
    let path = format!("/api/sessions/{id}");
    server.client().post(&format!("{path}/pause"), &json!({})).expect(200);
    server.stop(Signal::KILL);
    server.restart();
    let client = server.client();
    assert_eq!(client.get(&path).expect(200)["session"]["status"], "paused");
    assert_eq!(client.post(&format!("{path}/resume"), &json!({})).expect(200)["session"]["status"], "active");
    assert!(client.run_turn(&id, "recall").iter().any(|frame| frame.data.contains("my name is Ann")));
}

#[test]
fn interrupt_ends_only_the_current_turn() {
    let server = Server::start();
    let session = Session::start(&server);
    assert_eq!(session.request_change("interrupt", 200), json!({ "ok": true }));
    let mut frames = session.client.send(&session.id, &json!({ "content": "run: sleep 600" }));
    while frames.next().unwrap().event != "tool_use" {}
    assert_eq!(session.request_change("interrupt", 200), json!({ "ok": true }));
    assert_eq!(frames.last().unwrap().event, "done");
    assert_eq!(session.client.run_turn(&session.id, "hi").last().unwrap().event, "done");
}

#[test]
fn concurrent_changes_are_serialized() {
    let server = Server::start();
    let session = Session::start(&server);
    let changes: Vec<_> = (0..12)
        .map(|number| {
            let (client, path) = (session.client.clone(), session.path(""));
            std::thread::spawn(move || {
                let verb = ["pause", "resume", "stop"][number % 3];
                let answer = client.post(&format!("{path}/{verb}"), &json!({}));
                assert!([200, 400].contains(&answer.status), "{verb}: {answer:?}");
            })
        })
        .collect();
    for change in changes {
        change.join().unwrap();
    }
    assert_eq!(session.request_change("resume", 200)["session"]["status"], "active");
    assert_eq!(session.client.run_turn(&session.id, "hi").last().unwrap().event, "done");
}

#[test]
fn session_that_the_operator_froze_is_resumed() {
    let server = Server::start();
    let session = Session::start(&server);
    if !server.try_saggar(&["pause", &session.id]) {
        // An ordinary user may have no cgroup: nothing can be frozen, and the session goes on.
        assert!(!rustix::process::geteuid().is_root(), "root can freeze a session");
        assert_eq!(session.client.run_turn(&session.id, "hi").last().unwrap().event, "done");
        return;
    }
    let frames = session.client.run_turn(&session.id, "hi");
    assert_eq!(frames.last().unwrap().event, "error");
    assert_eq!(session.request_change("resume", 200)["session"]["status"], "active");
    assert_eq!(session.client.run_turn(&session.id, "hi").last().unwrap().event, "done");
}

#[test]
fn session_that_the_operator_ended_is_ended() {
    let server = Server::start();
    for verb in ["stop", "pause"] {
        let session = Session::start(&server);
        session.request_change(verb, 200);
        server.saggar(&["end", &session.id]);
        if verb == "stop" {
            session.request_change("resume", 410);
        }
        let ended = session.client.delete(&session.path("")).expect(200);
        assert_eq!(ended["session"]["status"], "ended");
    }
}

#[test]
fn agent_is_deleted_while_its_sessions_change() {
    let server = Server::start();
    for _ in 0..3 {
        let sessions: Vec<String> = (0..4).map(|_| server.create_session()).collect();
        let changes: Vec<_> = sessions
            .iter()
            .map(|session| {
                let (client, path) = (server.client(), format!("/api/sessions/{session}"));
                std::thread::spawn(move || {
                    client.post(&format!("{path}/stop"), &json!({}));
                    client.post(&format!("{path}/resume"), &json!({}));
                })
            })
            .collect();
        server.client().delete("/api/agents/hello").expect(200);
        changes.into_iter().for_each(|change| change.join().unwrap());
        assert_eq!(server.client().get("/api/sessions").expect(200)["sessions"], json!([]));
        assert_eq!(server.saggar(&["list", "--json"]), "");
    }
}
