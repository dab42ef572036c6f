//! The last layer: the options of this command.

use super::api::ApiUpstream;
use super::document::{
    ApiTable, BridgeTable, EnvTable, FilesTable, LimitsTable, MailboxTable, McpTable, NetworkTable,
    PolicyDocument, ProtectionsTable,
};
use super::hosts::HostRule;
use super::mailbox::{MailboxName, RunNumber};
use super::mcp::SessionPattern;
use super::names::{AdapterKind, EnvName, NetworkMode, Protection, SandboxProfile};
use super::paths::{BindSpec, HomeSource, HostPath, SocketPathTemplate, UserPath};
use super::program::AgentCommand;
use super::publish::PublishedPort;
use super::units::{ByteSize, CpuCount, TimeSpan};
use super::value::BadValue;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The options that override a policy. Each value has one parser (`FromStr`), used for options and files
/// alike.
#[derive(Debug, Clone, Default)]
pub struct PolicyOptions {
    /// The value of `--profile`.
    pub profile: Option<SandboxProfile>,
    /// The value of `--net`.
    pub network: Option<NetworkMode>,
    /// The values of `--allow-host`.
    pub allow_host: Vec<HostRule>,
    /// The values of `--deny-host`.
    pub deny_host: Vec<HostRule>,
    /// The values of `--ask-host`.
    pub ask_host: Vec<HostRule>,
    /// The values of `--publish`.
    pub publish: Vec<PublishedPort>,
    /// The values of `--allow-socket`; a relative PATH is below the current directory.
    pub allow_socket: Vec<BindSpec>,
    /// The value of `--memory`.
    pub memory: Option<ByteSize>,
    /// The value of `--cpus`.
    pub cpus: Option<CpuCount>,
    /// The value of `--pids`.
    pub pids: Option<u32>,
    /// The value of `--disk`.
    pub disk: Option<ByteSize>,
    /// The value of `--inodes`.
    pub inodes: Option<u32>,
    /// The value of `--timeout`.
    pub timeout: Option<TimeSpan>,
    /// The value of `--agent-idle`.
    pub agent_idle: Option<TimeSpan>,
    /// The values of `--ro`; a relative PATH is below the current directory.
    pub ro: Vec<BindSpec>,
    /// The values of `--rw`; a relative PATH is below the current directory.
    pub rw: Vec<BindSpec>,
    /// The values of `--env`; of two with the same name, the later applies.
    pub env: Vec<EnvArgument>,
    /// The value of `--home`.
    pub home: Option<HomeSource>,
    /// Whether `--allow-home` is given.
    pub allow_home: bool,
    /// The value of `--api-socket`; a relative path is below the current directory.
    pub api_socket: Option<PathBuf>,
    /// The value of `--api`.
    pub api: Option<ApiUpstream>,
    /// The value of `--api-key-file`; a relative path is below the current directory.
    pub api_key_file: Option<PathBuf>,
    /// The value of `--mailbox`.
    pub mailbox: Option<RunNumber>,
    /// The value of `--as`.
    pub mailbox_name: Option<MailboxName>,
    /// The value of `--mailbox-root`; a relative path is below the current directory.
    pub mailbox_root: Option<PathBuf>,
    /// The value of `--mailbox-repo`; a relative path is below the current directory.
    pub mailbox_repo: Option<PathBuf>,
    /// The values of `--session` of `saggar mcp control`.
    pub mcp_sessions: Vec<SessionPattern>,
    /// The value of `--agent-cmd`.
    pub agent_cmd: Option<AgentCommand>,
    /// The value of `--adapter`.
    pub adapter: Option<AdapterKind>,
    /// The value of `--bridge-socket`.
    pub bridge_socket: Option<SocketPathTemplate>,
    /// The value of `--control-socket`.
    pub control_socket: Option<SocketPathTemplate>,
    /// Whether `--allow-reachable-sockets` is given.
    pub allow_reachable_sockets: bool,
    /// The values of `--require`.
    pub require: Vec<Protection>,
    /// The values of `--prefer`.
    pub prefer: Vec<Protection>,
    /// Whether `--quiet-degraded` is given.
    pub quiet_degraded: bool,
}

/// `NAME`, to pass the caller's value, or `NAME=VALUE`, to set one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvArgument {
    /// The name of the variable.
    pub name: EnvName,
    /// The value; `None` passes the caller's.
    pub value: Option<String>,
}

impl FromStr for EnvArgument {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        match text.split_once('=') {
            Some((name, value)) => Ok(EnvArgument { name: name.parse()?, value: Some(value.to_owned()) }),
            None => Ok(EnvArgument { name: text.parse()?, value: None }),
        }
    }
}

impl PolicyOptions {
    /// Converts the options to a document. Relative paths are made absolute below `directory`.
    pub(super) fn into_document(self, directory: &Path) -> Result<PolicyDocument, BadValue> {
        let mut env = EnvTable::default();
        for EnvArgument { name, value } in self.env {
            env.pass.retain(|earlier| *earlier != name);
            env.set.remove(&name);
            match value {
                Some(value) => drop(env.set.insert(name, value)),
                None => env.pass.push(name),
            }
        }
        let below = |specs: Vec<BindSpec>| -> Vec<BindSpec> {
            let absolute = |spec: BindSpec| BindSpec { source: directory.join(&spec.source), ..spec };
            specs.into_iter().map(absolute).collect()
        };
        let user_path =
            |path: Option<PathBuf>| path.map(|path| UserPath::try_from(directory.join(path))).transpose();
        let socket = self.api_socket.map(|path| HostPath::try_from(directory.join(path))).transpose()?;
        let key_file = user_path(self.api_key_file)?;
        let mailbox = MailboxTable {
            run: self.mailbox,
            name: self.mailbox_name,
            root: user_path(self.mailbox_root)?,
            repo: user_path(self.mailbox_repo)?,
            register: None,
        };
        Ok(PolicyDocument {
            profile: self.profile,
            agent_cmd: self.agent_cmd,
            adapter: self.adapter,
            files: FilesTable {
                ro: below(self.ro),
                rw: below(self.rw),
                home: self.home,
                ..FilesTable::default()
            },
            env,
            network: NetworkTable {
                mode: self.network,
                allow: self.allow_host,
                deny: self.deny_host,
                ask: self.ask_host,
                publish: self.publish,
                sockets: below(self.allow_socket),
            },
            limits: LimitsTable {
                memory: self.memory,
                disk: self.disk,
                inodes: self.inodes,
                cpus: self.cpus,
                pids: self.pids,
                timeout: self.timeout,
                agent_idle: self.agent_idle,
                ..LimitsTable::default()
            },
            protections: ProtectionsTable {
                require: self.require,
                prefer: self.prefer,
                quiet: self.quiet_degraded.then_some(true),
            },
            api: ApiTable { socket, upstream: self.api, key_file, ..ApiTable::default() },
            bridge: BridgeTable {
                socket: self.bridge_socket,
                control: self.control_socket,
                allow_reachable: self.allow_reachable_sockets.then_some(true),
                ..BridgeTable::default()
            },
            mailbox,
            mcp: McpTable { sessions: self.mcp_sessions },
            ..PolicyDocument::default()
        })
    }
}
