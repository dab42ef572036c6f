//! What the tools take and return.

use serde_json::{Value, json};

use super::mcp_client::{McpClient, VERSION, run_directory};
use crate::support::place::Place;

/// The example conversation of the reference.
pub(crate) const CONVERSATION: [(&str, &str, &str, &str, &str); 6] = [
    ("claude", "codex", "task", "Add email validation to LoginForm", ""),
    ("codex", "claude", "result", "Added validateEmail function...", ""),
    ("claude", "codex", "review", "Please add error message display", ""),
    ("codex", "claude", "result", "Added error message UI...", ""),
    ("codex", "", "signal", "Validation complete", "DONE"),
    ("claude", "", "signal", "Looks good", "PASS"),
];

fn schema(properties: &[(&str, &str)], required: &[&str]) -> Value {
    let properties: serde_json::Map<String, Value> = properties
        .iter()
        .map(|(name, description)| {
            ((*name).to_owned(), json!({ "type": "string", "description": description }))
        })
        .collect();
    let mut schema = json!({ "type": "object", "properties": properties, "additionalProperties": false });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

/// Sends the example conversation, and looks at what its two agents receive and at the file.
pub(super) fn assert_example_conversation(place: &Place, clients: (McpClient, McpClient)) {
    let (mut claude, mut codex) = clients;
    for (from, to, message_type, content, signal) in CONVERSATION {
        let (sender, receiver) =
            if from == "claude" { (&mut claude, &mut codex) } else { (&mut codex, &mut claude) };
        let told = sender.send(to, message_type, content, signal);
        let id = told.strip_prefix("Message sent: id=").unwrap_or_else(|| panic!("{told}")).to_owned();
        let agent = if from == "claude" { "codex" } else { "claude" };
        let received = receiver.call("receive_messages", json!({ "agent": agent }));
        let shown = if signal.is_empty() { String::new() } else { format!(" signal={signal}") };
        assert_eq!(received.text, format!("[1] from={from} type={message_type}{shown}\n{content}\n\n"));
        assert_eq!(received.structured["messages"][0]["id"], id);
        // A sender does not receive its own messages, and none twice.
        for (client, agent) in [(&mut claude, "claude"), (&mut codex, "codex")] {
            assert_eq!(client.call("receive_messages", json!({ "agent": agent })).text, "No new messages");
        }
    }
    assert_eq!(
        codex.call("bridge_status", json!({})).text,
        "Bridge Status:\n  Total Messages: 6\n  Done Signal: true\n  Pass Count: 1\n  Fail Count: 0\n  \
         Messages by Agent:\n    claude: 3\n    codex: 3\n  Messages by Type:\n    result: 2\n    review: 1\n    \
         signal: 2\n    task: 1\n"
    );
    let text = std::fs::read_to_string(run_directory(place).join("bridge.jsonl")).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let fields = |line: &Value| {
        ["from", "to", "type", "content", "signal"].map(|key| line[key].as_str().unwrap().to_owned())
    };
    assert_eq!(
        lines.iter().map(fields).collect::<Vec<_>>(),
        CONVERSATION.map(|(from, to, message_type, content, signal)| [
            from,
            to,
            message_type,
            content,
            signal
        ]
        .map(str::to_owned))
    );
    assert_eq!(lines[0]["id"], "0776580431460a14cb7425428db065c7d1bc009300729e57fea1915ee0eb3aa5");
    assert!(lines.iter().all(|line| line["run_id"] == 1));
}

as_each_caller! {
    fn am_13_tools_have_the_names_and_schemas_that_clients_expect(caller) {
        let place = Place::new(caller);
        let mut client = McpClient::silent(&place, "claude");
        let info = client.initialize(VERSION)["result"].take();
        assert_eq!(info["capabilities"], json!({ "tools": {} }));
        assert_eq!(info["serverInfo"]["name"], "saggar-mailbox");
        let listed = client.request("tools/list", &json!({}))["result"]["tools"].take();
        let tools: Vec<(&str, Value)> = listed
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| (tool["name"].as_str().unwrap(), tool["inputSchema"].clone()))
            .collect();
        let send = [
            ("to", "Name of the recipient; empty for every member"),
            ("message_type", "Type of the message: task, result, review, signal or chat"),
            ("content", "Text of the message"),
            ("signal", "Signal of a message of type signal: DONE, PASS or FAIL"),
        ];
        let receive = [
            ("agent", "Your own name"),
            ("since_id", "Id of a message: return those after it [default: those not received yet]"),
        ];
        assert_eq!(
            tools,
            [
                ("send_to_agent", schema(&send, &["to", "message_type", "content"])),
                ("receive_messages", schema(&receive, &["agent"])),
                ("bridge_status", schema(&[], &[])),
            ]
        );
        assert!(client.end().success());
    }

    /// That of today, which has no handshake, and the three before it.
    fn am_13_clients_of_older_versions_are_served(caller) {
        let place = Place::new(caller);
        for version in ["2025-11-25", "2025-06-18", "2025-03-26"] {
            let mut client = McpClient::silent(&place, "claude");
            assert_eq!(client.initialize(version)["result"]["protocolVersion"], version);
            assert!(!client.call("bridge_status", json!({})).is_error);
            client.end();
        }
        let mut client = McpClient::silent(&place, "claude");
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let answer = client.request("tools/list", &json!({ "_meta": meta }));
        assert_eq!(answer["result"]["tools"].as_array().unwrap().len(), 3, "{answer}");
        client.end();
        // A version that nothing knows: the client decides whether it goes on.
        let mut client = McpClient::silent(&place, "claude");
        assert_eq!(client.initialize("1999-01-01")["result"]["protocolVersion"], VERSION);
    }

    fn am_21_the_example_conversation_gives_six_lines_and_the_documented_status(caller) {
        let place = Place::new(caller);
        let clients = (McpClient::start(&place, "claude"), McpClient::start(&place, "codex"));
        assert_example_conversation(&place, clients);
    }

    /// Also after the server was killed and started again.
    fn am_14_a_repetition_is_answered_as_one(caller) {
        let place = Place::new(caller);
        let mut client = McpClient::start(&place, "claude");
        let sent = client.send("codex", "task", "Add email validation to LoginForm", "");
        let id = "0776580431460a14cb7425428db065c7d1bc009300729e57fea1915ee0eb3aa5";
        assert_eq!(sent, format!("Message sent: id={id}"));
        let repeated = format!("Message duplicate (already sent): id={id}");
        assert_eq!(client.send("codex", "task", "Add email validation to LoginForm", ""), repeated);
        client.kill();
        let mut client = McpClient::start(&place, "claude");
        assert_eq!(client.send("codex", "task", "Add email validation to LoginForm", ""), repeated);
        // Signals with one text are messages of their own.
        for signal in ["DONE", "PASS", "FAIL"] {
            assert!(client.send("", "signal", "same", signal).starts_with("Message sent: "));
        }
    }

    fn am_15_messages_come_in_order_after_an_id_and_in_pages(caller) {
        let place = Place::new(caller);
        let (mut one, mut two) = (McpClient::start(&place, "one"), McpClient::start(&place, "two"));
        let ids: Vec<String> = (0..150)
            .map(|number| one.send("two", "chat", &number.to_string(), "").split_off("Message sent: id=".len()))
            .collect();
        let mut receive = |arguments: Value| {
            let page = two.call("receive_messages", arguments);
            let messages = page.structured["messages"].as_array().unwrap().clone();
            let contents: Vec<usize> =
                messages.iter().map(|message| message["content"].as_str().unwrap().parse().unwrap()).collect();
            (contents, page.structured["more"] == true)
        };
        assert_eq!(receive(json!({ "agent": "two" })), ((0..100).collect(), true));
        assert_eq!(receive(json!({ "agent": "two", "since_id": "" })), ((100..150).collect(), false));
        assert_eq!(receive(json!({ "agent": "two", "since_id": ids[147] })), (vec![148, 149], false));
        assert_eq!(receive(json!({ "agent": "two" })), (vec![], false));
    }

    fn am_18_wrong_calls_are_told_apart(caller) {
        let place = Place::new(caller);
        let mut client = McpClient::start(&place, "claude");
        for (tool, arguments, why) in [
            ("send_to_agent", json!({ "to": "codex", "content": "x" }), "the argument message_type is missing"),
            ("send_to_agent", json!({ "to": "codex", "message_type": "bogus", "content": "x" }), "unknown message_type \"bogus\""),
            ("send_to_agent", json!({ "to": "", "message_type": "signal", "content": "x", "signal": "OK" }), "unknown signal \"OK\""),
            ("send_to_agent", json!({ "to": "", "message_type": "signal", "content": "x" }), "has the type signal and no signal"),
            ("send_to_agent", json!({ "to": "codex", "message_type": "chat", "content": "x", "signal": "PASS" }), "has the type chat and the signal PASS"),
            ("send_to_agent", json!({ "to": "codex", "message_type": "chat", "content": "" }), "has no content"),
            ("send_to_agent", json!({ "to": "a/b", "message_type": "chat", "content": "x" }), "invalid agent name \"a/b\""),
            ("send_to_agent", json!({ "to": "codex", "message_type": "chat", "content": "x", "from": "codex" }), "unknown argument \"from\""),
            ("send_to_agent", json!({ "to": 7, "message_type": "chat", "content": "x" }), "the argument to is not a string"),
            ("receive_messages", json!({}), "the argument agent is missing"),
            ("receive_messages", json!({ "agent": "codex" }), "cannot receive the messages of \"codex\""),
            ("receive_messages", json!({ "agent": "claude", "since_id": "nope" }), "cannot continue after message \"nope\""),
            ("bridge_status", json!({ "verbose": "yes" }), "unknown argument \"verbose\""),
        ] {
            let result = client.call(tool, arguments.clone());
            assert!(result.is_error && result.text.contains(why), "{tool} {arguments}: {result:?}");
        }
        let error = |answer: Value| answer["error"]["code"].clone();
        assert_eq!(error(client.request("tools/call", &json!({ "name": "nope", "arguments": {} }))), -32602);
        assert_eq!(error(client.request("nope/nope", &json!({}))), -32601);
        // Nothing of it was stored.
        assert!(client.call("bridge_status", json!({})).text.contains("Total Messages: 0"));
    }

    /// JSON.stringify of JavaScript writes half of a character in this way.
    fn am_18_a_line_that_cannot_be_read_is_answered(caller) {
        let place = Place::new(caller);
        let mut client = McpClient::start(&place, "claude");
        let call = |content: &str| {
            let arguments = format!(r#"{{"to":"codex","message_type":"chat","content":"{content}"}}"#);
            format!(r#"{{"jsonrpc":"2.0","id":77,"method":"tools/call","params":{{"name":"send_to_agent","arguments":{arguments}}}}}"#)
        };
        let not_utf8 = call("X").into_bytes().into_iter().map(|byte| if byte == b'X' { 0xff } else { byte }).collect();
        let too_long = vec![b' '; (128 << 20) + 1];
        for (line, id) in [
            (call("\\ud83d").into_bytes(), json!(77)),
            (not_utf8, json!(77)),
            (b"{\"jsonrpc\":".to_vec(), Value::Null),
            (too_long, Value::Null),
        ] {
            client.write_line(&line);
            let answer = client.response();
            assert_eq!((&answer["id"], &answer["error"]["code"]), (&id, &json!(-32700)), "{answer}");
        }
        assert!(client.call("bridge_status", json!({})).text.contains("Total Messages: 0"));
    }

    fn am_20_large_content_of_any_text_is_whole_and_more_is_refused(caller) {
        let place = Place::new(caller);
        let (mut one, mut two) = (McpClient::start(&place, "one"), McpClient::start(&place, "two"));
        let content = "a<&>\u{0}\n\u{20ac}\"\\".repeat(10 << 20 >> 4) + "# Title\n```\n";
        assert!(one.send("two", "result", &content, "").starts_with("Message sent: "));
        let received = two.call("receive_messages", json!({ "agent": "two" }));
        assert!(received.structured["messages"][0]["content"] == content, "the content differs");
        assert!(received.text == format!("[1] from=one type=result\n{content}\n\n"), "the text differs");
        let refused =
            one.call("send_to_agent", json!({ "to": "two", "message_type": "chat", "content": "x".repeat(64 << 20) }));
        assert!(refused.is_error && refused.text.contains("at most 16 MiB"), "{refused:?}");
        assert!(one.call("bridge_status", json!({})).text.contains("Total Messages: 1"));
    }

    /// The members of a pair run have roles, and no other agent joins it.
    fn signals_are_those_of_the_role(caller) {
        let place = Place::new(caller);
        McpClient::start(&place, "worker").end();
        let record = run_directory(&place).join("run.json");
        let mut run: Value = serde_json::from_slice(&std::fs::read(&record).unwrap()).unwrap();
        run["members"] = json!([
            { "name": "worker", "works": true, "reviews": false, "is_person": false },
            { "name": "reviewer", "works": false, "reviews": true, "is_person": false },
        ]);
        std::fs::write(&record, run.to_string()).unwrap();
        for (name, permitted) in [("worker", ["DONE"].as_slice()), ("reviewer", &["PASS", "FAIL"])] {
            let mut client = McpClient::start(&place, name);
            for signal in ["DONE", "PASS", "FAIL"] {
                let arguments = json!({ "to": "", "message_type": "signal", "content": "x", "signal": signal });
                let result = client.call("send_to_agent", arguments);
                assert_eq!(result.is_error, !permitted.contains(&signal), "{result:?}");
                assert!(!result.is_error || result.text.contains(&format!("{name} may not signal {signal} in run 1")));
            }
            let unknown = client.call("send_to_agent", json!({ "to": "stranger", "message_type": "chat", "content": "x" }));
            assert!(unknown.is_error && unknown.text.contains("stranger: it is no member of run 1"), "{unknown:?}");
        }
    }
}
