//! The client of the library (`saggar::bridge::client`), and the example that holds a conversation with it.

use std::time::Duration;

use saggar::bridge::client::{BridgeClient, ClientCommand, EventBody, ReceivedEvent};
use saggar::control::client::ControlClient;
use serde_json::{Value, json};

use super::served::Stage;
use crate::embed::example;
use crate::support::deadline::Deadline;

/// The odd bytes of an agent's line.
const ODD: &str = r#"{"type":"assistant", "a":1e400,"a":2.50,"s":"\u0000\ud800","ev":"x" }"#;

fn connect(served: &super::served::Served) -> BridgeClient {
    BridgeClient::connect_with_timeout(&served.socket, Deadline::usual().remaining()).unwrap()
}

/// A turn: the messages as they came, and the end.
fn turn(client: &mut BridgeClient, command: &ClientCommand) -> (Vec<String>, ReceivedEvent) {
    let mut messages = Vec::new();
    let end = client.run(command, |event| {
        messages.extend(event.message().map(str::to_owned));
        Ok(())
    });
    (messages, end.unwrap())
}

as_each_caller! {
    fn a_conversation_by_the_client(caller) {
        let stage = Stage::new(caller);
        let served = stage.demo();
        let mut client = connect(&served);
        let (messages, end) = turn(&mut client, &ClientCommand::query("hi", "s").with_id("first"));
        assert!(messages.iter().any(|message| message.contains("Hello!")), "{messages:?}");
        assert_eq!((end.body(), end.id().unwrap().as_json()), (&EventBody::Done("s".into()), "\"first\""));
        // The answer to a request of the agent goes between.
        client.send(&ClientCommand::query("ask: echo asked", "s")).unwrap();
        let mut said = Vec::new();
        loop {
            let event = client.receive().unwrap().expect("the turn has an end");
            if event.is_terminal() {
                break;
            }
            let message: Value = serde_json::from_str(event.message().unwrap()).unwrap();
            if message["type"] == "control_request" {
                client.send(&ClientCommand::answer(&message, json!({ "behavior": "allow" }))).unwrap();
            }
            said.push(message["message"]["content"][0]["content"].clone());
        }
        assert!(said.contains(&json!("asked\n")), "{said:?}");
        let exec = ClientCommand::exec("echo out; echo err >&2; exit 3", Some(Duration::from_secs(60)));
        let mut result = None;
        client.run(&exec, |event| {
            result = Some(event.body().clone());
            Ok(())
        }).unwrap();
        let Some(EventBody::ExecResult(result)) = result else { panic!("no result: {result:?}") };
        assert_eq!((result.exit_code, result.stdout.as_str(), result.stderr.as_str()), (3, "out\n", "err\n"));
        let (_, end) = turn(&mut client, &ClientCommand::query("hi", "another"));
        assert!(matches!(end.body(), EventBody::Error(_)), "{end:?}");
        client.send(&ClientCommand::shutdown()).unwrap();
        assert_eq!(client.receive().unwrap(), None);
        assert!(served.end().0.success());
    }

    /// What was lost with a connection comes on the next one, byte for byte and in order, without a gap.
    fn the_client_goes_on_where_its_connection_was_lost(caller) {
        let stage = Stage::new(caller);
        let agent = format!("#!/bin/sh\nwhile read -r line; do\necho '{ODD}'\necho '{{\"type\":\"result\"}}'\ndone\n");
        let agent = stage.script("agent", &agent);
        let served = stage.serve(&["--adapter", "stream-json", "--agent-cmd", &agent, "--spool"]);
        let mut client = connect(&served);
        turn(&mut client, &ClientCommand::replay(0));
        let (messages, _) = turn(&mut client, &ClientCommand::query("x", "s"));
        assert_eq!(messages[0], ODD);
        let last = client.last_number().unwrap();
        drop(client);
        let mut other = connect(&served);
        let (missed, _) = turn(&mut other, &ClientCommand::query("y", "s"));
        let mut client = connect(&served);
        client.replay(last).unwrap();
        let mut numbers = Vec::new();
        let mut again = Vec::new();
        while again.len() < missed.len() {
            let event = client.receive().unwrap().unwrap();
            numbers.extend(event.number());
            again.extend(event.message().map(str::to_owned));
        }
        assert_eq!(again, missed);
        assert_eq!(numbers, (last + 1..).take(numbers.len()).collect::<Vec<_>>());
        drop(served);
    }

    fn the_control_socket_has_a_client(caller) {
        let stage = Stage::new(caller);
        let control = stage.place.join("control.sock");
        let served = stage.serve(&["--adapter", "demo", "--control-socket", control.to_str().unwrap()]);
        let mut client = ControlClient::connect(&control).unwrap();
        assert_eq!(client.call("state", &json!({})).unwrap()["session"]["state"], "active");
        assert!(client.call("no.such.method", &json!({})).is_err());
        client.call("shutdown", &json!({})).unwrap();
        assert!(served.end().0.success());
    }

    /// A program of thirty lines outside of `src`.
    fn the_example_holds_a_conversation(caller) {
        let stage = Stage::new(caller);
        let served = stage.demo();
        let mut command = stage.place.command(&stage.place.reachable(&example("conversation")));
        command.arg(&served.socket).args(["hi", "run: echo from inside"]);
        let ended = stage.run(command);
        assert_eq!(ended.code, 0, "{ended:?}");
        assert!(ended.stdout.starts_with("> hi\nHello!"), "{ended:?}");
        assert!(ended.stdout.ends_with("> run: echo from inside\nthe command ended with code 0\n"), "{ended:?}");
        drop(served);
    }
}
