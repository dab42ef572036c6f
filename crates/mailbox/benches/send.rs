//! Prints what a send, an open and a page cost, with 0 and with 100 000 messages in the mailbox, and fails if a send costs too
//! much: 1 ms beyond its write and its sync.
//!
//! `cargo bench -p saggar-mailbox --bench send -- [DIRECTORY]`; the directory is on the file system to be measured. The time
//! of the sync is that of the same writes to a plain file.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement for developers")]

use jiff::Timestamp;
use saggar_mailbox::{Draft, FileStore, Limits, Message, MessageType, Store};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

const SENDS: u32 = 500;
/// Microseconds that a send may take beyond its write and its sync.
const MOST_BEYOND: f64 = 1000.0;

fn message(content: &str) -> Message {
    let draft = Draft::to("reader", MessageType::Chat, content);
    Message::new(1, "writer", draft, Timestamp::UNIX_EPOCH).unwrap()
}

/// Microseconds of a write and an fdatasync, and of a send: medians of calls in turn, so that both see the same disk. On a
/// tmpfs, such as /dev/shm, the sync costs nothing and hides nothing.
fn send_cost(directory: &Path, store: &mut FileStore, label: &str) -> (f64, f64) {
    let mut plain = OpenOptions::new().create(true).append(true).open(directory.join("plain")).unwrap();
    let (mut syncs, mut sends) = (Vec::new(), Vec::new());
    for number in 0..SENDS {
        let message = message(&format!("{label} {number} {}", "x".repeat(200)));
        let line = message.to_line().unwrap();
        let start = Instant::now();
        plain.write_all(&line).unwrap();
        plain.sync_data().unwrap();
        syncs.push(start.elapsed().as_secs_f64() * 1e6);
        let start = Instant::now();
        store.append(&message).unwrap();
        sends.push(start.elapsed().as_secs_f64() * 1e6);
    }
    (median(syncs), median(sends))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn main() {
    let directory = std::env::args_os()
        .skip(1)
        .find(|argument| argument != "--bench")
        .map_or_else(std::env::temp_dir, PathBuf::from);
    for count in [0u32, 100_000] {
        let directory = tempfile::tempdir_in(&directory).unwrap();
        let lines = (0..count).flat_map(|n| message(&format!("{n} {}", "x".repeat(200))).to_line().unwrap());
        fs::write(directory.path().join("bridge.jsonl"), lines.collect::<Vec<u8>>()).unwrap();
        let open = || {
            let start = Instant::now();
            let store = FileStore::open(directory.path(), 1, Limits::default()).unwrap();
            (store, start.elapsed().as_secs_f64() * 1e3)
        };
        let (_, first_open) = open();
        let before = resident_kib();
        let (mut store, second_open) = open();
        let opened = resident_kib();
        println!("{count} messages:");
        println!(
            "  open: {first_open:.2} ms without an index, {second_open:.2} ms with it, {} KiB",
            opened - before.min(opened)
        );
        let (sync, send) = send_cost(directory.path(), &mut store, "send");
        println!(
            "  send: {send:.1} µs, of which {sync:.1} µs are write and sync: {:.1} µs beyond",
            send - sync
        );
        assert!(send - sync < MOST_BEYOND, "a send costs too much");
        let before = resident_kib();
        let start = Instant::now();
        let (mut after, mut pages) = (None, 0u32);
        loop {
            let page = store.read(after).unwrap();
            (after, pages) = (page.last, pages + 1);
            if !page.more {
                break;
            }
        }
        let each = start.elapsed().as_secs_f64() * 1e6 / f64::from(pages);
        println!(
            "  pages: {pages}, {each:.0} µs each, memory grew by {} KiB",
            resident_kib().saturating_sub(before)
        );
    }
}
