//! The mailbox in a sandbox: over its socket, as the agent that its supervisor names.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::mcp_client::{McpClient, PYTHON_CLIENT, SERVER, run_directory, sandboxed, script};
use super::tools::assert_example_conversation;
use crate::isolation::wrapped::{Ended, Wrap, finish};
use crate::support::place::Place;
use crate::support::process::Process;

/// A conversation over the socket alone, without a program of saggar.
const RAW: &str = "print(Client().begin().send('', 'chat', 'raw')['content'][0]['text'].split('=')[0])";

/// Many conversations at once, all of them open until the last has its answer.
const MANY: &str = "
clients = [Client().begin() for _ in range(12)]
for number, client in enumerate(clients):
    client.post('', 'chat', f'number {number}')
print(sum('Message sent' in client.answer()['content'][0]['text'] for client in clients))
";

/// Readers of one large message at once, whose responses are more than the server may have in memory together.
const READERS: &str = "
import sys
def reader():
    client = Client().begin()
    arguments = {'agent': 'claude', 'since_id': sys.argv[1]}
    client.write({'id': 1, 'method': 'tools/call', 'params': {'name': 'receive_messages', 'arguments': arguments}})
    return client
readers = [reader() for _ in range(3)]
for reader in readers:
    content = reader.answer()['structuredContent']['messages'][0]['content']
    assert len(content) == 16 << 20 and set(content) == {'\\x01'}
print(len(readers))
";

/// The lines of run 1.
pub(super) fn lines(place: &Place) -> Vec<Value> {
    let text = fs::read_to_string(run_directory(place).join("bridge.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn python(place: &Place, script: &str) -> String {
    let script = format!("{PYTHON_CLIENT}{script}");
    run(place, "claude", &[], &["/usr/bin/python3", "-c", &script]).success()
}

/// Runs a program in a sandbox that has the mailbox, to its end.
fn run(place: &Place, name: &str, options: &[&str], argv: &[&str]) -> Ended {
    let mut process = Process::start(place, sandboxed(place, name, options, argv));
    drop(process.take_stdin());
    finish(process)
}

as_each_caller! {
    /// Between two sandboxes, and between one and an agent of the host.
    fn am_21_the_example_conversation_between_sandboxes(caller) {
        for options in [&[][..], &["--profile", "nesting"], &["--net", "host"]] {
            let place = Place::new(caller);
            place.close();
            let codex = match options {
                [] => McpClient::start_inside(&place, "codex", options),
                _ => McpClient::start(&place, "codex"),
            };
            assert_example_conversation(&place, (McpClient::start_inside(&place, "claude", options), codex));
        }
    }

    /// By no argument, by no file, and by no other socket: an agent is who its supervisor says.
    fn am_19_a_program_cannot_send_or_receive_as_another(caller) {
        let place = Place::new(caller);
        let mut codex = McpClient::start(&place, "codex");
        codex.send("claude", "chat", "for claude alone", "");
        let mut mallory = McpClient::start_inside(&place, "mallory", &[]);
        let forged = json!({ "to": "", "message_type": "chat", "content": "x", "from": "claude" });
        let refused = mallory.call("send_to_agent", forged);
        assert!(refused.is_error && refused.text.contains("unknown argument \"from\""), "{refused:?}");
        let refused = mallory.call("receive_messages", json!({ "agent": "claude" }));
        assert!(refused.is_error && refused.text.contains("cannot receive the messages of \"claude\""), "{refused:?}");
        mallory.send("", "chat", "by mallory", "");
        assert_eq!(lines(&place)[1]["from"], "mallory");
        // The files are not there, and what a program names by itself is no other mailbox.
        let root = place.join("home/.agentpair");
        let script = format!(
            "ls {} 2>&1; /run/saggar/saggar mcp mailbox --run 1 --as claude --root /tmp/r </dev/null; ls /tmp/r/runs",
            root.display()
        );
        let ended = run(&place, "mallory", &[], &["/bin/sh", "-c", &script]);
        assert!(ended.stdout.contains("No such file or directory"), "{ended:?}");
        assert_eq!(lines(&place).len(), 2);
    }

    /// AM-22: the protocol is on the socket itself.
    fn am_22_a_client_of_the_socket_needs_no_program(caller) {
        let place = Place::new(caller);
        assert_eq!(python(&place, RAW), "Message sent: id\n");
        assert_eq!(lines(&place)[0]["from"], "claude");
    }

    fn conversations_are_served_at_once(caller) {
        let place = Place::new(caller);
        assert_eq!(python(&place, MANY), "12\n");
        assert_eq!(lines(&place).len(), 12);
    }

    fn am_20_large_content_is_whole(caller) {
        let place = Place::new(caller);
        let content = "\u{1}\"\\\n<>&é\u{10ffff}".repeat((10 << 20) / 15);
        let mut one = McpClient::start_inside(&place, "one", &[]);
        let mut two = McpClient::start_inside(&place, "two", &[]);
        one.send("two", "chat", &content, "");
        let received = two.call("receive_messages", json!({ "agent": "two" }));
        assert!(received.structured["messages"][0]["content"] == content, "the content is not whole");
    }

    fn am_20_readers_of_large_content_take_turns(caller) {
        let place = Place::new(caller);
        let mut codex = McpClient::start(&place, "codex");
        codex.send("claude", "chat", "first", "");
        let first = lines(&place)[0]["id"].as_str().unwrap().to_owned();
        codex.send("claude", "chat", &"\u{1}".repeat(16 << 20), "");
        let script = format!("{PYTHON_CLIENT}{READERS}");
        assert_eq!(run(&place, "claude", &[], &["/usr/bin/python3", "-c", &script, &first]).success(), "3\n");
    }

    /// The repository is the folder of the host, not the copy that a session works on.
    fn am_09_the_repository_is_the_folder_of_the_host(caller) {
        let wrap = Wrap::new(caller);
        let place = &wrap.place;
        let mut outside = McpClient::start(place, "codex");
        outside.send("claude", "task", "from outside", "");
        let receive = script("receive_messages", &json!({ "agent": "claude" }));
        let space = place.make_dir("space", 0o755);
        let work = place.work();
        let options = ["--workspace", space.to_str().unwrap(), "--mailbox-repo", work.to_str().unwrap()];
        let ended = run(place, "claude", &options, &["/bin/sh", "-c", &receive]);
        assert!(ended.stdout.contains("from outside"), "{ended:?}");
        // By default it is the work tree.
        let options = ["--workspace", space.to_str().unwrap()];
        let ended = run(place, "claude", &options, &["/bin/sh", "-c", &receive]);
        assert!(ended.stdout.contains("No new messages"), "{ended:?}");
    }

    /// Without a mailbox there is neither socket nor program, and the command says so.
    fn a_sandbox_without_a_mailbox_has_none(caller) {
        let wrap = Wrap::new(caller);
        let seen = wrap.sh("ls /run").success();
        assert!(!seen.contains("mailbox") && !seen.contains("saggar"), "{seen}");
        let mut command = wrap.place.saggar();
        command.args(["mcp", "mailbox"]);
        let ended = wrap.finish(command);
        assert!(ended.code() == 2 && ended.stderr.contains("there is no mailbox here"), "{ended:?}");
        assert!(!Path::new(&wrap.place.join("home/.agentpair")).exists());
    }

    /// A client that ends leaves the server, and a server that ends leaves a clear word.
    fn the_command_ends_with_its_client(caller) {
        let place = Place::new(caller);
        let client = McpClient::start_inside(&place, "claude", &[]);
        assert!(client.end().success());
        let script = format!("{} </dev/null; echo $?; : >/dev/null", SERVER.join(" "));
        assert_eq!(run(&place, "claude", &[], &["/bin/sh", "-c", &script]).success(), "0\n");
    }
}
