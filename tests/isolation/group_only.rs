//! What of the host's system only a group may read is not there, although the programs of an ordinary user have the
//! groups of that user.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
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
    /// It has the group of its own number alone.
    None,
}

/// Runs it as the caller, as a member of the group.
fn with_group(wrap: &Wrap, caller: Caller, member: Membership, command: &Command) -> Ended {
    let mut started = Command::new("/usr/bin/setpriv");
    let (id, group) = (caller.uid().to_string(), GROUP.to_string());
    started.args(["--reuid", &id]);
    match member {
        Membership::Supplementary => started.args(["--regid", &id, "--groups", &group]),
        Membership::Primary => started.args(["--regid", &group, "--clear-groups"]),
        Membership::None => started.args(["--regid", &id, "--clear-groups"]),
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

/// The row of doctor: its status, and what it reports and advises.
fn doctor_row(wrap: &Wrap, caller: Caller, member: Membership, state: Option<&Path>) -> (String, String) {
    let mut command = wrap.place.saggar();
    command.args(["doctor", "--json"]);
    if let Some(state) = state {
        command.env("SAGGAR_STATE_DIR", state);
    }
    let told = with_group(wrap, caller, member, &command);
    let report: serde_json::Value = serde_json::from_str(&told.stdout).unwrap();
    let rows = report["checks"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == "group-only-files").unwrap();
    (row["status"].as_str().unwrap().to_owned(), format!("{}; {}", row["detail"], row["remedy"]))
}

/// The largest trees are searched whole when the system has changed, and by doctor.
#[test]
fn of_usr_all_of_it_is_covered_and_doctor_searches_it_again() {
    let (wrap, caller, _turn) = match prepared() {
        Ok(prepared) => prepared,
        Err(why) => skip!("{why}"),
    };
    let read = |path: &Path| {
        let command = wrap.command(&[], &["/bin/sh", "-c", &format!("cat {} 2>&-; exit 0", path.display())]);
        with_group(&wrap, caller, Membership::Supplementary, &command).success()
    };
    let made = Configuration::new("/usr/share");
    let near = RemovedFile(Path::new("/usr/share").join(format!("saggar-test-{}.key", std::process::id())));
    fs::copy(made.0.join("open/group"), &near.0).unwrap();
    chown(&near.0, None, Some(GROUP)).unwrap();
    let deep = [made.0.join("open/group"), made.0.join("closed/key")];
    assert_eq!(read(&near.0), "");
    assert_eq!(deep.each_ref().map(|path| read(path)), [""; 2]);
    assert_eq!(read(&made.0.join("open/all")), "content");
    // Every directory that is made near the top counts as a change.
    let local = Configuration::new("/usr/local/share");
    assert_eq!(read(&local.0.join("open/group")), "");
    // What is changed deeper is found by doctor, or the next day.
    let late = made.0.join("open/all");
    fs::set_permissions(&late, fs::Permissions::from_mode(0o640)).unwrap();
    let (status, told) = doctor_row(&wrap, caller, Membership::Supplementary, None);
    assert!(status == "ok" && told.contains(late.to_str().unwrap()), "{told}");
    assert_eq!(read(&late), "");
    // It is a file for all again, and hidden no longer.
    fs::set_permissions(&late, fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(read(&late), "content");
    // A path that was hidden, and is the way to another place now, stops no start.
    fs::rename(made.0.join("closed"), made.0.join("moved")).unwrap();
    symlink("moved", made.0.join("closed")).unwrap();
    assert_eq!(read(&late), "content");
}

/// Of a user without such a group doctor makes the search, and starts hide what it found.
#[test]
fn what_the_users_own_group_gives_is_covered_when_doctor_has_found_it() {
    let (wrap, caller, _turn) = match prepared() {
        Ok(prepared) => prepared,
        Err(why) => skip!("{why}"),
    };
    let made = Configuration::new("/usr/share");
    let deep = made.0.join("open/group");
    chown(&deep, None, Some(caller.uid().as_raw())).unwrap();
    let (status, told) = doctor_row(&wrap, caller, Membership::None, None);
    assert!(status == "ok" && told.contains(deep.to_str().unwrap()), "{told}");
    let command = wrap.command(&[], &["/bin/cat".as_ref(), deep.as_os_str()]);
    assert_eq!(with_group(&wrap, caller, Membership::None, &command).success(), "");
}

/// Where nothing can be kept, each start of a member searches; and doctor reports it.
#[test]
fn without_a_place_for_what_was_found_it_is_searched_each_time() {
    let (wrap, caller, _turn) = match prepared() {
        Ok(prepared) => prepared,
        Err(why) => skip!("{why}"),
    };
    let made = Configuration::new("/usr/share");
    let deep = made.0.join("closed");
    let nowhere = Path::new("/proc/nowhere");
    let script = format!("ls -A {}; exit 0", deep.display());
    let mut command = wrap.command(&[], &["/bin/sh", "-c", &script]);
    command.env("SAGGAR_STATE_DIR", nowhere);
    for _ in 0..2 {
        assert_eq!(with_group(&wrap, caller, Membership::Supplementary, &command).success(), "");
    }
    let (status, told) = doctor_row(&wrap, caller, Membership::Supplementary, Some(nowhere));
    assert!(status == "degraded" && told.contains("each start") && told.contains("/proc/nowhere"), "{told}");
    // The starts of others do not search so deep: the paths are named, until the policy covers them.
    let own = made.0.join("open/group");
    chown(&own, None, Some(caller.uid().as_raw())).unwrap();
    let (status, told) = doctor_row(&wrap, caller, Membership::None, Some(nowhere));
    let words = [own.to_str().unwrap(), "/proc/nowhere", "files.ro"];
    assert!(status == "degraded" && words.iter().all(|word| told.contains(word)), "{told}");
    let empty = wrap.place.make_file("empty", "");
    wrap.place.configure_user(&format!("files.ro = [\"{}:{}\"]\n", empty.display(), own.display()));
    let (_, told) = doctor_row(&wrap, caller, Membership::None, Some(nowhere));
    assert!(!told.contains(made.0.to_str().unwrap()), "{told}");
}

/// Nothing is made on the host by what starts nothing.
#[test]
fn explain_searches_and_keeps_nothing() {
    let (wrap, caller, _turn) = match prepared() {
        Ok(prepared) => prepared,
        Err(why) => skip!("{why}"),
    };
    let made = Configuration::new("/usr/share");
    let state = wrap.place.join("state-of-nobody");
    let mut command = wrap.place.saggar();
    command.args(["explain", "--json", "--path"]).arg(made.0.join("closed")).env("SAGGAR_STATE_DIR", &state);
    let told = with_group(&wrap, caller, Membership::Supplementary, &command).success();
    assert!(told.contains("masked"), "{told}");
    assert!(!state.exists());
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
