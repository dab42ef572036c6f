//! What of the host's system only a group may read is not there, although the programs of an ordinary user have the
//! groups of that user.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::wrapped::{Ended, Wrap};
use crate::support::caller::Caller;

/// A group that the caller is made a member of.
const GROUP: u32 = 47_110;

/// Directories for configuration.
const TREES: [&str; 4] = ["/etc/ssl", "/etc/alternatives", "/etc/ld.so.conf.d", "/usr/local/etc"];

/// Tests that make files of the system take turns: what one removes, the start of another may just have found.
static TURN: Mutex<()> = Mutex::new(());

/// A directory, gone when dropped.
struct Configuration(PathBuf);

impl Drop for Configuration {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Configuration {
    fn new(tree: &str) -> Configuration {
        let path = Path::new(tree).join(format!("saggar-test-{}", std::process::id()));
        fs::create_dir_all(path.join("open")).unwrap();
        fs::create_dir_all(path.join("closed")).unwrap();
        for (name, mode) in [("open/all", 0o644), ("open/group", 0o640), ("closed/key", 0o644)] {
            fs::write(path.join(name), "content").unwrap();
            chown(path.join(name), Some(0), Some(GROUP)).unwrap();
            fs::set_permissions(path.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        chown(path.join("closed"), Some(0), Some(GROUP)).unwrap();
        fs::set_permissions(path.join("closed"), fs::Permissions::from_mode(0o750)).unwrap();
        Configuration(path)
    }
}

/// How the caller is a member of the group.
#[derive(Clone, Copy)]
enum Membership {
    Supplementary,
    Primary,
}

/// Runs it as the caller, as a member of the group.
fn with_group(wrap: &Wrap, caller: Caller, member: Membership, command: &Command) -> Ended {
    let mut started = Command::new("/usr/bin/setpriv");
    let (id, group) = (caller.uid().to_string(), GROUP.to_string());
    started.args(["--reuid", &id]);
    match member {
        Membership::Supplementary => started.args(["--regid", &id, "--groups", &group]),
        Membership::Primary => started.args(["--regid", &group, "--clear-groups"]),
    };
    started.arg(command.get_program()).args(command.get_args()).current_dir(wrap.work()).env_clear();
    started.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    wrap.finish(started)
}

/// A sandbox of an ordinary user, where the test may make files of the system, and the test's turn to make them.
fn prepared() -> Result<(Wrap, Caller, MutexGuard<'static, ()>), String> {
    Caller::root()?;
    let caller = Caller::ordinary()?;
    Ok((Wrap::new(caller), caller, TURN.lock().unwrap_or_else(PoisonError::into_inner)))
}

#[test]
fn what_only_a_group_may_read_is_covered() {
    let (wrap, caller, _turn) = match prepared() {
        Ok(prepared) => prepared,
        Err(why) => skip!("{why}"),
    };
    TREES.iter().for_each(|tree| is_covered_in(tree, &wrap, caller));
}

/// A file, gone when dropped.
struct RemovedFile(PathBuf);

impl Drop for RemovedFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// The largest tree is searched near its top, its files too; doctor says what is deeper, until the policy covers it.
#[test]
fn of_usr_what_is_near_its_top_is_covered_and_doctor_finds_the_rest() {
    let (wrap, caller, _turn) = match prepared() {
        Ok(prepared) => prepared,
        Err(why) => skip!("{why}"),
    };
    let made = Configuration::new("/usr/share");
    let near = RemovedFile(Path::new("/usr/share").join(format!("saggar-test-{}.key", std::process::id())));
    fs::rename(made.0.join("open/group"), &near.0).unwrap();
    let deep = made.0.join("closed");
    let as_member = |command: &Command| with_group(&wrap, caller, Membership::Supplementary, command);
    let read = || {
        let script = format!("cat {} {}/key 2>&-; exit 0", near.0.display(), deep.display());
        as_member(&wrap.command(&[], &["/bin/sh", "-c", &script])).success()
    };
    let is_reported = || {
        let mut command = wrap.place.saggar();
        command.args(["doctor", "--json"]);
        let report: serde_json::Value = serde_json::from_str(&as_member(&command).success()).unwrap();
        let rows = report["checks"].as_array().unwrap();
        let row = rows.iter().find(|row| row["name"] == "group-only-files").unwrap();
        assert!(row["status"] == "ok" || row["remedy"].as_str().unwrap().contains("files.ro"), "{row}");
        row["detail"].as_str().unwrap().contains(deep.to_str().unwrap())
    };
    assert_eq!(read(), "content", "the file near the top is empty");
    let local = Configuration::new("/usr/local/share");
    fs::set_permissions(&local.0, fs::Permissions::from_mode(0o750)).unwrap();
    chown(&local.0, None, Some(GROUP)).unwrap();
    let script = format!("cat {}/open/all", local.0.display());
    let command = wrap.command(&[], &["/bin/sh", "-c", &script]);
    assert!(as_member(&command).stdout.is_empty(), "as near to the top of /usr/local");
    assert!(is_reported());
    let empty = wrap.place.make_dir("empty", 0o755);
    wrap.place.configure_user(&format!("files.ro = [\"{}:{}\"]\n", empty.display(), deep.display()));
    assert_eq!(read(), "");
    assert!(!is_reported());
}

/// What is the user's own below /usr, and a directory in which others find what they can name, stay.
#[test]
fn what_no_group_gives_stays() {
    let (wrap, caller, _turn) = match prepared() {
        Ok(prepared) => prepared,
        Err(why) => skip!("{why}"),
    };
    let made = Configuration::new("/usr/local/share");
    let own = made.0.join("open/own");
    fs::write(&own, "own").unwrap();
    chown(&own, Some(caller.uid().as_raw()), None).unwrap();
    fs::set_permissions(&own, fs::Permissions::from_mode(0o600)).unwrap();
    chown(made.0.join("closed"), None, Some(0)).unwrap();
    fs::set_permissions(made.0.join("closed"), fs::Permissions::from_mode(0o711)).unwrap();
    let script = format!("cat {} {}/closed/key", own.display(), made.0.display());
    let command = wrap.command(&[], &["/bin/sh", "-c", &script]);
    assert_eq!(with_group(&wrap, caller, Membership::Supplementary, &command).success(), "owncontent");
}

fn is_covered_in(tree: &str, wrap: &Wrap, caller: Caller) {
    let configuration = Configuration::new(tree);
    let at = configuration.0.display();
    let script =
        format!("cat {at}/open/all {at}/open/group; ls -A {at}/closed; cat {at}/closed/key 2>&-; exit 0");
    for member in [Membership::Supplementary, Membership::Primary] {
        let outside = {
            let mut shell = wrap.place.command("/bin/sh".as_ref());
            shell.args(["-c", &script]);
            with_group(wrap, caller, member, &shell).success()
        };
        assert_eq!(outside, "contentcontentkey\ncontent", "the group gives it");
        let inside = |options: &[&str]| {
            let command = wrap.command(options, &["/bin/sh", "-c", &script]);
            with_group(wrap, caller, member, &command).success()
        };
        assert_eq!(inside(&[]), "content");
        // Who names it means it.
        assert_eq!(inside(&["--ro", &format!("{at}/closed")]), "contentkey\ncontent");
        let mut explain = wrap.place.saggar();
        explain.args(["explain", "--json", "--path"]).arg(configuration.0.join("closed"));
        let told: serde_json::Value =
            serde_json::from_str(&with_group(wrap, caller, member, &explain).success()).unwrap();
        assert_eq!(
            (&told["state"], &told["decided_by"]["layer"]),
            (&"masked".into(), &"built-in".into()),
            "{told}"
        );
    }
}
