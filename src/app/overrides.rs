//! What one start of an agent is given beside its folder: more of a system prompt, and more MCP servers.
//!
//! They widen no wall: the agent reads them inside, and what servers they name runs there. Servers are in a file, and
//! not in the agent's arguments, which every user of the host can read: what is set for them may be secret.

use super::folder_files::{FolderFiles, MAX_ARGUMENT};
use super::prepare::LaunchRequest;
use crate::error::{Code, Error, Result};
use crate::session::Session;
use crate::spec::policy::{AdapterKind, EffectivePolicy, PolicyPart};
use crate::sys::read;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Where the servers stand inside.
const SERVERS_PATH: &str = "/run/saggar/mcp.json";
/// The longest prompt: with that of the folder it has to fit into one argument (MAX_ARG_STRLEN in linux/binfmts.h).
const MAX_PROMPT: u64 = 64 << 10;
/// The largest file of servers.
const MAX_SERVERS_FILE: u64 = 1 << 20;

/// More of a system prompt.
#[derive(Debug, Clone)]
pub enum SystemPrompt {
    /// The text itself, at most 64 KiB.
    Text(String),
    /// A file with it.
    File(PathBuf),
}

/// What one start adds to what the agent's folder has; for an agent that speaks stream-json alone.
#[derive(Debug, Clone, Default)]
pub struct OverrideOptions {
    /// More of a system prompt.
    pub system_prompt: Option<SystemPrompt>,
    /// A file of MCP servers in the form of `.mcp.json`, at most 1 MiB.
    pub mcp_config: Option<PathBuf>,
}

/// What was given, read.
#[derive(Debug, Default)]
pub(crate) struct StartOverrides {
    prompt: Option<String>,
    servers: Option<Vec<u8>>,
}

impl StartOverrides {
    /// Reads what the options name.
    ///
    /// # Errors
    /// [`Code::Invalid`] for a file that cannot be read or is not what it is to be.
    pub(crate) fn read(options: &OverrideOptions) -> Result<Self> {
        let prompt = match &options.system_prompt {
            Some(SystemPrompt::Text(text)) => Some(prompt("--system-prompt", text.clone().into_bytes())?),
            Some(SystemPrompt::File(file)) => {
                Some(prompt("--system-prompt-file", read_limited(file, MAX_PROMPT)?)?)
            }
            None => None,
        };
        let servers = options.mcp_config.as_deref().map(servers).transpose()?;
        Ok(StartOverrides { prompt, servers })
    }

    /// Whether this agent can take them, and the policy lets it.
    ///
    /// # Errors
    /// [`Code::Refused`] when the policy locks the agent; [`Code::Unsupported`] for an adapter that carries none.
    pub(crate) fn check(&self, policy: &EffectivePolicy, adapter: AdapterKind) -> Result<()> {
        let given = [("--system-prompt", self.prompt.is_some()), ("--mcp-config", self.servers.is_some())];
        let Some((option, _)) = given.into_iter().find(|(_, given)| *given) else { return Ok(()) };
        if let Some(by) = policy.locked_by(PolicyPart::Agent) {
            let message = format!("{option}: {by} locks the agent");
            return Err(Error::new(Code::Refused, message).hint("leave it out, or have that file permit it"));
        }
        if adapter != AdapterKind::StreamJson {
            let message = format!("{option}: not supported by the {adapter} adapter");
            return Err(Error::new(Code::Unsupported, message)
                .hint("put it into the agent's folder, or choose an agent with --adapter stream-json"));
        }
        Ok(())
    }

    /// Keeps the servers in the session, and has them shown inside.
    ///
    /// # Errors
    /// [`Code::System`].
    pub(crate) fn mount_servers(&self, session: &Session, request: &mut LaunchRequest) -> Result<()> {
        if let Some(servers) = &self.servers {
            let file = session.write_mcp_config(servers)?;
            request.own_binds.push((file, SERVERS_PATH.into(), false, "--mcp-config"));
        }
        Ok(())
    }

    /// The flags of an agent that speaks stream-json; `folder` is what it does not find by itself, and `mailbox` the MCP
    /// server of its mailbox.
    ///
    /// # Errors
    /// [`Code::Invalid`] when the prompts together do not fit into one argument.
    pub(crate) fn flags(&self, folder: FolderFiles, mailbox: Option<OsString>) -> Result<Vec<OsString>> {
        let prompts: Vec<String> = folder.prompt.into_iter().chain(self.prompt.clone()).collect();
        let own = self.servers.is_some().then(|| SERVERS_PATH.into());
        let servers = folder.servers.into_iter().chain(own).chain(mailbox);
        let mut flags: Vec<OsString> = Vec::new();
        if !prompts.is_empty() {
            let prompt = prompts.join("\n\n");
            if prompt.len() as u64 > MAX_ARGUMENT {
                let message = "the prompt of the folder and that of the options do not fit into one argument";
                return Err(Error::new(Code::Invalid, message).hint(
                    "together they may have 127 KiB: put longer text into files that the prompt names",
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
            .hint("a prompt is text; put longer text into CLAUDE.md")
    };
    if bytes.len() as u64 > MAX_PROMPT {
        return Err(wrong("the text is longer than 64 KiB"));
    }
    let text = String::from_utf8(bytes).map_err(|_| wrong("it is not UTF-8"))?;
    if text.contains('\0') { Err(wrong("it has a NUL")) } else { Ok(text) }
}

fn servers(file: &Path) -> Result<Vec<u8>> {
    let bytes = read_limited(file, MAX_SERVERS_FILE)?;
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

fn read_limited(file: &Path, limit: u64) -> Result<Vec<u8>> {
    read::whole_file(file, limit).map_err(|why| {
        let why = match why {
            read::ReadFileError::TooLarge(limit) => format!("it is larger than {} KiB", limit >> 10),
            other => other.to_string(),
        };
        Error::new(Code::Invalid, format!("read {}: {why}", file.display()))
    })
}
