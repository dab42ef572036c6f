use super::*;
use crate::state::container::{ContainerRoot, RECORD_VERSION};
use crate::state::process::ProcessId;
use std::collections::BTreeMap;
use std::os::unix::fs::symlink;

fn root() -> (tempfile::TempDir, ContainerRoot) {
    let scratch = tempfile::tempdir().unwrap();
    let root = ContainerRoot::new(Some(&scratch.path().join("root"))).unwrap();
    (scratch, root)
}

fn id(text: &str) -> SandboxId {
    SandboxId::parse(text).unwrap()
}

fn record(id: &str) -> ContainerRecord {
    ContainerRecord {
        version: RECORD_VERSION,
        id: id.into(),
        bundle: "/bundle".into(),
        rootfs: "/bundle/rootfs".into(),
        created: "2026-01-01T00:00:00Z".into(),
        owner: 0,
        annotations: BTreeMap::from([("a".into(), "b".into())]),
        creator: ProcessId::current().unwrap(),
        cgroup: None,
        resctrl: Vec::new(),
        process: None,
        complete: true,
        bridge: None,
    }
}

#[test]
fn a_claim_wins_once_and_goes_unless_it_is_kept() {
    let (_scratch, root) = root();
    let claim = root.claim_directory(&id("a")).unwrap();
    assert_eq!(root.claim_directory(&id("a")).unwrap_err().code(), Code::Exists);
    drop(claim);
    assert_eq!(root.find_directory(&id("a")).unwrap_err().code(), Code::NotFound);
    let (directory, held) = root.claim_directory(&id("a")).unwrap().commit();
    assert!(directory.lock(Duration::ZERO).unwrap().is_none(), "the maker has the lock");
    drop(held);
    assert!(directory.lock(Duration::ZERO).unwrap().is_some());
    assert_eq!(root.list().unwrap().len(), 1);
}

/// A process that is about to find out that its container is gone.
#[test]
fn a_directory_that_still_gets_files_is_removed() {
    let (_scratch, root) = root();
    let (directory, _held) = root.claim_directory(&id("a")).unwrap().commit();
    let path = directory.path().to_owned();
    let (begun, begins) = std::sync::mpsc::channel();
    let writer = std::thread::spawn(move || {
        for number in 0..2000 {
            if fs::write(path.join(number.to_string()), "").is_err() {
                break;
            }
            let _ = begun.send(());
        }
    });
    begins.recv().unwrap();
    directory.remove().unwrap();
    writer.join().unwrap();
    assert!(!directory.path().exists());
}

#[test]
fn a_record_comes_back_and_its_copy_stands_in_for_it() {
    let (_scratch, root) = root();
    let (directory, _held) = root.claim_directory(&id("a")).unwrap().commit();
    assert!(directory.has_no_record() && directory.read_record().is_err());
    directory.write_record(&record("a")).unwrap();
    assert_eq!(directory.read_record().unwrap(), record("a"));
    for damage in ["", "null", "{", "[]", "{\"version\":2}"] {
        fs::write(directory.path().join("state.json"), damage).unwrap();
        assert_eq!(directory.read_record().unwrap(), record("a"), "{damage}");
    }
    fs::write(directory.path().join("state.copy.json"), "x").unwrap();
    assert_eq!(directory.read_record().unwrap_err().code(), Code::Invalid);
}

#[test]
fn whatever_lies_in_the_place_of_a_record_is_an_error_at_once() {
    let (_scratch, root) = root();
    let (directory, _held) = root.claim_directory(&id("a")).unwrap().commit();
    let put = |make: &dyn Fn(&Path)| {
        for name in ["state.json", "state.copy.json"] {
            let path = directory.path().join(name);
            let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir(&path));
            make(&path);
        }
        let error = directory.read_record().unwrap_err();
        assert_eq!(error.code(), Code::Invalid, "{error}");
    };
    put(&|path| nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap());
    put(&|path| symlink("/etc/passwd", path).unwrap());
    put(&|path| symlink(path, path).unwrap());
    put(&|path| fs::create_dir(path).unwrap());
    put(&|path| drop(std::os::unix::net::UnixListener::bind(path).unwrap()));
    put(&|path| fs::write(path, "[".repeat(200_000)).unwrap());
    put(&|path| fs::write(path, vec![b' '; 17 << 20]).unwrap());
    put(&|path| fs::write(path, serde_json::to_vec(&record("another")).unwrap()).unwrap());
    directory.remove().unwrap();
    assert_eq!(directory.read_record().unwrap_err().code(), Code::NotFound);
}

#[test]
fn a_lock_of_a_directory_that_was_made_anew_is_nothing() {
    let (_scratch, root) = root();
    let (directory, held) = root.claim_directory(&id("a")).unwrap().commit();
    fs::remove_file(directory.path().join("lock")).unwrap();
    // A process that opened the old file before, and locks it now, must not use that lock.
    let again = directory.lock(Duration::ZERO).unwrap();
    assert!(again.is_some(), "the new file is free");
    drop((held, again));
    directory.remove().unwrap();
    assert_eq!(directory.lock(Duration::ZERO).unwrap_err().code(), Code::NotFound);
}

#[test]
fn a_file_is_written_whole_or_not_at_all() {
    let (scratch, _) = root();
    let path = scratch.path().join("pid");
    write_atomically(&path, b"12", 0o644).unwrap();
    write_atomically(&path, b"345", 0o644).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"345");
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);
    // A pid file is beside files of the user.
    fs::write(scratch.path().join("pid.new"), "of the user").unwrap();
    write_atomically(&path, b"6", 0o644).unwrap();
    assert_eq!(fs::read(scratch.path().join("pid.new")).unwrap(), b"of the user");
    assert!(write_atomically(&scratch.path().join("none/pid"), b"1", 0o644).is_err());
}
