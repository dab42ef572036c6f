//! The keys of a policy file. Every key may be absent; every key that is present is known.
//!
//! The comments on the fields are the descriptions in the JSON Schema. A new key does not compile until
//! `merge` takes it and `tighten` rules on it, since both name every field.

use super::api::{KeyFile, KeyHeader, Upstream};
use super::hosts::HostRule;
use super::names::{Adapter, AtTimeout, EnvName, Missing, Network, Part, Profile, Protection};
use super::paths::{BindSpec, Home, HostPath, Template, WorkspacePath};
use super::permission::{PermissionMode, Rule};
use super::program::{AgentCommand, IdRange};
use super::publish::Publish;
use super::resources::{Disk, NumberSet, PageSize, Rates};
use super::units::{Cpus, Size, TimeSpan};
use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

/// What one layer says.
#[derive(Debug, Clone, Default, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Document {
    /// How the walls are built.
    pub profile: Option<Profile>,
    /// The agent's program and its arguments.
    pub agent_cmd: Option<AgentCommand>,
    /// What the agent speaks.
    pub adapter: Option<Adapter>,
    /// Parts of the policy that no later layer can widen, the command line neither.
    pub locked: Vec<Part>,
    /// What of the host's files stands inside.
    #[serde(deserialize_with = "table")]
    pub files: Files,
    /// Which variables the program gets.
    #[serde(deserialize_with = "table")]
    pub env: Env,
    /// What can be reached.
    #[serde(deserialize_with = "table")]
    pub network: NetworkTable,
    /// How much of the machine the sandbox may use. A limit that is named is required.
    #[serde(deserialize_with = "table")]
    pub limits: Limits,
    /// What in the workspace the agent cannot change.
    #[serde(deserialize_with = "table")]
    pub protect: Protect,
    /// What happens when the host cannot give a protection.
    #[serde(deserialize_with = "table")]
    pub protections: Protections,
    /// The way to the model API.
    #[serde(deserialize_with = "table")]
    pub api: Api,
    /// Where the bridge listens.
    #[serde(deserialize_with = "table")]
    pub bridge: Bridge,
    /// What is said to the agent's questions.
    #[serde(deserialize_with = "table")]
    pub permissions: Permissions,
    /// Who the program is.
    #[serde(deserialize_with = "table")]
    pub sandbox: Sandbox,
}

/// `[files]`
#[derive(Debug, Clone, Default, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Files {
    /// Host paths that can be read inside: "PATH" or "PATH:DEST".
    pub ro: Vec<BindSpec>,
    /// Host paths that can be read and written inside: "PATH" or "PATH:DEST".
    pub rw: Vec<BindSpec>,
    /// The home directory inside: "tmp", "session", or a directory of the host.
    pub home: Option<Home>,
    /// The size of /tmp, and of a home in memory. Default: the disk limit.
    pub tmp_size: Option<Size>,
    /// Paths of the workspace that cannot be read inside.
    pub hide: Vec<WorkspacePath>,
}

/// `[env]`
#[derive(Debug, Clone, Default, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Env {
    /// Variables taken from the caller, besides the built-in list.
    pub pass: Vec<EnvName>,
    /// Variables and their values.
    #[schemars(with = "BTreeMap<String, String>")]
    pub set: BTreeMap<EnvName, String>,
    /// Variables that never get in, whoever passes or sets them.
    pub deny: Vec<EnvName>,
}

/// `[network]`
#[derive(Debug, Clone, Default, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NetworkTable {
    /// Which network the sandbox sees. Default: "policy" where hosts are allowed, else "none".
    pub mode: Option<Network>,
    /// Hosts that can be reached: "api.example.com", "*.example.com:443", "10.0.0.0/8:5432".
    pub allow: Vec<HostRule>,
    /// Hosts that cannot be reached, whatever is allowed.
    pub deny: Vec<HostRule>,
    /// Hosts that somebody is asked about when a program calls them, unless they are allowed.
    pub ask: Vec<HostRule>,
    /// Ports of the host that lead to servers inside: "8080:3000", "0.0.0.0:8080:3000".
    pub publish: Vec<Publish>,
    /// Unix sockets of the host that can be connected to inside: "PATH" or "PATH:DEST".
    pub sockets: Vec<BindSpec>,
}

impl NetworkTable {
    /// The mode that it asks for: who names hosts means them to be reached, and no others.
    pub(super) fn meant_mode(&self) -> Option<Network> {
        self.mode.or((!self.allow.is_empty() || !self.ask.is_empty()).then_some(Network::Policy))
    }
}

/// `[limits]`
#[derive(Debug, Clone, Default, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Memory of all processes together, without swap.
    pub memory: Option<Size>,
    /// Memory above which programs are slowed down, so that the kernel can take some back.
    pub memory_high: Option<Size>,
    /// Swap of all processes together. Default: none.
    pub swap: Option<Size>,
    /// Huge pages of all processes together, for each size of a page: "2MB", "1GB".
    #[schemars(with = "BTreeMap<String, Size>")]
    pub hugetlb: BTreeMap<PageSize, Size>,
    /// What may be written to the workspace and the home directory.
    pub disk: Option<Size>,
    /// Files, directories and links in the workspace and the home directory.
    #[schemars(range(min = 64))]
    pub inodes: Option<u32>,
    /// The largest file. Default: the disk limit.
    pub fsize: Option<Size>,
    /// CPU time, in cores: 1.0 is 100 percent of one.
    pub cpus: Option<Cpus>,
    /// CPU time that may be saved up and used at once, above the rate of `cpus`.
    pub cpu_burst: Option<TimeSpan>,
    /// The share of CPU time where it is scarce; every other cgroup has 100.
    #[schemars(range(min = 1, max = 10000))]
    pub cpu_weight: Option<u32>,
    /// Whether the programs run only when no other wants the CPU.
    pub cpu_idle: Option<bool>,
    /// The CPUs that the programs may run on.
    pub cpuset_cpus: Option<NumberSet>,
    /// The memory nodes that the programs may have memory of.
    pub cpuset_mems: Option<NumberSet>,
    /// What may be read from and written to each disk in a second.
    #[schemars(with = "BTreeMap<String, Rates>")]
    pub io: BTreeMap<Disk, Rates>,
    /// The share of a disk where it is busy; every other cgroup has 100.
    #[schemars(range(min = 1, max = 10000))]
    pub io_weight: Option<u32>,
    /// Processes and threads together.
    #[schemars(range(min = 1))]
    pub pids: Option<u32>,
    /// Open files of one process (the hard limit).
    #[schemars(range(min = 64))]
    pub nofile: Option<u32>,
    /// Wall-clock time of a run.
    pub timeout: Option<TimeSpan>,
    /// What becomes of a session after that time; what is no session is killed.
    pub at_timeout: Option<AtTimeout>,
    /// Processor time of all processes together.
    pub cpu_time: Option<TimeSpan>,
    /// Wall-clock time without a command on the bridge.
    pub idle: Option<TimeSpan>,
    /// Wall-clock time of each of install.sh and startup.sh of an agent's folder.
    pub script: Option<TimeSpan>,
}

/// `[protect]`
#[derive(Debug, Clone, Default, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Protect {
    /// Whether .git/config is read-only (default: true). When false, `git config` and `git remote add` work inside.
    pub git_config: Option<bool>,
    /// More paths of the workspace that are read-only.
    pub paths: Vec<WorkspacePath>,
    /// What happens for protected names that do not exist yet.
    pub missing: Option<Missing>,
}

/// `[protections]`
#[derive(Debug, Clone, Default, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Protections {
    /// Without these the start is refused.
    pub require: Vec<Protection>,
    /// Without these the sandbox starts, and says that it is degraded.
    pub prefer: Vec<Protection>,
}

/// `[api]`
#[derive(Debug, Clone, Default, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Api {
    /// A unix socket of the host that leads to the model API.
    pub socket: Option<HostPath>,
    /// Where requests go, with a key that the sandbox never sees.
    pub upstream: Option<Upstream>,
    /// The file of the host with that key.
    pub key_file: Option<KeyFile>,
    /// The header field that it is sent in. Default: "x-api-key".
    pub header: Option<KeyHeader>,
    /// Certificates that the upstream is held to, in place of those that this host trusts (PEM).
    pub ca_file: Option<HostPath>,
}

/// `[bridge]`
#[derive(Debug, Clone, Default, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Bridge {
    /// The path of the bridge socket.
    pub socket: Option<Template>,
    /// The path of the control socket.
    pub control: Option<Template>,
    /// Whether these sockets, and that of the model API, may lie in a directory that programs inside reach.
    pub allow_reachable: Option<bool>,
    /// The directory in which an annotation of a container may name its bridge socket.
    pub directory: Option<HostPath>,
    /// How many uuids are remembered, each way, to drop echoes and repetitions.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub remembered: Option<u32>,
    /// How many bytes of events a session keeps for servers that come back; at least 1M.
    pub spool: Option<Size>,
}

/// `[permissions]`
#[derive(Debug, Clone, Default, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Permissions {
    /// Calls of tools that are allowed without asking.
    pub allow: Vec<Rule>,
    /// Calls of tools that are denied without asking. A denial stands over everything.
    pub deny: Vec<Rule>,
    /// Calls of tools that are asked about, whatever is allowed.
    pub ask: Vec<Rule>,
    /// How long an answer is waited for; then the call is denied.
    pub timeout: Option<TimeSpan>,
    /// The permission modes that a server may bring the agent into.
    pub modes: Option<Vec<PermissionMode>>,
}

/// `[sandbox]`
#[derive(Debug, Clone, Default, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Sandbox {
    /// The host ids that sandboxes started by root are mapped to.
    pub id_range: Option<IdRange>,
    /// The user id inside. Default: 1000 when root starts it, else the caller's.
    #[schemars(range(min = 1, max = 65535))]
    pub uid: Option<u32>,
    /// The group id inside. Default: 1000 when root starts it, else the caller's.
    #[schemars(range(min = 1, max = 65535))]
    pub gid: Option<u32>,
}

/// Reads a table from a table alone. A derived reader takes a list too, as the values of the fields in
/// their order: `limits = ["4G"]` would be a limit on memory that no key names.
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
