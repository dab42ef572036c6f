//! Automatic answers to the agent's permission requests (`[permissions]`).
//!
//! A denial takes precedence, then a rule to ask, then an allowance; a call that no rule matches is asked
//! about. The input of a call is untrusted: an allowance matches only input whose meaning is unambiguous, a
//! denial also matches input that might mean a denied call.

mod glob;
mod rule;
mod tool_input;

pub use rule::PermissionRule;

use super::effective::PermissionPolicy;
use super::layer::Setting;
use super::value::keywords;
use tool_input::ToolInput;

keywords! {
    /// The permission mode of an agent, which a client may set.
    "permission mode" PermissionMode {
        /// The agent asks.
        Default = "default",
        /// The agent edits files without asking.
        AcceptEdits = "acceptEdits",
        /// The agent plans and changes nothing.
        Plan = "plan",
        /// The agent does not ask; calls that need permission are denied.
        DontAsk = "dontAsk",
        /// The agent decides which calls to ask about.
        Auto = "auto",
        /// The agent asks about nothing.
        BypassPermissions = "bypassPermissions",
    }
}

/// The ruling of the rules on one tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PermissionRuling {
    /// The call may run, by this rule.
    Allow(String),
    /// The call is denied by this rule.
    Deny(String),
    /// A client must be asked.
    Ask,
}

impl PermissionPolicy {
    /// Applies the rules to a call of `tool` with `input`, a JSON object.
    pub fn rule_on(&self, tool: &str, input: &str) -> PermissionRuling {
        if self.allow.is_empty() && self.deny.is_empty() {
            return PermissionRuling::Ask;
        }
        let subject = ToolInput::parse(input);
        let named = |rule: &Setting<PermissionRule>| format!("{} ({})", rule.value, rule.layer);
        if let Some(rule) = self.deny.iter().find(|rule| rule.value.may_match(tool, &subject)) {
            return PermissionRuling::Deny(named(rule));
        }
        if self.ask.iter().any(|rule| rule.value.may_match(tool, &subject)) {
            return PermissionRuling::Ask;
        }
        match self.allow.iter().find(|rule| rule.value.definitely_matches(tool, &subject)) {
            Some(rule) => PermissionRuling::Allow(named(rule)),
            None => PermissionRuling::Ask,
        }
    }

    /// Checks whether a client may set this mode.
    ///
    /// # Errors
    /// The reason for the client, if it may not.
    pub fn may_set_mode(&self, name: &str) -> Result<PermissionMode, String> {
        let mode: PermissionMode = name.parse().map_err(|error: super::BadValue| error.to_string())?;
        match &self.modes {
            Some(modes) if !modes.value.0.contains(&mode) => {
                Err(format!("the policy does not permit the permission mode {mode} ({})", modes.layer))
            }
            // Skipping all permission requests must be allowed explicitly.
            None if mode == PermissionMode::BypassPermissions => {
                Err(format!("the policy does not name the permission mode {mode} in permissions.modes"))
            }
            _ => Ok(mode),
        }
    }
}

/// The permission modes that a client may set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermissionModes(pub Vec<PermissionMode>);

impl std::fmt::Display for PermissionModes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.as_slice() {
            [] => f.write_str("(none)"),
            modes => {
                let names: Vec<&str> = modes.iter().map(|mode| mode.name()).collect();
                f.write_str(&names.join(" "))
            }
        }
    }
}

#[cfg(test)]
mod tests;
