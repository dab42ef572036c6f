use super::*;
use proptest::prelude::*;

/// An entry to build.
#[derive(Debug, Clone)]
struct Built {
    mode: u32,
    flags: u16,
    more: Option<u16>,
    path: Vec<u8>,
}

fn file(path: &[u8]) -> Built {
    Built { mode: 0o100_644, flags: 0, more: None, path: path.to_vec() }
}

/// An index with a valid hash.
fn built(version: u32, entries: &[Built], extensions: &[u8]) -> Vec<u8> {
    let mut index = b"DIRC".to_vec();
    index.extend(version.to_be_bytes());
    index.extend(u32::try_from(entries.len()).unwrap().to_be_bytes());
    let mut before: &[u8] = b"";
    for entry in entries {
        let start = index.len();
        index.extend([7; 24]);
        index.extend(entry.mode.to_be_bytes());
        index.extend([8; 12]);
        index.extend([9; 20]);
        let length = u16::try_from(entry.path.len().min(0xfff)).unwrap();
        index.extend((entry.flags | length | if entry.more.is_some() { 0x4000 } else { 0 }).to_be_bytes());
        index.extend(entry.more.iter().flat_map(|more| more.to_be_bytes()));
        if version == 4 {
            let common = before.iter().zip(&entry.path).take_while(|(a, b)| a == b).count();
            index.extend(number(before.len() - common));
            index.extend(&entry.path[common..]);
            index.push(0);
            before = &entry.path;
        } else {
            index.extend(&entry.path);
            index.push(0);
            while !(index.len() - start).is_multiple_of(8) {
                index.push(0);
            }
        }
    }
    index.extend(extensions);
    with_hash(index)
}

/// `encode_varint` of git.
fn number(mut value: usize) -> Vec<u8> {
    let mut bytes = vec![u8::try_from(value & 0x7f).unwrap()];
    while value > 0x7f {
        value = (value >> 7) - 1;
        bytes.insert(0, 0x80 | u8::try_from(value & 0x7f).unwrap());
    }
    bytes
}

fn with_hash(mut index: Vec<u8>) -> Vec<u8> {
    let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, &index);
    index.extend(hash.as_ref());
    index
}

fn extension(name: &[u8; 4], content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).unwrap().to_be_bytes();
    [name, &length[..], content].concat()
}

fn set(index: &[u8], wanted: &[u8]) -> Result<Option<EditedIndex>, IndexError> {
    edit(index, ObjectFormat::Sha1, SkipWorktree::Set, |path| path == wanted)
}

fn clear(index: &[u8], wanted: &[u8]) -> Result<Option<EditedIndex>, IndexError> {
    edit(index, ObjectFormat::Sha1, SkipWorktree::Clear, |path| path == wanted)
}

/// The index with zeros for its hash, so that any content passes.
fn unhashed(mut index: Vec<u8>) -> Vec<u8> {
    let content = index.len() - 20;
    index[content..].fill(0);
    index
}

#[test]
fn the_bytes_of_a_small_index() {
    let before = [
        &b"DIRC\0\0\0\x02\0\0\0\x02"[..],
        &[7; 24],
        b"\0\0\x81\xa4",
        &[8; 12],
        &[9; 20],
        b"\0\x01a\0",
        &[7; 24],
        b"\0\0\x81\xa4",
        &[8; 12],
        &[9; 20],
        b"\x80\x08deep/key\0\0",
        b"TREE\0\0\0\x01x",
    ]
    .concat();
    let after = [
        &b"DIRC\0\0\0\x03\0\0\0\x02"[..],
        &[7; 24],
        b"\0\0\x81\xa4",
        &[8; 12],
        &[9; 20],
        b"\0\x01a\0",
        &[7; 24],
        b"\0\0\x81\xa4",
        &[8; 12],
        &[9; 20],
        b"\xc0\x08\x40\0deep/key\0\0\0\0\0\0\0\0",
        b"TREE\0\0\0\x01x",
    ]
    .concat();
    let before = with_hash(before);
    // The 72 bytes of the second entry become 80: there are 1 to 8 NULs.
    let edited = set(&before, b"deep/key").unwrap().unwrap();
    assert_eq!(edited.changed, [b"deep/key"]);
    assert_eq!(edited.bytes, with_hash(after));
    assert_eq!(set(&edited.bytes, b"deep/key"), Ok(None));
    assert_eq!(clear(&edited.bytes, b"deep/key").unwrap().unwrap().bytes, before);
    assert_eq!(clear(&before, b"deep/key"), Ok(None));
}

#[test]
fn the_bytes_of_version_4() {
    let entries = [file(b"dir/aaa"), file(b"dir/b"), file(b"z")];
    let before = built(4, &entries, b"");
    assert_eq!(&before[12 + 62 + 9 + 62..][..3], b"\x03b\0");
    let edited = set(&before, b"dir/b").unwrap().unwrap();
    let [first, second, third] = entries;
    assert_eq!(edited.bytes, built(4, &[first, Built { more: Some(0x4000), ..second }, third], b""));
    assert_eq!(clear(&edited.bytes, b"dir/b").unwrap().unwrap().bytes, before);
}

#[test]
fn a_version_3_remains_while_an_entry_needs_it() {
    let added = Built { more: Some(0x2000), ..file(b"added") };
    let skipped = Built { more: Some(0x4000), ..file(b"key") };
    let index = built(3, &[added.clone(), skipped], b"");
    let edited = clear(&index, b"key").unwrap().unwrap();
    assert_eq!(edited.bytes, built(3, &[added, file(b"key")], b""));
}

#[test]
fn what_is_no_file_of_the_work_tree_is_left_alone() {
    let index = built(
        3,
        &[
            Built { more: Some(0x2000), ..file(b"added") },
            Built { flags: 0x1000, ..file(b"conflict") },
            Built { flags: 0x2000, ..file(b"conflict") },
            Built { flags: 0x3000, ..file(b"conflict") },
            Built { mode: 0o40_000, more: Some(0x4000), ..file(b"sparse/") },
            Built { mode: 0o160_000, ..file(b"submodule") },
        ],
        b"",
    );
    for change in [SkipWorktree::Set, SkipWorktree::Clear] {
        assert_eq!(edit(&index, ObjectFormat::Sha1, change, |_| true), Ok(None));
    }
    let link = Built { mode: 0o120_000, flags: 0x8000, ..file(b"link") };
    let edited = set(&built(2, std::slice::from_ref(&link), b""), b"link").unwrap().unwrap();
    assert_eq!(edited.bytes, built(3, &[Built { more: Some(0x4000), ..link }], b""));
}

#[test]
fn extensions_with_offsets_are_dropped() {
    let [tree, end, offsets, sparse, unknown] =
        [b"TREE", b"EOIE", b"IEOT", b"sdir", b"Z\xff\0a"].map(|name| extension(name, b"content"));
    let index =
        built(2, &[file(b"key")], &[offsets, tree.clone(), sparse.clone(), unknown.clone(), end].concat());
    let edited = set(&index, b"key").unwrap().unwrap();
    let key = Built { more: Some(0x4000), ..file(b"key") };
    assert_eq!(edited.bytes, built(3, &[key], &[tree, sparse, unknown].concat()));
}

#[test]
fn a_missing_hash_remains_missing() {
    let edited = set(&unhashed(built(2, &[file(b"key")], b"")), b"key").unwrap().unwrap();
    assert_eq!(edited.bytes, unhashed(edited.bytes.clone()));
}

#[test]
fn errors_state_what_is_wrong() {
    let good = built(2, &[file(b"key")], b"");
    let with = |at: usize, bytes: &[u8]| {
        let mut index = good.clone();
        index[at..at + bytes.len()].copy_from_slice(bytes);
        unhashed(index)
    };
    let no_index = b"DIRK\0\0\0\x02\0\0\0\0".to_vec();
    let later = |index: &[u8]| unhashed([&index[..index.len() - 20], &[0; 20]].concat());
    let version_4 = |bytes: &[u8]| {
        let index = built(4, &[file(b"key")], b"");
        unhashed([&index[..12 + 62], bytes, b"key\0", &[0; 20]].concat())
    };
    let cases = [
        (no_index, "the file is not a git index"),
        (Vec::new(), "the file is not a git index"),
        (b"DIRC\0\0\0\x02".to_vec(), "the index is too short"),
        (with(7, &[5]), "the index has version 5, which is not supported"),
        (with(8, &[255; 4]), "the index ends within an entry"),
        (with(12 + 60, &[0x40]), "entry 1 of the index has flags that are not supported"),
        (with(12 + 61, &[4]), "entry 1 of the index has an invalid name"),
        (with(12 + 60, &[0x0f, 0xff]), "entry 1 of the index has an invalid name"),
        (with(12 + 66, &[1]), "entry 1 of the index has an invalid name"),
        (version_4(&[1]), "entry 1 of the index has an invalid name"),
        (version_4(&[0xff; 12]), "entry 1 of the index has an invalid name"),
        (
            later(&built(3, &[Built { more: Some(0x8000), ..file(b"key") }], b"")),
            "entry 1 of the index has flags that are not supported",
        ),
        (built(2, &[file(b"key")], b"TREE\0\0"), "the index ends within an extension"),
        (built(2, &[file(b"key")], b"TREE\0\0\0\x01"), "the index ends within an extension"),
        (built(2, &[file(b"key")], b"TREE\xff\xff\xff\xff"), "the index ends within an extension"),
        (
            built(2, &[file(b"key")], &extension(b"ne\"w", b"")),
            "the index has the extension \"ne\\\"w\", which is not supported",
        ),
        (built(2, &[file(b"key")], &extension(b"link", &[0; 19])), "the index ends within an extension"),
        (
            built(2, &[file(b"key")], &extension(b"link", &[1; 20])),
            "the index is split, and some of its entries are in another file",
        ),
    ];
    for (index, message) in cases {
        assert_eq!(set(&index, b"key").unwrap_err().to_string(), message);
    }
    let mut damaged = good.clone();
    damaged[12] ^= 1;
    assert_eq!(set(&damaged, b"key"), Err(IndexError::Hash));
    assert_eq!(
        edit(&good, ObjectFormat::Sha256, SkipWorktree::Set, |_| true),
        Err(IndexError::Ends(IndexPart::Entry))
    );
}

#[test]
fn paths_that_share_their_beginning_take_no_memory_out_of_proportion() {
    let long = vec![b'a'; 1 << 16];
    let entries: Vec<Built> =
        (0..2000_u32).map(|n| file(&[&long[..], &n.to_be_bytes().map(|b| b | 1)].concat())).collect();
    let index = built(4, &entries, b"");
    let all = edit(&index, ObjectFormat::Sha1, SkipWorktree::Set, |_| true);
    assert_eq!(all, Err(IndexError::PathsTooLong));
    assert_eq!(edit(&index, ObjectFormat::Sha1, SkipWorktree::Set, |_| false), Ok(None));
}

#[test]
fn a_path_is_below_its_directories_only() {
    for (path, hidden, expected) in [
        ("a/b", "a/b", true),
        ("a/b/c", "a/b", true),
        ("a/bc", "a/b", false),
        ("a/b.c", "a/b", false),
        ("a", "a/b", false),
        ("b", "a/b", false),
        ("x/a/b", "a/b", false),
    ] {
        assert_eq!(is_at_or_below(path.as_bytes(), hidden.as_bytes()), expected, "{path} {hidden}");
    }
}

/// Indexes as git writes them: extended entries have a further flag, and version 3 has an extended entry.
fn any_index() -> impl Strategy<Value = (u32, Vec<Built>)> {
    let path = prop_oneof![
        prop::collection::vec(1..=255_u8, 1..40),
        prop::collection::vec(prop::sample::select(b"ab/".to_vec()), 1..12),
        (4090..4200_usize).prop_map(|length| vec![b'p'; length]),
    ];
    let mode = prop::sample::select(vec![0o100_644, 0o100_755, 0o120_000, 0o160_000, 0o40_000]);
    let flags = prop::sample::select(vec![0, 0, 0, 0x8000, 0x1000, 0xb000]);
    let more = prop::sample::select(vec![None, None, None, Some(0x4000), Some(0x2000), Some(0x6000)]);
    let entry =
        (mode, flags, more, path).prop_map(|(mode, flags, more, path)| Built { mode, flags, more, path });
    (any::<bool>(), prop::collection::vec(entry, 0..12)).prop_map(|(is_compressed, entries)| {
        let is_extended = entries.iter().any(|entry| entry.more.is_some());
        (if is_compressed { 4 } else { 2 + u32::from(is_extended) }, entries)
    })
}

/// What an edit is to do to the entries; the wanted ones are those whose path has an even sum.
fn expected(version: u32, entries: &[Built], change: SkipWorktree) -> (u32, Vec<Built>, Vec<Vec<u8>>) {
    let mut changed = Vec::new();
    let mut after = entries.to_vec();
    for entry in &mut after {
        let more = entry.more.unwrap_or(0);
        let is_changeable = match change {
            SkipWorktree::Set => more == 0,
            SkipWorktree::Clear => more & 0x4000 != 0,
        };
        if is_changeable
            && is_even(&entry.path)
            && [8, 10].contains(&(entry.mode >> 12))
            && entry.flags & 0x3000 == 0
        {
            entry.more = Some(more ^ 0x4000).filter(|more| *more != 0);
            changed.push(entry.path.clone());
        }
    }
    let is_extended = after.iter().any(|entry| entry.more.is_some());
    (if version == 4 { 4 } else { 2 + u32::from(is_extended) }, after, changed)
}

fn is_even(path: &[u8]) -> bool {
    path.iter().fold(0, |sum, byte| sum ^ byte) % 2 == 0
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn an_edit_changes_what_is_wanted_and_nothing_else((version, entries) in any_index()) {
        let index = built(version, &entries, &extension(b"TREE", b"content"));
        for change in [SkipWorktree::Set, SkipWorktree::Clear] {
            let edited = edit(&index, ObjectFormat::Sha1, change, is_even).unwrap();
            let (version, after, changed) = expected(version, &entries, change);
            let bytes = built(version, &after, &extension(b"TREE", b"content"));
            prop_assert_eq!(edited, (!changed.is_empty()).then_some(EditedIndex { bytes, changed }));
        }
    }

    #[test]
    fn what_was_set_can_be_cleared((version, entries) in any_index()) {
        // Paths are unique in an index, so that they say which entries were changed.
        let mut entries = entries;
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        entries.dedup_by(|a, b| a.path == b.path);
        let version = if version == 4 { 4 } else { 2 + u32::from(entries.iter().any(|it| it.more.is_some())) };
        let index = built(version, &entries, b"");
        if let Some(edited) = edit(&index, ObjectFormat::Sha1, SkipWorktree::Set, is_even).unwrap() {
            let is_changed = |path: &[u8]| edited.changed.iter().any(|it| it == path);
            let cleared = edit(&edited.bytes, ObjectFormat::Sha1, SkipWorktree::Clear, is_changed).unwrap().unwrap();
            prop_assert_eq!(cleared.bytes, index);
            prop_assert_eq!(cleared.changed, edited.changed);
        }
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), version in 0..6_u8, count in any::<u32>()) {
        let _ = edit(&bytes, ObjectFormat::Sha1, SkipWorktree::Set, |_| true);
        let header = [b"DIRC\0\0\0", &[version][..], &(count % 5).to_be_bytes()].concat();
        for format in [ObjectFormat::Sha1, ObjectFormat::Sha256] {
            let index = [&header[..], &bytes, &[0; 32]].concat();
            let _ = edit(&index, format, SkipWorktree::Set, |_| true);
        }
    }

    #[test]
    fn no_damaged_index_panics(
        (version, entries) in any_index(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0..8), 0..6),
        cut in any::<prop::sample::Index>(),
        is_cut in any::<bool>(),
    ) {
        let mut index = built(version, &entries, &extension(b"TREE", b"content"));
        for (at, bit) in flips {
            let at = at.index(index.len());
            index[at] ^= 1_u8 << bit;
        }
        if is_cut {
            index.truncate(cut.index(index.len()));
            index.extend([0; 20]);
        } else {
            index = unhashed(index);
        }
        for change in [SkipWorktree::Set, SkipWorktree::Clear] {
            if let Ok(Some(edited)) = edit(&index, ObjectFormat::Sha1, change, is_even) {
                prop_assert!(edited.bytes.len() <= index.len() + index.len() / 6);
                let again = edit(&edited.bytes, ObjectFormat::Sha1, change, is_even);
                prop_assert_eq!(again, Ok(None));
            }
        }
    }
}

/// A bitmap of one word.
fn bitmap(word: u64) -> Vec<u8> {
    let counts = 1_u64 << 33;
    [&[0, 0, 0, 64, 0, 0, 0, 2][..], &counts.to_be_bytes(), &word.to_be_bytes(), &[0; 4]].concat()
}

/// What git writes for `shared` without its second entry, with another third one, and with one more.
fn split_index(shared: &[u8], deleted: u64, replaced: u64) -> Vec<u8> {
    let id = &shared[shared.len() - 20..];
    let link = [id, &bitmap(deleted), &bitmap(replaced)].concat();
    let replacing = Built { mode: 0o100_755, ..file(b"") };
    let extensions =
        [extension(b"link", &link), extension(b"TREE", b"tree"), extension(b"EOIE", b"")].concat();
    built(2, &[replacing, file(b"bb")], &extensions)
}

#[test]
fn a_split_index_and_its_shared_file_are_joined() {
    for version in [2, 4] {
        let shared = built(version, &[file(b"a"), file(b"b"), file(b"c"), file(b"dir/d")], b"");
        let index = split_index(&shared, 0b10, 0b100);
        assert_eq!(set(&index, b"c"), Err(IndexError::Split));
        let name = shared_file_name(&index, ObjectFormat::Sha1).unwrap().unwrap();
        assert_eq!(name, format!("sharedindex.{}", saggar_sys::text::hex(&shared[shared.len() - 20..])));
        let entries = [file(b"a"), file(b"bb"), Built { mode: 0o100_755, ..file(b"c") }, file(b"dir/d")];
        let joined = join(&index, &shared, ObjectFormat::Sha1).unwrap();
        assert_eq!(joined, built(2, &entries, &extension(b"TREE", b"tree")));
        assert_eq!(shared_file_name(&joined, ObjectFormat::Sha1), Ok(None));
    }
}

#[test]
fn an_index_whose_shared_file_has_no_id_is_whole() {
    let index = built(2, &[file(b"a")], &extension(b"link", &[0; 20]));
    assert_eq!(shared_file_name(&index, ObjectFormat::Sha1), Ok(None));
    let edited = set(&index, b"a").unwrap().unwrap();
    assert!(!edited.bytes.windows(4).any(|bytes| bytes == b"link"));
}

#[test]
fn files_that_do_not_belong_together_are_not_joined() {
    let shared = built(2, &[file(b"a"), file(b"b"), file(b"c")], b"");
    let other = built(2, &[file(b"a"), file(b"b")], b"");
    let joined = |index: &[u8], shared: &[u8]| join(index, shared, ObjectFormat::Sha1);
    let good = split_index(&shared, 0b10, 0b100);
    assert!(joined(&good, &shared).is_ok());
    assert_eq!(joined(&good, &other), Err(IndexError::Shared));
    // An entry that is deleted and replaced; a bit of no entry; more replaced entries than there are, and fewer.
    for (deleted, replaced) in [(0b100, 0b100), (0b1000, 0b100), (0, 0b111), (0, 0)] {
        assert_eq!(joined(&split_index(&shared, deleted, replaced), &shared), Err(IndexError::Shared));
    }
    let mut damaged = shared;
    damaged[12] ^= 1;
    assert_eq!(joined(&good, &damaged), Err(IndexError::Hash));
}

proptest! {
    #[test]
    fn no_damaged_split_index_panics(at in 0..400_usize, byte in any::<u8>(), in_shared in any::<bool>()) {
        // Without hashes, so that the damage is looked at.
        let mut shared = unhashed(built(4, &[file(b"a"), file(b"b"), file(b"c"), file(b"dir/d")], b""));
        let mut index = unhashed(split_index(&shared, 0b10, 0b100));
        prop_assert!(join(&index, &shared, ObjectFormat::Sha1).is_ok());
        let damaged = if in_shared { &mut shared } else { &mut index };
        let content = damaged.len() - 20;
        damaged[at % content] = byte;
        let _ = shared_file_name(&index, ObjectFormat::Sha1);
        let _ = join(&index, &shared, ObjectFormat::Sha1);
    }
}
