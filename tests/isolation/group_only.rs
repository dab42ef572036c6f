//! What of the host's system only a group may read is not there, although the programs of an ordinary user have the
//! groups of that user.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::wrapped::{Ended, Wrap};
use crate::support::caller::Caller;

/// A group that the caller is made a member of.
const GROUP: u32 = 47_110;

/// Directories for configuration, and for what the administrator adds.
const TREES: [&str; 5] =
    ["/etc/ssl", "/etc/alternatives", "/etc/ld.so.conf.d", "/usr/local/etc", "/usr/local/share"];

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

/// An ordinary user, where the test may make files of the system.
fn ordinary() -> Result<Caller, String> {
    Caller::root()?;
    Caller::ordinary()
}

#[test]
fn what_only_a_group_may_read_is_covered() {
    let caller = match ordinary() {
        Ok(caller) => caller,
        Err(why) => skip!("{why}"),
    };
    let wrap = Wrap::new(caller);
    TREES.iter().for_each(|tree| is_covered_in(tree, &wrap, caller));
}

/// The largest tree is searched near its top, its files too; doctor says what is deeper.
#[test]
fn of_usr_what_is_near_its_top_is_covered_and_doctor_finds_the_rest() {
    let caller = match ordinary() {
        Ok(caller) => caller,
        Err(why) => skip!("{why}"),
    };
    let wrap = Wrap::new(caller);
    let made = Configuration::new("/usr/share");
    let near = Path::new("/usr/share").join(format!("saggar-test-{}.key", std::process::id()));
    fs::rename(made.0.join("open/group"), &near).unwrap();
    let deep = made.0.join("closed");
    let inside = {
        let script = format!("cat {} {}/key", near.display(), deep.display());
        with_group(&wrap, caller, Membership::Supplementary, &wrap.command(&[], &["/bin/sh", "-c", &script]))
    };
    let doctor = |options: &[&str]| {
        let mut command = wrap.place.saggar();
        command.args(["doctor", "--json"]).args(options);
        let said = with_group(&wrap, caller, Membership::Supplementary, &command).success();
        let report: serde_json::Value = serde_json::from_str(&said).unwrap();
        let rows = report["checks"].as_array().unwrap().clone();
        rows.into_iter().find(|row| row["name"] == "group-only-files").unwrap()
    };
    let row = doctor(&[]);
    fs::remove_file(&near).unwrap();
    assert_eq!(inside.stdout, "content", "{inside:?}");
    assert_eq!(row["status"], "degraded", "{row}");
    assert!(row["detail"].as_str().unwrap().contains(deep.to_str().unwrap()), "{row}");
    assert!(row["remedy"].as_str().unwrap().contains(&format!("files.hide = [{deep:?}]")), "{row}");
    // The remedy is one.
    let script = format!("cat {}/key", deep.display());
    let hidden = format!("files.hide = [{deep:?}]");
    wrap.place.make_file("hide.toml", &hidden);
    let policy = wrap.place.join("hide.toml");
    let command = wrap.command(&["--policy", policy.to_str().unwrap()], &["/bin/sh", "-c", &script]);
    let inside = with_group(&wrap, caller, Membership::Supplementary, &command);
    assert!(inside.stdout.is_empty() && inside.code() != 0, "{inside:?}");
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
