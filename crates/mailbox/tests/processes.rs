//! The file store between processes, and through kills and full disks. The test binary starts itself as a child that
//! runs [`child_process`] only.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    reason = "a failed test panics, and children report on their standard output"
)]

use jiff::Timestamp;
use rustix::process::{Resource, Rlimit, setrlimit};
use saggar_mailbox::runs::{NewRun, Runs};
use saggar_mailbox::{
    Appended, Draft, ErrorKind, FileStore, Limits, Member, Message, MessageType, Roles, Store,
};
use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

const ROLE: &str = "MAILBOX_TEST_ROLE";
const DIRECTORY: &str = "MAILBOX_TEST_DIRECTORY";
const AGENT: &str = "MAILBOX_TEST_AGENT";
const FIRST: &str = "MAILBOX_TEST_FIRST";
const SEGMENT_BYTES: &str = "MAILBOX_TEST_SEGMENT_BYTES";
const COUNT: &str = "MAILBOX_TEST_COUNT";
/// Bytes of a file in the test of a full disk.
const FILE_LIMIT: u64 = 64 << 10;

fn message(from: &str, content: &str) -> Message {
    let draft = Draft::to("reader", MessageType::Chat, content);
    Message::new(1, from, draft, Timestamp::UNIX_EPOCH).unwrap()
}

fn content(number: u64) -> String {
    // Lines of different lengths, some longer than a page of memory.
    format!("{number} {}", "x".repeat((number as usize * 997) % 9000))
}

fn open(directory: &Path) -> FileStore {
    FileStore::open(directory, 1, Limits::default()).unwrap()
}

fn read_all(directory: &Path) -> Vec<Message> {
    let (mut store, mut all, mut after) = (open(directory), Vec::new(), None);
    loop {
        let page = store.read(after).unwrap();
        assert!(page.messages.len() <= 100);
        assert_eq!(page.unreadable_count, 0);
        after = page.last;
        all.extend(page.messages);
        if !page.more {
            return all;
        }
    }
}

/// What a child does; a test without the environment of a child.
#[test]
fn child_process() {
    let Ok(role) = env::var(ROLE) else { return };
    let directory = env::var_os(DIRECTORY).unwrap();
    let directory = Path::new(&directory);
    match role.as_str() {
        "write" => write_messages(directory),
        "fill" => fill_disk(directory),
        "run" => create_runs(directory),
        "modes" => {
            let run = Runs::open(&directory.join("root"), Path::new("/p")).unwrap();
            let run = run.create(new_run(), Timestamp::UNIX_EPOCH).unwrap();
            run.mailbox(Limits::default()).unwrap().receive("a", None).unwrap();
        }
        _ => panic!("unknown role {role}"),
    }
}

fn write_messages(directory: &Path) {
    let agent = env::var(AGENT).unwrap();
    let first: u64 = env::var(FIRST).unwrap().parse().unwrap();
    let count: u64 = env::var(COUNT).unwrap().parse().unwrap();
    let segment_bytes: u64 = env::var(SEGMENT_BYTES).unwrap().parse().unwrap();
    let limits = Limits { segment_bytes, old_segments: 10_000 };
    let mut store = FileStore::open(directory, 1, limits).unwrap();
    for number in first..first + count {
        let appended = store.append(&message(&agent, &content(number))).unwrap();
        let word = if matches!(appended, Appended::Stored { .. }) { "stored" } else { "duplicate" };
        println!("ack {number} {word}");
        std::io::stdout().flush().unwrap();
    }
}

fn fill_disk(directory: &Path) {
    let limit = Some(FILE_LIMIT);
    setrlimit(Resource::Fsize, Rlimit { current: limit, maximum: limit }).unwrap();
    let mut store = open(directory);
    let mut stored = 0u64;
    let error = loop {
        match store.append(&message("a", &format!("{stored} {}", "x".repeat(5000)))) {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::System);
    assert!(error.to_string().contains("bridge.jsonl: File too large"), "{error}");
    assert!(error.hint().is_some());
    // A smaller message still fits, and the store is usable.
    store.append(&message("a", "small")).unwrap();
    println!("ack {stored} stored");
}

fn new_run() -> NewRun {
    let members = vec![Member::new("a", Roles::WORKER)];
    NewRun { task: "t".into(), members, max_iterations: 1, both_review: false, launch: None }
}

fn create_runs(root: &Path) {
    let runs = Runs::open(root, Path::new("/p")).unwrap();
    for _ in 0..5 {
        println!("ack {} stored", runs.create(new_run(), Timestamp::UNIX_EPOCH).unwrap().id());
    }
}

fn child(role: &str, directory: &Path, shell: &str) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("{shell} exec \"$0\" child_process --exact --nocapture --test-threads=1")])
        .arg(env::current_exe().unwrap())
        .env(ROLE, role)
        .env(DIRECTORY, directory)
        .stdout(Stdio::piped());
    command
}

fn writer(directory: &Path, agent: &str, first: u64, count: u64, segment_bytes: u64) -> Child {
    let mut command = child("write", directory, "");
    command.env(AGENT, agent).env(FIRST, first.to_string()).env(COUNT, count.to_string());
    command.env(SEGMENT_BYTES, segment_bytes.to_string());
    command.spawn().unwrap()
}

/// The acknowledged numbers, and whether each was stored; the child is killed after `kill_after` of them.
fn acknowledged(mut child: Child, kill_after: usize) -> Vec<(u64, bool)> {
    let output = BufReader::new(child.stdout.take().unwrap());
    let mut acknowledged = Vec::new();
    for line in output.lines() {
        // The harness prints the name of the test in front of the first line.
        let line = line.unwrap();
        let Some((_, words)) = line.split_once("ack ") else { continue };
        let (number, word) = words.split_once(' ').unwrap();
        acknowledged.push((number.parse().unwrap(), word == "stored"));
        if acknowledged.len() == kill_after {
            child.kill().unwrap();
        }
    }
    let status = child.wait().unwrap();
    assert!(status.success() || acknowledged.len() >= kill_after, "{status}");
    acknowledged
}

/// The numbers of the messages of each agent, in the order of the file. Their content is whole.
fn numbers_by_agent(messages: &[Message]) -> BTreeMap<String, Vec<u64>> {
    let mut numbers: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for message in messages {
        let number = message.content.split(' ').next().unwrap().parse().unwrap();
        assert_eq!(message.content, content(number));
        numbers.entry(message.from.clone()).or_default().push(number);
    }
    numbers
}

#[test]
fn am_10_messages_of_eight_processes_are_stored_once_whole_and_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let children: Vec<Child> =
        (0..8).map(|n| writer(directory.path(), &format!("agent{n}"), 0, 200, 256 << 20)).collect();
    for child in children {
        let expected: Vec<(u64, bool)> = (0..200).map(|number| (number, true)).collect();
        assert_eq!(acknowledged(child, usize::MAX), expected);
    }
    let messages = read_all(directory.path());
    assert_eq!(messages.len(), 1600);
    let numbers = numbers_by_agent(&messages);
    assert_eq!(numbers.len(), 8);
    assert!(numbers.values().all(|numbers| numbers.iter().copied().eq(0..200)));
    let text = fs::read_to_string(directory.path().join("bridge.jsonl")).unwrap();
    assert!(text.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).unwrap().is_object()));
}

#[test]
fn am_10_every_acknowledged_message_survives_killed_writers_and_rotations() {
    let directory = tempfile::tempdir().unwrap();
    let kill_one = |agent: usize| {
        let (mut first, mut all) = (0, Vec::new());
        for round in 0..8 {
            let kill_after = 1 + (agent * 7 + round * 13) % 29;
            let child = writer(directory.path(), &format!("agent{agent}"), first, 100_000, 60_000);
            all.extend(acknowledged(child, kill_after).into_iter().map(|(number, _)| number));
            first = all.last().unwrap() + 1;
        }
        all
    };
    let acknowledged: Vec<Vec<u64>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|agent| scope.spawn(move || kill_one(agent))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    // A message may have been stored just before its writer was killed; the next writer sends it again.
    let numbers = numbers_by_agent(&read_all(directory.path()));
    for (agent, acknowledged) in acknowledged.iter().enumerate() {
        let stored = &numbers[&format!("agent{agent}")];
        assert!(stored.windows(2).all(|pair| pair[0] < pair[1]), "agent{agent}: {stored:?}");
        let stored: BTreeSet<u64> = stored.iter().copied().collect();
        assert!(acknowledged.iter().all(|number| stored.contains(number)), "agent{agent}");
        assert!(acknowledged.iter().copied().eq(0..acknowledged.len() as u64), "agent{agent}");
    }
}

#[test]
fn am_12_message_of_two_processes_is_stored_by_one_of_them() {
    let directory = tempfile::tempdir().unwrap();
    let children: Vec<Child> = (0..4).map(|_| writer(directory.path(), "same", 0, 100, 60_000)).collect();
    let mut stored: Vec<u64> = children
        .into_iter()
        .flat_map(|child| acknowledged(child, usize::MAX))
        .filter_map(|(number, is_new)| is_new.then_some(number))
        .collect();
    stored.sort_unstable();
    assert!(stored.into_iter().eq(0..100));
    assert_eq!(read_all(directory.path()).len(), 100);
}

#[test]
fn full_disk_leaves_the_mailbox_intact() {
    let directory = tempfile::tempdir().unwrap();
    let child = child("fill", directory.path(), "trap '' XFSZ;").spawn().unwrap();
    let stored = acknowledged(child, usize::MAX)[0].0;
    let messages = read_all(directory.path());
    assert_eq!(messages.len() as u64, stored + 1);
    assert!(!directory.path().join("bridge.torn").exists());
    let text = fs::read_to_string(directory.path().join("bridge.jsonl")).unwrap();
    assert!(text.ends_with('\n') && text.len() as u64 <= FILE_LIMIT);
    assert!(matches!(
        open(directory.path()).append(&message("a", &"y".repeat(9000))).unwrap(),
        Appended::Stored { .. }
    ));
}

#[test]
fn am_09_processes_that_begin_runs_get_different_numbers() {
    let root = tempfile::tempdir().unwrap();
    let children: Vec<Child> = (0..8).map(|_| child("run", root.path(), "").spawn().unwrap()).collect();
    let mut ids: Vec<u64> =
        children.into_iter().flat_map(|child| acknowledged(child, usize::MAX)).map(|(id, _)| id).collect();
    ids.sort_unstable();
    assert!(ids.into_iter().eq(1..=40));
}

#[test]
fn modes_do_not_depend_on_the_umask() {
    for umask in ["0", "777"] {
        let root = tempfile::tempdir().unwrap();
        acknowledged(child("modes", root.path(), &format!("umask {umask};")).spawn().unwrap(), usize::MAX);
        let run = Runs::open(&root.path().join("root"), Path::new("/p")).unwrap().open_run(1).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode(run.path()), 0o700, "umask {umask}");
        assert_eq!(mode(&root.path().join("root")), 0o700, "umask {umask}");
        for name in ["bridge.jsonl", "bridge.index", "bridge.lock", "run.json"] {
            assert_eq!(mode(&run.path().join(name)), 0o600, "umask {umask}: {name}");
        }
    }
}

#[test]
fn mailbox_of_100_000_messages_is_paged_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let lines = (0..100_000).flat_map(|n| message("a", &n.to_string()).to_line().unwrap());
    fs::write(directory.path().join("bridge.jsonl"), lines.collect::<Vec<u8>>()).unwrap();
    let mut store = open(directory.path());
    assert_eq!(store.statistics().unwrap().total, 100_000);
    let (mut pages, mut next) = (0, 0);
    loop {
        let page = store.receive("reader", None).unwrap();
        for message in &page.messages {
            assert_eq!(message.content, next.to_string());
            next += 1;
        }
        pages += 1;
        if !page.more {
            break;
        }
    }
    assert_eq!((pages, next), (1000, 100_000));
    // A repetition is recognised and a message is appended without reading the others.
    let mut anew = open(directory.path());
    assert!(matches!(anew.append(&message("a", "5")).unwrap(), Appended::Duplicate { .. }));
    assert!(matches!(anew.append(&message("a", "new")).unwrap(), Appended::Stored { .. }));
}
