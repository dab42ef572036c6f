//! The environment of a sandbox: every name, and only such values as saggar or a policy sets.

use crate::cmd::prepare::Prepared;
use crate::spec::policy::Layer;
use crate::spec::policy::effective::EnvRule;
use serde::Serialize;

/// One variable that gets in.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Variable {
    pub(super) name: String,
    /// Whose value it is.
    pub(super) from: Owner,
    /// The value; never one of the caller's, and none that its name calls a secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) value: Option<String>,
    pub(super) layer: String,
}

/// Whose value a variable has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Owner {
    /// The caller's environment.
    Caller,
    /// A policy or the command line.
    Policy,
    /// saggar itself.
    Saggar,
}

/// Every variable by name; `own` are those that saggar sets over all others when it starts.
pub(super) fn variables(prepared: &Prepared, own: &[&str]) -> Vec<Variable> {
    let rules = &prepared.policy.effective.env.rules;
    let environment = prepared.environment();
    let variables = environment.variables.iter().map(|(name, value, layer)| {
        let name = name.to_string_lossy().into_owned();
        let rule = rules.get(name.as_str()).map(|setting| &setting.value);
        let from = match rule {
            // What saggar sets stands over the built-in list, and over nothing that somebody named.
            _ if *layer == Layer::BuiltIn && environment.fixed.contains(&name.as_str()) => Owner::Saggar,
            Some(EnvRule::Set(_)) => Owner::Policy,
            _ => Owner::Caller,
        };
        let shown = from != Owner::Caller && !names_a_secret(&name);
        let value = shown.then(|| value.to_string_lossy().into_owned());
        Variable { name, from, value, layer: layer.to_string() }
    });
    let own_ones = own.iter().map(|name| Variable {
        name: (*name).to_owned(),
        from: Owner::Saggar,
        value: None,
        layer: Layer::BuiltIn.to_string(),
    });
    let mut all: Vec<Variable> =
        variables.filter(|variable| !own.contains(&variable.name.as_str())).chain(own_ones).collect();
    all.sort_by(|one, other| one.name.cmp(&other.name));
    all
}

/// Whether a name says that its value is a secret, also one that stands in a policy.
fn names_a_secret(name: &str) -> bool {
    const MARKS: [&str; 7] = ["KEY", "TOKEN", "SECRET", "PASS", "CREDENTIAL", "AUTH", "HEADERS"];
    let name = name.to_ascii_uppercase();
    MARKS.iter().any(|mark| name.contains(mark))
}

#[cfg(test)]
mod tests {
    use super::names_a_secret;

    #[test]
    fn names_of_secrets_are_known() {
        for name in ["ANTHROPIC_API_KEY", "GH_TOKEN", "PGPASSWORD", "my_secret", "ANTHROPIC_CUSTOM_HEADERS"] {
            assert!(names_a_secret(name), "{name}");
        }
        for name in ["PATH", "HOME", "LANG", "CLAUDE_CONFIG_DIR"] {
            assert!(!names_a_secret(name), "{name}");
        }
    }
}
