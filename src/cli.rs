//! The command line, as types. clap stays here.

pub mod oci;
pub mod quarantine;
pub mod session;

use crate::spec::policy::{
    Adapter, AgentCommand, BindSpec, Cpus, Destination, EnvArgument, Home, HostRule, Network, Profile,
    Protection, Publish, Size, Template, TimeSpan, Upstream,
};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::os::fd::RawFd;
use std::path::PathBuf;

/// A native Linux sandbox runtime for AI agents.
#[derive(Debug, Parser)]
#[command(name = "saggar", version = VERSION, max_term_width = 100, disable_version_flag = true)]
pub struct Cli {
    /// Print the version
    #[arg(short = 'V', short_alias = 'v', long, action = clap::ArgAction::Version)]
    pub version: Option<bool>,
    /// What the OCI verbs take.
    #[command(flatten)]
    pub oci: oci::Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// After the program's name: what dockerd reads of a runtime is the version and the commit.
pub const VERSION: &str =
    concat!("version ", env!("CARGO_PKG_VERSION"), "\ncommit: ", env!("SAGGAR_COMMIT"), "\nspec: 1.3.0");

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the agent of a folder in a sandbox, and carry its conversation
    #[command(
        after_help = "Exit status: the agent's own; 124 time limit; 125 saggar failed before the agent ran; \
                            126 and 127 the agent cannot be executed or is not found; 128+N signal N."
    )]
    Agent(Box<AgentArgs>),
    /// Run any command in the same sandbox
    #[command(
        after_help = "Exit status: the command's own; 124 time limit; 125 saggar failed before the command \
                            ran; 126 and 127 it cannot be executed or is not found; 128+N signal N."
    )]
    Wrap(Box<WrapArgs>),
    /// Say what a sandbox would be: files, environment, system calls, limits, network, and who says so
    Explain(Box<ExplainArgs>),
    /// Say what this host gives, what is missing, and what cures it
    Doctor(DoctorArgs),
    /// Check policies, and print their schema
    Policy(PolicyArgs),
    /// Show what the sandboxes that run use: processor, memory, processes, devices, pressure
    Stats(StatsArgs),
    /// Print counts of sandboxes, sessions, starts and refusals, in the text format of Prometheus
    Metrics(MetricsArgs),
    /// Sessions that last: start, show, speak to, pause, resume and end them, and look after what they changed
    #[command(
        after_help = "Exit status: 0; of send as that of agent; of create and resume as that of a start; 2 the command \
                            line; 125 anything else."
    )]
    Session(session::SessionArgs),
    /// List, restore and remove what sandboxes planted for the host to run
    #[command(after_help = "Exit status: 0; 2 the command line; 125 anything else.")]
    Quarantine(quarantine::QuarantineArgs),
    /// Remove what dead sandboxes left behind
    Gc,
    /// Print the completions of a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// An OCI verb.
    #[command(flatten)]
    Oci(oci::OciCommand),
}

/// What every sandbox takes.
#[derive(Debug, Clone, Args, Default)]
#[cfg_attr(test, derive(PartialEq))]
pub struct SandboxArgs {
    /// Name of the sandbox [default: a random one]
    #[arg(long, value_name = "ID")]
    pub id: Option<String>,
    /// Show PATH of the host read-only, at DEST inside [default: the same path]
    #[arg(long, value_name = "PATH[:DEST]")]
    pub ro: Vec<BindSpec>,
    /// Show PATH of the host read-write, at DEST inside [default: the same path]
    #[arg(long, value_name = "PATH[:DEST]")]
    pub rw: Vec<BindSpec>,
    /// Pass a variable of the caller, or set one
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub env: Vec<EnvArgument>,
    /// Network: none (an empty one with loopback), policy (the hosts that are allowed), or host
    #[arg(long, value_name = "MODE")]
    pub net: Option<Network>,
    /// Let these hosts be reached, and no others, at PORTs [default: 80,443]
    #[arg(long, value_name = "HOST[:PORT,…]")]
    pub allow_host: Vec<HostRule>,
    /// Never let these hosts be reached, whatever is allowed [default: every port]
    #[arg(long, value_name = "HOST[:PORT,…]")]
    pub deny_host: Vec<HostRule>,
    /// Ask before these hosts are reached, unless they are allowed [default: 80,443]
    #[arg(long, value_name = "HOST[:PORT,…]")]
    pub ask_host: Vec<HostRule>,
    /// Let HOSTPORT of the host lead to a server on PORT inside; on loopback alone unless ADDR says otherwise
    #[arg(long, value_name = "[ADDR:]HOSTPORT:PORT")]
    pub publish: Vec<Publish>,
    /// Let programs connect to the unix socket PATH of the host, at DEST inside [default: the same path]
    #[arg(long, value_name = "PATH[:DEST]")]
    pub allow_socket: Vec<BindSpec>,
    /// One more policy file, after all others
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// strict, or nesting for an agent that brings its own sandbox
    #[arg(long, value_name = "PROFILE")]
    pub profile: Option<Profile>,
    /// Memory of all processes together, without swap, e.g. 512M
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<Size>,
    /// Processor time, in cores, e.g. 1.5
    #[arg(long, value_name = "N")]
    pub cpus: Option<Cpus>,
    /// Processes and threads at once
    #[arg(long, value_name = "N")]
    pub pids: Option<u32>,
    /// Bytes that may be written to the workspace and the home directory
    #[arg(long, value_name = "SIZE")]
    pub disk: Option<Size>,
    /// Files, directories and links in the workspace and the home directory
    #[arg(long, value_name = "N")]
    pub inodes: Option<u32>,
    /// Lay an overlay over the work tree: what programs change there never reaches it
    #[arg(long)]
    pub workspace_overlay: bool,
    /// Wall-clock time after which everything is killed (exit status 124), e.g. 10m
    #[arg(long, value_name = "DURATION")]
    pub timeout: Option<TimeSpan>,
    /// The home directory inside: tmp, session (agent only), or a directory of the host
    #[arg(long, value_name = "tmp|session|DIR")]
    pub home: Option<Home>,
    /// Allow the workspace to be the home directory or one of its ancestors
    #[arg(long)]
    pub allow_home: bool,
    /// Allow sockets of the sandbox in directories that programs inside reach, and can remove them from
    #[arg(long)]
    pub allow_reachable_sockets: bool,
    /// A unix socket of the host that leads to the model API; bound inside, ANTHROPIC_UNIX_SOCKET is set
    #[arg(long, value_name = "PATH")]
    pub api_socket: Option<PathBuf>,
    /// Where requests to the model API go, with a key that the sandbox never sees
    #[arg(long, value_name = "URL", conflicts_with = "api_socket")]
    pub api: Option<Upstream>,
    /// The file with that key, which nobody else can read
    #[arg(long, value_name = "PATH")]
    pub api_key_file: Option<PathBuf>,
    /// An open descriptor with that key
    #[arg(long, value_name = "N", conflicts_with = "api_key_file")]
    pub api_key_fd: Option<RawFd>,
    /// Refuse to start without this protection (see saggar-policy(5))
    #[arg(long, value_name = "PROTECTION")]
    pub require: Vec<Protection>,
    /// Start without this protection where the host cannot give it
    #[arg(long, value_name = "PROTECTION")]
    pub prefer: Vec<Protection>,
    /// Write what happens as NDJSON to this open descriptor
    #[arg(long, value_name = "N")]
    pub status_fd: Option<RawFd>,
    /// How messages on standard error look
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub log_format: LogFormat,
    /// The work tree, read-write, where programs start [default of wrap: the current directory]
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
}

/// How messages on standard error look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Default)]
pub enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// `saggar wrap`.
#[derive(Debug, Args)]
#[cfg_attr(test, derive(PartialEq))]
pub struct WrapArgs {
    /// The sandbox.
    #[command(flatten)]
    pub sandbox: SandboxArgs,
    /// Print the plan and run nothing
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
pub struct WrapOnly {
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
            dry_run: false,
            argv: argv.to_vec(),
        })
    }
}

/// What one start adds to what the agent's folder says.
#[derive(Debug, Default, Args)]
pub struct OverrideArgs {
    /// More of a system prompt, for this start (stream-json)
    #[arg(long, value_name = "TEXT", conflicts_with = "system_prompt_file")]
    pub system_prompt: Option<String>,
    /// The same from a file
    #[arg(long, value_name = "FILE")]
    pub system_prompt_file: Option<PathBuf>,
    /// More MCP servers, for this start: a file as .mcp.json is (stream-json)
    #[arg(long, value_name = "FILE")]
    pub mcp_config: Option<PathBuf>,
}

/// The agent and its sockets.
#[derive(Debug, Args)]
pub struct AgentOptions {
    /// The program of the agent, as a list of words; no shell reads it
    #[arg(long, value_name = "CMD ARG…")]
    pub agent_cmd: Option<AgentCommand>,
    /// What the agent speaks: stream-json, bridge, or demo (built in)
    #[arg(long, value_name = "ADAPTER")]
    pub adapter: Option<Adapter>,
    /// Where the bridge listens; {id} and {short_id} stand for the sandbox's name
    #[arg(long, value_name = "TEMPLATE")]
    pub bridge_socket: Option<Template>,
    /// Where the control socket is; {id} and {short_id} stand for the sandbox's name
    #[arg(long, value_name = "TEMPLATE")]
    pub control_socket: Option<Template>,
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
    /// Write one byte R to this open descriptor once the bridge listens
    #[arg(long, value_name = "N")]
    pub ready_fd: Option<RawFd>,
    /// The session, whose home and workspace last [default: the sandbox's name]
    #[arg(long, value_name = "ID")]
    pub session: Option<String>,
    /// Go on with the conversation of the session
    #[arg(long, requires = "session")]
    pub resume: bool,
    /// What this start adds to the agent's folder.
    #[command(flatten)]
    pub overrides: OverrideArgs,
    /// Keep events for servers that come back, and let turns outlive their connections
    #[arg(long)]
    pub spool: bool,
    /// Print the agent's messages as NDJSON, also on a terminal
    #[arg(long)]
    pub json: bool,
    /// The agent's folder: CLAUDE.md, and whatever else the agent needs
    pub dir: Option<PathBuf>,
    /// One turn with this prompt; without it the bridge stays open until shutdown
    pub prompt: Option<String>,
}

/// `saggar explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// The sandbox.
    #[command(flatten)]
    pub sandbox: SandboxArgs,
    /// Explain the sandbox of an agent folder, not that of wrap
    #[arg(value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// What this path would be inside, and why
    #[arg(long, value_name = "PATH")]
    pub path: Option<PathBuf>,
    /// What would happen to a connection to this port of this host, and why
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "path")]
    pub host: Option<Destination>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// `saggar doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Start the sandbox that the policy gives, make harmless attempts in it, and report which of them it held
    #[arg(long)]
    pub prove: bool,
    /// One more policy file for that sandbox, after all others
    #[arg(long, value_name = "FILE", requires = "prove")]
    pub policy: Option<PathBuf>,
    /// The profile of that sandbox
    #[arg(long, value_name = "PROFILE", requires = "prove")]
    pub profile: Option<Profile>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// `saggar stats`.
#[derive(Debug, Args)]
pub struct StatsArgs {
    /// One JSON object a line
    #[arg(long)]
    pub json: bool,
    /// This sandbox alone [default: all of yours; for root all of the host]
    #[arg(value_name = "ID")]
    pub id: Option<String>,
}

/// `saggar metrics`.
#[derive(Debug, Args)]
pub struct MetricsArgs {
    /// Count the containers below this directory; may be given again [default: that of the OCI verbs]
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
    /// Check files as saggar would read them
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
            let clap = WrapOnly::try_parse_from(["wrap".into()].into_iter().chain(words.clone()));
            match WrapArgs::without_options(&words) {
                Some(short) => prop_assert_eq!(short, clap.expect("clap takes it too").wrap),
                None => prop_assert!(!dashes || words.len() == 1),
            }
        }
    }
}
