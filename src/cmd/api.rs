//! The way to the model API whose key stays outside: from the policy and the options to the model, and what of a key
//! could get inside by another way.

use super::prepare::{Planned, canonical};
use crate::cli::SandboxArgs;
use crate::error::{Code, Error, Result};
use crate::spec::policy::effective::EnvRule;
use crate::spec::policy::{Effective, Layer, Network, Part};
use crate::spec::{Api, KeyHeader, KeySource, MountKind, SandboxSpec};
use std::path::PathBuf;

/// Variables with which a key would come in, whoever passes them.
const KEYS: [&str; 3] = ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"];
/// One that the built-in list passes, and that may say a key in its headers.
pub(super) const HEADERS: &str = "ANTHROPIC_CUSTOM_HEADERS";

/// The way to the API, if the policy has one.
///
/// # Errors
/// What is missing, or does not go together.
pub(super) fn of(args: &SandboxArgs, policy: &Effective) -> Result<Option<Api>> {
    let Some(upstream) = &policy.api.upstream else { return without_upstream(args, policy) };
    let key = key(args, policy)?;
    if let Some((name, layer)) = passed_key(policy) {
        let message =
            format!("pass {name} ({layer}): it would bring a key inside, and api.upstream keeps it outside");
        return Err(
            Error::new(Code::Refused, message).hint("take one of them out, or add the name to env.deny")
        );
    }
    if policy.network.value == Network::Policy && policy.hosts.rules().ports().contains(&Api::PORT) {
        let message = format!("network.allow names port {}, where the model API is served inside", Api::PORT);
        return Err(Error::new(Code::Invalid, message).hint("leave the port out of the rule"));
    }
    Ok(Some(Api {
        upstream: upstream.value.clone(),
        header: policy.api.header.as_ref().map_or(KeyHeader::ApiKey, |header| header.value),
        key,
        ca_file: policy.api.ca_file.as_ref().map(|file| canonical(file.value.as_path())).transpose()?,
    }))
}

/// A variable with a key that somebody wants passed. The built-in list passes one too, and gives way.
fn passed_key(policy: &Effective) -> Option<(&'static str, &Layer)> {
    let passed = KEYS.iter().filter_map(|name| Some((*name, policy.env.rules.get(*name)?)));
    passed
        .filter(|(name, rule)| rule.is_named() && !policy.env.deny.contains_key(*name))
        .find_map(|(name, rule)| (rule.value == EnvRule::Pass).then_some((name, &rule.layer)))
}

/// A key that goes nowhere is a slip.
fn without_upstream(args: &SandboxArgs, policy: &Effective) -> Result<Option<Api>> {
    let held = policy.api.key_file.as_ref().map(|held| format!("api.key_file ({})", held.layer));
    match args.api_key_fd.map(|_| "--api-key-fd".to_owned()).or(held) {
        Some(what) => {
            Err(Error::new(Code::Usage, format!("{what} names a key, and no upstream to send it to"))
                .hint("say --api URL or set api.upstream, as in https://api.anthropic.com"))
        }
        None => Ok(None),
    }
}

fn key(args: &SandboxArgs, policy: &Effective) -> Result<KeySource> {
    if let Some(number) = args.api_key_fd {
        if let Some(layer) = policy.locked_by(Part::Api) {
            let message = format!("--api-key-fd: {layer} locks api");
            return Err(Error::new(Code::Refused, message).hint("its key is the one that is used"));
        }
        return Ok(KeySource::Descriptor(number));
    }
    let Some(file) = &policy.api.key_file else {
        return Err(Error::new(Code::Invalid, "api.upstream has no key")
            .hint("say --api-key-file PATH or --api-key-fd N, or set api.key_file beside api.upstream"));
    };
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let path = file.value.path(home.as_deref()).ok_or_else(|| {
        Error::new(Code::Invalid, format!("api.key_file {}: there is no home (HOME)", file.value))
            .hint("write the whole path")
    })?;
    Ok(KeySource::File(canonical(&path).map_err(|error| {
        error
            .context(format_args!("api.key_file ({})", file.layer))
            .hint("write the key there, and chmod 600 it")
    })?))
}

/// Refuses a key that programs could read by another way.
///
/// # Errors
/// [`Code::Refused`], naming what shows it.
pub(super) fn check_outside(spec: &SandboxSpec, planned: &[Planned]) -> Result<()> {
    let Some(Api { key: KeySource::File(key), .. }) = &spec.api else { return Ok(()) };
    let shown = spec.mounts.iter().find_map(|mount| {
        match &mount.kind {
            MountKind::System { source } => Some((source, &mount.at)),
            kind => kind.named().map(|source| (source, &mount.at)),
        }
        .filter(|(source, _)| key.starts_with(source))
    });
    let copied = || {
        let holds =
            |planned: &&Planned| planned.original.as_ref().is_some_and(|original| key.starts_with(original));
        planned.iter().find(holds).and_then(|planned| Some((planned.original.as_ref()?, &planned.path)))
    };
    let Some((source, at)) = shown.or_else(copied) else { return Ok(()) };
    let message = format!(
        "the key file {} lies in {}, which programs see at {}",
        key.display(),
        source.display(),
        at.display()
    );
    Err(Error::new(Code::Refused, message).hint("keep it where no sandbox looks, as in ~/.config/saggar/key"))
}

/// The variables with which programs find the API: the socket for whom it says something, the port for all others.
pub(super) fn variables(spec: &SandboxSpec) -> Vec<(&'static str, String)> {
    let base = match spec.network.is_own() {
        true => format!("http://127.0.0.1:{}", Api::PORT),
        false => "http://localhost".to_owned(),
    };
    vec![
        ("ANTHROPIC_UNIX_SOCKET", Api::SOCKET.to_owned()),
        ("ANTHROPIC_BASE_URL", base),
        ("ANTHROPIC_API_KEY", Api::PLACEHOLDER.to_owned()),
    ]
}
