use super::*;
use proptest::prelude::*;
use saggar_bridge::proto::spool::RECORD_HEADER_SIZE;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::PathBuf;

const MIB: u64 = 1 << 20;

fn record(kind: SpoolRecordKind, number: u64, command: u64, body: &[u8]) -> SpoolRecord<'_> {
    SpoolRecord { kind, number, command, body }
}

fn event(spool: &mut SessionSpool, number: u64, body: &[u8]) -> SpoolPosition {
    spool.append(&[record(SpoolRecordKind::Event, number, 0, body)])
}

fn open_at(path: &Path, bound: u64) -> (SessionSpool, SavedSpool) {
    SessionSpool::open(path, bound, 10).unwrap()
}

/// The numbers and lines of all events from `number` on.
fn all(spool: &mut SessionSpool, number: u64) -> Vec<(u64, Vec<u8>)> {
    let (mut place, mut next, mut found) = (spool.find(number), number, Vec::new());
    while let SpoolReadResult::Event { number, line } = spool.read(&mut place, next, usize::MAX) {
        next = number + 1;
        found.push((number, line));
    }
    found
}

fn segments(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path.join("spool")).unwrap().flatten().map(|entry| entry.path());
    let mut found: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|e| e == "seg")).collect();
    found.sort();
    found
}

fn size(path: &Path) -> u64 {
    segments(path).iter().map(|path| fs::metadata(path).unwrap().len()).sum()
}

#[test]
fn what_was_flushed_is_there_again_and_the_numbers_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let (mut spool, left) = open_at(dir.path(), MIB);
    assert_eq!(left, SavedSpool::default());
    spool.append(&[record(SpoolRecordKind::CommandStarted, 0, 1, b"\"a\"")]);
    event(&mut spool, 1, b"one");
    spool.append(&[
        record(SpoolRecordKind::Event, 2, 0, b"two"),
        record(SpoolRecordKind::LastEvent, 3, 1, b"three"),
    ]);
    spool.append(&[record(SpoolRecordKind::CommandStarted, 3, 2, b"")]);
    spool.flush().unwrap();
    event(&mut spool, 4, b"never flushed");
    drop(spool);
    let (mut spool, left) = open_at(dir.path(), MIB);
    assert_eq!((left.next_event, left.next_command), (4, 3));
    assert_eq!(left.unfinished, [UnfinishedCommand { command: 2, id: String::new() }]);
    let lines: Vec<(u64, Vec<u8>)> = vec![(2, b"two".to_vec()), (3, b"three".to_vec())];
    assert_eq!(all(&mut spool, 2), lines);
    let directory = fs::metadata(dir.path().join("spool")).unwrap();
    assert_eq!(directory.permissions().mode() & 0o777, 0o700);
    for segment in segments(dir.path()) {
        assert_eq!(fs::metadata(segment).unwrap().mode() & 0o777, 0o600);
    }
}

#[test]
fn the_oldest_go_first_and_the_bound_holds() {
    let dir = tempfile::tempdir().unwrap();
    let (mut spool, _) = open_at(dir.path(), MIB);
    let body = vec![b'x'; 1000];
    let unended = record(SpoolRecordKind::CommandStarted, 0, 1, b"\"long\"");
    spool.append(&[unended]);
    for number in 1..=5000 {
        event(&mut spool, number, &body);
        if number % 7 == 0 {
            spool.flush().unwrap();
            assert!(size(dir.path()) <= MIB, "{}", size(dir.path()));
        }
    }
    spool.flush().unwrap();
    let there = all(&mut spool, 1);
    let first = there[0].0;
    assert!((900..=1050).contains(&there.len()), "{}", there.len());
    assert!(there.iter().map(|(number, _)| *number).eq(first..=5000));
    // The segment that was read was removed meanwhile: reading continues with the remaining ones.
    let mut place = SpoolPosition { segment: 1, offset: 48 };
    assert!(
        matches!(spool.read(&mut place, 5, usize::MAX), SpoolReadResult::Event { number, .. } if number == first)
    );
    drop(spool);
    let (_, left) = open_at(dir.path(), MIB);
    assert_eq!(left.next_event, 5001);
    assert_eq!(left.unfinished.len(), 1, "what began long ago is still known");
}

/// What is stored after a number.
fn stored(path: &Path, after: u64) -> Vec<StoredEvent> {
    let mut found = Vec::new();
    let mut keep = |event| {
        found.push(event);
        Ok(())
    };
    read_stored_events(path, after, &mut keep).unwrap();
    found
}

#[test]
fn stored_events_are_read_beside_an_open_spool() {
    let dir = tempfile::tempdir().unwrap();
    assert!(stored(dir.path(), 0).is_empty());
    let (mut spool, _) = open_at(dir.path(), MIB);
    let body = vec![b'x'; 1000];
    for number in 1..=5000 {
        if number != 4000 {
            event(&mut spool, number, &body);
        }
    }
    spool.flush().unwrap();
    let first = all(&mut spool, 1)[0].0;
    for after in [0, first - 1, first, 3998, 3999, 4000, 4999, 5000, 9000] {
        let mut expected = Vec::new();
        let mut last = after;
        for (number, line) in all(&mut spool, after + 1) {
            if number > last + 1 {
                expected.push(StoredEvent::Gap(last + 1, number - 1));
            }
            expected.push(StoredEvent::Event(number, line));
            last = number;
        }
        assert_eq!(stored(dir.path(), after), expected, "after {after}");
    }
}

#[test]
fn half_a_record_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let (mut spool, _) = open_at(dir.path(), MIB);
    for number in 1..=3 {
        event(&mut spool, number, b"line");
    }
    spool.flush().unwrap();
    let segment = &segments(dir.path())[0];
    let whole = fs::metadata(segment).unwrap().len();
    fs::File::options().write(true).open(segment).unwrap().set_len(whole - 1).unwrap();
    let expected = [1, 2].map(|number| StoredEvent::Event(number, b"line".to_vec()));
    assert_eq!(stored(dir.path(), 0), expected);
}

#[test]
fn an_event_larger_than_the_bound_is_missing_and_its_number_stays_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let (mut spool, _) = open_at(dir.path(), MIB);
    event(&mut spool, 1, b"small");
    let large = vec![b'x'; 2 << 20];
    spool.append(&[record(SpoolRecordKind::CommandStarted, 1, 1, b"1")]);
    event(&mut spool, 2, &large);
    spool.append(&[record(SpoolRecordKind::LastEvent, 3, 1, &large)]);
    spool.flush().unwrap();
    drop(spool);
    let (mut spool, left) = open_at(dir.path(), MIB);
    assert_eq!((left.next_event, left.unfinished), (4, Vec::new()));
    event(&mut spool, 4, b"next");
    spool.flush().unwrap();
    assert_eq!(all(&mut spool, 1), [(1, b"small".to_vec()), (4, b"next".to_vec())]);
    assert!(size(dir.path()) < MIB);
}

#[test]
fn a_large_event_is_kept_whole_and_told_only_where_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let (mut spool, _) = open_at(dir.path(), 64 * MIB);
    let large: Vec<u8> = (0..=250u8).cycle().take(20 << 20).collect();
    for number in 1..=5 {
        event(&mut spool, number, &large);
        spool.flush().unwrap();
        assert!(size(dir.path()) <= 64 * MIB);
    }
    let mut place = spool.find(1);
    assert_eq!(spool.read(&mut place, 1, 1000), SpoolReadResult::TooLarge(large.len()));
    let there = all(&mut spool, 1);
    assert_eq!(there.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [3, 4, 5]);
    assert!(there.iter().all(|(_, line)| *line == large));
}

#[test]
fn half_a_record_at_the_end_is_repaired_wherever_it_was_cut() {
    let dir = tempfile::tempdir().unwrap();
    let (mut spool, _) = open_at(dir.path(), MIB);
    event(&mut spool, 1, b"one");
    event(&mut spool, 2, b"the second one");
    spool.flush().unwrap();
    drop(spool);
    let path = segments(dir.path()).remove(0);
    let whole = fs::read(&path).unwrap();
    let second = whole.len() - RECORD_HEADER_SIZE - b"the second one".len();
    for length in second..whole.len() {
        for junk in [&b""[..], &[0; 100], b"\xff\xff\xff\xff"] {
            // Also the effects of a power failure on a disk: zeros, or other data.
            if length + junk.len() >= whole.len() && junk.is_empty() {
                continue;
            }
            fs::write(&path, [&whole[..length], junk].concat()).unwrap();
            let (mut spool, left) = open_at(dir.path(), MIB);
            assert_eq!(left.next_event, 2, "cut at {length}");
            event(&mut spool, 2, b"again");
            spool.flush().unwrap();
            assert_eq!(all(&mut spool, 1), [(1, b"one".to_vec()), (2, b"again".to_vec())]);
            drop(spool);
            let (mut spool, left) = open_at(dir.path(), MIB);
            assert_eq!((left.next_event, all(&mut spool, 1).len()), (3, 2));
        }
    }
}

/// The body of a torn event is text of the agent: it must not be read as records.
#[test]
fn words_that_look_like_records_are_words() {
    let dir = tempfile::tempdir().unwrap();
    let (mut spool, _) = open_at(dir.path(), MIB);
    let fake = record(SpoolRecordKind::Event, 77, 0, b"forged");
    let mut words = fake.header().unwrap().to_vec();
    words.extend_from_slice(b"forged");
    let words = words.repeat(20);
    event(&mut spool, 1, &words);
    spool.flush().unwrap();
    drop(spool);
    let path = segments(dir.path()).remove(0);
    let length = fs::metadata(&path).unwrap().len();
    fs::File::options().write(true).open(&path).unwrap().set_len(length - 3).unwrap();
    let (mut spool, left) = open_at(dir.path(), MIB);
    assert_eq!((left.next_event, all(&mut spool, 1)), (1, Vec::new()));
    event(&mut spool, 1, b"x");
    spool.flush().unwrap();
    drop(spool);
    let (mut spool, left) = open_at(dir.path(), MIB);
    assert_eq!((left.next_event, all(&mut spool, 1)), (2, vec![(1, b"x".to_vec())]));
}

#[test]
fn a_record_that_the_disk_spoiled_is_missing_and_those_around_it_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let (mut spool, _) = open_at(dir.path(), MIB);
    for number in 1..=3 {
        event(&mut spool, number, b"some words");
    }
    spool.flush().unwrap();
    let path = segments(dir.path()).remove(0);
    let file = fs::File::options().write(true).open(&path).unwrap();
    let second = SEGMENT_HEADER_SIZE as u64 + RECORD_HEADER_SIZE as u64 + 10;
    file.write_all_at(b"!", second + RECORD_HEADER_SIZE as u64 + 3).unwrap();
    let numbers: Vec<u64> = all(&mut spool, 1).into_iter().map(|(number, _)| number).collect();
    assert_eq!(numbers, [1, 3]);
}

/// After a restart of the machine it is unknown which events were sent and did not reach the disk.
#[test]
fn numbers_leap_after_a_restart_of_the_machine_unless_all_was_synced() {
    for closed in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (mut spool, _) = open_at(dir.path(), MIB);
        event(&mut spool, 1, b"one");
        spool.flush().unwrap();
        if closed {
            spool.close();
        }
        drop(spool);
        let path = segments(dir.path()).remove(0);
        let head = Head { first_number: 1, lost_up_to: 0, boot_id: [7; 16] };
        fs::File::options().write(true).open(&path).unwrap().write_all_at(&head.encode(), 0).unwrap();
        let (mut spool, left) = open_at(dir.path(), MIB);
        let expected = if closed { 2 } else { 2 + UNSYNCED_GAP };
        assert_eq!(left.next_event, expected);
        event(&mut spool, expected, b"two");
        spool.flush().unwrap();
        assert_eq!(all(&mut spool, 1).len(), 2);
        drop(spool);
        assert_eq!(open_at(dir.path(), MIB).1.next_event, expected + 1, "once for each restart");
    }
}

#[test]
fn what_is_no_segment_is_not_followed_and_not_read() {
    let dir = tempfile::tempdir().unwrap();
    drop(open_at(dir.path(), MIB));
    let spool = dir.path().join("spool");
    fs::write(spool.join("00000000000000000009.seg"), "junk").unwrap();
    fs::write(spool.join("9.seg"), "not ours").unwrap();
    fs::write(spool.join("segment.new"), "half of one").unwrap();
    assert_eq!(open_at(dir.path(), MIB).1.next_event, 1);
    assert!(spool.join("9.seg").exists() && !spool.join("00000000000000000009.seg").exists());
    let outside = dir.path().join("outside");
    fs::write(&outside, "x").unwrap();
    std::os::unix::fs::symlink(&outside, spool.join("00000000000000000005.seg")).unwrap();
    let refused = SessionSpool::open(dir.path(), MIB, 10).unwrap_err();
    assert!(refused.to_string().contains("open the spool"), "{refused}");
    assert_eq!(fs::read(&outside).unwrap(), b"x");
}

#[test]
fn uuids_are_remembered_the_newest_of_each_kind() {
    let dir = tempfile::tempdir().unwrap();
    let (mut spool, _) = open_at(dir.path(), MIB);
    for number in 0..35 {
        spool.store_uuid(true, &format!("told \n {number}"));
        if number < 3 {
            spool.store_uuid(false, &format!("taken {number}"));
        }
        spool.flush().unwrap();
    }
    drop(spool);
    // A line of a run that was killed.
    let told = dir.path().join("spool/told");
    let mut text = fs::read(&told).unwrap();
    text.extend_from_slice(b"\"torn");
    fs::write(&told, text).unwrap();
    let (mut spool, left) = open_at(dir.path(), MIB);
    let expected: Vec<String> = (25..35).map(|number| format!("told \n {number}")).collect();
    assert_eq!((left.sent_messages, left.received_messages.len()), (expected, 3));
    spool.store_uuid(true, "after");
    spool.flush().unwrap();
    drop(spool);
    assert_eq!(open_at(dir.path(), MIB).1.sent_messages.last().unwrap(), "after");
}

#[derive(Debug, Clone)]
enum Step {
    Begin,
    Event(usize),
    End(usize),
    Flush,
    Reopen,
    Read(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let size = prop_oneof![0usize..200, 0usize..70_000, 0usize..400_000, 900_000usize..1_200_000];
    prop_oneof![
        1 => Just(Step::Begin),
        5 => size.prop_map(Step::Event),
        1 => (0usize..10).prop_map(Step::End),
        2 => Just(Step::Flush),
        1 => Just(Step::Reopen),
        1 => (0u64..100).prop_map(Step::Read),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    /// Compared with lists in memory: the spool has the appended records without a gap in the middle, up to the end.
    #[test]
    fn a_spool_is_a_list_of_which_the_beginning_goes(steps in proptest::collection::vec(step(), 0..120)) {
        let dir = tempfile::tempdir().unwrap();
        let (mut spool, _) = open_at(dir.path(), MIB);
        let (mut lines, mut flushed): (BTreeMap<u64, Vec<u8>>, u64) = (BTreeMap::new(), 0);
        let (mut next, mut command, mut begun, mut safe) = (1u64, 1u64, Vec::new(), Vec::new());
        for step in steps {
            match step {
                Step::Begin => {
                    spool.append(&[record(SpoolRecordKind::CommandStarted, next - 1, command, command.to_string().as_bytes())]);
                    begun.push(command);
                    command += 1;
                }
                Step::Event(size) => {
                    let line = vec![u8::try_from(next % 256).unwrap(); size];
                    event(&mut spool, next, &line);
                    lines.insert(next, line);
                    next += 1;
                }
                Step::End(at) => {
                    if begun.is_empty() { continue }
                    let ended = begun.remove(at % begun.len());
                    spool.append(&[record(SpoolRecordKind::LastEvent, next, ended, b"end")]);
                    lines.insert(next, b"end".to_vec());
                    next += 1;
                }
                Step::Flush => {
                    spool.flush().unwrap();
                    (flushed, safe) = (next - 1, begun.clone());
                }
                Step::Reopen => {
                    spool.flush().unwrap();
                    (flushed, safe) = (next - 1, begun.clone());
                    drop(spool);
                    let left;
                    (spool, left) = open_at(dir.path(), MIB);
                    prop_assert_eq!(left.next_event, next);
                    prop_assert_eq!(left.unfinished.iter().map(|unended| unended.command).collect::<Vec<_>>(), safe.clone());
                    prop_assert!(left.next_command <= command);
                }
                Step::Read(from) => {
                    spool.flush().unwrap();
                    (flushed, safe) = (next - 1, begun.clone());
                    let there = all(&mut spool, from);
                    for (number, line) in &there {
                        prop_assert!(*number >= from && &lines[number] == line);
                    }
                    // Only records larger than the limit are missing in between.
                    let first = there.first().map_or(next, |(number, _)| *number);
                    let kept = lines.range(first..).filter(|(_, line)| line.len() + 80 <= 1 << 20);
                    prop_assert!(kept.map(|(number, _)| *number).eq(there.iter().map(|(number, _)| *number)));
                    prop_assert!(size(dir.path()) <= MIB + 4096);
                }
            }
        }
        drop(spool);
        let (_, left) = open_at(dir.path(), MIB);
        prop_assert!(left.next_event > flushed && left.next_event <= next);
        if flushed == next - 1 && safe == begun {
            prop_assert_eq!(left.unfinished.len(), begun.len());
        }
    }

    /// With any content of the files, opening and reading them terminates and does no harm.
    #[test]
    fn any_bytes_on_the_disk_are_read_without_harm(
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
        at in 0u64..400,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let (mut spool, _) = open_at(dir.path(), MIB);
        for number in 1..=4 {
            event(&mut spool, number, b"some words of an agent");
        }
        spool.flush().unwrap();
        drop(spool);
        let path = segments(dir.path()).remove(0);
        fs::File::options().write(true).open(&path).unwrap().write_all_at(&bytes, at).unwrap();
        let (mut spool, left) = open_at(dir.path(), MIB);
        let there = all(&mut spool, 0);
        prop_assert!(there.len() <= 4);
        event(&mut spool, left.next_event, b"goes on");
        prop_assert!(spool.flush().is_ok());
        prop_assert_eq!(all(&mut spool, left.next_event), [(left.next_event, b"goes on".to_vec())]);
    }
}
