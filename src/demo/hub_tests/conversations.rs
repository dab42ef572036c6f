//! Conversations with the demo agent through the socket.

use super::*;

fn kinds(events: &[serde_json::Value]) -> Vec<&str> {
    let kind = |event: &'_ serde_json::Value| event["data"]["type"].as_str().is_some();
    events
        .iter()
        .map(|e| if kind(e) { e["data"]["type"].as_str() } else { e["ev"].as_str() }.unwrap())
        .collect()
}

#[test]
fn bp_01_bp_04_bp_07_a_conversation_over_the_socket() {
    let mut rig = Rig::demo();
    for _ in 0..3 {
        let mut client = rig.connect();
        let events = rig.while_client(move || {
            client.query("hi");
            client.turn()
        });
        assert_eq!(kinds(&events), ["ready", "system", "assistant", "result", "done"]);
    }
    rig.until(|rig| rig.hub.connection_count() == 0);
}

#[test]
fn bp_09_an_interrupt_over_the_socket_ends_a_count() {
    let mut rig = Rig::demo();
    let mut client = rig.connect();
    let events = rig.while_client(move || {
        client.query("count: 100000");
        client.hear();
        client.hear();
        client.say(r#"{"cmd":"interrupt"}"#);
        client.turn()
    });
    assert_eq!(kinds(&events), ["result", "done"]);
}

#[test]
fn rb_28_a_question_and_its_answer_travel_through_the_bridge() {
    let mut rig = Rig::demo();
    let mut client = rig.connect();
    let events = rig.while_client(move || {
        client.query("ask: echo asked");
        let [_ready, _init, ask] = [(); 3].map(|()| client.hear().unwrap());
        let id = ask["data"]["request_id"].as_str().unwrap();
        client.say(&format!(
            r#"{{"type":"control_response","response":{{"request_id":"{id}","subtype":"success","response":{{"behavior":"allow"}}}}}}"#
        ));
        client.turn()
    });
    assert_eq!(kinds(&events), ["assistant", "user", "assistant", "result", "done"]);
    assert_eq!(events[1]["data"]["message"]["content"][0]["content"], "asked\n");
}

#[test]
fn bp_10_a_shutdown_said_and_gone_is_heard() {
    let mut rig = Rig::demo();
    let mut client = rig.connect();
    client.say(r#"{"cmd":"shutdown"}"#);
    drop(client);
    rig.until(|rig| rig.shut);
    rig.hub.stop_listening();
    assert!(!rig.path.exists());
}

#[test]
fn bp_21_the_result_of_an_exec_and_its_done_arrive_in_one_read() {
    let mut rig = Rig::demo();
    let mut client = rig.connect();
    rig.while_client(move || {
        client.hear();
        for round in 0..1000 {
            client.say(&format!(r#"{{"cmd":"exec","command":"{round}"}}"#));
            let mut chunk = [0; 4096];
            let count = client.reader.get_mut().read(&mut chunk).unwrap();
            let expected = format!(
                "{{\"ev\":\"exec_result\",\"exitCode\":0,\"stdout\":\"{round}\",\"stderr\":\"\"}}\n\
                 {{\"ev\":\"done\",\"sessionId\":\"\"}}\n"
            );
            assert_eq!(std::str::from_utf8(&chunk[..count]).unwrap(), expected);
        }
    });
}

#[test]
fn bp_25_a_query_and_an_exec_at_once_on_two_connections() {
    let mut rig = Rig::demo();
    let (mut asking, mut running) = (rig.connect(), rig.connect());
    let (turn, exec) = rig.while_client(move || {
        asking.query("count: 20");
        asking.hear();
        running.hear();
        running.say(r#"{"cmd":"exec","command":"now"}"#);
        let exec = running.turn();
        (asking.turn(), exec)
    });
    assert_eq!(kinds(&exec), ["exec_result", "done"]);
    assert_eq!(kinds(&turn), ["system", "assistant", "result", "done"]);
}

#[test]
fn a_half_closed_connection_is_answered_and_then_closed() {
    let mut rig = Rig::demo();
    let mut client = rig.connect();
    let events = rig.while_client(move || {
        client.query("hi");
        client.reader.get_mut().shutdown(std::net::Shutdown::Write).unwrap();
        let events = client.turn();
        assert!(client.hear().is_none());
        events
    });
    assert_eq!(kinds(&events).last(), Some(&"done"));
    assert_eq!(rig.hub.connection_count(), 0);
}

#[test]
fn bp_33_no_translated_name_ever_leaves() {
    let mut rig = Rig::demo();
    let mut client = rig.connect();
    let events = rig.while_client(move || {
        let mut events = Vec::new();
        for prompt in ["hi", "run: true", "count: 2", "echo-json: [1]"] {
            client.query(prompt);
            events.extend(client.turn());
        }
        client.say("nonsense");
        events.extend(client.turn());
        events
    });
    for event in &events {
        let ev = event["ev"].as_str().unwrap();
        assert!(["ready", "message", "error", "done"].contains(&ev), "{event}");
    }
}
