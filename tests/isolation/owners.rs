//! DECISIONS 2: whose the files are, when root starts the sandbox.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use super::wrapped::{Ended, Wrap};
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

/// Runs a shell script as root in a mount namespace of its own, where the workspace is a ramfs that belongs to
/// `owner`; ramfs has no idmapped mounts. `$saggar` is the program under test.
fn on_ramfs(wrap: &Wrap, owner: &str, script: &str) -> Ended {
    let mut command = wrap.place.command(Path::new("/usr/bin/unshare"));
    let script = format!(
        "mount -t ramfs ramfs . && cd \"$PWD\" && chown {owner} . && saggar={} && {script}",
        crate::support::binary::saggar().display()
    );
    command.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
    wrap.finish(command)
}

/// DECISIONS 2: where the file system cannot be idmapped, the owner's own id is the inner user's.
#[test]
fn as_root_a_workspace_that_cannot_be_idmapped_keeps_its_owner() {
    let Ok(root) = Caller::root() else { skip!("this test needs to be started as root") };
    for owner in ["4321:4322", "65534:65534", "200000:7"] {
        let wrap = Wrap::new(root);
        // Beside the workspace, where owners can be mapped.
        wrap.place.make_file("shown", "");
        let said = on_ramfs(
            &wrap,
            owner,
            "echo roots >roots && chmod 600 roots && echo own >own && chown 4321:4322 own && chmod 600 own
             $saggar wrap --ro ${PWD%/*}/shown:/tmp/ro -- sh -c 'id -u; touch made; mkdir dir; touch dir/made; ln -s x link; \
                cat roots own 2>&1; chown 0 made 2>&1; cat /proc/self/uid_map; stat -c %u . /tmp/ro $HOME' &&
             stat -c %u:%g made dir dir/made link",
        )
        .success();
        let (uid, _) = owner.split_once(':').unwrap();
        assert_eq!(said.lines().rev().take(4).collect::<Vec<_>>(), [owner; 4], "{said}");
        assert!(said.starts_with("1000\n") && said.contains("roots: Permission denied"), "{said}");
        assert_eq!(said.lines().any(|line| line == "own"), uid == "4321", "{said}");
        let map: Vec<Vec<&str>> = said.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(map.contains(&vec!["1000", uid, "1"]), "{said}");
        // Host id 0 is nowhere in it; trees that can be idmapped are the inner user's as ever.
        assert!(!map.iter().any(|line| line.len() == 3 && line[1] == "0"), "{said}");
        assert!(said.contains("\n1000\n1000\n1000\n"), "{said}");
    }
}

/// The same with root's own workspace: nothing is given, and both ways out are named; what is only read is shown
/// as it is, to a stranger.
#[test]
fn as_root_a_workspace_of_roots_that_cannot_be_idmapped_is_refused() {
    let Ok(root) = Caller::root() else { skip!("this test needs to be started as root") };
    for owner in ["0:0", "4321:0", "0:4321"] {
        let wrap = Wrap::new(root);
        let ended = on_ramfs(&wrap, owner, "$saggar wrap -- true");
        ended.refused(&["ramfs", "cannot be idmapped", "root", "copy", "chown"]);
    }
    let wrap = Wrap::new(root);
    let other = wrap.place.make_dir("other", 0o755);
    let said = on_ramfs(
        &wrap,
        "0:0",
        &format!(
            "echo read >open && echo closed >closed && chmod 600 closed
             $saggar wrap --workspace {} --ro $PWD:/tmp/ro -- sh -c 'cd /tmp/ro; stat -c %u .; cat open closed 2>&1; touch x 2>&1; exit 0'",
            other.display()
        ),
    )
    .success();
    assert!(said.starts_with("65534\nread\n") && said.contains("closed: Permission denied"), "{said}");
    assert!(said.contains("Read-only file system") || said.contains("Permission denied\n"), "{said}");
}

/// `explain` and `doctor` say it before the start does.
#[test]
fn as_root_explain_and_doctor_report_a_workspace_that_cannot_be_idmapped() {
    let Ok(root) = Caller::root() else { skip!("this test needs to be started as root") };
    let wrap = Wrap::new(root);
    let said = on_ramfs(&wrap, "4321:4322", "echo x >closed && chmod 600 closed; $saggar explain; $saggar explain --path $PWD/closed; $saggar doctor; exit 0").stdout;
    for word in ["4321", "cannot be idmapped", "ramfs", "have its owner's id, 4321"] {
        assert!(said.contains(word), "no {word:?} in {said}");
    }
    let wrap = Wrap::new(root);
    let said = on_ramfs(&wrap, "0:0", "$saggar doctor; $saggar explain 2>&1; exit 0").stdout;
    assert!(said.contains("its owner is root: sandboxes cannot work there"), "{said}");
    assert!(said.contains("whose id no sandbox gets"), "{said}");
}

/// What root's sandbox shows of other owners: their own numbers, shifted; its own owner is the inner user.
#[test]
fn as_root_owners_are_distinguished_inside() {
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
        crate::support::binary::saggar().display(),
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
