//! A policy file with the environment variables of a session. Other users of the machine could read a command line, and
//! some variables in saggar's own environment would configure saggar itself.

use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Serialize)]
struct Policy<'a> {
    env: EnvTable<'a>,
}

#[derive(Serialize)]
struct EnvTable<'a> {
    set: &'a BTreeMap<String, String>,
}

/// Returns a policy in TOML that sets these variables (saggar-policy(5), table `env`).
pub fn policy_with_variables(variables: &BTreeMap<String, String>) -> String {
    // Serializing a map of strings cannot fail.
    toml::to_string(&Policy { env: EnvTable { set: variables } }).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn variables_survive_serialization(
            set in proptest::collection::btree_map("[A-Z_]{1,8}", any::<String>(), 0..5)) {
            let read: toml::Table = policy_with_variables(&set).parse().unwrap();
            let read: BTreeMap<String, String> = read["env"]["set"].clone().try_into().unwrap();
            prop_assert_eq!(read, set);
        }
    }
}
