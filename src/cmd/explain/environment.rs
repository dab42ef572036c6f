//! The environment of a sandbox: all names, and the values that saggar or a policy sets.

use crate::app::prepare::PreparedSandbox;
use crate::spec::policy::PolicyLayer;
use crate::spec::policy::effective::EnvRule;
use serde::Serialize;

/// A variable of the sandbox.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct VariableRow {
    pub(super) name: String,
    /// The source of the value.
    pub(super) from: VariableSource,
    /// The value, unless it is the caller's or the name suggests a secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) value: Option<String>,
    pub(super) layer: String,
}

/// The source of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum VariableSource {
    /// The caller's environment.
    Caller,
    /// A policy or the command line.
    Policy,
    /// saggar itself.
    Saggar,
}

/// Lists every variable by name; `own` are those that saggar sets at the start and that override all others.
pub(super) fn variables(prepared: &PreparedSandbox, own: &[&str]) -> Vec<VariableRow> {
    let rules = &prepared.policy.effective.env.rules;
    let environment = prepared.environment();
    let variables = environment.variables.iter().map(|(name, value, layer)| {
        let name = name.to_string_lossy().into_owned();
        let rule = rules.get(name.as_str()).map(|setting| &setting.value);
        let from = match rule {
            // A variable of saggar overrides the built-in list, but no layer that sets it explicitly.
            _ if *layer == PolicyLayer::BuiltIn && environment.fixed.contains(&name.as_str()) => {
                VariableSource::Saggar
            }
            Some(EnvRule::Set(_)) => VariableSource::Policy,
            _ => VariableSource::Caller,
        };
        let shown = from != VariableSource::Caller && !names_a_secret(&name);
        let value = shown.then(|| value.to_string_lossy().into_owned());
        VariableRow { name, from, value, layer: layer.to_string() }
    });
    let own_ones = own.iter().map(|name| VariableRow {
        name: (*name).to_owned(),
        from: VariableSource::Saggar,
        value: None,
        layer: PolicyLayer::BuiltIn.to_string(),
    });
    let mut all: Vec<VariableRow> =
        variables.filter(|variable| !own.contains(&variable.name.as_str())).chain(own_ones).collect();
    all.sort_by(|one, other| one.name.cmp(&other.name));
    all
}

/// Returns whether a name suggests a secret value. Values of a policy are hidden too.
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
