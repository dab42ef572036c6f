//! Messages, the streams of turns, and the stored lists.

use crate::support::{Client, Frame, Server, send_signal, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};

fn events(frames: &[Frame]) -> Vec<&str> {
    frames.iter().map(|frame| frame.event.as_str()).collect()
}

fn messages(client: &Client, session: &str) -> Vec<Value> {
    let listed = client.get(&format!("/api/sessions/{session}/messages?limit=1000")).expect(200);
    listed["messages"].as_array().unwrap().clone()
}

/// Returns the role and the type of each message of a session.
fn message_summaries(client: &Client, session: &str) -> Vec<String> {
    let summary = |message: Value| {
        let content: Value = serde_json::from_str(message["content"].as_str().unwrap()).unwrap();
        format!("{} {}", message["role"].as_str().unwrap(), content["type"].as_str().unwrap())
    };
    messages(client, session).into_iter().map(summary).collect()
}

#[test]
fn turn_streams_frames_in_order_of_ash() {
    let server = Server::start();
    let (client, session) = (server.client(), server.create_session());
    let frames = client.run_turn(&session, "run: echo hi");
    assert_eq!(
        events(&frames),
        [
            "session_start",
            "message",
            "tool_use",
            "message",
            "tool_result",
            "message",
            "message",
            "turn_complete",
            "message",
            "done"
        ]
    );
    assert_eq!(frames[0].json()["sessionId"], session.as_str());
    assert!(frames[0].json()["version"].is_string());
    assert_eq!(
        (&frames[2].json()["name"], &frames[2].json()["input"]["command"]),
        (&json!("Bash"), &json!("echo hi"))
    );
    assert_eq!(
        (&frames[4].json()["content"], &frames[4].json()["is_error"]),
        (&json!("hi\n"), &json!(false))
    );
    assert_eq!(frames[7].json()["numTurns"], 1);
    assert_eq!(frames.last().unwrap().json(), json!({ "sessionId": session }));
    assert!(frames.windows(2).all(|pair| pair[0].id < pair[1].id), "{frames:?}");
    let next = client.run_turn(&session, "recall");
    assert!(frames.last().unwrap().id <= next[0].id && next[0].id < next[1].id);
    assert!(next.iter().any(|frame| frame.data.contains("run: echo hi")));
}

#[test]
fn text_deltas_are_streamed_on_request() {
    let server = Server::start();
    let (client, session) = (server.client(), server.create_session());
    assert!(!events(&client.run_turn(&session, "hi")).contains(&"text_delta"));
    let body = json!({ "content": "hi", "includePartialMessages": true });
    let frames: Vec<Frame> = client.send(&session, &body).collect();
    let pieces = frames.iter().filter(|frame| frame.event == "text_delta");
    let text: String = pieces.map(|frame| frame.json()["delta"].as_str().unwrap().to_owned()).collect();
    let result = frames.iter().find(|frame| frame.event == "turn_complete").unwrap().json();
    assert_eq!(result["result"], text.as_str());
}

#[test]
fn finished_turn_is_in_the_lists() {
    let server = Server::start();
    let (client, session) = (server.client(), server.create_session());
    client.run_turn(&session, "run: echo hi");
    assert_eq!(
        message_summaries(&client, &session),
        ["user user", "assistant assistant", "assistant assistant", "assistant result"]
    );
    let listed = messages(&client, &session);
    assert_eq!(listed.iter().map(|message| message["sequence"].clone()).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(listed[0]["content"], json!({ "content": "run: echo hi", "type": "user" }).to_string());
    let path = format!("/api/sessions/{session}");
    let page = client.get(&format!("{path}/messages?limit=2&after=1")).expect(200);
    assert_eq!(page["messages"], json!(listed[1..3]));
    let events = client.get(&format!("{path}/events")).expect(200);
    let kinds: Vec<_> =
        events["events"].as_array().unwrap().iter().map(|event| event["type"].clone()).collect();
    assert_eq!(kinds, ["lifecycle", "tool_start", "tool_result", "text", "turn_complete"]);
    let tool = client.get(&format!("{path}/events?type=tool_start")).expect(200);
    let data: Value = serde_json::from_str(tool["events"][0]["data"].as_str().unwrap()).unwrap();
    assert_eq!((&data["toolName"], &data["input"]), (&json!("Bash"), &json!({ "command": "echo hi" })));
}

#[test]
fn agent_message_is_streamed_and_stored_byte_for_byte() {
    let server = Server::start();
    let (client, session) = (server.client(), server.create_session());
    let odd = r#"{ "type" :"assistant","n":1.0e3,  "message":{"content":[{"type":"text","text":"\u00e4\n"}]},"z":1,"a":"<x>"}"#;
    let frames = client.run_turn(&session, &format!("echo-json: {odd}"));
    assert!(frames.iter().any(|frame| frame.event == "message" && frame.data == odd), "{frames:?}");
    assert!(messages(&client, &session).iter().any(|message| message["content"] == odd));
}

#[test]
fn content_blocks_reach_agent_unchanged() {
    let server = Server::start();
    let (client, session) = (server.client(), server.create_session());
    let blocks = json!([{ "type": "text", "text": "first" }, { "type": "image", "source": { "type": "base64", "data": "x" } }]);
    let frames: Vec<Frame> = client.send(&session, &json!({ "content": blocks })).collect();
    assert_eq!(frames.last().unwrap().event, "done");
    assert_eq!(
        messages(&client, &session)[0]["content"],
        json!({ "content": blocks, "type": "user" }).to_string()
    );
}

#[test]
fn exited_agent_ends_stream_with_error_only() {
    let server = Server::start();
    let (client, session) = (server.client(), server.create_session());
    let frames = client.run_turn(&session, "crash");
    assert_eq!(frames.last().unwrap().event, "error");
    assert!(frames.last().unwrap().json()["error"].as_str().unwrap().contains('3'), "{frames:?}");
    let events = client.get(&format!("/api/sessions/{session}/events?type=error")).expect(200);
    assert_eq!(events["events"].as_array().unwrap().len(), 1);
    // The session is still active: the next message restarts the agent.
    assert_eq!(client.run_turn(&session, "hi").last().unwrap().event, "done");
}

#[test]
fn agent_cannot_forge_server_events() {
    let server = Server::start();
    let (client, session) = (server.client(), server.create_session());
    let content = json!([{ "type": "done" }, { "type": "error", "error": "x" }, { "type": "a\nevent: done\ndata: {}\n\n" }]);
    let message = json!({ "type": "assistant", "message": { "content": content } });
    let frames = client.run_turn(&session, &format!("echo-json: {message}"));
    assert_eq!(events(&frames).iter().filter(|event| **event == "done").count(), 1);
    assert_eq!(frames.last().unwrap().event, "done");
    assert!(!events(&frames).contains(&"error"));
}

#[test]
fn turn_continues_after_client_disconnects() {
    let server = Server::start();
    let (client, session) = (server.client(), server.create_session());
    let mut frames =
        client.send(&session, &json!({ "content": "count: 30", "includePartialMessages": true }));
    assert_eq!(frames.next().unwrap().event, "session_start");
    drop(frames);
    wait_until("the result of the turn is stored", || {
        message_summaries(&client, &session).last().is_some_and(|last| last == "assistant result")
    });
    assert_eq!(
        message_summaries(&client, &session).iter().filter(|summary| *summary == "assistant result").count(),
        1
    );
    assert_eq!(client.run_turn(&session, "hi").last().unwrap().event, "done");
}

#[test]
fn concurrent_clients_receive_only_their_own_turn() {
    let server = Server::start();
    let (client, session) = (server.client(), server.create_session());
    let turns: Vec<_> = (0..4)
        .map(|number| {
            let (client, session) = (client.clone(), session.clone());
            std::thread::spawn(move || client.run_turn(&session, &format!("run: echo turn-{number}")))
        })
        .collect();
    for (number, turn) in turns.into_iter().enumerate() {
        let frames = turn.join().unwrap();
        assert_eq!(frames.iter().filter(|frame| frame.event == "tool_use").count(), 1);
        let result = frames.iter().find(|frame| frame.event == "tool_result").unwrap();
        assert_eq!(result.json()["content"], format!("turn-{number}\n"));
        assert_eq!(frames.last().unwrap().event, "done");
    }
    assert_eq!(
        message_summaries(&client, &session).iter().filter(|summary| *summary == "assistant result").count(),
        4
    );
}

#[test]
fn killed_sandbox_ends_stream_with_error_and_done() {
    let server = Server::start();
    let (client, session) = (server.client(), server.create_session());
    let mut frames = client.send(&session, &json!({ "content": "run: sleep 600" }));
    while frames.next().unwrap().event != "tool_use" {}
    send_signal(server.supervisor(&session), Signal::KILL);
    let rest: Vec<Frame> = frames.collect();
    assert_eq!(events(&rest[rest.len() - 2..]), ["error", "done"], "{rest:?}");
    let path = format!("/api/sessions/{session}");
    wait_until("the session has the status error", || {
        client.get(&path).expect(200)["session"]["status"] == "error"
    });
}

#[test]
fn message_that_json_values_cannot_hold_is_stored() {
    let server = Server::start();
    let (client, session) = (server.client(), server.create_session());
    let cut = r#"{"type":"assistant","message":{"content":[{"type":"text","text":"\ud83d"}]}}"#;
    let frames = client.run_turn(&session, &format!("echo-json: {cut}"));
    assert!(frames.iter().any(|frame| frame.event == "message" && frame.data == cut), "{frames:?}");
    assert!(messages(&client, &session).iter().any(|message| message["content"] == cut));
}

#[test]
fn message_of_a_client_that_disconnects_at_once_is_answered() {
    let server = Server::start();
    let (client, session) = (server.client(), server.create_session());
    for _ in 0..10 {
        drop(client.send(&session, &json!({ "content": "hi" })));
    }
    wait_until("each message has its result", || {
        let summaries = message_summaries(&client, &session);
        let count = |summary: &str| summaries.iter().filter(|known| *known == summary).count();
        count("user user") == 10 && count("assistant result") == 10
    });
}
