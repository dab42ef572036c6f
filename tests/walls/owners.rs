//! DECISIONS 2: whose the files are, when root starts the sandbox.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

use super::wrapped::Wrap;
use crate::support::caller::Caller;

/// Makes `work` belong to `uid`, with files of two other owners in it.
fn mixed(wrap: &Wrap, uid: u32) {
    let work = wrap.work();
    for (name, owner, mode) in [
        ("own", uid, 0o600),
        ("readable", 33, 0o644),
        ("open", 33, 0o666),
        ("closed", 33, 0o600),
        ("thousand", 1000, 0o600),
    ] {
        let path = work.join(name);
        fs::write(&path, name).unwrap();
        chown(&path, Some(owner), Some(owner)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    chown(&work, Some(uid), Some(uid)).unwrap();
}

const TRIES: &str = "touch made; mkdir dir; touch dir/made; ln -s x link; mkfifo fifo
for file in own readable open closed thousand; do
    (cat $file >/dev/null) 2>&- && echo read $file; (echo x >> $file) 2>&- && echo wrote $file
done; exit 0";

#[test]
fn as_root_files_made_in_the_workspace_belong_to_its_owner() {
    let Ok(root) = Caller::root() else { skip!("this test needs to be started as root") };
    for uid in [0, 1000, 4321, 65534, 200_000] {
        let wrap = Wrap::new(root);
        mixed(&wrap, uid);
        let said = wrap.sh(TRIES).success();
        for made in ["made", "dir", "dir/made", "link", "fifo"] {
            let meta = wrap.work().join(made).symlink_metadata().unwrap();
            assert_eq!((meta.uid(), meta.gid()), (uid, uid), "{made} in a workspace of {uid}");
        }
        // As for the owner outside, even when that is root: the agent is nobody's superior.
        let thousand = if uid == 1000 { "read thousand\nwrote thousand\n" } else { "" };
        let expected = format!("read own\nwrote own\nread readable\nread open\nwrote open\n{thousand}");
        assert_eq!(said, expected, "a workspace of {uid}");
    }
}

/// What root's sandbox shows of other owners: their own numbers, shifted; its own owner is the inner user.
#[test]
fn as_root_owners_are_told_apart_inside() {
    let Ok(root) = Caller::root() else { skip!("this test needs to be started as root") };
    let wrap = Wrap::new(root);
    mixed(&wrap, 4321);
    let owners = wrap.sh("stat -c '%n %u' own closed thousand; stat -c %u . /usr /etc/passwd").success();
    assert_eq!(owners, "own 1000\nclosed 33\nthousand 4321\n1000\n65534\n1000\n");
}

/// DECISIONS 2: every sandbox of root has a block of ids of its own.
#[test]
fn as_root_two_sandboxes_have_different_ids() {
    let Ok(root) = Caller::root() else { skip!("this test needs to be started as root") };
    let (one, two) = (Wrap::new(root), Wrap::new(root));
    let script = format!(
        "{} wrap --workspace {} -- cat /proc/self/uid_map",
        env!("CARGO_BIN_EXE_saggar"),
        two.work().display()
    );
    // The second runs while the first holds its block: the first's standard input is its own lock.
    let mut first = one.command(&[], &["/bin/sh", "-c", "cat /proc/self/uid_map; read line"]);
    first.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut first = first.spawn().unwrap();
    let mut map = crate::support::lines::Lines::new(first.stdout.take().unwrap());
    let own = map.next_line(crate::support::deadline::Deadline::usual()).unwrap().unwrap();
    let other = two.outside(&script);
    drop(first.stdin.take());
    first.wait().unwrap();
    assert_ne!(String::from_utf8(own).unwrap().trim(), other.trim());
}

/// An ordinary user stays itself, inside and outside.
#[test]
fn as_an_ordinary_user_files_made_in_the_workspace_are_the_users() {
    let Ok(user) = Caller::ordinary() else { skip!("there is no ordinary user") };
    let wrap = Wrap::new(user);
    wrap.sh("touch made").success();
    assert_eq!(wrap.work().join("made").metadata().unwrap().uid(), user.uid().as_raw());
}
