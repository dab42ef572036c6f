//! Variables of Ash's own server that have no effect here.

/// Each with what to use instead, or why there is nothing.
const WITHOUT_EFFECT: [(&str, &str); 14] = [
    ("ASH_MODE", "each server has its own sandboxes"),
    ("ASH_RUNNER_ID", "each server has its own sandboxes"),
    ("ASH_RUNNER_HOST", "each server has its own sandboxes"),
    ("ASH_RUNNER_PORT", "each server has its own sandboxes"),
    ("ASH_RUNNER_ADVERTISE_HOST", "each server has its own sandboxes"),
    ("ASH_BRIDGE_ENTRY", "name the program with --saggar"),
    ("ASH_SANDBOX_UID", "sandboxes do not run as a user of the host (saggar-security(7))"),
    ("ASH_SANDBOX_GID", "sandboxes do not run as a user of the host (saggar-security(7))"),
    ("ASH_FILE_STORE_URL", "name a store with --snapshot-url"),
    ("ASH_CLOUD_URL", "there is no cloud"),
    ("ASH_TELEMETRY_URL", "name a collector with --otlp-endpoint"),
    ("ASH_TELEMETRY_KEY", "name a collector with --otlp-endpoint"),
    ("ASH_DEBUG_TIMING", "name a collector with --otlp-endpoint"),
    ("ASH_DASHBOARD_PATH", "the page is a part of the program"),
];

/// Warnings about the variables that are set and have no effect.
pub fn warnings(variable: impl Fn(&str) -> Option<String>) -> impl Iterator<Item = String> {
    WITHOUT_EFFECT.into_iter().filter_map(move |(name, instead)| {
        let value = variable(name).filter(|value| !value.is_empty())?;
        // The values that ask for nothing else.
        let is_default =
            matches!((name, value.as_str()), ("ASH_MODE", "standalone") | ("ASH_DEBUG_TIMING", "0"));
        (!is_default).then(|| format!("{name} has no effect: {instead}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_set_variables_without_effect_are_reported() {
        let set = [("ASH_MODE", "coordinator"), ("ASH_SANDBOX_UID", ""), ("ASH_PORT", "1")];
        let of = |set: &[(&str, &str)]| {
            let set: Vec<_> =
                set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let find =
                move |name: &str| set.iter().find(|(set, _)| set == name).map(|(_, value)| value.clone());
            warnings(find).collect::<Vec<_>>()
        };
        assert_eq!(of(&set), ["ASH_MODE has no effect: each server has its own sandboxes"]);
        assert!(of(&[("ASH_MODE", "standalone")]).is_empty());
    }
}
