//! The variables of a session, as a policy of its own: on a command line everybody on the machine could read them, and in
//! the environment of saggar some would change what saggar itself does.

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

/// A policy that sets these variables, in TOML (saggar-policy(5), TABLE env).
pub fn policy_with_variables(variables: &BTreeMap<String, String>) -> String {
    // Texts by texts can always be written.
    toml::to_string(&Policy { env: EnvTable { set: variables } }).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_values_are_those_that_are_read_again(set in proptest::collection::btree_map("[A-Z_]{1,8}", any::<String>(), 0..5)) {
            let read: toml::Table = policy_with_variables(&set).parse().unwrap();
            let read: BTreeMap<String, String> = read["env"]["set"].clone().try_into().unwrap();
            prop_assert_eq!(read, set);
        }
    }
}
