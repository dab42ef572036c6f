use super::*;
use crate::message::{Draft, MessageType, Signal};
use jiff::Timestamp;
use proptest::prelude::*;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use tempfile::TempDir;

fn message(from: &str, to: &str, content: &str) -> Message {
    Message::new(1, from, Draft::to(to, MessageType::Chat, content), Timestamp::UNIX_EPOCH).unwrap()
}

fn signal(from: &str, signal: Signal, content: &str) -> Message {
    Message::new(1, from, Draft::signal(signal, content), Timestamp::UNIX_EPOCH).unwrap()
}

fn directory() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn open(directory: &TempDir) -> FileStore {
    FileStore::open(directory.path(), 1, Limits::default()).unwrap()
}

fn is_new(store: &mut FileStore, message: &Message) -> bool {
    matches!(store.append(message).unwrap(), Appended::Stored { .. })
}

fn contents(page: &Page) -> Vec<&str> {
    page.messages.iter().map(|message| message.content.as_str()).collect()
}

fn read_all(store: &mut FileStore) -> Vec<Message> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = store.read(after).unwrap();
        after = page.last;
        all.extend(page.messages);
        if !page.more {
            return all;
        }
    }
}

fn log_path(directory: &TempDir) -> std::path::PathBuf {
    directory.path().join("bridge.jsonl")
}

fn append_raw(directory: &TempDir, bytes: &[u8]) {
    fs::OpenOptions::new().append(true).open(log_path(directory)).unwrap().write_all(bytes).unwrap();
}

#[test]
fn am_03_repeated_message_is_stored_once_also_by_another_store() {
    let directory = directory();
    let (mut first, mut second) = (open(&directory), open(&directory));
    let sent = message("a", "b", "text");
    assert_eq!(first.append(&sent).unwrap(), Appended::Stored { id: sent.id.clone() });
    for store in [&mut first, &mut second, &mut open(&directory)] {
        assert_eq!(store.append(&sent).unwrap(), Appended::Duplicate { id: sent.id.clone() });
    }
    assert_eq!(fs::read_to_string(log_path(&directory)).unwrap().lines().count(), 1);
}

#[test]
fn am_04_signals_with_equal_text_are_three_messages() {
    let directory = directory();
    let mut store = open(&directory);
    for one in Signal::ALL {
        assert!(is_new(&mut store, &signal("a", one, "same")));
        assert!(!is_new(&mut store, &signal("a", one, "same")));
    }
    let statistics = store.statistics().unwrap();
    assert_eq!((statistics.total, statistics.done, statistics.pass, statistics.fail), (3, true, 1, 1));
}

#[test]
fn am_04_page_continues_after_signals_with_one_id() {
    let directory = directory();
    let mut store = open(&directory);
    let first = signal("a", Signal::Pass, "same");
    store.append(&first).unwrap();
    assert_eq!(store.receive("b", None).unwrap().messages.len(), 1);
    store.append(&signal("a", Signal::Fail, "same")).unwrap();
    let page = store.receive("b", Some(&first.id)).unwrap();
    assert_eq!(page.messages[0].signal, Some(Signal::Fail), "only PASS was received");
    assert_eq!(store.receive("b", Some(&first.id)).unwrap().messages, []);
}

#[test]
fn am_07_agent_receives_broadcasts_and_its_own_mail_but_not_what_it_sent() {
    let directory = directory();
    let mut store = open(&directory);
    for (from, to, content) in
        [("a", "b", "1"), ("b", "a", "2"), ("a", "", "3"), ("c", "", "4"), ("b", "b", "5")]
    {
        store.append(&message(from, to, content)).unwrap();
    }
    assert_eq!(contents(&store.receive("a", None).unwrap()), ["2", "4"]);
    assert_eq!(contents(&store.receive("b", None).unwrap()), ["1", "3", "4"]);
    assert_eq!(contents(&open(&directory).receive("b", None).unwrap()), [""; 0], "the cursor is stored");
    assert_eq!(store.read(None).unwrap().messages.len(), 5);
}

#[test]
fn am_15_cursor_moves_forward_only() {
    let directory = directory();
    let mut store = open(&directory);
    let sent: Vec<Message> = (0..4).map(|n| message("a", "b", &n.to_string())).collect();
    sent.iter().take(2).for_each(|message| assert!(is_new(&mut store, message)));
    assert_eq!(contents(&store.receive("b", None).unwrap()), ["0", "1"]);
    assert_eq!(contents(&store.receive("b", Some(&sent[0].id)).unwrap()), ["1"]);
    sent.iter().skip(2).for_each(|message| assert!(is_new(&mut store, message)));
    assert_eq!(contents(&store.receive("b", Some(&sent[2].id)).unwrap()), ["3"]);
    assert_eq!(contents(&store.receive("b", None).unwrap()), [""; 0]);
}

#[test]
fn am_16_unknown_cursor_is_refused_by_name_and_moves_nothing() {
    let directory = directory();
    let mut store = open(&directory);
    store.append(&message("a", "b", "1")).unwrap();
    let error = store.receive("b", Some("0123\n")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownCursor);
    assert_eq!(
        error.to_string(),
        "cannot continue after message \"0123\\n\": no retained message has this id"
    );
    assert_eq!(contents(&store.receive("b", None).unwrap()), ["1"]);
}

#[test]
fn am_17_statistics_are_sorted_counts() {
    let directory = directory();
    let mut store = open(&directory);
    for sent in [message("b", "a", "1"), message("a", "b", "2"), signal("b", Signal::Fail, "3")] {
        store.append(&sent).unwrap();
    }
    append_raw(&directory, b"junk\n\n");
    let statistics = store.statistics().unwrap();
    let by_agent: Vec<_> = statistics.by_agent.into_iter().collect();
    assert_eq!(by_agent, [("a".to_owned(), 1), ("b".to_owned(), 2)]);
    assert_eq!(statistics.by_type.into_iter().collect::<Vec<_>>(), [("chat", 2), ("signal", 1)]);
    assert_eq!((statistics.done, statistics.fail, statistics.unreadable), (false, 1, 1));
}

#[test]
fn page_is_limited_in_messages_and_bytes_and_says_that_more_follow() {
    let directory = directory();
    let mut store = open(&directory);
    (0..PAGE_COUNT).for_each(|n| assert!(is_new(&mut store, &message("a", "b", &n.to_string()))));
    let large = "x".repeat(3 << 20);
    store.append(&message("a", "b", &large)).unwrap();
    store.append(&message("a", "b", "last")).unwrap();
    let mut sizes = Vec::new();
    loop {
        let page = store.receive("b", None).unwrap();
        sizes.push(page.messages.len());
        if !page.more {
            break;
        }
    }
    assert_eq!(sizes, [100, 1, 1, 1]);
}

const PAGE_COUNT: usize = 101;

#[test]
fn lines_of_other_programs_are_read_reported_and_counted_once() {
    let directory = directory();
    let mut store = open(&directory);
    let sent = message("a", "b", "1");
    store.append(&sent).unwrap();
    append_raw(&directory, b"not json\n\n");
    append_raw(&directory, &sent.to_line().unwrap());
    append_raw(
        &directory,
        b"{\"type\":\"chat\",\"from\":\"a\",\"content\":\"2\",\"timestamp\":\"2024-03-28T10:00:00Z\"}\n",
    );
    let page = store.receive("b", None).unwrap();
    assert_eq!(contents(&page), ["1", "2"]);
    assert_eq!((page.unreadable_count, page.unreadable[0].line), (1, 2));
    assert_eq!(page.unreadable[0].file, "bridge.jsonl");
    assert!(!is_new(&mut store, &Message { to: String::new(), ..page.messages[1].clone() }));
}

#[test]
fn am_11_torn_line_is_moved_and_all_other_messages_remain() {
    let directory = directory();
    let mut store = open(&directory);
    store.append(&message("a", "b", "1")).unwrap();
    append_raw(&directory, b"{\"id\":\"torn");
    assert!(is_new(&mut store, &message("a", "b", "2")));
    append_raw(&directory, b"{\"again");
    assert_eq!(contents(&open(&directory).receive("b", None).unwrap()), ["1", "2"]);
    assert_eq!(
        fs::read_to_string(directory.path().join("bridge.torn")).unwrap(),
        "{\"id\":\"torn\n{\"again\n"
    );
}

#[test]
fn am_11_whole_message_without_its_newline_is_completed() {
    let directory = directory();
    let mut store = open(&directory);
    let line = message("a", "b", "1").to_line().unwrap();
    append_raw(&directory, &line[..line.len() - 1]);
    assert_eq!(contents(&store.receive("b", None).unwrap()), ["1"]);
    assert_eq!(fs::read(log_path(&directory)).unwrap(), line);
}

#[test]
fn index_that_is_missing_damaged_or_of_another_file_is_rebuilt() {
    let directory = directory();
    let mut store = open(&directory);
    (0..5).for_each(|n| assert!(is_new(&mut store, &message("a", "b", &n.to_string()))));
    let index = directory.path().join("bridge.index");
    let good = fs::read(&index).unwrap();
    let damages: [fn(&mut Vec<u8>); 6] = [
        Vec::clear,
        |bytes| bytes[20] ^= 1,
        |bytes| bytes[100] ^= 1,
        |bytes| bytes.extend([0; 56]),
        |bytes| bytes.extend_from_within(32..88),
        |bytes| bytes.truncate(100),
    ];
    for damage in damages {
        let mut bytes = good.clone();
        damage(&mut bytes);
        fs::write(&index, bytes).unwrap();
        assert_eq!(read_all(&mut open(&directory)).len(), 5);
        assert_eq!(fs::read(&index).unwrap(), good);
    }
    fs::remove_file(&index).unwrap();
    assert!(!is_new(&mut store, &message("a", "b", "4")), "an open store notices it as well");
    assert_eq!(fs::read(&index).unwrap(), good);
}

#[test]
fn file_that_was_replaced_or_cut_is_read_anew() {
    let directory = directory();
    let mut store = open(&directory);
    (0..5).for_each(|n| assert!(is_new(&mut store, &message("a", "b", &n.to_string()))));
    let other = message("a", "b", "other").to_line().unwrap();
    fs::write(log_path(&directory), &other).unwrap();
    assert_eq!(contents(&store.read(None).unwrap()), ["other"]);
    fs::write(directory.path().join("new"), [other, message("a", "b", "2").to_line().unwrap()].concat())
        .unwrap();
    fs::rename(directory.path().join("new"), log_path(&directory)).unwrap();
    assert_eq!(contents(&store.read(None).unwrap()), ["other", "2"]);
}

#[test]
fn file_that_has_another_name_by_now_is_refused() {
    let directory = directory();
    let mut store = open(&directory);
    assert!(is_new(&mut store, &message("a", "b", "1")));
    fs::hard_link(log_path(&directory), directory.path().join("other")).unwrap();
    let refused = store.append(&message("a", "b", "2")).unwrap_err().to_string();
    assert!(refused.contains("it has 2 hard links"), "{refused}");
    assert!(store.read(None).is_err());
    fs::remove_file(directory.path().join("other")).unwrap();
    assert_eq!(contents(&store.read(None).unwrap()), ["1"]);
}

#[test]
fn full_segment_is_renamed_and_the_oldest_is_removed() {
    let directory = directory();
    let limits = Limits { segment_bytes: 1000, old_segments: 3 };
    let mut store = FileStore::open(directory.path(), 1, limits).unwrap();
    let mut reader = FileStore::open(directory.path(), 1, limits).unwrap();
    let sent: Vec<Message> = (0..30).map(|n| message("a", "b", &format!("{n:0100}"))).collect();
    assert!(is_new(&mut store, &sent[0]));
    assert_eq!(reader.receive("b", None).unwrap().messages.len(), 1);
    sent.iter().skip(1).for_each(|message| assert!(is_new(&mut store, message)));
    let mut names: Vec<String> = fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.retain(|name| name.ends_with(".jsonl"));
    names.sort();
    assert_eq!(names.len(), 4, "{names:?}");
    assert_eq!(names[3], "bridge.jsonl");
    let retained = read_all(&mut store);
    assert_eq!(retained, sent[30 - retained.len()..]);
    // Duplicates and cursors span the segments; the removed ones are unknown.
    assert!(!is_new(&mut reader, &retained[0]));
    let page = reader.receive("b", None).unwrap();
    assert!(page.gap);
    assert_eq!(page.messages, retained);
    assert!(!reader.receive("b", None).unwrap().gap);
    assert_eq!(reader.receive("b", Some(&sent[0].id)).unwrap_err().kind(), ErrorKind::UnknownCursor);
    assert_eq!(reader.receive("b", Some(&retained[0].id)).unwrap().messages, retained[1..]);
    assert_eq!(store.statistics().unwrap().total, retained.len() as u64);
}

#[test]
fn line_that_another_program_appends_during_an_append_is_kept() {
    let directory = directory();
    let mut store = open(&directory);
    let (own, other) = (message("a", "b", "own"), message("a", "b", "other"));
    let line = own.to_line().unwrap();
    store
        .with_segments(|files, segments| {
            append_raw(&directory, &other.to_line().unwrap());
            segments.append(files, &own, &line)
        })
        .unwrap();
    for store in [&mut store, &mut open(&directory)] {
        assert_eq!(contents(&store.read(None).unwrap()), ["other", "own"]);
        assert!(!is_new(store, &own) && !is_new(store, &other));
    }
}

#[test]
fn indexed_line_that_another_program_changed_is_reported_and_read_anew() {
    let directory = directory();
    let mut store = open(&directory);
    (0..3).for_each(|n| assert!(is_new(&mut store, &message("a", "b", &n.to_string()))));
    let text = fs::read_to_string(log_path(&directory)).unwrap();
    fs::write(log_path(&directory), text.replacen("{", "[", 1)).unwrap();
    assert_eq!(store.receive("b", None).unwrap_err().kind(), ErrorKind::Changed);
    let page = store.receive("b", None).unwrap();
    assert_eq!((contents(&page), page.unreadable_count), (vec!["1", "2"], 1));
}

#[test]
fn lock_file_that_was_removed_still_excludes() {
    let directory = directory();
    let mut first = open(&directory);
    fs::remove_file(directory.path().join("bridge.lock")).unwrap();
    let mut second = open(&directory);
    let guard = second.lock.acquire(&second.directory).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        sender.send("waits").unwrap();
        first.append(&message("a", "b", "1")).unwrap();
        sender.send("stored").unwrap();
    });
    assert_eq!(receiver.recv().unwrap(), "waits");
    assert!(receiver.try_recv().is_err());
    drop(guard);
    assert_eq!(receiver.recv().unwrap(), "stored");
    thread.join().unwrap();
    assert!(!is_new(&mut second, &message("a", "b", "1")));
}

#[test]
fn rotation_that_crashed_half_way_is_completed() {
    let directory = directory();
    let mut store = open(&directory);
    (0..3).for_each(|n| assert!(is_new(&mut store, &message("a", "b", &n.to_string()))));
    fs::rename(log_path(&directory), directory.path().join("bridge-0001.jsonl")).unwrap();
    for store in [&mut store, &mut open(&directory)] {
        assert!(!is_new(store, &message("a", "b", "2")));
        assert_eq!(read_all(store).len(), 3);
    }
    assert!(is_new(&mut store, &message("a", "b", "3")));
}

#[test]
fn files_that_are_no_private_regular_files_are_refused() {
    type Make = fn(&Path);
    let make: [(&str, Make); 5] = [
        ("it is a symbolic link", |path| std::os::unix::fs::symlink("/dev/null", path).unwrap()),
        ("it is a directory", |path| fs::create_dir(path).unwrap()),
        ("it is not a regular file", |path| {
            rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
                .unwrap();
        }),
        ("it has 2 hard links", |path| {
            fs::write(path.with_extension("other"), "").unwrap();
            fs::hard_link(path.with_extension("other"), path).unwrap();
        }),
        ("it is read-only", |path| {
            fs::write(path, "").unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o400)).unwrap();
        }),
    ];
    for name in ["bridge.jsonl", "bridge.index", "bridge.lock"] {
        for (cause, make) in make {
            let directory = directory();
            make(&directory.path().join(name));
            let error = FileStore::open(directory.path(), 1, Limits::default()).unwrap_err();
            let is_root = rustix::process::geteuid().is_root();
            let text = error.to_string();
            // The kernel refuses a read-only file to other users than root before its mode is compared.
            assert!(
                text.contains(cause) || (!is_root && text.contains("ermission denied")),
                "{name}: {text}"
            );
            assert!(text.contains(name) && error.hint().is_some(), "{text}");
        }
    }
}

#[test]
fn files_of_other_users_and_read_only_directories_are_refused() {
    let directory = directory();
    open(&directory);
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o500)).unwrap();
    let error = FileStore::open(directory.path(), 1, Limits::default()).unwrap_err();
    assert!(error.to_string().ends_with("it is read-only"), "{error}");
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700)).unwrap();
    // Only root can give files away; other users cannot have such a file below a directory of their own.
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(log_path(&directory), Some(12345), None).unwrap();
        let error = FileStore::open(directory.path(), 1, Limits::default()).unwrap_err();
        assert!(error.to_string().ends_with("it belongs to user id 12345"), "{error}");
    }
}

#[test]
fn files_are_private_to_their_user() {
    let directory = directory();
    let mut store = open(&directory);
    store.append(&message("a", "b", "1")).unwrap();
    store.receive("b", None).unwrap();
    for name in ["bridge.jsonl", "bridge.index", "bridge.lock", "cursors/b"] {
        let mode = fs::metadata(directory.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600, "{name}");
    }
    assert_eq!(fs::metadata(directory.path().join("cursors")).unwrap().permissions().mode() & 0o7777, 0o700);
}

#[test]
fn am_20_10_mib_of_any_text_is_stored_and_received() {
    let directory = directory();
    let mut store = open(&directory);
    let text = "\u{0}<&>\n€".repeat((10 << 20) / 8);
    store.append(&message("a", "b", &text)).unwrap();
    assert!(store.receive("b", None).unwrap().messages[0].content == text);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn am_11_messages_before_any_truncation_point_are_readable(
        sent in proptest::collection::vec(crate::message::tests::any_message(), 1..8), cut in any::<prop::sample::Index>(), with_index in any::<bool>(),
    ) {
        let directory = directory();
        let mut store = open(&directory);
        let mut ends = Vec::new();
        for message in &sent {
            if is_new(&mut store, message) {
                ends.push((fs::metadata(log_path(&directory)).unwrap().len(), message.clone()));
            }
        }
        let length = ends.last().unwrap().0;
        let cut = cut.index(usize::try_from(length).unwrap() + 1) as u64;
        fs::OpenOptions::new().write(true).open(log_path(&directory)).unwrap().set_len(cut).unwrap();
        if !with_index {
            fs::remove_file(directory.path().join("bridge.index")).unwrap();
        }
        // A line that lacks its newline only is whole.
        let expected: Vec<Message> = ends.into_iter().filter(|(end, _)| end - 1 <= cut).map(|(_, message)| message).collect();
        prop_assert_eq!(&read_all(&mut store), &expected);
        for message in &sent {
            store.append(message).unwrap();
        }
        let mut anew = open(&directory);
        prop_assert_eq!(read_all(&mut anew), read_all(&mut store));
        for message in &sent {
            prop_assert!(!is_new(&mut anew, message));
        }
    }

    #[test]
    fn rebuilt_index_equals_the_incremental_one(
        steps in proptest::collection::vec((0u8..5, 0u8..6), 1..25),
    ) {
        let directory = directory();
        let (mut first, mut second) = (open(&directory), open(&directory));
        for (kind, text) in steps {
            let sent = message(["a", "b"][usize::from(text % 2)], "", &text.to_string());
            match kind {
                0 => { first.append(&sent).unwrap(); }
                1 => { second.append(&sent).unwrap(); }
                2 => append_raw(&directory, &sent.to_line().unwrap()),
                3 => append_raw(&directory, b"junk\n"),
                _ => { first.read(None).unwrap(); }
            }
        }
        let all = read_all(&mut first);
        prop_assert_eq!(&all, &read_all(&mut second));
        let index = directory.path().join("bridge.index");
        let incremental = fs::read(&index).unwrap();
        fs::remove_file(&index).unwrap();
        prop_assert_eq!(&all, &read_all(&mut open(&directory)));
        prop_assert_eq!(fs::read(&index).unwrap(), incremental);
        let unique: std::collections::HashSet<_> = all.iter().map(|message| &message.id).collect();
        prop_assert_eq!(unique.len(), all.len());
    }
}
