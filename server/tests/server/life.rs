//! The states of a session.

use crate::support::{Client, Server, is_gone, kill, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};

struct Session<'a> {
    client: Client,
    server: &'a Server,
    id: String,
}

impl<'a> Session<'a> {
    fn start(server: &'a Server) -> Self {
        Session { client: server.client(), server, id: server.session() }
    }

    fn path(&self, rest: &str) -> String {
        format!("/api/sessions/{}{rest}", self.id)
    }

    /// Asks for a change as clients of the seeds' server do: a content type, and nothing of that type.
    fn change(&self, verb: &str, status: u16) -> Value {
        let headers = [("content-type", "application/json"), ("content-length", "0")];
        self.client.request("POST", &self.path(&format!("/{verb}")), &headers, b"").expect(status)
    }

    fn status(&self) -> String {
        let session = self.client.get(&self.path("")).expect(200);
        session["session"]["status"].as_str().unwrap().to_owned()
    }

    fn exec(&self, command: &str) -> String {
        let answer = self.client.post(&self.path("/exec"), &json!({ "command": command })).expect(200);
        answer["stdout"].as_str().unwrap().to_owned()
    }

    fn remembers(&self, text: &str) -> bool {
        self.client.turn(&self.id, "recall").iter().any(|frame| frame.data.contains(text))
    }

    fn lifecycle(&self) -> Vec<Value> {
        let events = self.client.get(&self.path("/events?type=lifecycle")).expect(200);
        let data = |event: &Value| serde_json::from_str(event["data"].as_str().unwrap()).unwrap();
        events["events"].as_array().unwrap().iter().map(data).collect()
    }
}

#[test]
fn a_paused_session_takes_nothing_and_goes_on_when_it_is_resumed() {
    let server = Server::start();
    let session = Session::start(&server);
    session.client.turn(&session.id, "my name is Ann");
    session.exec("echo kept > kept");
    assert_eq!(session.change("pause", 200)["session"]["status"], "paused");
    assert_eq!(server.record(&session.id)["state"], "paused");
    let refused = json!({ "error": "Cannot pause session with status \"paused\"", "statusCode": 400 });
    assert_eq!(session.change("pause", 400), refused);
    let refused = session.client.post(&session.path("/messages"), &json!({ "content": "x" })).expect(400);
    assert_eq!(refused["error"], "Session is paused");
    assert_eq!(session.change("interrupt", 400)["error"], "Session is paused");

    assert_eq!(session.change("resume", 200)["session"]["status"], "active");
    assert!(session.remembers("my name is Ann"));
    assert_eq!(session.exec("cat kept"), "kept\n");
    assert_eq!(session.change("resume", 200)["session"]["status"], "active");
    let actions: Vec<_> = session.lifecycle().into_iter().map(|event| event["action"].clone()).collect();
    assert_eq!(actions, ["created", "paused", "resumed"]);
}

#[test]
fn a_stopped_session_has_no_sandbox_and_starts_again_with_all_it_had() {
    let server = Server::start();
    let session = Session::start(&server);
    session.client.turn(&session.id, "my name is Ann");
    session.exec("mkdir -p .git && echo kept > .git/kept");
    let (supervisor, sandbox) =
        (server.supervisor(&session.id), server.record(&session.id)["sandbox"].clone());
    assert_eq!(session.change("stop", 200)["session"]["status"], "stopped");
    wait_until("the supervisor is gone", || is_gone(supervisor));
    assert_eq!(session.change("stop", 400)["error"], "Cannot stop session with status \"stopped\"");

    let resumed = session.change("resume", 200);
    assert_eq!(resumed["session"]["status"], "active");
    assert_ne!(resumed["session"]["sandboxId"], sandbox);
    assert!(session.remembers("my name is Ann"));
    assert_eq!(session.exec("cat .git/kept"), "kept\n");
    let last = session.lifecycle().pop().unwrap();
    assert_eq!(last, json!({ "action": "resumed", "path": "cold", "source": "local" }));
}

#[test]
fn a_session_whose_sandbox_was_killed_can_be_resumed() {
    let server = Server::start();
    let session = Session::start(&server);
    session.client.turn(&session.id, "my name is Ann");
    kill(server.supervisor(&session.id), Signal::KILL);
    wait_until("the server notices", || session.status() == "error");
    assert_eq!(session.change("resume", 200)["session"]["status"], "active");
    assert!(session.remembers("my name is Ann"));
}

#[test]
fn an_ended_session_is_not_resumed() {
    let server = Server::start();
    let session = Session::start(&server);
    session.client.delete(&session.path("")).expect(200);
    let gone = json!({ "error": "Session has ended — create a new session", "statusCode": 410 });
    assert_eq!(session.change("resume", 410), gone);
    assert_eq!(session.change("pause", 400)["error"], "Cannot pause session with status \"ended\"");
    assert_eq!(session.change("stop", 400)["error"], "Cannot stop session with status \"ended\"");
}

#[test]
fn a_paused_session_is_paused_under_the_next_server_too() {
    let mut server = Server::start();
    let id = server.session();
    server.client().turn(&id, "my name is Ann");
    let path = format!("/api/sessions/{id}");
    server.client().post(&format!("{path}/pause"), &json!({})).expect(200);
    server.end(Signal::KILL);
    server.start_again();
    let client = server.client();
    assert_eq!(client.get(&path).expect(200)["session"]["status"], "paused");
    assert_eq!(client.post(&format!("{path}/resume"), &json!({})).expect(200)["session"]["status"], "active");
    assert!(client.turn(&id, "recall").iter().any(|frame| frame.data.contains("my name is Ann")));
}

#[test]
fn an_interrupt_ends_the_turn_and_nothing_else() {
    let server = Server::start();
    let session = Session::start(&server);
    assert_eq!(session.change("interrupt", 200), json!({ "ok": true }));
    let mut frames = session.client.send(&session.id, &json!({ "content": "run: sleep 600" }));
    while frames.next().unwrap().event != "tool_use" {}
    assert_eq!(session.change("interrupt", 200), json!({ "ok": true }));
    assert_eq!(frames.last().unwrap().event, "done");
    assert_eq!(session.client.turn(&session.id, "hi").last().unwrap().event, "done");
}

#[test]
fn changes_at_once_come_one_after_the_other() {
    let server = Server::start();
    let session = Session::start(&server);
    let changes: Vec<_> = (0..12)
        .map(|number| {
            let (client, path) = (session.client.clone(), session.path(""));
            std::thread::spawn(move || {
                let verb = ["pause", "resume", "stop"][number % 3];
                client.post(&format!("{path}/{verb}"), &json!({})).status
            })
        })
        .collect();
    for change in changes {
        assert!([200, 400].contains(&change.join().unwrap()));
    }
    assert_eq!(session.change("resume", 200)["session"]["status"], "active");
    assert_eq!(session.client.turn(&session.id, "hi").last().unwrap().event, "done");
}
