//! What one start of `agent` is given beside its folder: more of a system prompt, and more MCP servers.
//!
//! They widen no wall: the agent reads them inside, and what servers they name runs there. Servers are in a file, and
//! not in the agent's arguments, which every user of the host can read: what is set for them may be secret.

use super::folder_files::{FolderFiles, LONGEST_ARGUMENT};
use super::prepare::Purpose;
use crate::cli::AgentArgs;
use crate::error::{Code, Error, Result};
use crate::session::Session;
use crate::spec::policy::{Adapter, Effective, Part};
use crate::sys::read;
use std::ffi::OsString;
use std::path::Path;

/// Where the servers stand inside.
const SERVERS: &str = "/run/saggar/mcp.json";
/// The longest prompt: with that of the folder it has to fit into one argument (MAX_ARG_STRLEN in linux/binfmts.h).
const LONGEST_PROMPT: u64 = 64 << 10;
/// The largest file of servers.
const LARGEST_FILE: u64 = 1 << 20;

/// What was given.
#[derive(Debug, Default)]
pub(super) struct Overrides {
    prompt: Option<String>,
    servers: Option<Vec<u8>>,
}

impl Overrides {
    /// Reads what the options name.
    ///
    /// # Errors
    /// [`Code::Invalid`] for a file that cannot be read or is not what it is to be.
    pub(super) fn read(args: &AgentArgs) -> Result<Self> {
        let prompt = match (&args.overrides.system_prompt, &args.overrides.system_prompt_file) {
            (Some(text), _) => Some(prompt("--system-prompt", text.clone().into_bytes())?),
            (None, Some(file)) => Some(prompt("--system-prompt-file", whole(file, LONGEST_PROMPT)?)?),
            (None, None) => None,
        };
        let servers = args.overrides.mcp_config.as_deref().map(servers).transpose()?;
        Ok(Overrides { prompt, servers })
    }

    /// Whether this agent can take them, and the policy lets it.
    ///
    /// # Errors
    /// [`Code::Refused`] when the policy locks the agent; [`Code::Unsupported`] for an adapter that carries none.
    pub(super) fn check(&self, policy: &Effective, adapter: Adapter) -> Result<()> {
        let given = [("--system-prompt", self.prompt.is_some()), ("--mcp-config", self.servers.is_some())];
        let Some((option, _)) = given.into_iter().find(|(_, given)| *given) else { return Ok(()) };
        if let Some(by) = policy.locked_by(Part::Agent) {
            let message = format!("{option}: {by} locks the agent");
            return Err(Error::new(Code::Refused, message).hint("leave it out, or have that file permit it"));
        }
        if adapter != Adapter::StreamJson {
            let message = format!("{option}: an agent that speaks {adapter} has no way to be given it");
            return Err(Error::new(Code::Unsupported, message)
                .hint("put it into the agent's folder, or choose an agent with --adapter stream-json"));
        }
        Ok(())
    }

    /// Keeps the servers in the session, and has them shown inside.
    ///
    /// # Errors
    /// [`Code::System`].
    pub(super) fn bring(&self, session: &Session, purpose: &mut Purpose) -> Result<()> {
        if let Some(servers) = &self.servers {
            let file = session.keep_servers(servers)?;
            purpose.own.push((file, SERVERS.into(), false, "--mcp-config"));
        }
        Ok(())
    }

    /// The flags of an agent that speaks stream-json; `folder` is what it does not find by itself.
    ///
    /// # Errors
    /// [`Code::Invalid`] when the prompts together do not fit into one argument.
    pub(super) fn flags(&self, folder: FolderFiles) -> Result<Vec<OsString>> {
        let prompts: Vec<String> = folder.prompt.into_iter().chain(self.prompt.clone()).collect();
        let servers = folder.servers.into_iter().chain(self.servers.is_some().then(|| SERVERS.into()));
        let mut flags: Vec<OsString> = Vec::new();
        if !prompts.is_empty() {
            let prompt = prompts.join("\n\n");
            if prompt.len() as u64 > LONGEST_ARGUMENT {
                let message = "the prompt of the folder and that of the options do not fit into one argument";
                return Err(Error::new(Code::Invalid, message).hint(
                    "together they may have 127 KiB: put what is longer into files that the prompt names",
                ));
            }
            flags.extend(["--append-system-prompt".into(), prompt.into()]);
        }
        let mut servers = servers.peekable();
        if servers.peek().is_some() {
            flags.push("--mcp-config".into());
            flags.extend(servers);
        }
        flags.extend(folder.settings.into_iter().flat_map(|settings| ["--settings".into(), settings]));
        Ok(flags)
    }
}

fn prompt(option: &str, bytes: Vec<u8>) -> Result<String> {
    let wrong = |why: &str| {
        Error::new(Code::Invalid, format!("{option}: {why}"))
            .hint("a prompt is text; what is longer belongs into CLAUDE.md")
    };
    if bytes.len() as u64 > LONGEST_PROMPT {
        return Err(wrong("the text is longer than 64 KiB"));
    }
    let text = String::from_utf8(bytes).map_err(|_| wrong("it is not UTF-8"))?;
    if text.contains('\0') { Err(wrong("it has a NUL")) } else { Ok(text) }
}

fn servers(file: &Path) -> Result<Vec<u8>> {
    let bytes = whole(file, LARGEST_FILE)?;
    let wrong = |why: String| {
        Error::new(Code::Invalid, format!("--mcp-config {}: {why}", file.display()))
            .hint("it is as .mcp.json is: {\"mcpServers\": {\"NAME\": {...}}}")
    };
    let json: serde_json::Value =
        serde_json::from_slice(&bytes).map_err(|e| wrong(format!("it is no JSON: {e}")))?;
    if json.get("mcpServers").is_some_and(serde_json::Value::is_object) {
        Ok(bytes)
    } else {
        Err(wrong("it has no object mcpServers".to_owned()))
    }
}

fn whole(file: &Path, limit: u64) -> Result<Vec<u8>> {
    read::whole_file(file, limit).map_err(|why| {
        let why = match why {
            read::Unread::TooLarge(limit) => format!("it is larger than {} KiB", limit >> 10),
            other => other.to_string(),
        };
        Error::new(Code::Invalid, format!("read {}: {why}", file.display()))
    })
}
