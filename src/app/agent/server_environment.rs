//! The environment of a server that starts saggar in place of its own bridge process (DECISIONS 36, saggar-bridge(7)).
//!
//! Such a server expects what its own bridge does: its child ends with it, the environment reaches the agent, the
//! workspace is the home directory, and no client answers permission requests unless the mode says so.

use crate::error::{Code, Error, Result};
use crate::spec::policy::{EffectivePolicy, EnvName, PolicyLayer, PolicyPart, Setting};
use std::ffi::OsString;
use std::path::Path;

/// Variables of the caller that `--env-all` does not pass: saggar sets them, or they name places that the sandbox does
/// not have.
const NOT_PASSED: [&str; 11] = [
    "ASH_BRIDGE_SOCKET",
    "CLAUDE_CODE_TMPDIR",
    "CLAUDE_CONFIG_DIR",
    "HOME",
    "IS_SANDBOX",
    "OLDPWD",
    "PATH",
    "PWD",
    "SAGGAR_RUNTIME_DIR",
    "SAGGAR_STATE_DIR",
    "XDG_RUNTIME_DIR",
];

/// How long a permission request waits if the policy sets no time: such a server may have no way to answer.
const PERMISSION_TIMEOUT: &str = "30s";

/// What a server has set in the environment.
#[derive(Debug, Clone, Default)]
pub struct ServerEnvironment {
    /// ASH_PERMISSION_MODE.
    pub permission_mode: ServerPermissionMode,
    /// Whether HOME is the workspace (ASH_WORKSPACE_DIR).
    pub workspace_is_home: bool,
    /// The variables that the agent gets besides those of every sandbox (ASH_SANDBOX_ENV); `None` is all.
    pub passed_names: Option<Vec<EnvName>>,
}

/// Parses the value of ASH_SANDBOX_ENV: names, separated by commas or spaces.
///
/// # Errors
/// [`Code::Usage`] for an invalid name.
pub fn parse_names(value: &str) -> Result<Vec<EnvName>> {
    let names = value.split([',', ' ']).filter(|name| !name.is_empty());
    let parsed = names.map(|name| {
        name.parse().map_err(|error| {
            Error::new(Code::Usage, format!("ASH_SANDBOX_ENV: {error}"))
                .hint("list names of variables, separated by commas")
        })
    });
    parsed.collect()
}

/// Who answers permission requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ServerPermissionMode {
    /// saggar allows what no rule denies.
    #[default]
    BypassPermissions,
    /// The agent's settings, the rules of the policy, or the server.
    Ask,
}

impl ServerPermissionMode {
    /// Parses the value of ASH_PERMISSION_MODE; empty is as absent.
    ///
    /// # Errors
    /// [`Code::Usage`] for an unknown mode.
    pub fn parse(value: &str) -> Result<Self> {
        match value {
            "" | "bypassPermissions" => Ok(ServerPermissionMode::BypassPermissions),
            "permissionsByAgent" | "default" => Ok(ServerPermissionMode::Ask),
            other => Err(Error::new(Code::Usage, format!("ASH_PERMISSION_MODE: unknown mode {other:?}"))
                .hint("use bypassPermissions, permissionsByAgent or default")),
        }
    }
}

impl ServerEnvironment {
    /// Sets what the environment of the server asks for, except where a layer has locked that part of the policy.
    pub(super) fn apply(&self, policy: &mut EffectivePolicy) {
        if policy.locked_by(PolicyPart::Env).is_none() {
            let is_named =
                |name: &EnvName| self.passed_names.as_ref().is_none_or(|names| names.contains(name));
            let names = passed_names(std::env::vars_os().map(|(name, _)| name)).filter(is_named);
            policy.pass_variables(names, &PolicyLayer::CommandLine);
        }
        if policy.locked_by(PolicyPart::Files).is_none() && self.workspace_is_home {
            policy.allow_home = Setting::new(true, &PolicyLayer::CommandLine);
        }
        let permissions = &mut policy.permissions;
        if permissions.timeout.layer == PolicyLayer::BuiltIn
            && let Ok(timeout) = PERMISSION_TIMEOUT.parse()
        {
            permissions.timeout = Setting::new(timeout, &PolicyLayer::CommandLine);
        }
        if self.permission_mode == ServerPermissionMode::BypassPermissions
            && policy.locked_by(PolicyPart::Permissions).is_none()
            && let Ok(every_tool) = "*".parse()
        {
            policy.permissions.allow.push(Setting::new(every_tool, &PolicyLayer::CommandLine));
        }
    }

    /// The variables that the agent has instead of those of every sandbox.
    pub(super) fn variables(&self, workspace: &Path) -> Vec<(&'static str, OsString)> {
        match self.workspace_is_home {
            true => vec![("HOME", workspace.into()), ("CLAUDE_CONFIG_DIR", workspace.join(".claude").into())],
            false => Vec::new(),
        }
    }
}

/// The names that `--env-all` passes, of these.
pub(crate) fn passed_names(names: impl Iterator<Item = OsString>) -> impl Iterator<Item = EnvName> {
    let names = names.filter_map(|name| name.into_string().ok()?.parse::<EnvName>().ok());
    names.filter(|name| !NOT_PASSED.contains(&name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::policy::HomeSource;

    #[test]
    fn own_variables_and_invalid_names_are_not_passed() {
        let names = ["A", "HOME", "B=C", "", "PATH", "LD_PRELOAD", "ASH_SESSION_ID"];
        let passed: Vec<String> =
            passed_names(names.into_iter().map(OsString::from)).map(|name| name.to_string()).collect();
        assert_eq!(passed, ["A", "LD_PRELOAD", "ASH_SESSION_ID"]);
    }

    #[test]
    fn mode_sets_who_answers_permission_requests() {
        let allowed = |mode: &str| {
            let permission_mode = ServerPermissionMode::parse(mode).unwrap();
            let mut policy = EffectivePolicy::built_in(HomeSource::Session);
            ServerEnvironment { permission_mode, ..ServerEnvironment::default() }.apply(&mut policy);
            assert_eq!(policy.permissions.timeout.value.to_string(), PERMISSION_TIMEOUT);
            policy.permissions.allow.len()
        };
        assert_eq!((allowed(""), allowed("bypassPermissions")), (1, 1));
        assert_eq!((allowed("default"), allowed("permissionsByAgent")), (0, 0));
        assert!(ServerPermissionMode::parse("plan").unwrap_err().to_string().contains("\"plan\""));
    }

    #[test]
    fn names_are_separated_by_commas_and_spaces() {
        let names = parse_names("A, B_1,,C").unwrap();
        assert_eq!(names.iter().map(EnvName::as_str).collect::<Vec<_>>(), ["A", "B_1", "C"]);
        assert!(parse_names("A,B=C").unwrap_err().to_string().starts_with("ASH_SANDBOX_ENV: "));
    }

    #[test]
    fn time_of_the_policy_is_kept() {
        let mut policy = EffectivePolicy::built_in(HomeSource::Session);
        let own = Setting::new("2m".parse().unwrap(), &PolicyLayer::CommandLine);
        policy.permissions.timeout = own.clone();
        ServerEnvironment::default().apply(&mut policy);
        assert_eq!(policy.permissions.timeout, own);
    }
}
