//! Credentials of which saggar holds the key outside the sandbox: programs in the sandbox send their requests to an address
//! inside, and saggar adds the key and forwards them (saggar-policy(5), table `api`).

use super::variables::Variables;
use crate::model_apis::ModelApis;
use crate::session_policy::{HeldKey, SessionPolicy};
use saggar_policy::KeyHeader;
use saggar_policy::api::{MAX_KEY_LENGTH, PLACEHOLDER_KEY, PORT_INSIDE};

/// Returns the policy of a session whose credential is held outside its sandbox. `None` if that is impossible, so that the
/// credential has to be a variable: for another service, or if the variables of the agent or of the session name another
/// address or key.
///
/// `service` is the type of the credential. `own` are the variables of the session alone, which replace those of the
/// agent.
pub(super) fn policy_with_held_key(
    service: &str,
    secret: &str,
    of_agent: &Variables,
    own: &Variables,
    apis: &ModelApis,
) -> Option<SessionPolicy> {
    let key = secret.trim();
    if key.is_empty() || key.len() > MAX_KEY_LENGTH || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return None;
    }
    let mut variables = of_agent.clone();
    variables.extend(own.clone());
    let (upstream, header) = match service {
        "anthropic" => {
            if own.contains_key("ANTHROPIC_API_KEY") || variables.contains_key("ANTHROPIC_BASE_URL") {
                return None;
            }
            // saggar itself sets the placeholder and the address.
            variables.remove("ANTHROPIC_API_KEY");
            (&apis.anthropic, KeyHeader::ApiKey)
        }
        "openai" => {
            // saggar leads requests for the other service to this address, too.
            let is_other =
                |name: &String| name.starts_with("ANTHROPIC_") || name == "CLAUDE_CODE_OAUTH_TOKEN";
            let has_other = variables.keys().any(is_other);
            if has_other || own.contains_key("OPENAI_API_KEY") || variables.contains_key("OPENAI_BASE_URL") {
                return None;
            }
            variables.insert("OPENAI_API_KEY".into(), PLACEHOLDER_KEY.into());
            variables.insert("OPENAI_BASE_URL".into(), format!("http://127.0.0.1:{PORT_INSIDE}/v1"));
            (&apis.openai, KeyHeader::Authorization)
        }
        _ => return None,
    };
    let held_key = HeldKey { upstream: upstream.clone()?, header, key: key.to_owned() };
    Some(SessionPolicy { held_key: Some(held_key), ..SessionPolicy::of_variables(variables) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(names: &[&str]) -> Variables {
        names.iter().map(|name| ((*name).to_owned(), "v".to_owned())).collect()
    }

    fn policy(service: &str, secret: &str, of_agent: &[&str], own: &[&str]) -> Option<SessionPolicy> {
        let apis = ModelApis { anthropic: Some("https://a".into()), openai: Some("https://o".into()) };
        policy_with_held_key(service, secret, &variables(of_agent), &variables(own), &apis)
    }

    #[test]
    fn key_is_held_for_both_services() {
        let anthropic = policy("anthropic", "sk\n", &["ANTHROPIC_API_KEY", "A"], &["B"]).unwrap();
        assert_eq!(anthropic.variables, variables(&["A", "B"]));
        let held = anthropic.held_key.unwrap();
        assert_eq!((held.upstream.as_str(), held.key.as_str()), ("https://a", "sk"));
        let openai = policy("openai", "sk", &["OPENAI_API_KEY"], &[]).unwrap();
        assert_eq!(openai.variables["OPENAI_BASE_URL"], "http://127.0.0.1:274/v1");
        assert_eq!(openai.variables["OPENAI_API_KEY"], PLACEHOLDER_KEY);
        assert_eq!(openai.held_key.unwrap().header, KeyHeader::Authorization);
    }

    #[test]
    fn other_credentials_are_variables() {
        for (service, secret, of_agent, own) in [
            ("bedrock", "{}", "A", "A"),
            ("custom", "sk", "A", "A"),
            ("anthropic", "two words", "A", "A"),
            ("anthropic", " ", "A", "A"),
            ("anthropic", "sk", "A", "ANTHROPIC_API_KEY"),
            ("anthropic", "sk", "ANTHROPIC_BASE_URL", "A"),
            ("openai", "sk", "ANTHROPIC_API_KEY", "A"),
            ("openai", "sk", "A", "CLAUDE_CODE_OAUTH_TOKEN"),
            ("openai", "sk", "A", "OPENAI_API_KEY"),
            ("openai", "sk", "A", "OPENAI_BASE_URL"),
        ] {
            assert!(policy(service, secret, &[of_agent], &[own]).is_none(), "{service} {of_agent} {own}");
        }
        assert!(policy("anthropic", &"k".repeat(MAX_KEY_LENGTH + 1), &[], &[]).is_none());
        let disabled = ModelApis { anthropic: None, openai: None };
        let none = Variables::new();
        assert!(policy_with_held_key("anthropic", "sk", &none, &none, &disabled).is_none());
    }
}
