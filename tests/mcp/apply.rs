//! `apply` asks a person first, and applies what it has asked about.

use std::fs;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::stage::{client, command, consenting_client, dev, error, shell};
use crate::processes::account::Account;
use crate::session::stage::Sessions;
use crate::support::caller::Caller;
use crate::support::mcp_client::{CallResult, McpClient};
use crate::support::process::Watch;

/// The first version in which servers send no requests.
const STATELESS: &str = "2026-07-28";

/// A session that was ended, with two changes.
fn changed(caller: Caller) -> Sessions {
    let sessions = dev(caller);
    let mut client = client(&sessions, &["dev"]);
    shell(&mut client, "echo two >> a.txt; echo new > b.txt");
    sessions.ok(&["end", "dev"]);
    sessions
}

fn folder_file(sessions: &Sessions, name: &str) -> String {
    fs::read_to_string(sessions.stage.work().join(name)).unwrap_or_default()
}

fn assert_unchanged(sessions: &Sessions) {
    assert_eq!(
        (folder_file(sessions, "a.txt").as_str(), folder_file(sessions, "b.txt").as_str()),
        ("one\n", "")
    );
}

fn assert_applied(sessions: &Sessions) {
    let files = (folder_file(sessions, "a.txt"), folder_file(sessions, "b.txt"));
    assert_eq!((files.0.as_str(), files.1.as_str()), ("one\ntwo\n", "new\n"));
}

/// A call as a client of [`STATELESS`] makes it: without a greeting, with all that the server needs.
fn stateless(client: &mut McpClient, call: Value) -> Value {
    let mut params = call;
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": STATELESS,
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": client.capabilities(),
    });
    client.request("tools/call", &params)
}

as_each_caller! {
    fn changes_are_applied_with_consent_alone(caller) {
        let sessions = changed(caller);
        let folder = sessions.stage.work();
        for action in ["decline", "cancel"] {
            let mut client = consenting_client(&sessions, action);
            assert_eq!(error(&mut client, "apply", json!({})), "the person did not consent; nothing was done");
            assert_eq!(
                client.asked,
                [format!("Apply these changes of the session dev to {}?\n\nM a.txt\nA b.txt\n", folder.display())]
            );
            assert_unchanged(&sessions);
        }
        let mut client = consenting_client(&sessions, "accept");
        let result = client.call("apply", json!({ "paths": ["b.txt"] }));
        assert_eq!(result.structured["changes"], json!(["A b.txt"]), "{result:?}");
        assert_eq!((folder_file(&sessions, "a.txt").as_str(), folder_file(&sessions, "b.txt").as_str()), ("one\n", "new\n"));
        let result = client.call("apply", json!({}));
        assert_eq!(result.text, format!("Applied to {}:\nM a.txt", folder.display()));
        assert_applied(&sessions);
        // Without changes nothing is asked.
        let result = client.call("apply", json!({}));
        assert_eq!((result.text.as_str(), client.asked.len()), ("Nothing has changed.", 2));
    }

    fn a_client_that_cannot_ask_applies_nothing(caller) {
        let sessions = changed(caller);
        let mut client = client(&sessions, &["dev"]);
        assert_eq!(
            error(&mut client, "apply", json!({})),
            "this needs the consent of a person, and the client cannot ask\n\
             a person can apply the changes: saggar session apply dev"
        );
        assert_unchanged(&sessions);
        sessions.ok(&["apply", "dev"]);
        assert_applied(&sessions);
    }

    fn a_call_of_the_newest_protocol_is_made_again_with_the_consent(caller) {
        let sessions = changed(caller);
        let call = |answer: Option<(&Value, &str)>| {
            let mut call = json!({ "name": "apply", "arguments": { "session": "dev" } });
            if let Some((state, action)) = answer {
                call["requestState"] = state.clone();
                call["inputResponses"] = json!({ "consent": { "action": action, "content": {} } });
            }
            call
        };
        let mut client =
            McpClient::of(&sessions.stage.place, command(&sessions, &["--session", "dev"])).consenting("accept");
        let ask = |client: &mut McpClient| {
            let asked = stateless(client, call(None))["result"].clone();
            assert_eq!(asked["resultType"], "input_required", "{asked}");
            let question = &asked["inputRequests"]["consent"];
            assert_eq!(question["method"], "elicitation/create", "{asked}");
            assert!(question["params"]["message"].as_str().unwrap().contains("M a.txt\nA b.txt"), "{asked}");
            asked["requestState"].clone()
        };
        let is_refused = |client: &mut McpClient, call: Value| {
            let result = CallResult::of(&stateless(client, call));
            assert!(result.is_error && result.text.contains("nothing was done"), "{result:?}");
            assert_unchanged(&sessions);
        };
        let state = ask(&mut client);
        is_refused(&mut client, call(Some((&json!("00"), "accept"))));
        let mut other = call(Some((&state, "accept")));
        other["arguments"]["paths"] = json!(["b.txt"]);
        is_refused(&mut client, other);
        // A wrong use has ended the question.
        is_refused(&mut client, call(Some((&state, "accept"))));
        let state = ask(&mut client);
        is_refused(&mut client, call(Some((&state, "decline"))));
        let state = ask(&mut client);
        let result = CallResult::of(&stateless(&mut client, call(Some((&state, "accept")))));
        assert!(!result.is_error, "{result:?}");
        assert_applied(&sessions);
    }

    /// What was asked about is what is applied: until the answer comes, nothing starts the sandbox.
    fn the_session_is_held_until_the_answer(caller) {
        let sessions = dev(caller);
        let mut before = client(&sessions, &["dev"]);
        shell(&mut before, "echo two >> a.txt; echo new > b.txt");
        let supervisor = sessions.show("dev")["supervisor"]["pid"].as_u64().unwrap();
        let supervisor = Watch::of(u32::try_from(supervisor).unwrap()).unwrap();
        supervisor.signal(Signal::SIGKILL);
        supervisor.wait_gone("the supervisor");

        let mut client =
            McpClient::of(&sessions.stage.place, command(&sessions, &["--session", "dev"])).consenting("accept");
        let asked = stateless(&mut client, json!({ "name": "apply", "arguments": {} }))["result"].clone();
        assert_eq!(asked["resultType"], "input_required", "{asked}");
        for words in [&["resume", "dev"][..], &["apply", "dev"], &["end", "dev"]] {
            sessions.run(words).refused(125, &["another command works on session dev", "saggar mcp control"]);
        }
        // A call that is made again withdraws the question of the first one.
        let again = stateless(&mut client, json!({ "name": "apply", "arguments": {} }))["result"].clone();
        assert_eq!(again["resultType"], "input_required", "{again}");
        // A server that is killed leaves nothing held, and nothing done.
        let broker = Account::children(client.pid())[0].pid;
        let holder = Watch::of(Account::children(broker)[0].pid).unwrap();
        client.kill();
        holder.wait_gone("the process that holds the session");
        assert_unchanged(&sessions);
        let mut client = consenting_client(&sessions, "accept");
        client.call("apply", json!({}));
        assert_applied(&sessions);
    }

    /// A person sees every change, or none is applied.
    fn more_changes_than_a_person_reads_are_not_asked_about(caller) {
        let sessions = dev(caller);
        let mut before = client(&sessions, &["dev"]);
        shell(&mut before, "mkdir many && cd many && seq 201 | xargs touch; echo x > ../z.txt");
        sessions.ok(&["end", "dev"]);
        let mut client = consenting_client(&sessions, "accept");
        let text = error(&mut client, "apply", json!({}));
        assert!(text.starts_with("203 changes are too many for a question; at most 200\nname paths"), "{text}");
        assert!(client.asked.is_empty());
        assert!(!sessions.stage.work().join("z.txt").exists());
        client.call("apply", json!({ "paths": ["z.txt"] }));
        assert!(sessions.stage.work().join("z.txt").exists());
    }

    fn what_is_never_applied_is_not_asked_about(caller) {
        let sessions = dev(caller);
        let mut before = client(&sessions, &["dev"]);
        shell(&mut before, "ln -s /etc/passwd link");
        sessions.ok(&["end", "dev"]);
        let mut client = consenting_client(&sessions, "accept");
        let text = error(&mut client, "apply", json!({}));
        assert!(text.contains("link") && text.contains("--allow-links"), "{text}");
        assert!(client.asked.is_empty(), "{:?}", client.asked);
    }
}
