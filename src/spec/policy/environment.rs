//! Which variables the program gets (KC-09, KC-10).
//!
//! The environment starts empty. What goes in, from the weakest word to the strongest: the built-in list,
//! a folder's `env.set`, what saggar itself needs (`fixed`), what an operator or the command line passes
//! or sets, and last `env.deny`, which nothing overrides.

use super::effective::{Effective, EnvRule};
use super::layer::Layer;
use super::names::EnvName;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

/// Passed from the caller when nobody says otherwise: what agents and their servers need, by exact name.
/// HOME and CLAUDE_CONFIG_DIR are not here: they are set, never inherited (DECISIONS 24).
const PASSED: &[&str] = &[
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

/// Secrets that callers are known to carry. None is in the built-in list; whoever passes one is told.
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

/// Variables that make a program run code it would not have run: loaders, interpreters, and the commands
/// that tools start.
const LOADERS: &[&str] = &[
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

/// Variables that say where the agent's traffic and its key go.
const ROUTES: &[&str] = &[
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

/// Variables that are saggar's own, or the agent's configuration.
const OURS: &[&str] = &["ANTHROPIC_*", "ASH_*", "CLAUDE_*", "HOME", "IS_SANDBOX", "PATH", "SAGGAR_*"];

/// The names of the built-in list.
pub(super) fn built_in() -> impl Iterator<Item = EnvName> {
    PASSED.iter().filter_map(|name| name.parse().ok())
}

/// Whether this is the name of a known secret.
pub(super) fn is_secret(name: &EnvName) -> bool {
    matches_any(name.as_str(), SECRETS)
}

/// Why a policy from the agent's folder may not set this variable, if it may not.
pub(super) fn folder_objection(name: &EnvName) -> Option<&'static str> {
    let name = name.as_str();
    if matches_any(name, LOADERS) {
        Some("which makes programs run other code")
    } else if matches_any(name, OURS) {
        Some("which belongs to saggar and the agent")
    } else if matches_any(name, ROUTES) || matches_any(&name.to_ascii_uppercase(), ROUTES) {
        Some("which says where traffic and keys go")
    } else {
        None
    }
}

/// Whether the name is one of these; a `*` at the end of a pattern stands for anything.
fn matches_any(name: &str, patterns: &[&str]) -> bool {
    patterns.iter().any(|pattern| match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == *pattern,
    })
}

/// The program's environment, sorted by name, each variable with the layer that let it in.
///
/// `caller` is the environment of whoever called; where a name stands in it twice, the first counts, as
/// for getenv(3). `fixed` is what saggar itself sets: HOME, a PATH of what exists inside, and so on.
pub fn environment(
    policy: &Effective,
    caller: impl Iterator<Item = (OsString, OsString)>,
    fixed: &[(&str, &OsStr)],
) -> Vec<(OsString, OsString, Layer)> {
    let mut result: BTreeMap<OsString, (OsString, Layer)> = BTreeMap::new();
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
        // Only somebody who may widen, and who spoke of this very variable, has a stronger word.
        let stronger = |layer: &Layer| *layer != Layer::BuiltIn && !layer.is_folder();
        match result.get(OsStr::new(name)) {
            Some((_, layer)) if stronger(layer) => {}
            _ => drop(result.insert((*name).into(), ((*value).into(), Layer::BuiltIn))),
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
        let names: Vec<EnvName> = built_in().collect();
        assert_eq!(names.len(), PASSED.len(), "a name in the list does not parse");
        assert!(!names.iter().any(is_secret));
        let loaders = names.iter().map(EnvName::as_str).filter(|name| matches_any(name, LOADERS));
        assert_eq!(loaders.collect::<Vec<_>>(), ["NODE_PATH"], "which servers of the seed's kind need");
    }

    #[test]
    fn lists_are_sorted_and_patterns_end_in_their_star() {
        for list in [PASSED, SECRETS, ROUTES, OURS] {
            assert!(list.is_sorted());
        }
        for pattern in [SECRETS, LOADERS, ROUTES, OURS].concat() {
            assert!(!pattern.trim_end_matches('*').contains('*'), "{pattern}");
        }
        assert!(matches_any("AWS_SECRET_ACCESS_KEY", SECRETS) && !matches_any("AWSOME", SECRETS));
        assert!(matches_any("ENV", LOADERS) && !matches_any("ENVIRONMENT", LOADERS));
    }
}
