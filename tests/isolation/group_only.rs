//! What of the host's configuration only a group may read is not there, although the programs of an ordinary user have the
//! groups of that user.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::wrapped::{Ended, Wrap};
use crate::support::caller::Caller;

/// A group that the caller is made a member of.
const GROUP: u32 = 47_110;

/// Directories for configuration.
const TREES: [&str; 2] = ["/etc/ssl", "/usr/local/etc"];

/// A directory in one of these trees, gone when dropped.
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

#[test]
fn what_only_a_group_may_read_is_covered() {
    if let Err(why) = Caller::root() {
        skip!("{why}");
    }
    let caller = match Caller::ordinary() {
        Ok(caller) => caller,
        Err(why) => skip!("{why}"),
    };
    let wrap = Wrap::new(caller);
    TREES.iter().for_each(|tree| is_covered_in(tree, &wrap, caller));
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
