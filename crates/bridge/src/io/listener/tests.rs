//! The socket file.

use super::*;
use saggar_sys::error::Code;
use saggar_sys::id::SandboxId;
use std::fs::{self, Permissions};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

fn directory(mode: u32) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(mode)).unwrap();
    dir
}

/// A socket file without a listener.
fn dead_socket(path: &Path) {
    drop(UnixListener::bind(path).unwrap());
    assert!(fs::symlink_metadata(path).unwrap().file_type().is_socket());
}

fn refused(path: &Path) -> Code {
    let before = fs::symlink_metadata(path).ok().map(|meta| (meta.ino(), meta.ctime_nsec()));
    let code = UnixSocketListener::bind(path).unwrap_err().code();
    let after = fs::symlink_metadata(path).ok().map(|meta| (meta.ino(), meta.ctime_nsec()));
    assert_eq!(before, after, "what was there is untouched");
    code
}

#[test]
fn bp_02_templates_are_filled_and_checked() {
    let id = SandboxId::parse("0123456789abcdef").unwrap();
    assert_eq!(
        expand_socket_path("/tmp/ash-{short_id}.sock", &id).unwrap(),
        Path::new("/tmp/ash-01234567.sock")
    );
    assert_eq!(expand_socket_path("/run/{id}/b", &id).unwrap(), Path::new("/run/0123456789abcdef/b"));
    assert!(expand_socket_path("/tmp/{pid}", &id).is_err());
    assert!(expand_socket_path("relative", &id).is_err());
}

#[test]
fn bp_02_a_path_of_107_bytes_works_and_108_is_an_error_naming_the_limit() {
    let dir = directory(0o700);
    let room = 107 - dir.path().as_os_str().len() - 1;
    let longest = dir.path().join("x".repeat(room));
    let listener = UnixSocketListener::bind(&longest).unwrap();
    UnixStream::connect(listener.path()).unwrap();
    let error = UnixSocketListener::bind(&dir.path().join("x".repeat(room + 1))).unwrap_err();
    assert_eq!(error.code(), Code::Invalid);
    assert!(error.to_string().contains("108 bytes") && error.to_string().contains("107"), "{error}");
}

#[test]
fn bp_03_the_socket_is_ours_alone_and_goes_with_its_listener() {
    let dir = directory(0o700);
    let path = dir.path().join("s");
    let listener = UnixSocketListener::bind(&path).unwrap();
    let meta = fs::symlink_metadata(&path).unwrap();
    assert_eq!((meta.mode() & 0o7777, meta.ino()), (0o600, listener.record().ino));
    drop(listener);
    assert!(!path.exists());
}

#[test]
fn bp_03_a_socket_that_is_not_ours_any_more_stays() {
    let dir = directory(0o700);
    let path = dir.path().join("s");
    let listener = UnixSocketListener::bind(&path).unwrap();
    fs::remove_file(&path).unwrap();
    // Nothing holds the old inode; this makes sure that the new file gets another one.
    let _other = UnixListener::bind(dir.path().join("other")).unwrap();
    let _new = UnixListener::bind(&path).unwrap();
    let ino = fs::symlink_metadata(&path).unwrap().ino();
    let ours = listener.record().ino == ino;
    drop(listener);
    assert_eq!(path.exists(), !ours);
}

#[test]
fn bp_03_in_a_private_directory_a_dead_socket_is_replaced_and_nothing_else() {
    let dir = directory(0o700);
    let path = dir.path().join("s");
    dead_socket(&path);
    let listener = UnixSocketListener::bind(&path).unwrap();
    assert_eq!(refused(&path), Code::Exists);
    drop(listener);
    fs::write(&path, "x").unwrap();
    assert_eq!(refused(&path), Code::Exists);
    fs::remove_file(&path).unwrap();
    let target = dir.path().join("target");
    for points_at_socket in [false, true] {
        if points_at_socket {
            dead_socket(&target);
        }
        symlink(&target, &path).unwrap();
        assert_eq!(refused(&path), Code::Exists);
        assert_eq!(target.exists(), points_at_socket);
        fs::remove_file(&path).unwrap();
    }
    fs::create_dir(&path).unwrap();
    assert_eq!(refused(&path), Code::Exists);
}

#[test]
fn bp_03_in_a_shared_directory_whatever_exists_stays() {
    for mode in [0o1777, 0o777, 0o770] {
        let dir = directory(mode);
        let path = dir.path().join("s");
        let listener = UnixSocketListener::bind(&path).unwrap();
        assert_eq!(refused(&path), Code::Exists);
        drop(listener);
        dead_socket(&path);
        assert_eq!(refused(&path), Code::Exists);
        fs::remove_file(&path).unwrap();
        // A file created during the preparation is not replaced either, and no temporary file remains.
        let unpublished = UnixSocketListener::prepare(&path).unwrap();
        fs::write(&path, "another's").unwrap();
        assert_eq!(unpublished.publish().unwrap_err().code(), Code::Exists);
        assert_eq!(fs::read_to_string(&path).unwrap(), "another's");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}

/// BP-04: a client that finds the name finds a listener.
#[test]
fn bp_04_a_connect_is_never_refused_while_the_socket_comes() {
    let dir = directory(0o1777);
    let path = dir.path().join("s");
    for _ in 0..300 {
        let client = std::thread::spawn({
            let path = path.clone();
            move || loop {
                match UnixStream::connect(&path) {
                    Ok(_) => return,
                    Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}"),
                }
            }
        });
        let listener = UnixSocketListener::bind(&path).unwrap();
        client.join().unwrap();
        drop(listener);
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");
}

#[test]
fn errors_of_the_directory_say_which_and_why() {
    let dir = directory(0o700);
    let error = UnixSocketListener::bind(&dir.path().join("none/s")).unwrap_err();
    assert!(error.to_string().contains("open directory"), "{error}");
    fs::write(dir.path().join("file"), "").unwrap();
    assert!(UnixSocketListener::bind(&dir.path().join("file/s")).is_err());
}
