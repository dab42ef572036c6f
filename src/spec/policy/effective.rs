//! The policy that holds: every value with the layer that set it.

use super::api::{KeyFile, KeyHeader, Upstream};
use super::environment;
use super::hosts::{HostRule, Rules};
use super::layer::{Layer, Setting};
use super::names::{Adapter, AtTimeout, EnvName, Missing, Network, Part, Profile, Protection, Strength};
use super::paths::{Bind, BindSpec, Home, HostPath, Template, WorkspacePath};
use super::permission::{Modes, Rule};
use super::program::{AgentCommand, IdRange};
use super::publish::Publish;
use super::resources::{Disk, NumberSet, PageSize};
use super::units::{Cpus, Size, TimeSpan};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;

/// The policy that holds.
#[derive(Debug, Clone, PartialEq)]
pub struct Effective {
    /// How the walls are built.
    pub profile: Setting<Profile>,
    /// The agent's program and its arguments, if a layer chose one.
    pub agent_cmd: Option<Setting<AgentCommand>>,
    /// What the agent speaks, if a layer said so.
    pub adapter: Option<Setting<Adapter>>,
    /// What no later layer can widen.
    pub locked: Vec<Lock>,
    /// What of the host's files stands inside.
    pub files: Files,
    /// Which variables the program gets; see [`super::environment()`].
    pub env: Env,
    /// Which network the sandbox sees.
    pub network: Setting<Network>,
    /// Which hosts it reaches, where that goes by policy.
    pub hosts: Hosts,
    /// Ports of the host that lead to servers inside.
    pub publish: Vec<Setting<Publish>>,
    /// Unix sockets of the host that can be connected to, each destination once.
    pub sockets: Vec<Setting<BindSpec>>,
    /// How much of the machine the sandbox may use.
    pub limits: Limits,
    /// What in the workspace the agent cannot change.
    pub protect: Protect,
    /// For each protection, what its lack does to the start.
    pub protections: BTreeMap<Protection, Setting<Strength>>,
    /// A unix socket of the host that leads to the model API.
    pub api_socket: Option<Setting<HostPath>>,
    /// Where requests to the model API go, with a key that the sandbox never sees.
    pub api: Api,
    /// The path of the bridge socket, when not the default.
    pub bridge_socket: Option<Setting<Template>>,
    /// The path of the control socket, when not the default.
    pub control_socket: Option<Setting<Template>>,
    /// Whether sockets may lie in a directory that programs inside reach.
    pub allow_reachable: Setting<bool>,
    /// The directory in which an annotation of a container may name its bridge socket.
    pub bridge_directory: Option<Setting<HostPath>>,
    /// How many uuids the bridge remembers, each way.
    pub remembered: Setting<u32>,
    /// How many bytes of events a session keeps.
    pub spool: Setting<Size>,
    /// What is said to the agent's questions.
    pub permissions: Permissions,
    /// Who the program is.
    pub ids: Ids,
    /// Whether a workspace may be the home directory or an ancestor of it.
    pub allow_home: Setting<bool>,
}

/// A part of the policy that later layers can tighten and not widen.
#[derive(Debug, Clone, PartialEq)]
pub struct Lock {
    /// Which part.
    pub part: Part,
    /// Who locks it.
    pub layer: Layer,
    /// What held then: more than that nobody gets.
    pub bounds: Arc<Effective>,
}

/// What of the host's files stands inside.
#[derive(Debug, Clone, PartialEq)]
pub struct Files {
    /// Places of the host, each destination once.
    pub binds: Vec<Setting<Bind>>,
    /// The home directory.
    pub home: Setting<Home>,
    /// The size of /tmp, if a layer named it.
    pub tmp_size: Option<Setting<Size>>,
    /// Paths of the workspace that cannot be read.
    pub hide: Vec<Setting<WorkspacePath>>,
}

/// Which variables the program gets.
#[derive(Debug, Clone, PartialEq)]
pub struct Env {
    /// What happens to each name that a layer spoke of.
    pub rules: BTreeMap<EnvName, Setting<EnvRule>>,
    /// Names that never get in, and the layer that first said so.
    pub deny: BTreeMap<EnvName, Layer>,
}

/// Where the value of a variable comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnvRule {
    /// From the caller's environment.
    Pass,
    /// From the policy.
    Set(String),
}

/// Where requests to the model API go. A key belongs to its upstream: who names another upstream names its key too.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Api {
    /// Where they go, if a layer named it.
    pub upstream: Option<Setting<Upstream>>,
    /// The file with the key.
    pub key_file: Option<Setting<KeyFile>>,
    /// The header field of the key.
    pub header: Option<Setting<KeyHeader>>,
    /// What the upstream's certificate is held to, if not to what this host trusts.
    pub ca_file: Option<Setting<HostPath>>,
}

/// Which hosts the sandbox reaches.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Hosts {
    /// What can be reached.
    pub allow: Vec<Setting<HostRule>>,
    /// What cannot, whatever is allowed.
    pub deny: Vec<Setting<HostRule>>,
    /// What can be reached once somebody has said so.
    pub ask: Vec<Setting<HostRule>>,
}

/// How much of the machine the sandbox may use.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Memory of all processes together, without swap.
    pub memory: Setting<Size>,
    /// Memory above which programs are slowed down, if a layer named it.
    pub memory_high: Option<Setting<Size>>,
    /// Swap of all processes together; see [`Limits::swap_or_none`].
    pub swap: Option<Setting<Size>>,
    /// Huge pages of all processes together, for each size of a page that a layer named.
    pub hugetlb: BTreeMap<PageSize, Setting<Size>>,
    /// What may be written to the workspace and the home directory.
    pub disk: Setting<Size>,
    /// Files, directories and links in the workspace and the home directory.
    pub inodes: Setting<u32>,
    /// The largest file, if a layer named it; see [`Effective::fsize`].
    pub fsize: Option<Setting<Size>>,
    /// CPU time.
    pub cpus: Setting<Cpus>,
    /// CPU time that may be saved up, if a layer named it.
    pub cpu_burst: Option<Setting<TimeSpan>>,
    /// The share of CPU time, if a layer named it; see [`Limits::WEIGHT`].
    pub cpu_weight: Option<Setting<u32>>,
    /// Whether the programs run only when no other wants the CPU, if a layer said so.
    pub cpu_idle: Option<Setting<bool>>,
    /// The CPUs, if a layer named them; else those of the caller.
    pub cpuset_cpus: Option<Setting<NumberSet>>,
    /// The memory nodes, if a layer named them; else those of the caller.
    pub cpuset_mems: Option<Setting<NumberSet>>,
    /// Rates of each disk that a layer named.
    pub io: BTreeMap<Disk, HeldRates>,
    /// The share of a disk, if a layer named it; see [`Limits::WEIGHT`].
    pub io_weight: Option<Setting<u32>>,
    /// Processes and threads together.
    pub pids: Setting<u32>,
    /// The hard limit on open files of one process; see [`Limits::nofile_soft`].
    pub nofile: Setting<u32>,
    /// Wall-clock time of a run; none by default.
    pub timeout: Option<Setting<TimeSpan>>,
    /// What becomes of a session after it.
    pub at_timeout: Setting<AtTimeout>,
    /// Processor time of all processes together; none by default.
    pub cpu_time: Option<Setting<TimeSpan>>,
    /// Wall-clock time without a command on the bridge; none by default.
    pub idle: Option<Setting<TimeSpan>>,
    /// Wall-clock time of each script of an agent's folder (KC-28).
    pub script: Setting<TimeSpan>,
}

/// What may be read from and written to one disk in a second: what no layer named has no limit.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HeldRates {
    /// Bytes read in a second.
    pub read_bps: Option<Setting<Size>>,
    /// Bytes written in a second.
    pub write_bps: Option<Setting<Size>>,
    /// Reads in a second.
    pub read_iops: Option<Setting<u32>>,
    /// Writes in a second.
    pub write_iops: Option<Setting<u32>>,
}

/// What in the workspace the agent cannot change.
#[derive(Debug, Clone, PartialEq)]
pub struct Protect {
    /// Whether `.git/config` is read-only.
    pub git_config: Setting<bool>,
    /// More read-only paths.
    pub paths: Vec<Setting<WorkspacePath>>,
    /// What happens for protected names that do not exist yet.
    pub missing: Setting<Missing>,
}

/// What is said to the agent's questions.
#[derive(Debug, Clone, PartialEq)]
pub struct Permissions {
    /// What is allowed without asking.
    pub allow: Vec<Setting<Rule>>,
    /// What is denied without asking.
    pub deny: Vec<Setting<Rule>>,
    /// What is asked about, whatever is allowed.
    pub ask: Vec<Setting<Rule>>,
    /// How long an answer is waited for.
    pub timeout: Setting<TimeSpan>,
    /// The modes that a server may set, if a layer named them.
    pub modes: Option<Setting<Modes>>,
}

impl Permissions {
    /// What holds when no layer says anything: all is asked. A person who is there reads a question in ten
    /// minutes, and one who has gone does not hold the agent's only turn for longer; that is before servers
    /// give a session up as idle.
    pub fn built_in() -> Self {
        let timeout = Setting { value: TimeSpan::minutes(10), layer: Layer::BuiltIn };
        Permissions { allow: Vec::new(), deny: Vec::new(), ask: Vec::new(), timeout, modes: None }
    }
}

impl Hosts {
    /// The rules without their layers.
    pub fn rules(&self) -> Rules {
        let values =
            |settings: &[Setting<HostRule>]| settings.iter().map(|rule| rule.value.clone()).collect();
        Rules { allow: values(&self.allow), deny: values(&self.deny), ask: values(&self.ask) }
    }
}

/// Who the program is.
#[derive(Debug, Clone, PartialEq)]
pub struct Ids {
    /// The host ids that sandboxes started by root are mapped to.
    pub range: Setting<IdRange>,
    /// The user id inside, if a layer named it.
    pub uid: Option<Setting<u32>>,
    /// The group id inside, if a layer named it.
    pub gid: Option<Setting<u32>>,
}

impl HeldRates {
    /// Each rate that a layer named: its name in a policy, its value as text, its layer.
    pub fn rows(&self) -> impl Iterator<Item = (&'static str, String, &Layer)> {
        fn row<'a, T: Display>(
            name: &'static str,
            rate: &'a Option<Setting<T>>,
        ) -> Option<(&'static str, String, &'a Layer)> {
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

impl Limits {
    /// The soft limit that programs start with: some of them walk all descriptors up to it.
    const NOFILE_SOFT: u32 = 1024;
    /// The weight of a cgroup that nobody gave another (Documentation/admin-guide/cgroup-v2.rst, "Weights").
    pub const WEIGHT: u32 = 100;

    /// The limit of swap: none may be used unless a layer said otherwise.
    pub fn swap_or_none(&self) -> Setting<Size> {
        let none = Setting { value: Size::mebibytes(0), layer: Layer::BuiltIn };
        self.swap.clone().unwrap_or(none)
    }

    /// The soft limit on open files of one process.
    pub fn nofile_soft(&self) -> u32 {
        self.nofile.value.min(Self::NOFILE_SOFT)
    }
}

impl Effective {
    /// What holds when no layer says anything. `home` is the caller's: `tmp` for `wrap`, `session` for
    /// `agent` (DECISIONS 24).
    pub fn built_in(home: Home) -> Effective {
        fn built_in<T>(value: T) -> Setting<T> {
            Setting { value, layer: Layer::BuiltIn }
        }
        let pass = |name| (name, built_in(EnvRule::Pass));
        let strength = |protection: &Protection| (*protection, built_in(protection.default_strength()));
        Effective {
            profile: built_in(Profile::Strict),
            agent_cmd: None,
            adapter: None,
            locked: Vec::new(),
            files: Files { binds: Vec::new(), home: built_in(home), tmp_size: None, hide: Vec::new() },
            env: Env { rules: environment::built_in().map(pass).collect(), deny: BTreeMap::new() },
            network: built_in(Network::None),
            hosts: Hosts::default(),
            publish: Vec::new(),
            sockets: Vec::new(),
            limits: Limits {
                memory: built_in(Size::mebibytes(2048)),
                memory_high: None,
                swap: None,
                hugetlb: BTreeMap::new(),
                disk: built_in(Size::mebibytes(1024)),
                inodes: built_in(262_144),
                fsize: None,
                cpus: built_in(Cpus::ONE),
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
                at_timeout: built_in(AtTimeout::Pause),
                cpu_time: None,
                idle: None,
                script: built_in(TimeSpan::minutes(2)),
            },
            protect: Protect {
                git_config: built_in(true),
                paths: Vec::new(),
                missing: built_in(Missing::None),
            },
            protections: Protection::ALL.iter().map(strength).collect(),
            api_socket: None,
            api: Api::default(),
            bridge_socket: None,
            control_socket: None,
            allow_reachable: built_in(false),
            bridge_directory: None,
            remembered: built_in(2000),
            spool: built_in(Size::mebibytes(64)),
            permissions: Permissions::built_in(),
            ids: Ids { range: built_in(IdRange::DEFAULT), uid: None, gid: None },
            allow_home: built_in(false),
        }
    }

    /// The largest file (RLIMIT_FSIZE): the disk limit, unless a layer named another.
    pub fn fsize(&self) -> Setting<Size> {
        self.within_disk(self.limits.fsize.as_ref())
    }

    /// The size of /tmp and of a home in memory: the disk limit, unless a layer named another.
    pub fn tmp_size(&self) -> Setting<Size> {
        self.within_disk(self.files.tmp_size.as_ref())
    }

    /// The layer that locks this part, if one does.
    pub fn locked_by(&self, part: Part) -> Option<&Layer> {
        self.locked.iter().find(|lock| lock.part == part).map(|lock| &lock.layer)
    }

    /// What the lack of this protection does to the start.
    pub fn strength(&self, protection: Protection) -> Strength {
        self.protections.get(&protection).map_or(protection.default_strength(), |setting| setting.value)
    }

    /// A folder's value was held against the disk limit of its time; a later layer may have lowered that
    /// limit, and then the folder's word must not stand above it.
    fn within_disk(&self, own: Option<&Setting<Size>>) -> Setting<Size> {
        let disk = &self.limits.disk;
        match own {
            Some(own) if !own.layer.is_folder() || own.value <= disk.value => own.clone(),
            _ => disk.clone(),
        }
    }
}
