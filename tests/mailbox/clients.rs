//! Real clients: the official SDK for Node and the command line of the MCP inspector call every tool. `.ci/install-agent`
//! installs both.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::mcp_client::{SERVER, command, sandboxed};
use crate::isolation::wrapped::finish;
use crate::support::place::Place;
use crate::support::process::Process;

/// Calls every tool by the SDK, and prints the results.
const SDK: &str = r#"
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
const [command, ...args] = process.argv.slice(2);
const client = new Client({ name: 'test', version: '1' });
await client.connect(new StdioClientTransport({ command, args, env: process.env }));
const call = async (name, args) => (await client.callTool({ name, arguments: args })).content[0].text;
console.log(JSON.stringify([
    (await client.listTools()).tools.map((tool) => tool.name),
    await call('send_to_agent', { to: 'codex', message_type: 'task', content: 'by the SDK' }),
    await call('receive_messages', { agent: 'claude' }),
    await call('bridge_status', {}),
]));
await client.close();
"#;

/// Where a client is installed.
pub(crate) fn installed(name: &str) -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("target/tmp is below target");
    Some(target.join("agent/node_modules").join(name)).filter(|path| path.exists())
}

pub(crate) fn run(place: &Place, command: Command) -> Value {
    let mut process = Process::start(place, command);
    drop(process.take_stdin());
    let said = finish(process).success();
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
}

as_each_caller! {
    fn am_22_the_sdk_calls_every_tool(caller) {
        let Some(sdk) = installed("@modelcontextprotocol/sdk") else {
            skip!("the MCP SDK for Node is not installed: run .ci/install-agent")
        };
        for inside in [false, true] {
            let place = Place::new(caller);
            // An import looks for modules from the place of its file upwards.
            let modules = place.reachable(&sdk).ancestors().nth(2).unwrap().to_owned();
            std::os::unix::fs::symlink(&modules, place.join("work/node_modules")).unwrap();
            let script = place.make_file("work/client.mjs", SDK);
            let saggar = if inside { sandboxed(&place, "claude", &[], &SERVER) } else { command(&place, "claude") };
            let mut node = place.command(Path::new("/usr/bin/env"));
            node.arg("node").arg("--preserve-symlinks").arg(script).arg(saggar.get_program()).args(saggar.get_args());
            let said = run(&place, node);
            assert_eq!(said[0], serde_json::json!(["send_to_agent", "receive_messages", "bridge_status"]));
            assert!(said[1].as_str().unwrap().starts_with("Message sent: id="), "{said}");
            assert_eq!(said[2], "No new messages");
            assert!(said[3].as_str().unwrap().contains("Total Messages: 1"), "{said}");
        }
    }

    fn am_22_the_inspector_lists_and_calls_every_tool(caller) {
        let Some(inspector) = installed(".bin/mcp-inspector") else {
            skip!("the MCP inspector is not installed: run .ci/install-agent")
        };
        let place = Place::new(caller);
        let saggar = command(&place, "claude");
        let inspect = |arguments: &[&str]| {
            let mut node = place.command(Path::new("/usr/bin/env"));
            node.arg("node").arg(inspector.canonicalize().unwrap()).arg("--cli");
            node.arg(saggar.get_program()).args(saggar.get_args()).args(arguments);
            run(&place, node)
        };
        let tools = inspect(&["--method", "tools/list"]);
        assert_eq!(tools["tools"].as_array().unwrap().len(), 3, "{tools}");
        let text = |tool: &str, arguments: &[&str]| {
            let mut all = vec!["--method", "tools/call", "--tool-name", tool];
            all.extend(arguments.iter().flat_map(|argument| ["--tool-arg", argument]));
            inspect(&all)["content"][0]["text"].as_str().unwrap().to_owned()
        };
        let sent = text("send_to_agent", &["to=codex", "message_type=task", "content=by the inspector"]);
        assert!(sent.starts_with("Message sent: id="), "{sent}");
        assert_eq!(text("receive_messages", &["agent=claude"]), "No new messages");
        assert!(text("bridge_status", &[]).contains("Total Messages: 1"));
    }
}
