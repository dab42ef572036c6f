//! The effective policy: every value with the layer that set it.

use super::api::{ApiUpstream, KeyHeader};
use super::cgroup_name::CgroupName;
use super::environment;
use super::hosts::{HostRule, HostRules};
use super::layer::{PolicyLayer, Setting};
use super::mailbox::{MailboxName, RunNumber};
use super::mcp::SessionPattern;
use super::names::{
    AdapterKind, EnvName, MissingPathAction, NetworkMode, PolicyPart, Protection, ProtectionStrength,
    SandboxCgroupDriver, SandboxProfile, TimeoutAction,
};
use super::paths::{BindMount, BindSpec, HomeSource, HostPath, SocketPathTemplate, UserPath};
use super::permission::{PermissionModes, PermissionRule};
use super::program::{AgentCommand, IdRange};
use super::publish::PublishedPort;
use super::resources::{CpusetList, DiskName, HugePageSize};
use super::units::{ByteSize, CpuCount, TimeSpan};
use super::workspace_pattern::WorkspacePattern;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;

/// The result of merging all layers.
#[derive(Debug, Clone, PartialEq)]
pub struct EffectivePolicy {
    /// How strictly the sandbox confines programs.
    pub profile: Setting<SandboxProfile>,
    /// The agent's program and its arguments, if a layer set them.
    pub agent_cmd: Option<Setting<AgentCommand>>,
    /// The protocol that the agent uses, if a layer set it.
    pub adapter: Option<Setting<AdapterKind>>,
    /// Parts of the policy that no later layer can widen.
    pub locked: Vec<PolicyLock>,
    /// Host files that are visible in the sandbox.
    pub files: FilePolicy,
    /// Environment variables of the program; see [`super::program_environment`].
    pub env: EnvPolicy,
    /// The network mode.
    pub network: Setting<NetworkMode>,
    /// Hosts that programs can reach, in the mode `policy`.
    pub hosts: HostPolicy,
    /// Ports of the host that are forwarded to servers in the sandbox.
    pub publish: Vec<Setting<PublishedPort>>,
    /// Unix sockets of the host that programs can connect to, each destination once.
    pub sockets: Vec<Setting<BindSpec>>,
    /// Resource limits.
    pub limits: LimitPolicy,
    /// Paths of the workspace that the agent cannot change.
    pub protect: ProtectPolicy,
    /// For each protection, what to do when the host does not support it.
    pub protections: BTreeMap<Protection, Setting<ProtectionStrength>>,
    /// Whether a start says nothing on standard error about limits that no cgroup holds.
    pub quiet_degraded: Setting<bool>,
    /// A unix socket of the host that connects to the model API.
    pub api_socket: Option<Setting<HostPath>>,
    /// The upstream of the model API, and the key that the sandbox never sees.
    pub api: ApiPolicy,
    /// The path of the bridge socket, if not the default.
    pub bridge_socket: Option<Setting<SocketPathTemplate>>,
    /// The path of the control socket, if not the default.
    pub control_socket: Option<Setting<SocketPathTemplate>>,
    /// Whether sockets may be in a directory that programs in the sandbox can reach.
    pub allow_reachable: Setting<bool>,
    /// The directory in which an annotation of a container may name its bridge socket.
    pub bridge_directory: Option<Setting<HostPath>>,
    /// Number of uuids that the bridge remembers in each direction.
    pub remembered_uuids: Setting<u32>,
    /// Bytes of events that a session retains.
    pub spool_size: Setting<ByteSize>,
    /// Whether `saggar agent` keeps a session that was not named, whatever it has.
    pub keep_session: Setting<bool>,
    /// The mailbox of a run.
    pub mailbox: MailboxPolicy,
    /// Sessions that an MCP client outside can use.
    pub mcp_sessions: Vec<Setting<SessionPattern>>,
    /// Automatic answers to the agent's permission requests.
    pub permissions: PermissionPolicy,
    /// User and group ids of the programs.
    pub ids: IdPolicy,
    /// Where the cgroups of sandboxes that root starts are.
    pub cgroup: CgroupPolicy,
    /// Whether a workspace may be the home directory or one of its ancestors.
    pub allow_home: Setting<bool>,
}

/// A part of the policy that later layers may tighten but not widen.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyLock {
    /// The locked part.
    pub part: PolicyPart,
    /// The layer that locks it.
    pub layer: PolicyLayer,
    /// The policy at the time of the lock. A later layer is compared with it and may not widen it.
    pub policy_at_lock: Arc<EffectivePolicy>,
}

/// Host files that are visible in the sandbox.
#[derive(Debug, Clone, PartialEq)]
pub struct FilePolicy {
    /// Bind mounts from the host, each destination once.
    pub binds: Vec<Setting<BindMount>>,
    /// The source of the home directory.
    pub home: Setting<HomeSource>,
    /// The size of /tmp, if a layer set it; see [`EffectivePolicy::tmp_size`].
    pub tmp_size: Option<Setting<ByteSize>>,
    /// Paths of the workspace that programs cannot read.
    pub hide: Vec<Setting<WorkspacePattern>>,
}

/// Environment variables of the program.
#[derive(Debug, Clone, PartialEq)]
pub struct EnvPolicy {
    /// The rule for each variable that a layer names.
    pub rules: BTreeMap<EnvName, Setting<EnvRule>>,
    /// Variables that are never set, with the first layer that denied them.
    pub deny: BTreeMap<EnvName, PolicyLayer>,
}

/// The source of a variable's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnvRule {
    /// The caller's environment.
    Pass,
    /// The policy.
    Set(String),
}

/// The upstream of the model API. A key belongs to its upstream: a layer that sets another upstream must
/// set its key too.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ApiPolicy {
    /// The URL of the upstream, if a layer set it.
    pub upstream: Option<Setting<ApiUpstream>>,
    /// The file with the key.
    pub key_file: Option<Setting<UserPath>>,
    /// The header field that carries the key.
    pub header: Option<Setting<KeyHeader>>,
    /// Certificates (PEM) to verify the upstream with; without it, those that this host trusts.
    pub ca_file: Option<Setting<HostPath>>,
}

/// The mailbox of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct MailboxPolicy {
    /// The number of the run; without it the sandbox has no mailbox.
    pub run: Option<Setting<RunNumber>>,
    /// The name of the sandbox in the run.
    pub name: Option<Setting<MailboxName>>,
    /// The directory of all runs, if not the default.
    pub root: Option<Setting<UserPath>>,
    /// The repository of the run, if not the default.
    pub repo: Option<Setting<UserPath>>,
    /// Whether the agent gets the mailbox as an MCP server.
    pub register: Setting<bool>,
}

/// Hosts that programs can reach in the network mode `policy`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HostPolicy {
    /// Hosts that are allowed.
    pub allow: Vec<Setting<HostRule>>,
    /// Hosts that are denied, even if they are allowed.
    pub deny: Vec<Setting<HostRule>>,
    /// Hosts that need consent when a program connects.
    pub ask: Vec<Setting<HostRule>>,
}

/// Resource limits of the sandbox.
#[derive(Debug, Clone, PartialEq)]
pub struct LimitPolicy {
    /// Memory of all processes together, without swap.
    pub memory: Setting<ByteSize>,
    /// Memory above which the kernel slows programs down, if a layer set it.
    pub memory_high: Option<Setting<ByteSize>>,
    /// Swap of all processes together; see [`LimitPolicy::swap_or_none`].
    pub swap: Option<Setting<ByteSize>>,
    /// Huge pages of all processes together, for each page size that a layer set.
    pub hugetlb: BTreeMap<HugePageSize, Setting<ByteSize>>,
    /// Bytes that programs can write to the workspace and the home directory.
    pub disk: Setting<ByteSize>,
    /// Number of files, directories and links in the workspace and the home directory.
    pub inodes: Setting<u32>,
    /// The largest file, if a layer set it; see [`EffectivePolicy::fsize`].
    pub fsize: Option<Setting<ByteSize>>,
    /// CPU time per second, in cores.
    pub cpus: Setting<CpuCount>,
    /// CPU time that can be accumulated for a burst, if a layer set it.
    pub cpu_burst: Option<Setting<TimeSpan>>,
    /// The CPU weight, if a layer set it; else [`LimitPolicy::WEIGHT`].
    pub cpu_weight: Option<Setting<u32>>,
    /// Whether programs run only on otherwise idle CPUs, if a layer set it.
    pub cpu_idle: Option<Setting<bool>>,
    /// The CPUs that programs can run on, if a layer set them; else those of the caller.
    pub cpuset_cpus: Option<Setting<CpusetList>>,
    /// The memory nodes that programs can use, if a layer set them; else those of the caller.
    pub cpuset_mems: Option<Setting<CpusetList>>,
    /// Rates of each disk for which a layer set any.
    pub io: BTreeMap<DiskName, DiskRatePolicy>,
    /// The I/O weight, if a layer set it; else [`LimitPolicy::WEIGHT`].
    pub io_weight: Option<Setting<u32>>,
    /// Number of processes and threads together.
    pub pids: Setting<u32>,
    /// The hard limit on open files of one process; see [`LimitPolicy::nofile_soft`].
    pub nofile: Setting<u32>,
    /// Wall-clock time of a run; unlimited by default.
    pub timeout: Option<Setting<TimeSpan>>,
    /// What to do with a session after `timeout`.
    pub at_timeout: Setting<TimeoutAction>,
    /// CPU time of all processes together; unlimited by default.
    pub cpu_time: Option<Setting<TimeSpan>>,
    /// Wall-clock time without a command on the bridge; unlimited by default.
    pub idle: Option<Setting<TimeSpan>>,
    /// Wall-clock time without a turn after which the agent's program is ended until the next turn; by default
    /// it is never ended.
    pub agent_idle: Option<Setting<TimeSpan>>,
    /// Wall-clock time of each script of an agent's folder (KC-28).
    pub script: Setting<TimeSpan>,
}

/// Read and write rates of one disk, per second. A rate that no layer set is unlimited.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DiskRatePolicy {
    /// Bytes read per second.
    pub read_bps: Option<Setting<ByteSize>>,
    /// Bytes written per second.
    pub write_bps: Option<Setting<ByteSize>>,
    /// Read operations per second.
    pub read_iops: Option<Setting<u32>>,
    /// Write operations per second.
    pub write_iops: Option<Setting<u32>>,
}

/// Paths of the workspace that the agent cannot change.
#[derive(Debug, Clone, PartialEq)]
pub struct ProtectPolicy {
    /// Whether `.git/config` is read-only.
    pub git_config: Setting<bool>,
    /// Additional read-only paths.
    pub paths: Vec<Setting<WorkspacePattern>>,
    /// What to do about protected names that do not exist yet.
    pub missing: Setting<MissingPathAction>,
}

/// Automatic answers to the agent's permission requests.
#[derive(Debug, Clone, PartialEq)]
pub struct PermissionPolicy {
    /// Tool calls that are allowed without asking.
    pub allow: Vec<Setting<PermissionRule>>,
    /// Tool calls that are denied without asking.
    pub deny: Vec<Setting<PermissionRule>>,
    /// Tool calls that need an answer, even if they are allowed.
    pub ask: Vec<Setting<PermissionRule>>,
    /// Time to wait for an answer before the call is denied.
    pub timeout: Setting<TimeSpan>,
    /// The permission modes that a client may set, if a layer named them.
    pub modes: Option<Setting<PermissionModes>>,
}

impl PermissionPolicy {
    /// The built-in policy: every tool call is asked about, with a timeout of ten minutes. A person who is
    /// present answers within that time. After it, an unanswered question no longer blocks the agent's only
    /// turn, and this is before servers abandon a session as idle.
    pub fn built_in() -> Self {
        let timeout = Setting { value: TimeSpan::from_minutes(10), layer: PolicyLayer::BuiltIn };
        PermissionPolicy { allow: Vec::new(), deny: Vec::new(), ask: Vec::new(), timeout, modes: None }
    }
}

impl HostPolicy {
    /// The rules without their layers.
    pub fn rules(&self) -> HostRules {
        let values =
            |settings: &[Setting<HostRule>]| settings.iter().map(|rule| rule.value.clone()).collect();
        HostRules { allow: values(&self.allow), deny: values(&self.deny), ask: values(&self.ask) }
    }
}

/// User and group ids of the programs.
#[derive(Debug, Clone, PartialEq)]
pub struct IdPolicy {
    /// The range of host ids for sandboxes that root starts.
    pub range: Setting<IdRange>,
    /// The user id in the sandbox, if a layer set it.
    pub uid: Option<Setting<u32>>,
    /// The group id in the sandbox, if a layer set it.
    pub gid: Option<Setting<u32>>,
}

/// Where the cgroups of sandboxes that root starts are.
#[derive(Debug, Clone, PartialEq)]
pub struct CgroupPolicy {
    /// The cgroup that has them, at the root of each hierarchy.
    pub parent: Setting<CgroupName>,
    /// Who makes them.
    pub driver: Setting<SandboxCgroupDriver>,
}

impl DiskRatePolicy {
    /// Each rate that a layer set: its key in a policy, its value as text, its layer.
    pub fn named_rates(&self) -> impl Iterator<Item = (&'static str, String, &PolicyLayer)> {
        fn row<'a, T: Display>(
            name: &'static str,
            rate: &'a Option<Setting<T>>,
        ) -> Option<(&'static str, String, &'a PolicyLayer)> {
            rate.as_ref().map(|rate| (name, rate.value.to_string(), &rate.layer))
        }
        let rows = [
            row("read_bps", &self.read_bps),
            row("write_bps", &self.write_bps),
            row("read_iops", &self.read_iops),
            row("write_iops", &self.write_iops),
        ];
        rows.into_iter().flatten()
    }
}

impl LimitPolicy {
    /// The soft limit that programs start with. Some programs iterate over all descriptors up to it.
    const NOFILE_SOFT: u32 = 1024;
    /// The default weight of a cgroup (Documentation/admin-guide/cgroup-v2.rst, "Weights").
    pub(crate) const WEIGHT: u32 = 100;

    /// The swap limit in bytes: 0 unless a layer set another.
    pub(crate) fn swap_or_none(&self) -> Setting<ByteSize> {
        let none = Setting { value: ByteSize::from_mebibytes(0), layer: PolicyLayer::BuiltIn };
        self.swap.clone().unwrap_or(none)
    }

    /// The soft limit on open files of one process: at most `NOFILE_SOFT` (1024).
    pub fn nofile_soft(&self) -> u32 {
        self.nofile.value.min(Self::NOFILE_SOFT)
    }
}

impl EffectivePolicy {
    /// The policy before any layer is merged. The caller chooses `home`: `tmp` for `wrap`, `session` for
    /// `agent` (DECISIONS 24).
    pub fn built_in(home: HomeSource) -> EffectivePolicy {
        fn built_in<T>(value: T) -> Setting<T> {
            Setting { value, layer: PolicyLayer::BuiltIn }
        }
        let pass = |name| (name, built_in(EnvRule::Pass));
        let strength = |protection: &Protection| (*protection, built_in(protection.default_strength()));
        EffectivePolicy {
            profile: built_in(SandboxProfile::Strict),
            agent_cmd: None,
            adapter: None,
            locked: Vec::new(),
            files: FilePolicy { binds: Vec::new(), home: built_in(home), tmp_size: None, hide: Vec::new() },
            env: EnvPolicy {
                rules: environment::default_passed_names().map(pass).collect(),
                deny: BTreeMap::new(),
            },
            network: built_in(NetworkMode::None),
            hosts: HostPolicy::default(),
            publish: Vec::new(),
            sockets: Vec::new(),
            limits: LimitPolicy {
                memory: built_in(ByteSize::from_mebibytes(2048)),
                memory_high: None,
                swap: None,
                hugetlb: BTreeMap::new(),
                disk: built_in(ByteSize::from_mebibytes(1024)),
                inodes: built_in(262_144),
                fsize: None,
                cpus: built_in(CpuCount::ONE),
                cpu_burst: None,
                cpu_weight: None,
                cpu_idle: None,
                cpuset_cpus: None,
                cpuset_mems: None,
                io: BTreeMap::new(),
                io_weight: None,
                pids: built_in(512),
                nofile: built_in(65536),
                timeout: None,
                at_timeout: built_in(TimeoutAction::Pause),
                cpu_time: None,
                idle: None,
                agent_idle: None,
                script: built_in(TimeSpan::from_minutes(2)),
            },
            protect: ProtectPolicy {
                git_config: built_in(true),
                paths: Vec::new(),
                missing: built_in(MissingPathAction::None),
            },
            protections: Protection::ALL.iter().map(strength).collect(),
            quiet_degraded: built_in(false),
            api_socket: None,
            api: ApiPolicy::default(),
            bridge_socket: None,
            control_socket: None,
            allow_reachable: built_in(false),
            bridge_directory: None,
            remembered_uuids: built_in(2000),
            spool_size: built_in(ByteSize::from_mebibytes(64)),
            keep_session: built_in(false),
            mailbox: MailboxPolicy {
                run: None,
                name: None,
                root: None,
                repo: None,
                register: built_in(true),
            },
            mcp_sessions: Vec::new(),
            permissions: PermissionPolicy::built_in(),
            ids: IdPolicy { range: built_in(IdRange::DEFAULT), uid: None, gid: None },
            cgroup: CgroupPolicy {
                parent: Setting::new(CgroupName::default(), &PolicyLayer::BuiltIn),
                driver: built_in(SandboxCgroupDriver::Cgroupfs),
            },
            allow_home: built_in(false),
        }
    }

    /// The largest file (RLIMIT_FSIZE): the disk limit, unless a layer set another.
    pub fn fsize(&self) -> Setting<ByteSize> {
        self.capped_by_disk(self.limits.fsize.as_ref())
    }

    /// The size of /tmp and of a home directory in memory: the disk limit, unless a layer set another.
    pub fn tmp_size(&self) -> Setting<ByteSize> {
        self.capped_by_disk(self.files.tmp_size.as_ref())
    }

    /// The first layer that locks this part, if any.
    pub fn locked_by(&self, part: PolicyPart) -> Option<&PolicyLayer> {
        self.locked.iter().find(|lock| lock.part == part).map(|lock| &lock.layer)
    }

    /// Passes these variables of the caller to the program, on behalf of `layer`. A variable for which an earlier layer has a
    /// rule keeps it, and a denied one stays denied.
    pub fn pass_variables(&mut self, names: impl Iterator<Item = EnvName>, layer: &PolicyLayer) {
        for name in names {
            self.env.rules.entry(name).or_insert_with(|| Setting::new(EnvRule::Pass, layer));
        }
    }

    /// What to do when the host does not support this protection.
    pub fn strength(&self, protection: Protection) -> ProtectionStrength {
        self.protections.get(&protection).map_or(protection.default_strength(), |setting| setting.value)
    }

    /// The setting, or the disk limit if a folder set a higher value. The value of a folder was checked
    /// against the disk limit of its time; a later layer may have lowered that limit.
    fn capped_by_disk(&self, setting: Option<&Setting<ByteSize>>) -> Setting<ByteSize> {
        let disk = &self.limits.disk;
        match setting {
            Some(own) if !own.layer.is_agent_writable() || own.value <= disk.value => own.clone(),
            _ => disk.clone(),
        }
    }
}
