//! Files that are invalid, by accident or on purpose: each is an error, at a cost in proportion to its size.

use super::*;
use saggar_sys::error::Code;
use saggar_sys::testing::{does_not_grow, grows_linearly};

/// The sizes that are compared: up to the largest that is read.
const SIZES: [usize; 2] = [(parse::MAX_BYTES - 64) / 8, parse::MAX_BYTES - 64];

/// The locations of policy files: an operator's, a folder's, and one that `--policy` names.
const PLACES: [&str; 4] = ["etc/config.toml", "etc/conf.d/a.toml", "agent/saggar.toml", "named.toml"];

fn complaint(prepare: impl Fn(&Scratch, &Path)) -> Vec<String> {
    let complaint = |place: &&str| {
        let mut scratch = Scratch::new();
        let path = scratch.path(place);
        prepare(&scratch, &path);
        if *place == "named.toml" {
            scratch.places.policy_files = vec![path];
        }
        scratch.complaint()
    };
    PLACES.iter().map(complaint).collect()
}

#[track_caller]
fn all_contain(complaints: &[String], what: &str) {
    for complaint in complaints {
        assert!(complaint.contains(what), "{complaint}");
        assert!(PLACES.iter().any(|place| complaint.contains(place)), "names the file: {complaint}");
    }
}

fn content(bytes: &[u8]) -> Vec<String> {
    complaint(|_, path| {
        std::fs::write(path, bytes).unwrap();
        mode(path, 0o644);
    })
}

/// Nobody writes to it: who waits for that does not end.
#[test]
fn a_fifo_does_not_hold_the_start() {
    let made = complaint(|_, path| nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap());
    all_contain(&made, "is not a regular file");
}

#[test]
fn a_directory_is_refused() {
    all_contain(&complaint(|_, path| std::fs::create_dir(path).unwrap()), "is not a regular file");
}

#[test]
fn a_socket_is_refused() {
    let made = complaint(|_, path| drop(std::os::unix::net::UnixListener::bind(path).unwrap()));
    all_contain(&made, "open policy ");
}

#[test]
fn a_device_is_refused() {
    let mut scratch = Scratch::new();
    for device in ["/dev/null", "/dev/zero", "/dev/tty"] {
        scratch.places.policy_files = vec![device.into()];
        scratch.refusal();
    }
}

#[test]
fn a_link_is_followed_for_operators_and_refused_in_folders() {
    let scratch = Scratch::with(&[("real.toml", "limits.pids = 77")]);
    std::os::unix::fs::symlink(scratch.path("real.toml"), scratch.path("etc/config.toml")).unwrap();
    assert_eq!(scratch.effective().limits.pids.value, 77);
    for name in ["saggar.toml", ".saggar.toml"] {
        let scratch = Scratch::with(&[("real.toml", "limits.pids = 77")]);
        std::os::unix::fs::symlink(scratch.path("real.toml"), scratch.path("work").join(name)).unwrap();
        assert!(scratch.complaint().contains("is a symbolic link"));
    }
}

#[test]
fn a_dangling_link_in_a_folder_is_refused_too() {
    let scratch = Scratch::new();
    std::os::unix::fs::symlink("nowhere", scratch.path("agent/saggar.toml")).unwrap();
    assert!(scratch.complaint().contains("is a symbolic link"));
}

#[test]
fn an_empty_file_is_not_a_default() {
    for bytes in [&b""[..], b"\n", b" \t\r\n\n"] {
        all_contain(&content(bytes), "is empty");
    }
}

#[test]
fn a_file_of_comments_says_nothing_on_purpose() {
    let scratch = Scratch::with(&[("etc/config.toml", "# limits.memory = '4G'\n")]);
    assert_eq!(scratch.effective(), EffectivePolicy::built_in(HomeSource::Session));
}

#[test]
fn a_large_file_is_refused_without_being_read() {
    does_not_grow(
        "a large file",
        [8 << 20, 1 << 30],
        |size| size as u64,
        |size| {
            let made = complaint(|_, path| {
                std::fs::File::create(path).unwrap().set_len(size).unwrap();
                mode(path, 0o644);
            });
            all_contain(&made, "is larger than 1 MiB");
        },
    );
}

#[test]
fn a_file_that_cannot_be_opened_is_an_error() {
    // A loop of links. Unlike a file mode, it stops root too.
    for place in ["etc/config.toml", "etc/conf.d/a.toml", "user/config.toml", "usr/defaults.toml"] {
        let scratch = Scratch::new();
        std::os::unix::fs::symlink(scratch.path(place), scratch.path(place)).unwrap();
        assert!(scratch.complaint().contains("Too many levels of symbolic links"));
    }
    let scratch = Scratch::new();
    std::fs::remove_dir(scratch.path("etc/conf.d")).unwrap();
    std::os::unix::fs::symlink("conf.d", scratch.path("etc/conf.d")).unwrap();
    assert!(scratch.complaint().contains("list policy"));
}

#[test]
fn bytes_that_are_not_text_are_refused_with_their_line() {
    all_contain(&content(b"limits.pids = 1\n# \xff\n"), ":2: is not UTF-8");
    all_contain(&content(b"limits.pids = 1\n# \0\n"), ":2: ");
    all_contain(&content(b"{ \"limits\": \0 }"), ":1: ");
}

#[test]
fn deep_and_wide_files_are_refused_in_linear_time() {
    // What stands before, what is repeated, and what stands after.
    let cases: [(&str, [&str; 3]); 16] = [
        ("arrays", ["files.ro = ", "[", ""]),
        ("json arrays", ["{\"files\":{\"ro\":", "[", ""]),
        ("json objects", ["", "{\"a\":", ""]),
        ("inline tables", ["env = ", "{a=", ""]),
        ("dotted key", ["", "a.", "a = 1"]),
        ("dotted table", ["[", "a.", "a]"]),
        ("tables", ["", "[a]\n", ""]),
        ("array tables", ["", "[[a]]\n", ""]),
        ("long key", ["", "k", " = 1"]),
        ("long string", ["profile = '", "s", "'"]),
        ("long number", ["limits.memory = ", "9", ""]),
        ("long size", ["limits.memory = '", "9", "'"]),
        ("long time", ["limits.timeout = '", "1h", "'"]),
        ("open quote", ["agent_cmd = '\"", "\\\\ ", "'"]),
        ("open string", ["profile = \"\"\"", "\n", ""]),
        ("escapes", ["profile = \"", "\\u0000", "\""]),
    ];
    for (what, [before, repeated, after]) in cases {
        let document = |size: usize| [before, &repeated.repeat(size / repeated.len()), after].concat();
        for format in [parse::PolicyFormat::Toml, parse::PolicyFormat::Json] {
            grows_linearly(what, SIZES, document, |text| {
                let refusal = parse::parse("f", format, text.as_bytes()).expect_err(what).to_string();
                assert!(refusal.len() < 2000, "{what}: {} bytes of message", refusal.len());
            });
        }
    }
}

#[test]
fn long_lists_are_merged_or_refused_in_linear_time() {
    for (key, item) in [
        ("files.hide", "'p#',"),
        ("files.ro", "'/p#',"),
        ("files.rw", "'/p#',"),
        ("env.pass", "'N#',"),
        ("env.deny", "'N#',"),
        ("protect.paths", "'p#',"),
        ("protections.require", "'disk',"),
    ] {
        let list = |bytes: usize, entries: usize| {
            let items = (0..entries).map(|i| item.replace('#', &i.to_string()));
            let mut total = 0;
            let items: String = items
                .take_while(|item| {
                    total += item.len();
                    total < bytes
                })
                .collect();
            format!("{key} = [{items}]")
        };
        let scratch = |list: String| Scratch::with(&[("user/config.toml", &list)]);
        grows_linearly(
            key,
            [128, 1024],
            |entries| scratch(list(usize::MAX, entries)),
            |scratch| {
                scratch.effective();
            },
        );
        grows_linearly(
            key,
            SIZES,
            |size| scratch(list(size, usize::MAX)),
            |scratch| {
                assert!(scratch.complaint().contains("entries are more than 1024"), "{key}");
            },
        );
    }
}

#[test]
fn a_message_cannot_command_the_terminal() {
    for text in ["\"\u{1b}[2J\u{202e}\" = 1", "profile = \"\\u001b]0;x\\u0007\"", "adapter = '\u{2066}demo'"]
    {
        let complaint = Scratch::with(&[("agent/saggar.toml", text)]).complaint();
        let bad = |c: char| c.is_control() || matches!(c, '\u{202e}' | '\u{2066}');
        assert!(!complaint.contains(bad), "{complaint:?}");
    }
}

#[test]
fn refusals_have_a_code_that_servers_can_match() {
    let code = |text: &str| Scratch::with(&[("agent/saggar.toml", text)]).refusal().code();
    assert_eq!(code(""), Code::Invalid);
    assert_eq!(code("nonsense = 1"), Code::Invalid);
    assert_eq!(code("profile = 'nesting'"), Code::Refused);
}
