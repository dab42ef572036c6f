//! The keys of a policy file. Every key is optional; an unknown key is an error.
//!
//! The comments on the fields are the descriptions in the JSON Schema. A new key does not compile until
//! `merge` and `tighten` handle it, since both destructure every field.

use super::api::{ApiUpstream, KeyHeader};
use super::cgroup_name::CgroupName;
use super::hosts::HostRule;
use super::mailbox::{MailboxName, RunNumber};
use super::mcp::SessionPattern;
use super::names::{
    AdapterKind, EnvName, MissingPathAction, NetworkMode, PolicyPart, Protection, ProtectionStrength,
    SandboxCgroupDriver, SandboxProfile, TimeoutAction,
};
use super::paths::{BindSpec, HomeSource, HostPath, SocketPathTemplate, UserPath};
use super::permission::{PermissionMode, PermissionRule};
use super::program::{AgentCommand, IdRange};
use super::publish::PublishedPort;
use super::resources::{CpusetList, DiskName, DiskRates, HugePageSize};
use super::units::{ByteSize, CpuCount, TimeSpan};
use super::workspace_pattern::WorkspacePattern;
use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

/// The content of one policy file: one layer of the policy.
#[derive(Debug, Clone, Default, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyDocument {
    /// How strictly the sandbox confines programs. Default: "strict".
    pub profile: Option<SandboxProfile>,
    /// The agent's program and its arguments.
    pub agent_cmd: Option<AgentCommand>,
    /// The protocol that the agent uses.
    pub adapter: Option<AdapterKind>,
    /// Parts of the policy that no later layer can widen, including the command line.
    pub locked: Vec<PolicyPart>,
    /// Host files that are visible in the sandbox.
    #[serde(deserialize_with = "table")]
    pub files: FilesTable,
    /// Environment variables of the program.
    #[serde(deserialize_with = "table")]
    pub env: EnvTable,
    /// Network access: hosts, published ports and unix sockets.
    #[serde(deserialize_with = "table")]
    pub network: NetworkTable,
    /// Resource limits of the sandbox. A limit that is set here is required.
    #[serde(deserialize_with = "table")]
    pub limits: LimitsTable,
    /// Paths of the workspace that the agent cannot change.
    #[serde(deserialize_with = "table")]
    pub protect: ProtectTable,
    /// What to do when the host does not support a protection.
    #[serde(deserialize_with = "table")]
    pub protections: ProtectionsTable,
    /// Access to the model API.
    #[serde(deserialize_with = "table")]
    pub api: ApiTable,
    /// The sockets of the bridge, and what it retains.
    #[serde(deserialize_with = "table")]
    pub bridge: BridgeTable,
    /// The mailbox of a run, in which agents in separate sandboxes exchange messages.
    #[serde(deserialize_with = "table")]
    pub mailbox: MailboxTable,
    /// Access of MCP clients outside to sessions.
    #[serde(deserialize_with = "table")]
    pub mcp: McpTable,
    /// Automatic answers to the agent's permission requests.
    #[serde(deserialize_with = "table")]
    pub permissions: PermissionsTable,
    /// User and group ids of the programs.
    #[serde(deserialize_with = "table")]
    pub sandbox: SandboxTable,
}

/// The table `[files]`: host files that are visible in the sandbox.
#[derive(Debug, Clone, Default, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FilesTable {
    /// Host paths to mount read-only: "PATH" or "PATH:DEST".
    pub ro: Vec<BindSpec>,
    /// Host paths to mount read-write: "PATH" or "PATH:DEST".
    pub rw: Vec<BindSpec>,
    /// The home directory in the sandbox: "tmp", "session", or a directory of the host.
    pub home: Option<HomeSource>,
    /// The size of /tmp, and of a home directory in memory. Default: the disk limit.
    pub tmp_size: Option<ByteSize>,
    /// Paths of the workspace that programs in the sandbox cannot read.
    pub hide: Vec<WorkspacePattern>,
}

/// The table `[env]`: environment variables of the program.
#[derive(Debug, Clone, Default, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EnvTable {
    /// Variables to pass from the caller's environment, in addition to the built-in list.
    pub pass: Vec<EnvName>,
    /// Variables to set, with their values.
    #[schemars(with = "BTreeMap<String, String>")]
    pub set: BTreeMap<EnvName, String>,
    /// Variables that are never set in the sandbox, even if another layer passes or sets them.
    pub deny: Vec<EnvName>,
}

/// The table `[network]`: network access.
#[derive(Debug, Clone, Default, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NetworkTable {
    /// The network mode. Default: "policy" where hosts are allowed, else "none".
    pub mode: Option<NetworkMode>,
    /// Hosts that programs can connect to: "api.example.com", "*.example.com:443", "10.0.0.0/8:5432".
    pub allow: Vec<HostRule>,
    /// Hosts that programs cannot connect to, even if they are allowed.
    pub deny: Vec<HostRule>,
    /// Hosts that need consent when a program connects to them, unless they are allowed.
    pub ask: Vec<HostRule>,
    /// Ports of the host to forward to servers in the sandbox: "8080:3000", "0.0.0.0:8080:3000".
    pub publish: Vec<PublishedPort>,
    /// Unix sockets of the host that programs can connect to: "PATH" or "PATH:DEST".
    pub sockets: Vec<BindSpec>,
}

impl NetworkTable {
    /// The mode that the table implies when it sets none: `policy` if it allows or asks about hosts.
    pub(super) fn implied_mode(&self) -> Option<NetworkMode> {
        self.mode.or((!self.allow.is_empty() || !self.ask.is_empty()).then_some(NetworkMode::Policy))
    }
}

/// The table `[limits]`: resource limits of the sandbox.
#[derive(Debug, Clone, Default, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsTable {
    /// Memory of all processes together, without swap.
    pub memory: Option<ByteSize>,
    /// Memory above which the kernel slows programs down and reclaims memory.
    pub memory_high: Option<ByteSize>,
    /// Swap of all processes together. Default: none.
    pub swap: Option<ByteSize>,
    /// Huge pages of all processes together, for each page size: "2MB", "1GB".
    #[schemars(with = "BTreeMap<String, ByteSize>")]
    pub hugetlb: BTreeMap<HugePageSize, ByteSize>,
    /// Bytes that programs can write to the workspace and the home directory.
    pub disk: Option<ByteSize>,
    /// Number of files, directories and links in the workspace and the home directory.
    #[schemars(range(min = 64))]
    pub inodes: Option<u32>,
    /// The largest file. Default: the disk limit.
    pub fsize: Option<ByteSize>,
    /// CPU time, in cores: 1.0 is 100 percent of one core.
    pub cpus: Option<CpuCount>,
    /// CPU time that can be accumulated and used in one burst above the rate of `cpus`.
    pub cpu_burst: Option<TimeSpan>,
    /// The weight of the sandbox when CPUs are busy. The default weight of a cgroup is 100.
    #[schemars(range(min = 1, max = 10000))]
    pub cpu_weight: Option<u32>,
    /// Whether programs run only on otherwise idle CPUs.
    pub cpu_idle: Option<bool>,
    /// The CPUs that programs can run on.
    pub cpuset_cpus: Option<CpusetList>,
    /// The memory nodes that programs can allocate memory from.
    pub cpuset_mems: Option<CpusetList>,
    /// Read and write rates of each disk, per second.
    #[schemars(with = "BTreeMap<String, DiskRates>")]
    pub io: BTreeMap<DiskName, DiskRates>,
    /// The weight of the sandbox when a disk is busy. The default weight of a cgroup is 100.
    #[schemars(range(min = 1, max = 10000))]
    pub io_weight: Option<u32>,
    /// Number of processes and threads together.
    #[schemars(range(min = 1))]
    pub pids: Option<u32>,
    /// Open files of one process (the hard limit).
    #[schemars(range(min = 64))]
    pub nofile: Option<u32>,
    /// Wall-clock time of a run.
    pub timeout: Option<TimeSpan>,
    /// What to do with a session after `timeout`. Programs outside a session are killed.
    pub at_timeout: Option<TimeoutAction>,
    /// CPU time of all processes together.
    pub cpu_time: Option<TimeSpan>,
    /// Wall-clock time without a command on the bridge.
    pub idle: Option<TimeSpan>,
    /// Wall-clock time without a turn after which the agent's program is ended until the next turn.
    pub agent_idle: Option<TimeSpan>,
    /// Wall-clock time of each of install.sh and startup.sh of an agent's folder.
    pub script: Option<TimeSpan>,
}

/// The table `[protect]`: paths of the workspace that the agent cannot change.
#[derive(Debug, Clone, Default, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ProtectTable {
    /// Whether .git/config is read-only (default: true). When false, `git config` and `git remote add` work
    /// in the sandbox.
    pub git_config: Option<bool>,
    /// Additional paths of the workspace to make read-only.
    pub paths: Vec<WorkspacePattern>,
    /// What to do about protected names that do not exist yet.
    pub missing: Option<MissingPathAction>,
}

/// The table `[protections]`: what to do when the host does not support a protection.
#[derive(Debug, Clone, Default, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ProtectionsTable {
    /// Protections without which the sandbox does not start.
    pub require: Vec<Protection>,
    /// Protections without which the sandbox starts and is reported as degraded.
    pub prefer: Vec<Protection>,
    /// Whether a start says nothing on standard error about limits that no cgroup holds.
    pub quiet: Option<bool>,
}

impl ProtectionsTable {
    /// The strengths that the lists set. A protection that is in a list by its own name has that strength, whatever group
    /// with it the other list contains.
    pub(super) fn strengths(&self) -> impl Iterator<Item = (Protection, ProtectionStrength)> {
        let lists =
            [(&self.require, ProtectionStrength::Require), (&self.prefer, ProtectionStrength::Prefer)];
        let set = |(list, strength): (&Vec<Protection>, ProtectionStrength)| {
            let members = list.iter().flat_map(move |named| {
                let names_itself = move |one: &&Protection| {
                    *one == named || !(self.require.contains(one) || self.prefer.contains(one))
                };
                named.members().iter().filter(names_itself)
            });
            members.map(|one| (*one, strength)).collect::<Vec<_>>()
        };
        lists.map(set).into_iter().flatten()
    }
}

/// The table `[api]`: access to the model API.
#[derive(Debug, Clone, Default, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ApiTable {
    /// A unix socket of the host that connects to the model API.
    pub socket: Option<HostPath>,
    /// The URL of the model API. Saggar adds the key to requests outside the sandbox.
    pub upstream: Option<ApiUpstream>,
    /// The file of the host that holds the key.
    pub key_file: Option<UserPath>,
    /// The header field that carries the key. Default: "x-api-key".
    pub header: Option<KeyHeader>,
    /// Certificates (PEM) to verify the upstream with, in place of those that this host trusts.
    pub ca_file: Option<HostPath>,
}

/// The table `[bridge]`: the sockets of the bridge, and what it retains.
#[derive(Debug, Clone, Default, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BridgeTable {
    /// The path of the bridge socket.
    pub socket: Option<SocketPathTemplate>,
    /// The path of the control socket.
    pub control: Option<SocketPathTemplate>,
    /// Whether these sockets, and that of the model API, may be in a directory that programs in the sandbox
    /// can reach.
    pub allow_reachable: Option<bool>,
    /// The directory in which an annotation of a container may name its bridge socket.
    pub directory: Option<HostPath>,
    /// Number of message uuids to remember in each direction, to drop echoes and duplicates.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub remembered: Option<u32>,
    /// Bytes of events that a session retains for clients that reconnect; at least 1M.
    pub spool: Option<ByteSize>,
}

/// The table `[mailbox]`: the mailbox of a run.
#[derive(Debug, Clone, Default, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MailboxTable {
    /// The number of the run whose mailbox the sandbox uses.
    pub run: Option<RunNumber>,
    /// The name of the sandbox in the run: the sender of its messages.
    pub name: Option<MailboxName>,
    /// The directory of all runs. Default: "~/.agentpair".
    pub root: Option<UserPath>,
    /// The repository that the run belongs to. Default: the workspace, or the agent's folder.
    pub repo: Option<UserPath>,
    /// Whether the agent gets the mailbox as an MCP server. Default: true.
    pub register: Option<bool>,
}

/// The table `[mcp]`: access of MCP clients outside to sessions.
#[derive(Debug, Clone, Default, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct McpTable {
    /// The sessions that `saggar mcp control` serves: names, or beginnings of names with a final "*".
    pub sessions: Vec<SessionPattern>,
}

/// The table `[permissions]`: automatic answers to the agent's permission requests.
#[derive(Debug, Clone, Default, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PermissionsTable {
    /// Tool calls to allow without asking.
    pub allow: Vec<PermissionRule>,
    /// Tool calls to deny without asking. A denial takes precedence over every other rule.
    pub deny: Vec<PermissionRule>,
    /// Tool calls to ask about, even if they are allowed.
    pub ask: Vec<PermissionRule>,
    /// Time to wait for an answer. The call is denied afterwards.
    pub timeout: Option<TimeSpan>,
    /// The permission modes that a client may set.
    pub modes: Option<Vec<PermissionMode>>,
}

/// The table `[sandbox]`: user and group ids of the programs, and the place of cgroups.
#[derive(Debug, Clone, Default, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SandboxTable {
    /// The range of host ids for sandboxes that root starts.
    pub id_range: Option<IdRange>,
    /// The user id in the sandbox. Default: 1000 when root starts it, else the caller's.
    #[schemars(range(min = 1, max = 65535))]
    pub uid: Option<u32>,
    /// The group id in the sandbox. Default: 1000 when root starts it, else the caller's.
    #[schemars(range(min = 1, max = 65535))]
    pub gid: Option<u32>,
    /// The cgroup at the root of each hierarchy that contains the cgroups of root's sandboxes.
    pub cgroup_parent: Option<CgroupName>,
    /// Who makes the cgroups of sandboxes that root starts.
    pub cgroup_driver: Option<SandboxCgroupDriver>,
    /// Whether `saggar agent` keeps a session that was not named, also if its agent has changed nothing. Default: false.
    pub keep_session: Option<bool>,
}

/// Deserializes the whole file as one table. A fault has the path of its key.
pub(super) fn root_table<'de, D: Deserializer<'de>>(
    reader: D,
) -> Result<PolicyDocument, serde_path_to_error::Error<D::Error>> {
    let mut track = serde_path_to_error::Track::new();
    table(serde_path_to_error::Deserializer::new(reader, &mut track))
        .map_err(|error| serde_path_to_error::Error::new(track.path(), error))
}

/// Deserializes a table from a map only. A derived `Deserialize` also accepts a sequence, with the values
/// of the fields in declaration order: `limits = ["4G"]` would then set the memory limit without naming its
/// key.
pub(super) fn table<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    struct Table<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Table<T> {
        type Value = T;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a table")
        }
        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
            T::deserialize(MapAccessDeserializer::new(map))
        }
    }
    from.deserialize_map(Table(PhantomData))
}
