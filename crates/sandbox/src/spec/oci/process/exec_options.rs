//! The command line options of `exec` for the program that it runs.

use super::super::field_path::FieldPath;
use super::{MAX_GROUPS, ProcessSpec, capabilities, no_process};
use crate::spec::container::ContainerSpec;
use saggar_sys::error::{Code, Error, Result};
use std::ffi::OsString;

/// The options of `exec`, which modify the process of the container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExecOptions {
    /// The program and its arguments; never empty.
    pub args: Vec<OsString>,
    /// `--env`: `NAME=value`, added to the environment of the container's process.
    pub env: Vec<String>,
    /// `--cwd`; without it, the working directory of the container's process.
    pub cwd: Option<String>,
    /// `--tty`; without it there is no terminal, even if the container's process has one.
    pub tty: bool,
    /// `--user UID[:GID]`; without it, the ids of the container's process.
    pub user: Option<String>,
    /// `--additional-gids`, added to the groups of the container's process.
    pub additional_gids: Vec<u32>,
    /// `--cap`: names such as `CAP_NET_ADMIN`, added to the sets of the container's process.
    pub capabilities: Vec<String>,
    /// `--no-new-privs`; without it, the setting of the container's process.
    pub no_new_privs: Option<bool>,
    /// `--apparmor`; without it, the profile of the container's process.
    pub apparmor_profile: Option<String>,
    /// `--process-label`; without it, the label of the container's process.
    pub selinux_label: Option<String>,
}

/// The process that `exec` runs without `--process`: the container's own, modified by `options`.
///
/// # Errors
/// `Code::Usage` for an invalid option, `Code::Invalid` for a container without a process.
pub fn process_with_options(container: &ContainerSpec, options: &ExecOptions) -> Result<ProcessSpec> {
    let mut process = container.process.clone().ok_or_else(no_process)?;
    if options.args.is_empty() {
        return Err(usage_error("exec", "needs a program to run"));
    }
    process.program.argv.clone_from(&options.args);
    process.program.file = None;
    (process.terminal, process.console_size) = (options.tty, None);
    if let Some(cwd) = &options.cwd {
        if !cwd.starts_with('/') || cwd.contains('\0') {
            return Err(usage_error("--cwd", format_args!("must be an absolute path, is {cwd:?}")));
        }
        process.program.cwd = cwd.into();
    }
    add_environment(&mut process, &options.env)?;
    if let Some(user) = &options.user {
        set_user(&mut process, user)?;
    }
    process.groups.extend(&options.additional_gids);
    if process.groups.len() > MAX_GROUPS || options.additional_gids.contains(&u32::MAX) {
        return Err(usage_error("--additional-gids", "are not valid"));
    }
    add_capabilities(&mut process, &options.capabilities)?;
    process.no_new_privs = options.no_new_privs.unwrap_or(process.no_new_privs);
    process.apparmor_profile = options.apparmor_profile.clone().or(process.apparmor_profile);
    process.selinux_label = options.selinux_label.clone().or(process.selinux_label);
    Ok(process)
}

fn usage_error(option: &str, what: impl std::fmt::Display) -> Error {
    Error::new(Code::Usage, format!("{option} {what}"))
}

fn add_environment(process: &mut ProcessSpec, added: &[String]) -> Result<()> {
    let added = super::environment(added.to_vec(), FieldPath::root("--env"))
        .map_err(|error| Error::new(Code::Usage, error.to_string()))?;
    for (name, value) in added {
        match process.program.env.iter_mut().find(|(other, _)| *other == name) {
            Some(variable) => variable.1 = value,
            None => process.program.env.push((name, value)),
        }
    }
    Ok(())
}

fn set_user(process: &mut ProcessSpec, user: &str) -> Result<()> {
    let id = |text: &str| text.parse().ok().filter(|id| *id != u32::MAX);
    let (uid, gid) = match user.split_once(':') {
        Some((uid, gid)) => (id(uid), id(gid)),
        None => (id(user), Some(process.gid)),
    };
    let (Some(uid), Some(gid)) = (uid, gid) else {
        return Err(usage_error("--user", format_args!("must be UID or UID:GID in numbers, is {user:?}")));
    };
    (process.uid, process.gid) = (uid, gid);
    Ok(())
}

/// Adds to the sets that a program run as root keeps. The ambient set is unchanged, because child processes
/// would inherit it.
fn add_capabilities(process: &mut ProcessSpec, names: &[String]) -> Result<()> {
    let sets = &mut process.capabilities;
    for name in names {
        let Some(bit) = capabilities::capability_bit(name) else {
            let error = usage_error("--cap", format_args!("must be a capability, is {name:?}"));
            return Err(error.hint("use a name from capabilities(7), such as CAP_NET_ADMIN"));
        };
        (sets.bounding, sets.effective, sets.permitted) =
            (sets.bounding | bit, sets.effective | bit, sets.permitted | bit);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::oci::parse_config;
    use std::path::Path;

    fn container() -> ContainerSpec {
        let text = r#"{"ociVersion": "1.0.0", "root": {"path": "r"}, "process": {"terminal": true,
            "user": {"uid": 1, "gid": 2, "additionalGids": [3]}, "args": ["sh"], "env": ["A=1", "B=2"], "cwd": "/w",
            "capabilities": {"bounding": ["CAP_KILL"]}, "noNewPrivileges": true, "apparmorProfile": "p"}}"#;
        parse_config(text.into(), Path::new("/b")).unwrap().container
    }

    fn with(change: impl FnOnce(&mut ExecOptions)) -> Result<ProcessSpec> {
        let mut overrides = ExecOptions { args: vec!["ls".into(), "-l".into()], ..ExecOptions::default() };
        change(&mut overrides);
        process_with_options(&container(), &overrides)
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
            overrides.apparmor_profile = Some("q".into());
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
        type Change = fn(&mut ExecOptions);
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
        let none = parse_config(r#"{"ociVersion": "1.0.0", "root": {"path": "r"}}"#.into(), Path::new("/b"))
            .unwrap()
            .container;
        assert!(
            process_with_options(&none, &ExecOptions { args: vec!["a".into()], ..ExecOptions::default() })
                .is_err()
        );
    }
}
