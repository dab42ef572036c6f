//! Invalid documents, and files that must not be read: each is an error, without delay.

use super::*;
use crate::spec::tests::Worked;
use std::path::PathBuf;
use std::time::Duration;

fn refused_bytes(bytes: impl Into<Vec<u8>>) -> String {
    let (bytes, worked) = (bytes.into(), Worked::begin());
    let error = parse_config(bytes, Path::new("/bundle")).unwrap_err().to_string();
    worked.at_most(Duration::from_secs(1), "an error");
    error
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
    const DEEP: usize = 200_000;
    let (open, close) = ("[".repeat(DEEP), "]".repeat(DEEP));
    assert_eq!(refused_bytes(open.clone()), "config.json: must be a JSON object, { … }");
    let error = refused_bytes(format!("{{\"mounts\": {open}{close}}}"));
    assert!(error.starts_with("config.json: mounts"), "{error}");
    let error = refused_bytes(format!("{{\"process\": {{\"consoleSize\": {open}{close}}}}}"));
    assert!(error.contains("process.consoleSize") && error.contains("recursion limit"), "{error}");
    let objects = format!("{}{}", "{\"linux\":".repeat(DEEP) + "{}", "}".repeat(DEEP));
    // The first is the section, the others are unknown in it; only the version is missing.
    assert_eq!(refused_bytes(objects), "config.json: ociVersion is missing");
    let mut text = smallest().to_string();
    text.pop();
    let text = format!("{text},\"unknown\":{open}{close}}}");
    parse_config(text.into_bytes(), Path::new("/bundle")).unwrap();
}

/// The largest documents that are accepted, of the most expensive content.
#[test]
fn size_costs_no_more_than_a_second() {
    let size = 4 << 20;
    let item = |text: &str| format!("[{}]", vec![text; size / (text.len() + 1)].join(","));
    for (place, item) in [
        ("\"mounts\": @", item("{}")),
        ("\"mounts\": @", item("{\"destination\":\"/\",\"type\":\"a\"}")),
        ("\"linux\": {\"devices\": @}", item("{\"path\":\"/a\",\"type\":\"p\"}")),
        ("\"linux\": {\"uidMappings\": @}", item("{\"size\":1}")),
        ("\"process\": {\"args\": [\"a\"], \"cwd\": \"/\", \"env\": @}", item("\"a=\\\\u0000\"")),
        ("\"process\": {\"rlimits\": @}", item("{\"type\":\"RLIMIT_CPU\"}")),
        ("\"process\": {\"capabilities\": {\"bounding\": @}}", item("\"X\"")),
        ("\"hooks\": {\"poststop\": @}", item("{\"path\":\"/\"}")),
    ] {
        let text =
            format!("{{\"ociVersion\":\"1.0.0\",\"root\":{{\"path\":\"r\"}},{}}}", place.replace('@', &item));
        let worked = Worked::begin();
        let _ = parse_config(text.into_bytes(), Path::new("/bundle"));
        worked.at_most(Duration::from_secs(1), place);
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
        let worked = Worked::begin();
        let error = read_config(self.0.path()).unwrap_err();
        worked.at_most(Duration::from_secs(1), "an error");
        assert_eq!(error.code(), crate::error::Code::Invalid);
        error.to_string().replace(self.0.path().to_str().unwrap(), "B")
    }
}

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
fn a_file_of_64_mib_is_refused_at_once() {
    let bundle = Bundle::new();
    let file = std::fs::File::create(bundle.config()).unwrap();
    file.set_len(64 << 20).unwrap();
    assert_eq!(bundle.refused(), "read B/config.json: it is larger than 4 MiB");
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
