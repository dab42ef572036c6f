//! A mailbox with very many messages, and one without room for more.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use serde_json::json;

use super::mcp_client::{McpClient, command, run_directory};
use crate::support::own_mounts::on_small_disk;
use crate::support::place::Place;

/// How many messages there are.
const MESSAGES: usize = 100_000;
/// What reading all of them may add to the memory of a server, in KiB. They have 25 MiB.
const MAX_GROWTH: u64 = 8 << 10;

/// The most memory that a process has had, in KiB.
fn peak(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

as_each_caller! {
    fn paging_takes_the_same_memory_for_any_number_of_messages(caller) {
        let place = Place::new(caller);
        let mut first = McpClient::start(&place, "claude");
        first.send("codex", "chat", "the first", "");
        first.end();
        let mut lines = String::new();
        for number in 1..MESSAGES {
            let line = json!({ "id": format!("id-{number}"), "run_id": 1, "type": "chat", "from": "claude", "to": "codex",
                "content": format!("{number} {}", "x".repeat(80)), "signal": "", "timestamp": "2026-01-01T00:00:00Z" });
            writeln!(lines, "{line}").unwrap();
        }
        let path = run_directory(&place).join("bridge.jsonl");
        let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
        std::io::Write::write_all(&mut file, lines.as_bytes()).unwrap();

        let mut codex = McpClient::start(&place, "codex");
        let (mut received, mut pages, mut before) = (0, 0, 0);
        loop {
            let result = codex.call("receive_messages", json!({ "agent": "codex" }));
            if result.text == "No new messages" {
                break;
            }
            let count = result.structured["messages"].as_array().unwrap().len();
            assert!(count < MESSAGES / 10, "a page of {count}");
            (received, pages) = (received + count, pages + 1);
            // What every page takes, the first ones have taken.
            if pages == 2 {
                before = peak(codex.pid());
            }
        }
        assert_eq!(received, MESSAGES, "in {pages} pages");
        let grown = peak(codex.pid()) - before;
        assert!(grown < MAX_GROWTH, "{grown} KiB more for {pages} pages");
    }

    /// A send fails with the reason, and what was acknowledged is all there.
    fn a_full_disk_is_an_error_of_the_send(caller) {
        let place = Place::new(caller);
        let root = place.make_dir("small", 0o700);
        let mut server = command(&place, "claude");
        server.arg("--root").arg(&root);
        // The shell stays, and with it what it has mounted.
        let script = "\"$@\"; exit $?";
        let mut client = McpClient::begun(&place, on_small_disk((&place, caller), &root, 64, script, &server));
        let mut acknowledged = Vec::new();
        let refused = loop {
            let content = format!("{} {}", acknowledged.len(), "x".repeat(5000));
            let result = client.call("send_to_agent", json!({ "to": "codex", "message_type": "chat", "content": &content }));
            if result.is_error {
                break result.text;
            }
            acknowledged.push(content);
        };
        assert!(refused.contains("No space left on device"), "{refused}");
        assert!(acknowledged.len() > 3, "{} of 64 KiB", acknowledged.len());
        // A small one may still fit; the long one does when there is room.
        let inside = PathBuf::from(format!("/proc/{}/root", client.pid())).join(root.strip_prefix("/").unwrap());
        fs::remove_file(inside.join("filler")).unwrap();
        let content = "y".repeat(5000);
        client.send("codex", "chat", &content, "");
        acknowledged.push(content);
        let repo = fs::read_dir(inside.join("runs")).unwrap().next().unwrap().unwrap().path();
        let text = fs::read_to_string(repo.join("1/bridge.jsonl")).unwrap();
        let contents: Vec<String> = text
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["content"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(contents, acknowledged);
        assert!(client.end().success());
    }
}
