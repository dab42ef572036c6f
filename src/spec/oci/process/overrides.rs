//! What `exec` says on its command line about the program that it runs.

use super::super::field::Field;
use super::{MAX_GROUPS, Process, capabilities, no_process};
use crate::error::{Code, Error, Result};
use crate::spec::container::Container;
use std::ffi::OsString;

/// The options of `exec`, on top of the process of the container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    /// The program and its arguments; never empty.
    pub args: Vec<OsString>,
    /// `--env`: `NAME=value`, added to the environment of the container's process.
    pub env: Vec<String>,
    /// `--cwd`
    pub cwd: Option<String>,
    /// `--tty`; without it there is no terminal, whatever the container's process has.
    pub tty: bool,
    /// `--user UID[:GID]`
    pub user: Option<String>,
    /// `--additional-gids`, added to the groups of the container's process.
    pub additional_gids: Vec<u32>,
    /// `--cap`: names such as `CAP_NET_ADMIN`, added to the sets of the container's process.
    pub capabilities: Vec<String>,
    /// `--no-new-privs`; without it as the container's process has it.
    pub no_new_privs: Option<bool>,
    /// `--apparmor`
    pub apparmor: Option<String>,
    /// `--process-label`
    pub selinux_label: Option<String>,
}

/// The process that `exec` runs by its command line alone: the container's own with `overrides`.
///
/// # Errors
/// `Code::Usage` for an option that is not valid, `Code::Invalid` for a container without a process.
pub fn with_overrides(container: &Container, overrides: &Overrides) -> Result<Process> {
    let mut process = container.process.clone().ok_or_else(no_process)?;
    if overrides.args.is_empty() {
        return Err(usage("exec", "needs a program to run"));
    }
    process.program.argv.clone_from(&overrides.args);
    process.program.file = None;
    (process.terminal, process.console_size) = (overrides.tty, None);
    if let Some(cwd) = &overrides.cwd {
        if !cwd.starts_with('/') || cwd.contains('\0') {
            return Err(usage("--cwd", format_args!("must be an absolute path, is {cwd:?}")));
        }
        process.program.cwd = cwd.into();
    }
    add_environment(&mut process, &overrides.env)?;
    if let Some(user) = &overrides.user {
        set_user(&mut process, user)?;
    }
    process.groups.extend(&overrides.additional_gids);
    if process.groups.len() > MAX_GROUPS || overrides.additional_gids.contains(&u32::MAX) {
        return Err(usage("--additional-gids", "are not valid"));
    }
    add_capabilities(&mut process, &overrides.capabilities)?;
    process.no_new_privs = overrides.no_new_privs.unwrap_or(process.no_new_privs);
    process.apparmor_profile = overrides.apparmor.clone().or(process.apparmor_profile);
    process.selinux_label = overrides.selinux_label.clone().or(process.selinux_label);
    Ok(process)
}

fn usage(option: &str, what: impl std::fmt::Display) -> Error {
    Error::new(Code::Usage, format!("{option} {what}"))
}

fn add_environment(process: &mut Process, added: &[String]) -> Result<()> {
    let added = super::environment(added.to_vec(), Field::root("--env"))
        .map_err(|error| Error::new(Code::Usage, error.to_string()))?;
    for (name, value) in added {
        match process.program.env.iter_mut().find(|(other, _)| *other == name) {
            Some(variable) => variable.1 = value,
            None => process.program.env.push((name, value)),
        }
    }
    Ok(())
}

fn set_user(process: &mut Process, user: &str) -> Result<()> {
    let id = |text: &str| text.parse().ok().filter(|id| *id != u32::MAX);
    let (uid, gid) = match user.split_once(':') {
        Some((uid, gid)) => (id(uid), id(gid)),
        None => (id(user), Some(process.gid)),
    };
    let (Some(uid), Some(gid)) = (uid, gid) else {
        return Err(usage("--user", format_args!("must be UID or UID:GID in numbers, is {user:?}")));
    };
    (process.uid, process.gid) = (uid, gid);
    Ok(())
}

/// Into the sets that a program run as root keeps; no ambient ones, which its children would have as well.
fn add_capabilities(process: &mut Process, names: &[String]) -> Result<()> {
    let sets = &mut process.capabilities;
    for name in names {
        let Some(bit) = capabilities::bit(name) else {
            let error = usage("--cap", format_args!("must be a capability, is {name:?}"));
            return Err(error.hint("names stand in capabilities(7), such as CAP_NET_ADMIN"));
        };
        (sets.bounding, sets.effective, sets.permitted) =
            (sets.bounding | bit, sets.effective | bit, sets.permitted | bit);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::oci::parse;
    use std::path::Path;

    fn container() -> Container {
        let text = r#"{"ociVersion": "1.0.0", "root": {"path": "r"}, "process": {"terminal": true,
            "user": {"uid": 1, "gid": 2, "additionalGids": [3]}, "args": ["sh"], "env": ["A=1", "B=2"], "cwd": "/w",
            "capabilities": {"bounding": ["CAP_KILL"]}, "noNewPrivileges": true, "apparmorProfile": "p"}}"#;
        parse(text.into(), Path::new("/b")).unwrap().container
    }

    fn with(change: impl FnOnce(&mut Overrides)) -> Result<Process> {
        let mut overrides = Overrides { args: vec!["ls".into(), "-l".into()], ..Overrides::default() };
        change(&mut overrides);
        with_overrides(&container(), &overrides)
    }

    #[test]
    fn without_options_it_is_the_containers_process_with_another_program_and_no_terminal() {
        let process = with(|_| {}).unwrap();
        assert_eq!(process.program.argv, ["ls", "-l"]);
        assert_eq!((process.terminal, process.uid, process.gid, process.groups), (false, 1, 2, vec![3]));
        assert_eq!((process.program.cwd.to_str(), process.no_new_privs), (Some("/w"), true));
        assert_eq!(process.apparmor_profile.as_deref(), Some("p"));
    }

    #[test]
    fn each_option_changes_its_part() {
        let process = with(|overrides| {
            overrides.env = vec!["B=3".into(), "C=".into()];
            overrides.cwd = Some("/x".into());
            overrides.tty = true;
            overrides.user = Some("7:8".into());
            overrides.additional_gids = vec![9];
            overrides.capabilities = vec!["CAP_CHOWN".into()];
            overrides.no_new_privs = Some(false);
            overrides.apparmor = Some("q".into());
            overrides.selinux_label = Some("l".into());
        })
        .unwrap();
        let env = [("A", "1"), ("B", "3"), ("C", "")].map(|(name, value)| (name.into(), value.into()));
        assert_eq!(process.program.env, env);
        assert_eq!((process.terminal, process.uid, process.gid, process.groups), (true, 7, 8, vec![3, 9]));
        let sets = process.capabilities;
        assert_eq!((sets.bounding, sets.permitted, sets.effective, sets.ambient), (33, 1, 1, 0));
        assert_eq!(
            (process.apparmor_profile.as_deref(), process.selinux_label.as_deref()),
            (Some("q"), Some("l"))
        );
        assert!(!process.no_new_privs);
        assert_eq!(with(|overrides| overrides.user = Some("7".into())).unwrap().gid, 2);
    }

    #[test]
    fn options_that_are_not_valid_are_usage_errors() {
        type Change = fn(&mut Overrides);
        let cases: [(Change, &str); 8] = [
            (|overrides| overrides.args.clear(), "exec needs a program to run"),
            (|overrides| overrides.cwd = Some("x".into()), "--cwd must be an absolute path, is \"x\""),
            (
                |overrides| overrides.env = vec!["A=1".into(), "X".into()],
                "--env[1] must be NAME=value, is \"X\"",
            ),
            (
                |overrides| overrides.user = Some("root".into()),
                "--user must be UID or UID:GID in numbers, is \"root\"",
            ),
            (
                |overrides| overrides.user = Some("1:".into()),
                "--user must be UID or UID:GID in numbers, is \"1:\"",
            ),
            (|overrides| overrides.user = Some("4294967295".into()), "--user must be"),
            (|overrides| overrides.additional_gids = vec![u32::MAX], "--additional-gids are not valid"),
            (
                |overrides| overrides.capabilities = vec!["FLY".into()],
                "--cap must be a capability, is \"FLY\"",
            ),
        ];
        for (change, expected) in cases {
            let error = with(change).unwrap_err();
            assert!(error.to_string().starts_with(expected), "{error}");
            assert_eq!(error.code(), Code::Usage);
        }
        let none = parse(r#"{"ociVersion": "1.0.0", "root": {"path": "r"}}"#.into(), Path::new("/b"))
            .unwrap()
            .container;
        assert!(
            with_overrides(&none, &Overrides { args: vec!["a".into()], ..Overrides::default() }).is_err()
        );
    }
}
