//! What the policy says to a question of the agent, before anybody is asked (`[permissions]`).
//!
//! A denial stands over everything, then a demand to ask, then an allowance; what no rule speaks of is asked.
//! The rules are read as a stranger's input would have them read: an allowance matches only what it plainly
//! means, a denial also what might be it.

mod glob;
mod rule;
mod subject;

pub use rule::Rule;

use super::effective::Permissions;
use super::layer::Setting;
use super::value::keywords;
use subject::Subject;

keywords! {
    /// How an agent treats its own questions: what a server may set.
    "permission mode" PermissionMode {
        /// It asks.
        Default = "default",
        /// It edits files without asking.
        AcceptEdits = "acceptEdits",
        /// It plans, and changes nothing.
        Plan = "plan",
        /// It does not ask; what it would ask for is denied.
        DontAsk = "dontAsk",
        /// It decides by itself what to ask for.
        Auto = "auto",
        /// It asks for nothing.
        BypassPermissions = "bypassPermissions",
    }
}

/// What the rules say of one call of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ruling {
    /// It may run, by this rule.
    Allow(String),
    /// It may not, by this rule.
    Deny(String),
    /// Somebody has to be asked.
    Ask,
}

impl Permissions {
    /// What the rules say to a call of `tool` with `input`, a JSON object.
    pub fn ruling(&self, tool: &str, input: &str) -> Ruling {
        if self.allow.is_empty() && self.deny.is_empty() {
            return Ruling::Ask;
        }
        let subject = Subject::of(input);
        let named = |rule: &Setting<Rule>| format!("{} ({})", rule.value, rule.layer);
        if let Some(rule) = self.deny.iter().find(|rule| rule.value.may_match(tool, &subject)) {
            return Ruling::Deny(named(rule));
        }
        if self.ask.iter().any(|rule| rule.value.may_match(tool, &subject)) {
            return Ruling::Ask;
        }
        match self.allow.iter().find(|rule| rule.value.surely_matches(tool, &subject)) {
            Some(rule) => Ruling::Allow(named(rule)),
            None => Ruling::Ask,
        }
    }

    /// Whether a server may bring the agent into this mode.
    ///
    /// # Errors
    /// Why not, for the server.
    pub fn may_set_mode(&self, name: &str) -> Result<PermissionMode, String> {
        let mode: PermissionMode = name.parse().map_err(|error: super::BadValue| error.to_string())?;
        match &self.modes {
            Some(modes) if !modes.value.0.contains(&mode) => {
                Err(format!("the policy does not permit the permission mode {mode} ({})", modes.layer))
            }
            // Nobody said that the agent may do everything unasked.
            None if mode == PermissionMode::BypassPermissions => {
                Err(format!("the policy does not name the permission mode {mode} in permissions.modes"))
            }
            _ => Ok(mode),
        }
    }
}

/// Modes that a server may set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Modes(pub Vec<PermissionMode>);

impl std::fmt::Display for Modes {
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
