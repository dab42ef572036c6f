//! Real clients: the official SDK for Node, with a person who consents, and the command line of the MCP inspector.

use std::ffi::OsStr;
use std::path::Path;

use serde_json::{Value, json};

use super::stage::{command, dev};
use crate::isolation::wrapped::finish;
use crate::mailbox::clients::{installed, run};
use crate::support::process::Process;

/// Calls every tool by the SDK, and prints the results.
const SDK: &str = r#"
import { execFileSync } from 'node:child_process';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';
const [command, ...args] = process.argv.slice(2);
const client = new Client({ name: 'test', version: '1' }, { capabilities: { elicitation: {} } });
const asked = [];
client.setRequestHandler(ElicitRequestSchema, async ({ params }) => {
    asked.push(params.message);
    return { action: 'accept', content: {} };
});
await client.connect(new StdioClientTransport({ command, args, env: process.env }));
const call = async (name, args) => (await client.callTool({ name, arguments: args })).content[0].text;
const results = [
    (await client.listTools()).tools.length,
    await call('list_sessions', {}),
    await call('run_command', { command: 'echo two >> a.txt' }),
    await call('list_files', {}),
    await call('read_file', { path: 'a.txt' }),
    await call('write_file', { path: 'b.txt', content: 'new' }),
    await call('diff', {}),
    await call('logs', {}),
];
execFileSync(command, ['session', 'end', 'dev']);
results.push(await call('apply', {}), asked);
console.log(JSON.stringify(results));
await client.close();
"#;

as_each_caller! {
    fn the_sdk_calls_every_tool(caller) {
        let Some(sdk) = installed("@modelcontextprotocol/sdk") else {
            skip!("the MCP SDK for Node is not installed: run .ci/install-agent")
        };
        let sessions = dev(caller);
        let place = &sessions.stage.place;
        let modules = place.reachable(&sdk).ancestors().nth(2).unwrap().to_owned();
        std::os::unix::fs::symlink(&modules, place.join("node_modules")).unwrap();
        let script = place.make_file("client.mjs", SDK);
        let saggar = command(&sessions, &["--session", "dev"]);
        let mut node = place.command(Path::new("/usr/bin/env"));
        node.arg("node").arg("--preserve-symlinks").arg(script).arg(saggar.get_program()).args(saggar.get_args());
        let results = run(place, node);
        let folder = sessions.stage.work();
        let folder = folder.display();
        assert_eq!(results[0], 8);
        assert_eq!(results[1], format!("dev: active; folder {folder}\n"));
        assert_eq!(results[2], "[exit status 0]");
        assert!(results[3].as_str().unwrap().contains(" a.txt\n"), "{results}");
        assert_eq!(results[4], "one\ntwo\n");
        assert_eq!(results[5], "Written: b.txt");
        assert_eq!(results[6], "M a.txt\nA b.txt\n");
        assert!(results[7].is_string(), "{results}");
        assert_eq!(results[8], format!("Applied to {folder}:\nM a.txt\nA b.txt"));
        assert_eq!(results[9], json!([format!("Apply these changes of the session dev to {folder}?\n\nM a.txt\nA b.txt\n")]));
    }

    fn the_inspector_lists_and_calls_every_tool(caller) {
        let Some(inspector) = installed(".bin/mcp-inspector") else {
            skip!("the MCP inspector is not installed: run .ci/install-agent")
        };
        let sessions = dev(caller);
        let place = &sessions.stage.place;
        let saggar = command(&sessions, &["--session", "dev"]);
        let inspection = |arguments: &[&str]| {
            let mut node = place.command(Path::new("/usr/bin/env"));
            node.arg("node").arg(inspector.canonicalize().unwrap()).arg("--cli");
            // The inspector passes the usual variables on, and no others.
            for (name, value) in saggar.get_envs() {
                let (name, value) = (name.to_str().unwrap(), value.and_then(OsStr::to_str).unwrap_or_default());
                node.arg("-e").arg(format!("{name}={value}"));
            }
            node.arg(saggar.get_program()).args(saggar.get_args()).args(arguments);
            node
        };
        let inspect = |arguments: &[&str]| -> Value { run(place, inspection(arguments)) };
        let tools = inspect(&["--method", "tools/list"]);
        assert_eq!(tools["tools"].as_array().unwrap().len(), 8, "{tools}");
        let text = |tool: &str, arguments: &[&str]| -> String {
            let arguments = arguments.iter().flat_map(|argument| ["--tool-arg", argument]);
            let call = ["--method", "tools/call", "--tool-name", tool].into_iter().chain(arguments);
            inspect(&call.collect::<Vec<_>>())["content"][0]["text"].as_str().unwrap().to_owned()
        };
        let folder = sessions.stage.work();
        assert_eq!(text("list_sessions", &[]), format!("dev: active; folder {}\n", folder.display()));
        assert_eq!(text("run_command", &["command=cat a.txt"]), "one\n[exit status 0]");
        assert!(text("list_files", &[]).contains(" a.txt\n"));
        assert_eq!(text("read_file", &["path=a.txt"]), "one\n");
        assert_eq!(text("write_file", &["path=b.txt", "content=new"]), "Written: b.txt");
        assert_eq!(text("diff", &[]), "A b.txt\n");
        text("logs", &[]);
        sessions.ok(&["end", "dev"]);
        // This client cannot be asked for consent.
        let refused = finish(Process::start(place, inspection(&["--method", "tools/call", "--tool-name", "apply"])));
        assert!(refused.code() != 0 && refused.stdout.contains("consent"), "{refused:?}");
        assert!(!folder.join("b.txt").exists());
    }
}
