//! `saggar agent`: runs an agent in a sandbox and serves its bridge.

mod server_environment;

use super::prompt;
use crate::app::SandboxOptions;
use crate::app::agent::{self, AgentRequest, ConsoleFormat, OverrideOptions, SystemPrompt};
use crate::cli::{AgentArgs, AgentOptions, OverrideArgs};
use crate::error::{Code, Error, Result};
use std::io::IsTerminal;

pub(super) fn run(mut args: AgentArgs) -> Result<u8> {
    args.prompt = prompt::read(args.prompt, args.prompt_file.as_deref())?;
    let server = match std::env::var_os("ASH_BRIDGE_SOCKET") {
        Some(socket) => Some(server_environment::apply(&mut args, &socket)?),
        None => None,
    };
    if args.ready_fd == Some(1) && (args.prompt.is_some() || args.json) {
        let message = "--ready-fd 1 with a prompt or --json: standard output carries the messages";
        return Err(Error::new(Code::Usage, message).hint("give the ready byte another descriptor"));
    }
    let request = AgentRequest { server, ..request(args)? };
    let prepared = agent::check(request)?.open()?.prepare()?;
    super::print_notices(prepared.notices());
    let outcome = prepared.supervise();
    super::print_notices(&outcome.notices);
    outcome.status
}

fn request(args: AgentArgs) -> Result<AgentRequest> {
    let folder = args.dir.ok_or_else(|| {
        Error::new(Code::Usage, "the agent's folder is missing").hint("saggar agent DIR [PROMPT]")
    })?;
    let console = console_format(args.json);
    Ok(AgentRequest {
        status_fd: args.sandbox.status_fd,
        sandbox: sandbox_options(args.sandbox.into(), args.agent),
        folder,
        session: args.session,
        snapshot: None,
        events: None,
        resume: args.resume,
        overrides: args.overrides.into(),
        spool: args.spool,
        prompt: args.prompt.map(|prompt| (prompt, console)),
        ready_fd: args.ready_fd,
        dies_with_parent: args.die_with_parent,
        server: None,
    })
}

/// Returns the format of messages: JSON unless standard output is a terminal.
pub(super) fn console_format(json: bool) -> ConsoleFormat {
    match json || !std::io::stdout().is_terminal() {
        true => ConsoleFormat::Json,
        false => ConsoleFormat::Text,
    }
}

/// Adds the options of the agent to those of its sandbox.
pub(super) fn sandbox_options(mut sandbox: SandboxOptions, agent: AgentOptions) -> SandboxOptions {
    sandbox.policy.agent_cmd = agent.agent_cmd;
    sandbox.policy.adapter = agent.adapter;
    sandbox.policy.agent_idle = agent.agent_idle;
    sandbox.policy.bridge_socket = agent.bridge_socket;
    sandbox.policy.control_socket = agent.control_socket;
    sandbox
}

impl From<OverrideArgs> for OverrideOptions {
    fn from(args: OverrideArgs) -> Self {
        let text = args.system_prompt.map(SystemPrompt::Text);
        let system_prompt = text.or_else(|| args.system_prompt_file.map(SystemPrompt::File));
        OverrideOptions { system_prompt, mcp_config: args.mcp_config }
    }
}
