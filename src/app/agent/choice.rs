//! Which agent runs, and whether it can reach its model.

use crate::app::prepare::{LaunchRequest, bind_own_program};
use crate::app::program_lookup;
use crate::error::{Code, Error, Result};
use crate::spec::policy::{AdapterKind, EffectivePolicy, NetworkMode, PolicyLayer, Setting};
use std::ffi::OsString;
use std::path::Path;

/// How to get an agent.
pub(crate) const NO_AGENT_HINT: &str = "npm install -g @anthropic-ai/claude-code, or name a program with --agent-cmd or \
                                        agent_cmd in a policy; --adapter demo runs the built-in demo agent";

/// What of the host the program needs inside: the demo agent is saggar itself.
pub(crate) fn bind_demo_program(
    request: &mut LaunchRequest,
    policy: &EffectivePolicy,
    adapter: AdapterKind,
    command: &[OsString],
) -> Result<()> {
    if adapter == AdapterKind::Demo && command.is_empty() {
        bind_own_program(&mut request.own_binds, "the built-in demo agent")?;
    } else {
        let by = policy.agent_cmd.as_ref().map_or(&PolicyLayer::BuiltIn, |setting| &setting.layer);
        request.program = command.first().map(|program| Setting::new(program.clone(), by));
    }
    Ok(())
}

/// The program and what it speaks: what the policy says, else `claude` if it is there. The command of the demo agent, which
/// runs only by name (DECISIONS 39), is empty.
///
/// # Errors
/// [`Code::NotFound`] if there is no agent.
pub(crate) fn choose_agent(policy: &EffectivePolicy) -> Result<(AdapterKind, Vec<OsString>)> {
    let adapter = policy.adapter.as_ref().map(|setting| setting.value);
    if let Some(command) = &policy.agent_cmd {
        let words = command.value.words().iter().map(OsString::from).collect();
        // The demo agent is built in; a program that was named speaks for itself.
        return Ok((adapter.unwrap_or(AdapterKind::StreamJson), words));
    }
    match adapter {
        Some(AdapterKind::Demo) => Ok((AdapterKind::Demo, Vec::new())),
        Some(other) => Ok((other, vec!["claude".into()])),
        None if program_lookup::on_path("claude") => Ok((AdapterKind::StreamJson, vec!["claude".into()])),
        None => {
            let text = "there is no agent: claude is not on PATH, and neither an option nor a policy names a program";
            Err(Error::new(Code::NotFound, text).hint(NO_AGENT_HINT))
        }
    }
}

/// `claude` without a way to its model would only retry for ever (DECISIONS 26).
pub(crate) fn refuse_without_api(
    policy: &EffectivePolicy,
    adapter: AdapterKind,
    command: &[OsString],
) -> Result<()> {
    let name = command.first().map(|program| Path::new(program).file_name().unwrap_or_default());
    let is_claude = adapter == AdapterKind::StreamJson && name.is_some_and(|name| name == "claude");
    let has_api = policy.api_socket.is_some() || policy.api.upstream.is_some();
    if is_claude && policy.network.value == NetworkMode::None && !has_api {
        let layer = &policy.network.layer;
        let by = if *layer == PolicyLayer::BuiltIn {
            String::new()
        } else {
            format!(" (network none by {layer})")
        };
        return Err(Error::new(Code::Refused, format!("claude has no way to the model API{by}")).hint(
            "use --api https://api.anthropic.com --api-key-file PATH, or --allow-host api.anthropic.com or --net host, \
             or --api-socket PATH with a unix socket that leads to the API; or set [api]; \
             --adapter demo needs nothing",
        ));
    }
    Ok(())
}
