//! The environment of the program (KC-09, KC-10).
//!
//! The environment starts empty. Variables are added in this order, and a later source overrides an earlier
//! one: the built-in list, a folder's `env.set`, the variables that saggar itself needs (`fixed`), the
//! variables that an operator or the command line passes or sets. At last `env.deny` removes variables, and
//! nothing overrides it.

use super::effective::{EffectivePolicy, EnvRule};
use super::layer::PolicyLayer;
use super::names::EnvName;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

/// Variables that are passed from the caller by default: those that agents and their servers need, by exact
/// name. HOME and CLAUDE_CONFIG_DIR are absent: they are set, never inherited (DECISIONS 24).
const PASSED_BY_DEFAULT: &[&str] = &[
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_BASE_URL",
    "ANTHROPIC_CUSTOM_HEADERS",
    "ANTHROPIC_UNIX_SOCKET",
    "ASH_DEBUG_TIMING",
    "ASH_PERMISSION_MODE",
    "ASH_REAL_SDK",
    "CLAUDE_AGENT_SDK_VERSION",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
    "CLAUDE_CODE_ENTRYPOINT",
    "CLAUDE_CODE_EXECUTABLE",
    "CLAUDE_CODE_SDK_READS_SESSION_STATE",
    "CLAUDE_CODE_USE_BEDROCK",
    "DISABLE_AUTOUPDATER",
    "DISABLE_ERROR_REPORTING",
    "DISABLE_TELEMETRY",
    "LANG",
    "NODE_PATH",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_SERVICE_NAME",
    "PATH",
    "TERM",
];

/// Secrets that callers commonly have in their environment. None is in the built-in list. `policy check` notes
/// each that a policy passes.
const SECRETS: &[&str] = &[
    "AWS_*",
    "DATABASE_URL",
    "DOCKER_HOST",
    "GH_TOKEN",
    "GITHUB_TOKEN",
    "NPM_TOKEN",
    "OPENAI_API_KEY",
    "PGPASSWORD",
    "REDIS_URL",
    "SSH_AUTH_SOCK",
    "STRIPE_SECRET_KEY",
];

/// Variables that make a program run other code: loaders, interpreters, and the commands that tools start.
const CODE_LOADING: &[&str] = &[
    "BASH_ENV",
    "BASH_FUNC_*",
    "BROWSER",
    "CDPATH",
    "CLASSPATH",
    "DYLD_*",
    "EDITOR",
    "ENV",
    "GCONV_PATH",
    "GIT_*",
    "GLIBC_TUNABLES",
    "IFS",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "LD_*",
    "LESSCLOSE",
    "LESSOPEN",
    "LOCPATH",
    "LUA_CPATH*",
    "LUA_INIT*",
    "LUA_PATH*",
    "MANPAGER",
    "NODE_OPTIONS",
    "NODE_PATH",
    "NODE_REPL_EXTERNAL_MODULE",
    "PAGER",
    "PERL5DB",
    "PERL5LIB",
    "PERL5OPT",
    "PERLLIB",
    "PHPRC",
    "PHP_INI_SCAN_DIR",
    "PROMPT_COMMAND",
    "PS4",
    "PYTHONHOME",
    "PYTHONINSPECT",
    "PYTHONPATH",
    "PYTHONPLATLIBDIR",
    "PYTHONSTARTUP",
    "PYTHONUSERBASE",
    "RUBYLIB",
    "RUBYOPT",
    "RUSTC_*",
    "RUSTDOC*",
    "RUSTFLAGS",
    "SHELL",
    "SHELLOPTS",
    "SSH_ASKPASS",
    "SUDO_ASKPASS",
    "VISUAL",
    "ZDOTDIR",
    "_JAVA_OPTIONS",
    "npm_config_*",
    "NPM_CONFIG_*",
];

/// Variables that redirect the agent's traffic or its key.
const TRAFFIC_ROUTING: &[&str] = &[
    "ALL_PROXY",
    "CURL_CA_BUNDLE",
    "FTP_PROXY",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NODE_EXTRA_CA_CERTS",
    "NODE_TLS_REJECT_UNAUTHORIZED",
    "NO_PROXY",
    "OTEL_*",
    "REQUESTS_CA_BUNDLE",
    "RES_OPTIONS",
    "SSLKEYLOGFILE",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
];

/// Variables that belong to saggar or configure the agent.
const RESERVED: &[&str] = &["ANTHROPIC_*", "ASH_*", "CLAUDE_*", "HOME", "IS_SANDBOX", "PATH", "SAGGAR_*"];

/// The names of [`PASSED_BY_DEFAULT`].
pub(super) fn default_passed_names() -> impl Iterator<Item = EnvName> {
    PASSED_BY_DEFAULT.iter().filter_map(|name| name.parse().ok())
}

/// Whether the name is one of [`SECRETS`].
pub(super) fn is_secret(name: &EnvName) -> bool {
    matches_any(name.as_str(), SECRETS)
}

/// The reason why a folder's policy may not set this variable, or `None` if it may.
pub(super) fn folder_objection(name: &EnvName) -> Option<&'static str> {
    let name = name.as_str();
    if matches_any(name, CODE_LOADING) {
        Some("which makes programs run other code")
    } else if matches_any(name, RESERVED) {
        Some("which belongs to saggar and the agent")
    } else if matches_any(name, TRAFFIC_ROUTING) || matches_any(&name.to_ascii_uppercase(), TRAFFIC_ROUTING) {
        Some("which decides where traffic and keys go")
    } else {
        None
    }
}

/// Whether the name matches one of the patterns. A `*` at the end of a pattern matches any suffix.
fn matches_any(name: &str, patterns: &[&str]) -> bool {
    patterns.iter().any(|pattern| match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == *pattern,
    })
}

/// The program's environment, sorted by name, each variable with the layer that added it.
///
/// `caller` is the caller's environment; of two entries with one name the first is used, as by getenv(3).
/// `fixed` has the variables that saggar itself sets: HOME, a PATH of directories that exist in the
/// sandbox, and so on.
pub fn program_environment(
    policy: &EffectivePolicy,
    caller: impl Iterator<Item = (OsString, OsString)>,
    fixed: &[(&str, &OsStr)],
) -> Vec<(OsString, OsString, PolicyLayer)> {
    let mut result: BTreeMap<OsString, (OsString, PolicyLayer)> = BTreeMap::new();
    for (name, value) in caller {
        let rule = name.to_str().and_then(|text| policy.env.rules.get(text));
        if let Some(rule) = rule.filter(|rule| rule.value == EnvRule::Pass) {
            result.entry(name).or_insert_with(|| (value, rule.layer.clone()));
        }
    }
    for (name, rule) in &policy.env.rules {
        if let EnvRule::Set(value) = &rule.value {
            result.insert(name.as_str().into(), (value.into(), rule.layer.clone()));
        }
    }
    for (name, value) in fixed {
        // Only a layer that may widen, and that sets this very variable, overrides `fixed`.
        let stronger = |layer: &PolicyLayer| *layer != PolicyLayer::BuiltIn && !layer.is_agent_writable();
        match result.get(OsStr::new(name)) {
            Some((_, layer)) if stronger(layer) => {}
            _ => drop(result.insert((*name).into(), ((*value).into(), PolicyLayer::BuiltIn))),
        }
    }
    result.retain(|name, _| name.to_str().is_none_or(|text| !policy.env.deny.contains_key(text)));
    result.into_iter().map(|(name, (value, layer))| (name, value, layer)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_list_is_whole_and_holds_no_secret_and_no_loader() {
        let names: Vec<EnvName> = default_passed_names().collect();
        assert_eq!(names.len(), PASSED_BY_DEFAULT.len(), "a name in the list does not parse");
        assert!(!names.iter().any(is_secret));
        let loaders = names.iter().map(EnvName::as_str).filter(|name| matches_any(name, CODE_LOADING));
        assert_eq!(loaders.collect::<Vec<_>>(), ["NODE_PATH"], "which servers of agents need");
    }

    #[test]
    fn lists_are_sorted_and_patterns_end_in_their_star() {
        for list in [PASSED_BY_DEFAULT, SECRETS, TRAFFIC_ROUTING, RESERVED] {
            assert!(list.is_sorted());
        }
        for pattern in [SECRETS, CODE_LOADING, TRAFFIC_ROUTING, RESERVED].concat() {
            assert!(!pattern.trim_end_matches('*').contains('*'), "{pattern}");
        }
        assert!(matches_any("AWS_SECRET_ACCESS_KEY", SECRETS) && !matches_any("AWSOME", SECRETS));
        assert!(matches_any("ENV", CODE_LOADING) && !matches_any("ENVIRONMENT", CODE_LOADING));
    }
}
