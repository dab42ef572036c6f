//! Invalid documents, and files that must not be read: each is an error, at a cost in proportion to its size.

use super::*;
use saggar_sys::testing::{does_not_grow, grows_linearly};
use std::path::PathBuf;

/// The depths and sizes that are compared.
const DEPTHS: [usize; 2] = [25_000, 200_000];
const SIZES: [usize; 2] = [512 << 10, 4 << 20];

fn refused_bytes(bytes: impl Into<Vec<u8>>) -> String {
    parse_config(bytes.into(), Path::new("/bundle")).unwrap_err().to_string()
}

#[test]
fn what_is_no_object_is_refused() {
    for bytes in ["", " \n\t", "\u{feff}{}"] {
        assert!(refused_bytes(bytes).starts_with("config.json: "), "{bytes:?}");
    }
    assert_eq!(refused_bytes(" "), "config.json: is empty; it must be a JSON object");
    for bytes in ["null", "[]", "[{}]", "1", "\"{}\"", "true", "x", "\0"] {
        assert_eq!(refused_bytes(bytes), "config.json: must be a JSON object, { … }", "{bytes:?}");
    }
}

#[test]
fn what_is_cut_or_followed_by_more_is_refused() {
    let text = smallest().to_string();
    for length in 1..text.len() {
        refused_bytes(&text[..length]);
    }
    assert!(refused_bytes(format!("{text}{text}")).starts_with("config.json: has more text after its end"));
    assert!(refused_bytes(format!("{text}\0")).starts_with("config.json: has more text after its end"));
}

#[test]
fn an_empty_object_lacks_its_version() {
    assert_eq!(refused_bytes("{}"), "config.json: ociVersion is missing");
}

#[test]
fn what_is_not_utf8_is_refused_by_its_field() {
    let error = refused_bytes(&b"{\"ociVersion\": \"1.0.0\", \"hostname\": \"\xff\xfe\"}"[..]);
    assert!(error.starts_with("config.json: hostname: invalid unicode"), "{error}");
}

#[test]
fn a_nul_in_a_string_is_refused_by_its_field() {
    for (pointer, value, field) in [
        ("/process/args", json!(["sh", "a\0b"]), "process.args[1]"),
        ("/process/cwd", json!("/a\0"), "process.cwd"),
        ("/root/path", json!("\0"), "root.path"),
        ("/linux", json!({ "sysctl": { "net.x": "1\0" } }), "linux.sysctl.net.x"),
        ("/linux", json!({ "cgroupsPath": "/\0" }), "linux.cgroupsPath"),
        ("/linux", json!({ "resources": { "unified": { "a": "\0" } } }), "linux.resources.unified.a"),
        ("/linux", json!({ "namespaces": [{ "type": "pid", "path": "/\0" }] }), "linux.namespaces[0].path"),
    ] {
        let mut document = smallest();
        *document.pointer_mut(pointer).unwrap() = value;
        let expected = format!("config.json: {field} holds a NUL character; remove it");
        assert_eq!(refused_bytes(document.to_string()), expected);
    }
    let error = refused(|document| document["linux"]["netDevices"] = json!({ "a\0": {} }));
    assert_eq!(error, "config.json: linux.netDevices has a key that holds a NUL character; remove it");
    // Annotations are passed to no system call.
    changed(|document| document["annotations"] = json!({ "a": "\0" })).unwrap();
}

#[test]
fn depth_is_refused_where_it_counts_and_skipped_where_it_does_not() {
    let parse = |bytes: Vec<u8>| parse_config(bytes, Path::new("/bundle"));
    let deep = |what: &str, document: fn(&str, &str) -> String, judge: fn(Result<BundleConfig>)| {
        let prepare = |depth| document(&"[".repeat(depth), &"]".repeat(depth)).into_bytes();
        grows_linearly(what, DEPTHS, prepare, |bytes| judge(parse(bytes)));
    };
    deep(
        "no object",
        |open, _| open.to_owned(),
        |result| {
            assert_eq!(result.unwrap_err().to_string(), "config.json: must be a JSON object, { … }");
        },
    );
    deep(
        "a list",
        |open, close| format!("{{\"mounts\": {open}{close}}}"),
        |result| {
            let error = result.unwrap_err().to_string();
            assert!(error.starts_with("config.json: mounts"), "{error}");
        },
    );
    deep(
        "a number",
        |open, close| format!("{{\"process\": {{\"consoleSize\": {open}{close}}}}}"),
        |result| {
            let error = result.unwrap_err().to_string();
            assert!(error.contains("process.consoleSize") && error.contains("recursion limit"), "{error}");
        },
    );
    deep(
        "sections",
        |open, close| format!("{}{{}}{}", open.replace('[', "{\"linux\":"), close.replace(']', "}")),
        |result| {
            // The first is the section, the others are unknown in it; only the version is missing.
            assert_eq!(result.unwrap_err().to_string(), "config.json: ociVersion is missing");
        },
    );
    deep(
        "what is unknown",
        |open, close| {
            let mut text = smallest().to_string();
            text.pop();
            format!("{text},\"unknown\":{open}{close}}}")
        },
        |result| {
            result.unwrap();
        },
    );
}

/// Up to the largest documents that are accepted, of the most expensive content.
#[test]
fn cost_grows_linearly_with_size() {
    for (place, item) in [
        ("\"mounts\": @", "{}"),
        ("\"mounts\": @", "{\"destination\":\"/\",\"type\":\"a\"}"),
        ("\"linux\": {\"devices\": @}", "{\"path\":\"/a\",\"type\":\"p\"}"),
        ("\"linux\": {\"uidMappings\": @}", "{\"size\":1}"),
        ("\"process\": {\"args\": [\"a\"], \"cwd\": \"/\", \"env\": @}", "\"a=\\\\u0000\""),
        ("\"process\": {\"rlimits\": @}", "{\"type\":\"RLIMIT_CPU\"}"),
        ("\"process\": {\"capabilities\": {\"bounding\": @}}", "\"X\""),
        ("\"hooks\": {\"poststop\": @}", "{\"path\":\"/\"}"),
    ] {
        let document = |size: usize| {
            let items = format!("[{}]", vec![item; size / (item.len() + 1)].join(","));
            let section = place.replace('@', &items);
            format!("{{\"ociVersion\":\"1.0.0\",\"root\":{{\"path\":\"r\"}},{section}}}").into_bytes()
        };
        grows_linearly(place, SIZES, document, |bytes| {
            let _ = parse_config(bytes, Path::new("/bundle"));
        });
    }
}

struct Bundle(tempfile::TempDir);

impl Bundle {
    fn new() -> Bundle {
        Bundle(tempfile::tempdir().unwrap())
    }

    fn config(&self) -> PathBuf {
        self.0.path().join("config.json")
    }

    fn refused(&self) -> String {
        let error = read_config(self.0.path()).unwrap_err();
        assert_eq!(error.code(), saggar_sys::error::Code::Invalid);
        error.to_string().replace(self.0.path().to_str().unwrap(), "B")
    }
}

/// Nobody writes to the FIFO, and the device has no end: who reads them does not end.
#[test]
fn a_file_that_is_no_regular_one_is_refused_without_waiting() {
    let bundle = Bundle::new();
    let missing = bundle.refused();
    assert!(missing.starts_with("read B/config.json: No such file or directory"), "{missing}");
    nix::unistd::mkfifo(&bundle.config(), nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert_eq!(bundle.refused(), "read B/config.json: it is a FIFO, not a regular file");
    std::fs::remove_file(bundle.config()).unwrap();
    std::os::unix::fs::symlink("/dev/zero", bundle.config()).unwrap();
    assert_eq!(bundle.refused(), "read B/config.json: it is a device, not a regular file");
    std::fs::remove_file(bundle.config()).unwrap();
    std::os::unix::fs::symlink("config.json", bundle.config()).unwrap();
    assert!(bundle.refused().starts_with("read B/config.json: "));
    std::fs::remove_file(bundle.config()).unwrap();
    std::fs::create_dir(bundle.config()).unwrap();
    assert_eq!(bundle.refused(), "read B/config.json: it is a directory, not a regular file");
}

#[test]
fn a_large_file_is_refused_without_being_read() {
    let bundle = |size: usize| {
        let bundle = Bundle::new();
        std::fs::File::create(bundle.config()).unwrap().set_len(size as u64).unwrap();
        bundle
    };
    does_not_grow("a large file", [8 << 20, 1 << 30], bundle, |bundle| {
        assert_eq!(bundle.refused(), "read B/config.json: it is larger than 4 MiB");
    });
}

#[test]
fn a_bundle_is_read() {
    let bundle = Bundle::new();
    std::fs::write(bundle.config(), smallest().to_string()).unwrap();
    let config = read_config(bundle.0.path()).unwrap();
    assert_eq!(config.container.root.path, bundle.0.path().join("rootfs"));
    assert_eq!(config.bytes, std::fs::read(bundle.config()).unwrap());
    // A link is followed: the bundle belongs to the caller.
    std::fs::rename(bundle.config(), bundle.0.path().join("elsewhere")).unwrap();
    std::os::unix::fs::symlink("elsewhere", bundle.config()).unwrap();
    assert_eq!(read_config(bundle.0.path()).unwrap().bytes, config.bytes);
}
