//! The command line, as types. clap stays here.

mod keyword;
pub mod mcp;
pub mod oci;
pub mod pair;
pub mod quarantine;
pub mod remote;
pub mod session;

use crate::spec::policy::{
    AdapterKind, AgentCommand, ApiUpstream, BadValue, BindSpec, ByteSize, CpuCount, Destination, EnvArgument,
    HomeSource, HostRule, MailboxName, NetworkMode, Protection, PublishedPort, RunNumber, SandboxProfile,
    SocketPathTemplate, TimeSpan,
};
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use keyword::keyword;
use std::ffi::OsString;
use std::os::fd::RawFd;
use std::path::PathBuf;

/// Run AI agents and other programs in Linux sandboxes
#[derive(Debug, Parser)]
#[command(name = "saggar", version = VERSION, max_term_width = 100, disable_version_flag = true)]
pub struct Cli {
    /// Print the version
    #[arg(short = 'V', short_alias = 'v', long, action = clap::ArgAction::Version)]
    pub version: Option<bool>,
    /// What the OCI verbs take.
    #[command(flatten)]
    pub oci: oci::OciGlobalArgs,
    /// What to do.
    #[command(subcommand)]
    pub command: CliCommand,
}

/// After the program's name: what dockerd reads of a runtime is the version and the commit.
pub const VERSION: &str =
    concat!("version ", env!("CARGO_PKG_VERSION"), "\ncommit: ", env!("SAGGAR_COMMIT"), "\nspec: 1.3.0");

/// What to do.
#[derive(Debug, Subcommand)]
pub enum CliCommand {
    /// Run the agent of a folder in a sandbox and relay its conversation
    #[command(
        after_help = "Exit status: the agent's own; 124 time limit; 125 saggar failed before the agent ran; \
                            126 and 127 the agent cannot be executed or is not found; 128+N signal N."
    )]
    Agent(Box<AgentArgs>),
    /// Run a command in a sandbox
    #[command(
        after_help = "Exit status: the command's own; 124 time limit; 125 saggar failed before the command \
                            ran; 126 and 127 it cannot be executed or is not found; 128+N signal N."
    )]
    Wrap(Box<WrapArgs>),
    /// Show the effective policy and where each value comes from
    Explain(Box<ExplainArgs>),
    /// Check host support and report how to fix what is missing
    Doctor(DoctorArgs),
    /// Check policy files and print their schema
    Policy(PolicyArgs),
    /// Show the resource usage of running sandboxes
    Stats(StatsArgs),
    /// Print metrics in the Prometheus text format
    Metrics(MetricsArgs),
    /// Manage persistent sessions
    #[command(
        after_help = "Exit status: 0 success; 2 invalid command line; 125 any other error; of create, resume and send: \
                            see saggar-session(1)."
    )]
    Session(session::SessionArgs),
    /// Serve tools to agents and editors over MCP, on standard input and output
    #[command(
        after_help = "Exit status: 0 the client closed the connection; 2 invalid command line; 125 any other error."
    )]
    Mcp(mcp::McpArgs),
    /// Run two agents on one task, which exchange messages
    #[command(
        after_help = "Exit status: 0 success; 2 invalid command line; 125 any other error; of run and resume: see \
                            saggar-pair(1)."
    )]
    Pair(pair::PairArgs),
    /// Use the agents and sessions of a server over HTTP
    #[command(
        after_help = "Exit status: 0 success; 2 invalid command line; 125 any other error; of send, chat and exec: see \
                            saggar-remote(1)."
    )]
    Remote(Box<remote::RemoteArgs>),
    /// Manage quarantined files
    #[command(after_help = "Exit status: 0 success; 2 invalid command line; 125 any other error.")]
    Quarantine(quarantine::QuarantineArgs),
    /// Remove leftovers of crashed sandboxes
    Gc,
    /// Print a shell completion script
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// An OCI verb.
    #[command(flatten)]
    Oci(oci::OciCommand),
}

/// A parser of values with paths in them, which are bytes and not text.
fn path_value<T>() -> impl TypedValueParser<Value = T>
where
    T: TryFrom<OsString, Error = BadValue> + Clone + Send + Sync + 'static,
{
    OsStringValueParser::new().try_map(T::try_from)
}

/// What every sandbox takes.
#[derive(Debug, Clone, Args, Default)]
#[cfg_attr(test, derive(PartialEq))]
pub struct SandboxArgs {
    /// Set the id of the sandbox [default: random]
    #[arg(long, value_name = "ID")]
    pub id: Option<String>,
    /// Mount PATH of the host read-only at DEST [default: the same path]
    #[arg(long, value_name = "PATH[:DEST]", value_parser = path_value::<BindSpec>())]
    pub ro: Vec<BindSpec>,
    /// Mount PATH of the host read-write at DEST [default: the same path]
    #[arg(long, value_name = "PATH[:DEST]", value_parser = path_value::<BindSpec>())]
    pub rw: Vec<BindSpec>,
    /// Pass an environment variable of the caller, or set one
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub env: Vec<EnvArgument>,
    /// Pass all environment variables of the caller, secrets included
    #[arg(long)]
    pub env_all: bool,
    /// Set the network mode: none (loopback only), policy (allowed hosts only) or host
    #[arg(long, value_name = "MODE", hide_possible_values = true, value_parser = keyword!(NetworkMode))]
    pub net: Option<NetworkMode>,
    /// Allow connections to HOST, and deny all other hosts [default ports: 80,443]
    #[arg(long, value_name = "HOST[:PORT,…]")]
    pub allow_host: Vec<HostRule>,
    /// Deny connections to HOST, even if another rule allows them [default: all ports]
    #[arg(long, value_name = "HOST[:PORT,…]")]
    pub deny_host: Vec<HostRule>,
    /// Ask before a connection to HOST that no rule allows [default ports: 80,443]
    #[arg(long, value_name = "HOST[:PORT,…]")]
    pub ask_host: Vec<HostRule>,
    /// Publish PORT of the sandbox on HOSTPORT of the host [default address: loopback]
    #[arg(long, value_name = "[ADDR:]HOSTPORT:PORT")]
    pub publish: Vec<PublishedPort>,
    /// Allow connections to the unix socket PATH of the host, at DEST inside [default: the same path]
    #[arg(long, value_name = "PATH[:DEST]", value_parser = path_value::<BindSpec>())]
    pub allow_socket: Vec<BindSpec>,
    /// Read FILE as the last policy layer
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// Set the profile: strict; container where /proc is masked; nesting for programs that create sandboxes
    #[arg(long, value_name = "PROFILE", hide_possible_values = true, value_parser = keyword!(SandboxProfile))]
    pub profile: Option<SandboxProfile>,
    /// Limit the memory of all processes together, without swap, e.g. 512M
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<ByteSize>,
    /// Limit CPU time, in cores, e.g. 1.5
    #[arg(long, value_name = "N")]
    pub cpus: Option<CpuCount>,
    /// Limit the number of processes and threads
    #[arg(long, value_name = "N")]
    pub pids: Option<u32>,
    /// Limit the bytes written to the workspace and the home directory
    #[arg(long, value_name = "SIZE")]
    pub disk: Option<ByteSize>,
    /// Limit the number of files, directories and links in the workspace and the home directory
    #[arg(long, value_name = "N")]
    pub inodes: Option<u32>,
    /// Write changes of the workspace to an overlay, not to the work tree
    #[arg(long)]
    pub workspace_overlay: bool,
    /// Kill all processes after this wall-clock time, e.g. 10m (exit status 124)
    #[arg(long, value_name = "DURATION")]
    pub timeout: Option<TimeSpan>,
    /// Set the home directory: tmp, session (agent only), or a directory of the host
    #[arg(long, value_name = "tmp|session|DIR", value_parser = path_value::<HomeSource>())]
    pub home: Option<HomeSource>,
    /// Allow the workspace to be the home directory or one of its ancestors
    #[arg(long)]
    pub allow_home: bool,
    /// Allow the sandbox's sockets in directories where programs inside can remove them
    #[arg(long)]
    pub allow_reachable_sockets: bool,
    /// Mount this unix socket of the host inside as the model API and set ANTHROPIC_UNIX_SOCKET
    #[arg(long, value_name = "PATH")]
    pub api_socket: Option<PathBuf>,
    /// Forward model API requests to URL, with a key that is not visible inside
    #[arg(long, value_name = "URL", conflicts_with = "api_socket")]
    pub api: Option<ApiUpstream>,
    /// Read the API key from a file that only its owner can read
    #[arg(long, value_name = "PATH")]
    pub api_key_file: Option<PathBuf>,
    /// Read the API key from an open file descriptor
    #[arg(long, value_name = "N", conflicts_with = "api_key_file")]
    pub api_key_fd: Option<RawFd>,
    /// Use the mailbox of run RUN, as the agent of --as (see saggar-mailbox(7))
    #[arg(long, value_name = "RUN")]
    pub mailbox: Option<RunNumber>,
    /// Send and receive messages of the mailbox as the agent NAME
    #[arg(long = "as", value_name = "NAME")]
    pub mailbox_name: Option<MailboxName>,
    /// Keep the runs of mailboxes in DIR [default: ~/.agentpair]
    #[arg(long, value_name = "DIR")]
    pub mailbox_root: Option<PathBuf>,
    /// Use the run of the repository in DIR [default: the workspace, or the agent's folder]
    #[arg(long, value_name = "DIR")]
    pub mailbox_repo: Option<PathBuf>,
    /// Refuse to start if this protection is not available (see saggar-policy(5))
    #[arg(long, value_name = "PROTECTION", hide_possible_values = true, value_parser = keyword!(Protection))]
    pub require: Vec<Protection>,
    /// Start without this protection if it is not available
    #[arg(long, value_name = "PROTECTION", hide_possible_values = true, value_parser = keyword!(Protection))]
    pub prefer: Vec<Protection>,
    /// Print no message about limits that no cgroup enforces
    #[arg(long)]
    pub quiet_degraded: bool,
    /// Write events as NDJSON to an open file descriptor
    #[arg(long, value_name = "N")]
    pub status_fd: Option<RawFd>,
    /// Print the parts of the sandbox, and each control that is missing, before it starts
    #[arg(short, long)]
    pub verbose: bool,
    /// Set the format of messages on standard error
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub log_format: LogFormat,
    /// Use DIR as the workspace [default of wrap: the work tree of the current directory]
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
    /// Start programs in DIR [default of wrap: the current directory, of an agent: the workspace]
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
}

/// How messages on standard error look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Default)]
pub enum LogFormat {
    /// Lines of text.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// `saggar wrap`.
#[derive(Debug, Args)]
#[cfg_attr(test, derive(PartialEq))]
pub struct WrapArgs {
    /// The sandbox.
    #[command(flatten)]
    pub sandbox: SandboxArgs,
    /// End the sandbox when the parent process exits
    #[arg(long)]
    pub die_with_parent: bool,
    /// Print the plan and exit
    #[arg(long)]
    pub dry_run: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub argv: Vec<OsString>,
}

/// `saggar wrap` alone: its options are parsed without those of every other command, which takes a quarter of
/// the time, and a start is counted.
#[derive(Debug, Parser)]
#[command(name = "wrap", disable_help_flag = true, disable_version_flag = true)]
pub struct WrapParser {
    /// The command.
    #[command(flatten)]
    pub wrap: WrapArgs,
}

impl WrapArgs {
    /// `wrap` without an option, as most starts are, from the words after it: what clap makes of that, in no time.
    /// `None` leaves it to clap, and so does everything that clap has a word to say about.
    pub fn without_options(words: &[OsString]) -> Option<Self> {
        let (first, rest) = words.split_first()?;
        let argv = match first.as_encoded_bytes() {
            b"--" => rest,
            [b'-', ..] => return None,
            _ => words,
        };
        (!argv.is_empty()).then(|| WrapArgs {
            sandbox: SandboxArgs::default(),
            die_with_parent: false,
            dry_run: false,
            argv: argv.to_vec(),
        })
    }
}

/// What one start adds to what the agent's folder says.
#[derive(Debug, Default, Args)]
pub struct OverrideArgs {
    /// Append TEXT to the system prompt, for this start (stream-json)
    #[arg(long, value_name = "TEXT", conflicts_with = "system_prompt_file")]
    pub system_prompt: Option<String>,
    /// Append the content of FILE to the system prompt
    #[arg(long, value_name = "FILE")]
    pub system_prompt_file: Option<PathBuf>,
    /// Add the MCP servers of FILE, in the format of .mcp.json, for this start (stream-json)
    #[arg(long, value_name = "FILE")]
    pub mcp_config: Option<PathBuf>,
}

/// The agent and its sockets.
#[derive(Debug, Args)]
pub struct AgentOptions {
    /// Run this agent program, given as a list of words without shell syntax
    #[arg(long, value_name = "CMD ARG…")]
    pub agent_cmd: Option<AgentCommand>,
    /// Set the agent's protocol: stream-json, bridge, or demo (built in)
    #[arg(long, value_name = "ADAPTER", hide_possible_values = true, value_parser = keyword!(AdapterKind))]
    pub adapter: Option<AdapterKind>,
    /// End the agent's program after this time without a turn, until the next turn, e.g. 10m
    #[arg(long, value_name = "DURATION")]
    pub agent_idle: Option<TimeSpan>,
    /// Set the path of the bridge socket; {id} and {short_id} are replaced by the sandbox's id
    #[arg(long, value_name = "TEMPLATE", value_parser = path_value::<SocketPathTemplate>())]
    pub bridge_socket: Option<SocketPathTemplate>,
    /// Set the path of the control socket; {id} and {short_id} are replaced by the sandbox's id
    #[arg(long, value_name = "TEMPLATE", value_parser = path_value::<SocketPathTemplate>())]
    pub control_socket: Option<SocketPathTemplate>,
}

/// `saggar agent`.
#[derive(Debug, Args)]
pub struct AgentArgs {
    /// The sandbox.
    #[command(flatten)]
    pub sandbox: SandboxArgs,
    /// The agent and its sockets.
    #[command(flatten)]
    pub agent: AgentOptions,
    /// Write the byte R to an open file descriptor when the bridge is ready
    #[arg(long, value_name = "N")]
    pub ready_fd: Option<RawFd>,
    /// Use this session, which keeps its home and workspace [default: the sandbox's id]
    #[arg(long, value_name = "ID")]
    pub session: Option<String>,
    /// Continue the conversation of the session
    #[arg(long, requires = "session")]
    pub resume: bool,
    /// What this start adds to the agent's folder.
    #[command(flatten)]
    pub overrides: OverrideArgs,
    /// Keep events for clients that reconnect, and continue turns after a disconnect
    #[arg(long)]
    pub spool: bool,
    /// End the sandbox when the parent process exits
    #[arg(long)]
    pub die_with_parent: bool,
    /// Print the agent's messages as NDJSON, even on a terminal
    #[arg(long)]
    pub json: bool,
    /// Read the prompt from FILE
    #[arg(long, value_name = "FILE", conflicts_with = "prompt")]
    pub prompt_file: Option<PathBuf>,
    /// The agent's folder, with CLAUDE.md and the agent's other files
    pub dir: Option<PathBuf>,
    /// The prompt of a single turn, or - for standard input [default: serve the bridge until shutdown]
    pub prompt: Option<String>,
}

/// `saggar explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// The sandbox.
    #[command(flatten)]
    pub sandbox: SandboxArgs,
    /// The agent's folder [default: explain the sandbox of wrap]
    #[arg(value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Show how this path appears inside, and why
    #[arg(long, value_name = "PATH")]
    pub path: Option<PathBuf>,
    /// Show whether a connection to this host and port is allowed, and why
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "path")]
    pub host: Option<Destination>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `saggar doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Start the sandbox of the policy, make harmless attacks inside, and report which ones it blocked
    #[arg(long)]
    pub prove: bool,
    /// Read FILE as the last policy layer of that sandbox
    #[arg(long, value_name = "FILE", requires = "prove")]
    pub policy: Option<PathBuf>,
    /// Set the profile of that sandbox
    #[arg(long, value_name = "PROFILE", requires = "prove", hide_possible_values = true, value_parser = keyword!(SandboxProfile))]
    pub profile: Option<SandboxProfile>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `saggar stats`.
#[derive(Debug, Args)]
pub struct StatsArgs {
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
    /// The sandbox [default: all sandboxes of the caller; for root all of the host]
    #[arg(value_name = "ID")]
    pub id: Option<String>,
}

/// `saggar metrics`.
#[derive(Debug, Args)]
pub struct MetricsArgs {
    /// Count the containers below DIR; repeatable [default: the root directory of the OCI commands]
    #[arg(long = "containers", value_name = "DIR")]
    pub containers: Vec<PathBuf>,
}

/// `saggar policy`.
#[derive(Debug, Args)]
pub struct PolicyArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: PolicyCommand,
}

/// What to do with policies.
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Check policy files
    Check {
        /// The files
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Print the JSON Schema of a policy
    Schema,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// What the short way takes it takes as clap does; and the usual form it takes.
        #[test]
        fn wrap_without_options_is_what_clap_says(
            words in prop::collection::vec("-{0,3}[a-z=/ ]{0,4}|--", 0..6),
            dashes in any::<bool>(),
        ) {
            let mut words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
            if dashes {
                words.insert(0, "--".into());
            }
            let clap = WrapParser::try_parse_from(["wrap".into()].into_iter().chain(words.clone()));
            match WrapArgs::without_options(&words) {
                Some(short) => prop_assert_eq!(short, clap.expect("clap takes it too").wrap),
                None => prop_assert!(!dashes || words.len() == 1),
            }
        }
    }
}
