//! `saggar remote`: the command line, as types.

use crate::spec::policy::EnvArgument;
use clap::{Args, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

/// `saggar remote`.
#[derive(Debug, Args)]
pub struct RemoteArgs {
    /// The server.
    #[command(flatten)]
    pub server: RemoteServerArgs,
    /// What to do.
    #[command(subcommand)]
    pub command: RemoteCommand,
}

/// Which server, and how it is reached.
#[derive(Debug, Clone, Args)]
pub struct RemoteServerArgs {
    /// Use the server at URL [default: $SAGGAR_REMOTE_URL, else that of the login]
    #[arg(long, value_name = "URL", global = true)]
    pub server: Option<String>,
    /// Accept the certificate authorities in FILE, in PEM, instead of those of this host
    #[arg(long, value_name = "FILE", global = true)]
    pub ca_file: Option<PathBuf>,
    /// Allow an address of another host without encryption
    #[arg(long, global = true)]
    pub plain_http: bool,
}

/// What to do with a server.
#[derive(Debug, Subcommand)]
pub enum RemoteCommand {
    /// Check an API key and save it with the address of the server
    Login(LoginArgs),
    /// Remove the saved address and key
    Logout,
    /// Show the server and its sandboxes
    Status(RemoteShowArgs),
    /// Deploy an agent from a folder of this host
    Deploy(DeployArgs),
    /// Manage agents
    Agent(RemoteAgentArgs),
    /// Manage sessions
    Session(RemoteSessionArgs),
    /// Send each line of standard input to an agent as a message
    Chat(ChatArgs),
    /// Run a command in the sandbox of a session
    Exec(RemoteExecArgs),
    /// Manage files of the workspace of a session
    Files(RemoteFilesArgs),
    /// Manage the permission requests of a session
    Permission(RemotePermissionArgs),
}

/// `saggar remote login`.
#[derive(Debug, Args)]
pub struct LoginArgs {
    /// Read the key from FILE [default: standard input]
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// The address of the server, with its scheme: http or https
    pub url: String,
}

/// A command that shows one thing of the server.
#[derive(Debug, Args)]
pub struct RemoteShowArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `saggar remote deploy`.
#[derive(Debug, Args)]
pub struct DeployArgs {
    /// Set the name of the agent [default: the name of the folder]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Pass an environment variable of the caller to the sandboxes of the agent, or set one
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub env: Vec<EnvArgument>,
    /// Print the agent as JSON
    #[arg(long)]
    pub json: bool,
    /// The agent's folder, with CLAUDE.md and the agent's other files
    pub dir: PathBuf,
}

/// `saggar remote agent`.
#[derive(Debug, Args)]
pub struct RemoteAgentArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: RemoteAgentCommand,
}

/// What to do with agents of the server.
#[derive(Debug, Subcommand)]
pub enum RemoteAgentCommand {
    /// List the agents
    List(RemoteShowArgs),
    /// Show an agent as JSON
    Show(RemoteAgentNameArgs),
    /// Delete an agent with its sessions, their sandboxes and their files
    Delete(RemoteAgentNameArgs),
}

/// A command on one agent.
#[derive(Debug, Args)]
pub struct RemoteAgentNameArgs {
    /// The agent
    pub name: String,
}

/// `saggar remote session`.
#[derive(Debug, Args)]
pub struct RemoteSessionArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: RemoteSessionCommand,
}

/// What to do with sessions of the server.
#[derive(Debug, Subcommand)]
pub enum RemoteSessionCommand {
    /// Create a session of an agent
    Create(RemoteCreateArgs),
    /// List sessions, the newest first
    List(RemoteListArgs),
    /// Show a session as JSON
    Show(RemoteIdArgs),
    /// Send a prompt to a session and print the reply
    Send(RemoteSendArgs),
    /// Print the events of a session, and new ones while it is active
    Follow(FollowArgs),
    /// End the running turn of a session
    Interrupt(RemoteIdArgs),
    /// Pause all processes of a session
    Pause(RemoteIdArgs),
    /// Continue a session
    Resume(RemoteIdArgs),
    /// End the sandbox of a session, which can be resumed
    Stop(RemoteIdArgs),
    /// End a session permanently
    End(RemoteIdArgs),
    /// Create a copy of a session with its workspace and its conversation
    Fork(RemoteIdArgs),
    /// Print the log of a session
    Logs(RemoteIdArgs),
    /// Show the agent's changes to the workspace
    Diff(RemoteDiffArgs),
    /// Apply the agent's changes to the folder of the session on the server
    Apply(RemotePathsArgs),
    /// Discard the agent's changes
    Discard(RemotePathsArgs),
}

/// `saggar remote session create`.
#[derive(Debug, Args)]
pub struct RemoteCreateArgs {
    /// Pass an environment variable of the caller to the sandbox, or set one
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub env: Vec<EnvArgument>,
    /// Set the model of the session
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
    /// Use the credential with this id
    #[arg(long, value_name = "ID")]
    pub credential: Option<String>,
    /// Use FILE of this host instead of the agent's CLAUDE.md
    #[arg(long, value_name = "FILE")]
    pub system_prompt_file: Option<PathBuf>,
    /// Start with the workspace and the conversation of a snapshot
    #[arg(long, value_name = "ID")]
    pub from_snapshot: Option<String>,
    /// Print the session as JSON
    #[arg(long)]
    pub json: bool,
    /// The agent
    pub agent: String,
}

impl RemoteCreateArgs {
    /// Those of a session of an agent, without options.
    pub fn of(agent: String) -> Self {
        RemoteCreateArgs {
            env: Vec::new(),
            model: None,
            credential: None,
            system_prompt_file: None,
            from_snapshot: None,
            json: false,
            agent,
        }
    }
}

/// `saggar remote session list`.
#[derive(Debug, Args)]
pub struct RemoteListArgs {
    /// List only sessions of AGENT
    #[arg(long, value_name = "AGENT")]
    pub agent: Option<String>,
    /// List only sessions with STATUS, such as active or paused
    #[arg(long, value_name = "STATUS")]
    pub status: Option<String>,
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
}

/// A command on one session of the server.
#[derive(Debug, Args)]
pub struct RemoteIdArgs {
    /// The session
    pub id: String,
}

/// `saggar remote session send`.
#[derive(Debug, Args)]
pub struct RemoteSendArgs {
    /// Print the agent's messages as NDJSON, even on a terminal
    #[arg(long)]
    pub json: bool,
    /// Read the prompt from FILE
    #[arg(long, value_name = "FILE", conflicts_with = "prompt")]
    pub prompt_file: Option<PathBuf>,
    /// The session
    pub id: String,
    /// The prompt, or - for standard input
    #[arg(required_unless_present = "prompt_file")]
    pub prompt: Option<String>,
}

/// `saggar remote session follow`.
#[derive(Debug, Args)]
pub struct FollowArgs {
    /// Print only events after the one with the number N
    #[arg(long, value_name = "N")]
    pub after: Option<u64>,
    /// The session
    pub id: String,
}

/// `saggar remote session diff`.
#[derive(Debug, Args)]
pub struct RemoteDiffArgs {
    /// Show a line-by-line diff of text files
    #[arg(long)]
    pub patch: bool,
    /// The session
    pub id: String,
}

/// `saggar remote session apply` and `discard`.
#[derive(Debug, Args)]
pub struct RemotePathsArgs {
    /// The session
    pub id: String,
    /// Paths of the workspace [default: all]
    #[arg(value_name = "PATH")]
    pub paths: Vec<String>,
}

/// `saggar remote chat`.
#[derive(Debug, Args)]
pub struct ChatArgs {
    /// Create a session of AGENT for the conversation
    #[arg(long, value_name = "AGENT", conflicts_with = "id", required_unless_present = "id")]
    pub agent: Option<String>,
    /// The session
    pub id: Option<String>,
}

/// `saggar remote exec`.
#[derive(Debug, Args)]
pub struct RemoteExecArgs {
    /// Kill the command after SECONDS, at most 300 [default: 30]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=300))]
    pub timeout: Option<u64>,
    /// The session
    pub id: String,
    /// The command and its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<OsString>,
}

/// `saggar remote files`.
#[derive(Debug, Args)]
pub struct RemoteFilesArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: RemoteFilesCommand,
}

/// What to do with files of a workspace on the server.
#[derive(Debug, Subcommand)]
pub enum RemoteFilesCommand {
    /// List the files of the workspace
    List(RemoteFilesListArgs),
    /// Print a file
    Read(RemoteFileArgs),
    /// Write standard input to a file, and create the directories above it
    Write(RemoteFileArgs),
    /// Remove a file
    Remove(RemoteFileArgs),
}

/// `saggar remote files list`.
#[derive(Debug, Args)]
pub struct RemoteFilesListArgs {
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
    /// The session
    pub id: String,
}

/// A command on one file of a workspace on the server.
#[derive(Debug, Args)]
pub struct RemoteFileArgs {
    /// The session
    pub id: String,
    /// A file of the workspace
    pub path: String,
}

/// `saggar remote permission`.
#[derive(Debug, Args)]
pub struct RemotePermissionArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: RemotePermissionCommand,
}

/// What to do with permission requests.
#[derive(Debug, Subcommand)]
pub enum RemotePermissionCommand {
    /// List the open requests, one JSON object per line
    List(RemoteIdArgs),
    /// Allow a request
    Allow(RemoteRequestArgs),
    /// Deny a request
    Deny(RemoteRequestArgs),
}

/// An answer to a permission request.
#[derive(Debug, Args)]
pub struct RemoteRequestArgs {
    /// The session
    pub id: String,
    /// The request
    pub request: String,
}
