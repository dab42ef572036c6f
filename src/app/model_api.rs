//! The way to the model API whose key stays outside: from the policy and the options to the model, and what of a key
//! could get inside by another way.

use super::prepare::{PlannedDirectory, canonical, resolve_user_path, visible_source};
use crate::error::{Code, Error, Result};
use crate::spec::policy::api::{PLACEHOLDER_KEY, PORT_INSIDE};
use crate::spec::policy::effective::EnvRule;
use crate::spec::policy::{EffectivePolicy, NetworkMode, PolicyLayer, PolicyPart};
use crate::spec::{ApiKeySource, KeyHeader, ModelApiSpec, SandboxSpec};
use std::os::fd::RawFd;

/// Variables with which a key would come in, whoever passes them.
const KEY_VARIABLES: [&str; 3] = ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"];
/// One that the built-in list passes, and that may say a key in its headers.
pub(crate) const HEADERS_VARIABLE: &str = "ANTHROPIC_CUSTOM_HEADERS";

/// The way to the API, if the policy has one; `key_fd` is an open descriptor with its key.
///
/// # Errors
/// What is missing, or does not go together.
pub(crate) fn configure(key_fd: Option<RawFd>, policy: &EffectivePolicy) -> Result<Option<ModelApiSpec>> {
    let Some(upstream) = &policy.api.upstream else { return refuse_unused_key(key_fd, policy) };
    let key = key_source(key_fd, policy)?;
    if let Some((name, layer)) = passed_key(policy) {
        let message =
            format!("pass {name} ({layer}): it would bring a key inside, and api.upstream keeps it outside");
        return Err(
            Error::new(Code::Refused, message).hint("take one of them out, or add the name to env.deny")
        );
    }
    if policy.network.value == NetworkMode::Policy
        && policy.hosts.rules().reachable_ports().contains(&PORT_INSIDE)
    {
        let message = format!("network.allow names port {PORT_INSIDE}, where the model API is served inside");
        return Err(Error::new(Code::Invalid, message).hint("leave the port out of the rule"));
    }
    Ok(Some(ModelApiSpec {
        upstream: upstream.value.clone(),
        header: policy.api.header.as_ref().map_or(KeyHeader::ApiKey, |header| header.value),
        key,
        ca_file: policy.api.ca_file.as_ref().map(|file| canonical(file.value.as_path())).transpose()?,
    }))
}

/// A variable with a key that somebody wants passed. The built-in list passes one too, and gives way.
fn passed_key(policy: &EffectivePolicy) -> Option<(&'static str, &PolicyLayer)> {
    let passed = KEY_VARIABLES.iter().filter_map(|name| Some((*name, policy.env.rules.get(*name)?)));
    passed
        .filter(|(name, rule)| rule.is_named() && !policy.env.deny.contains_key(*name))
        .find_map(|(name, rule)| (rule.value == EnvRule::Pass).then_some((name, &rule.layer)))
}

/// A key that goes nowhere is a slip.
fn refuse_unused_key(key_fd: Option<RawFd>, policy: &EffectivePolicy) -> Result<Option<ModelApiSpec>> {
    let held = policy.api.key_file.as_ref().map(|held| format!("api.key_file ({})", held.layer));
    match key_fd.map(|_| "--api-key-fd".to_owned()).or(held) {
        Some(what) => {
            Err(Error::new(Code::Usage, format!("{what} names a key, and no upstream to send it to"))
                .hint("use --api URL or set api.upstream, as in https://api.anthropic.com"))
        }
        None => Ok(None),
    }
}

fn key_source(key_fd: Option<RawFd>, policy: &EffectivePolicy) -> Result<ApiKeySource> {
    if let Some(number) = key_fd {
        if let Some(layer) = policy.locked_by(PolicyPart::Api) {
            let message = format!("--api-key-fd: {layer} locks api");
            return Err(Error::new(Code::Refused, message).hint("its key is used"));
        }
        return Ok(ApiKeySource::Descriptor(number));
    }
    let Some(file) = &policy.api.key_file else {
        return Err(Error::new(Code::Invalid, "api.upstream has no key").hint(
            "use --api-key-file PATH or --api-key-fd N, or set api.key_file together with api.upstream",
        ));
    };
    let path = resolve_user_path("api.key_file", &file.value)?;
    Ok(ApiKeySource::File(canonical(&path).map_err(|error| {
        error
            .context(format_args!("api.key_file ({})", file.layer))
            .hint("write the key there, and chmod 600 it")
    })?))
}

/// Refuses a key that programs could read by another way.
///
/// # Errors
/// [`Code::Refused`], naming what shows it.
pub(crate) fn check_key_hidden(spec: &SandboxSpec, planned: &[PlannedDirectory]) -> Result<()> {
    let Some(ModelApiSpec { key: ApiKeySource::File(key), .. }) = &spec.model_api else { return Ok(()) };
    let Some((source, at)) = visible_source(spec, planned, key) else { return Ok(()) };
    let message = format!(
        "the key file {} lies in {}, which programs see at {}",
        key.display(),
        source.display(),
        at.display()
    );
    Err(Error::new(Code::Refused, message).hint("keep it where no sandbox looks, as in ~/.config/saggar/key"))
}

/// The variables with which programs find the API: the socket for whom it says something, the port for all others.
pub(crate) fn variables(spec: &SandboxSpec) -> Vec<(&'static str, String)> {
    let base = match spec.network.has_own_namespace() {
        true => format!("http://127.0.0.1:{PORT_INSIDE}"),
        false => "http://localhost".to_owned(),
    };
    vec![
        ("ANTHROPIC_UNIX_SOCKET", ModelApiSpec::SOCKET_PATH.to_owned()),
        ("ANTHROPIC_BASE_URL", base),
        ("ANTHROPIC_API_KEY", PLACEHOLDER_KEY.to_owned()),
    ]
}
