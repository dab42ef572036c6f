//! `saggar mcp control`: sessions as tools of an agent or an editor outside (saggar-mcp(1)).
//!
//! ```text
//!  client ── standard streams ──> server ── requests ──> broker: the rights of the caller
//!                                   │                       │ opens control sockets, compares, applies
//!                                   └── control socket ── supervisor of a session
//! ```
//! The server parses what the client, and programs in sandboxes, write. It has no rights of its own: the broker
//! ([`crate::app::mcp`]) serves the sessions that the policy names, and no others.

mod broker;
mod confine;
mod sandbox;
mod text;
pub(crate) mod wire;

use super::arguments::ArgumentKind::{Flag, Number, Text, Texts};
use super::arguments::{Argument, Arguments, schema};
use super::question::Question;
use super::{ToolOutput, ToolReply, ToolSet, serve};
use crate::error::{Code, Error, Result};
use broker::{Broker, BrokerConnection};
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use sandbox::SandboxConnection;
use serde_json::{Value, json};
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::sync::Semaphore;
use wire::{BrokerReply, BrokerRequest, Changes};

/// Longest wait for the result of a call to a sandbox, beyond the timeout of a command.
const PATIENCE: Duration = Duration::from_secs(60);
/// Timeout of a command when the call has none, in milliseconds (saggar-control(7), exec).
const DEFAULT_TIMEOUT_MS: u64 = 120_000;
/// Most log entries in one result, and how many there are when the call does not say.
const MAX_LOG_ENTRIES: u64 = 1000;
const DEFAULT_LOG_ENTRIES: u64 = 200;
/// Most bytes of each stream of a command in a result.
const MAX_STREAM: usize = 128 << 10;
/// Most commands, and calls for files, at a time; more wait. A supervisor accepts a few more of both.
const MAX_COMMANDS: usize = 48;
const MAX_FILE_CALLS: usize = 8;
/// Longest line that a control socket accepts, without room for the call itself.
const MAX_PARAMS: usize = crate::control::server::LINE_LIMIT - 1024;

const SESSION: Argument = Argument::optional(
    "session",
    Text,
    "Name of the session [default: the only one that exists and is named]",
);
const PATHS: Argument =
    Argument::optional("paths", Texts, "Only changes at and below these paths of the workspace");

#[derive(Debug, Clone, Copy)]
enum ToolKind {
    ListSessions,
    RunCommand,
    ListFiles,
    ReadFile,
    WriteFile,
    Diff,
    Apply,
    Logs,
}

/// A tool: its name, its description, its arguments, and whether it changes anything.
struct ControlTool {
    kind: ToolKind,
    name: &'static str,
    description: &'static str,
    arguments: &'static [Argument],
    is_read_only: bool,
}

const TOOLS: [ControlTool; 8] = [
    ControlTool {
        kind: ToolKind::ListSessions,
        name: "list_sessions",
        description: "List the sessions whose sandboxes you can use, with their states",
        arguments: &[],
        is_read_only: true,
    },
    ControlTool {
        kind: ToolKind::RunCommand,
        name: "run_command",
        description: "Run a shell command in the sandbox of a session, in its workspace",
        arguments: &[
            Argument::required("command", Text, "The command, for /bin/sh"),
            Argument::optional(
                "timeout",
                Number,
                "Milliseconds after which it is killed, from 1 to 86400000 [default: 120000]",
            ),
            SESSION,
        ],
        is_read_only: false,
    },
    ControlTool {
        kind: ToolKind::ListFiles,
        name: "list_files",
        description: "List the names in a directory of a workspace",
        arguments: &[
            Argument::optional("path", Text, "Directory, relative to the workspace [default: the workspace]"),
            Argument::optional("after", Text, "Position that the previous result has returned"),
            SESSION,
        ],
        is_read_only: true,
    },
    ControlTool {
        kind: ToolKind::ReadFile,
        name: "read_file",
        description: "Read a file of a workspace, at most 512 KiB at a time",
        arguments: &[
            Argument::required("path", Text, "File, relative to the workspace"),
            Argument::optional("offset", Number, "First byte to read [default: 0]"),
            Argument::optional("limit", Number, "Most bytes to read"),
            Argument::optional("encoding", Text, "utf-8 or base64 [default: utf-8]"),
            SESSION,
        ],
        is_read_only: true,
    },
    ControlTool {
        kind: ToolKind::WriteFile,
        name: "write_file",
        description: "Create or replace a file of a workspace; its directory must exist",
        arguments: &[
            Argument::required("path", Text, "File, relative to the workspace"),
            Argument::required("content", Text, "The whole new content"),
            Argument::optional("encoding", Text, "Encoding of content, utf-8 or base64 [default: utf-8]"),
            SESSION,
        ],
        is_read_only: false,
    },
    ControlTool {
        kind: ToolKind::Diff,
        name: "diff",
        description: "Show what has changed in a workspace, compared with the folder that it was made of",
        arguments: &[
            PATHS,
            Argument::optional("patch", Flag, "Also show the lines that have changed"),
            SESSION,
        ],
        is_read_only: true,
    },
    ControlTool {
        kind: ToolKind::Apply,
        name: "apply",
        description: "Apply the changes of a workspace to its folder, after a person has consented. The session must have \
                  no sandbox at the time",
        arguments: &[PATHS, SESSION],
        is_read_only: false,
    },
    ControlTool {
        kind: ToolKind::Logs,
        name: "logs",
        description: "Read the log of a session: messages of its agent and of its supervisor",
        arguments: &[
            Argument::optional(
                "after",
                Number,
                "Return only entries after the one with this number [default: 0]",
            ),
            Argument::optional("limit", Number, "Most entries to return, at most 1000 [default: 200]"),
            SESSION,
        ],
        is_read_only: true,
    },
];

/// The tools of the sessions that a broker serves.
#[derive(Debug)]
struct ControlTools {
    broker: Broker,
    /// The names of the sessions as the policy has them, for the model.
    sessions: String,
    commands: Semaphore,
    file_calls: Semaphore,
}

/// Serves the sessions of `broker` to a client until it closes the connection. Returns the exit status.
///
/// # Errors
/// [`Code::System`]: the process cannot be confined; as [`serve`].
pub(crate) fn serve_control(broker: OwnedFd, sessions: String) -> Result<u8> {
    confine::confine()?;
    serve(ControlTools {
        broker: Broker::new(broker),
        sessions,
        commands: Semaphore::new(MAX_COMMANDS),
        file_calls: Semaphore::new(MAX_FILE_CALLS),
    })
}

impl ToolSet for ControlTools {
    type Pending = PendingApply;

    fn server_name(&self) -> &'static str {
        "saggar-control"
    }

    fn instructions(&self) -> String {
        format!(
            "Sessions are agents in sandboxes, each with a workspace that is a copy of a folder, or lies over it. You \
             can use these: {}. Commands and files are those of the sandbox; diff shows what has changed in the \
             workspace, and apply brings it to the folder if a person consents.",
            self.sessions
        )
    }

    fn tools(&self) -> Vec<Tool> {
        let tool = |tool: &ControlTool| {
            let annotations = ToolAnnotations::new()
                .read_only(tool.is_read_only)
                .destructive(!tool.is_read_only)
                .open_world(false);
            Tool::new(tool.name, tool.description, schema(tool.arguments)).with_annotations(annotations)
        };
        TOOLS.iter().map(tool).collect()
    }

    async fn call(&self, name: &str, arguments: JsonObject) -> Option<Result<ToolReply<PendingApply>>> {
        let tool = TOOLS.iter().find(|tool| tool.name == name)?;
        let given = match Arguments::check(tool.name, tool.arguments, arguments) {
            Ok(given) => given,
            Err(error) => return Some(Err(error)),
        };
        Some(self.reply(tool.kind, given).await)
    }

    async fn proceed(&self, PendingApply(mut connection): PendingApply) -> Result<ToolOutput> {
        connection.consent().await?;
        match connection.reply().await? {
            BrokerReply::Applied(changes) => Ok(text::applied(&changes)),
            other => Err(unexpected(&other)),
        }
    }

    async fn withdraw(&self, PendingApply(connection): PendingApply) {
        connection.refuse().await;
    }
}

/// The broker holds the changes, and the lock of the session, until the person has decided.
#[derive(Debug)]
pub(crate) struct PendingApply(BrokerConnection);

impl ControlTools {
    async fn reply(&self, tool: ToolKind, mut given: Arguments) -> Result<ToolReply<PendingApply>> {
        let session = given.take_optional("session");
        Ok(ToolReply::Output(match tool {
            ToolKind::ListSessions => match self.broker.request(&BrokerRequest::List).await?.0 {
                BrokerReply::Sessions(sessions) => text::sessions(&sessions),
                other => return Err(unexpected(&other)),
            },
            ToolKind::RunCommand => {
                let timeout = given.number("timeout").unwrap_or(DEFAULT_TIMEOUT_MS);
                let params = json!({
                    "command": given.take("command"), "timeout": timeout, "attached": true, "limit": MAX_STREAM,
                });
                let patience = Duration::from_millis(timeout).saturating_add(PATIENCE);
                text::command(&self.call_sandbox(session, "exec", &params, patience).await?)
            }
            ToolKind::ListFiles => {
                let params = file_params(&mut given, &["after"]);
                text::names(&self.call_sandbox(session, "files.list", &params, PATIENCE).await?)
            }
            ToolKind::ReadFile => {
                let mut params = file_params(&mut given, &["encoding"]);
                for name in ["offset", "limit"] {
                    if let Some(number) = given.number(name) {
                        params[name] = number.into();
                    }
                }
                text::content(&self.call_sandbox(session, "files.read", &params, PATIENCE).await?)
            }
            ToolKind::WriteFile => {
                let params = file_params(&mut given, &["content", "encoding"]);
                self.call_sandbox(session, "files.write", &params, PATIENCE).await?;
                text::written(&params)
            }
            ToolKind::Diff => {
                let (paths, has_patches) = (given.take_texts("paths"), given.flag("patch"));
                match self.broker.request(&BrokerRequest::Diff { session, paths, has_patches }).await?.0 {
                    BrokerReply::Diff { text, is_truncated } => text::diff(text, is_truncated),
                    other => return Err(unexpected(&other)),
                }
            }
            ToolKind::Apply => return self.ask_to_apply(session, given.take_texts("paths")).await,
            ToolKind::Logs => {
                let limit = given.number("limit").unwrap_or(DEFAULT_LOG_ENTRIES).min(MAX_LOG_ENTRIES);
                let (after, limit) =
                    (given.number("after").unwrap_or(0), usize::try_from(limit).unwrap_or(0));
                match self.broker.request(&BrokerRequest::Logs { session, after, limit }).await?.0 {
                    BrokerReply::Logs { entries, is_truncated } => text::logs(&entries, is_truncated),
                    other => return Err(unexpected(&other)),
                }
            }
        }))
    }

    async fn ask_to_apply(
        &self,
        session: Option<String>,
        paths: Vec<String>,
    ) -> Result<ToolReply<PendingApply>> {
        let (reply, connection) = self.broker.request(&BrokerRequest::Apply { session, paths }).await?;
        match reply {
            BrokerReply::Question(changes) => Ok(ToolReply::Question(Question {
                text: text::question(&changes),
                alternative: alternative(&changes),
                pending: PendingApply(connection),
            })),
            BrokerReply::Applied(changes) => Ok(ToolReply::Output(text::applied(&changes))),
            other => Err(unexpected(&other)),
        }
    }

    async fn call_sandbox(
        &self,
        session: Option<String>,
        method: &str,
        params: &Value,
        patience: Duration,
    ) -> Result<Value> {
        if params.to_string().len() > MAX_PARAMS {
            let message = format!("the arguments are longer than {MAX_PARAMS} bytes as JSON");
            return Err(Error::new(Code::Invalid, message)
                .hint("write a large file in parts, with commands that append to it"));
        }
        let slots = if method == "exec" { &self.commands } else { &self.file_calls };
        let _slot = slots.acquire().await;
        let (reply, mut connection) = self.broker.request(&BrokerRequest::Connect { session }).await?;
        match (reply, connection.take_descriptor()) {
            (BrokerReply::Connected, Some(socket)) => {
                SandboxConnection::new(socket)?.call(method, params, patience).await
            }
            (other, _) => Err(unexpected(&other)),
        }
    }
}

/// The parameters of a `files.*` method: the path, and the texts of these names that the call has.
fn file_params(given: &mut Arguments, names: &[&str]) -> Value {
    let mut params = json!({ "path": given.take("path") });
    for name in names {
        if let Some(text) = given.take_optional(name) {
            params[name] = text.into();
        }
    }
    params
}

/// The command of a person whose client cannot ask.
fn alternative(changes: &Changes) -> String {
    format!("a person can apply the changes: saggar session apply {}", changes.session)
}

fn unexpected(reply: &BrokerReply) -> Error {
    Error::system("ask the broker", format_args!("unexpected reply {reply:?}"))
}
