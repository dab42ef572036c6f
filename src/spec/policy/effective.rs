//! The policy that holds: every value with the layer that set it.

use super::environment;
use super::layer::{Layer, Setting};
use super::names::{Adapter, EnvName, Missing, Network, Profile, Protection, Strength};
use super::paths::{Bind, Home, HostPath, Template, WorkspacePath};
use super::program::{AgentCommand, IdRange};
use super::units::{Cpus, Size, TimeSpan};
use std::collections::BTreeMap;

/// The policy that holds.
#[derive(Debug, Clone, PartialEq)]
pub struct Effective {
    /// How the walls are built.
    pub profile: Setting<Profile>,
    /// The agent's program and its arguments, if a layer chose one.
    pub agent_cmd: Option<Setting<AgentCommand>>,
    /// What the agent speaks, if a layer said so.
    pub adapter: Option<Setting<Adapter>>,
    /// What of the host's files stands inside.
    pub files: Files,
    /// Which variables the program gets; see [`super::environment()`].
    pub env: Env,
    /// Which network the sandbox sees.
    pub network: Setting<Network>,
    /// How much of the machine the sandbox may use.
    pub limits: Limits,
    /// What in the workspace the agent cannot change.
    pub protect: Protect,
    /// For each protection, what its lack does to the start.
    pub protections: BTreeMap<Protection, Setting<Strength>>,
    /// A unix socket of the host that leads to the model API.
    pub api_socket: Option<Setting<HostPath>>,
    /// The path of the bridge socket, when not the default.
    pub bridge_socket: Option<Setting<Template>>,
    /// The path of the control socket, when not the default.
    pub control_socket: Option<Setting<Template>>,
    /// Who the program is.
    pub ids: Ids,
    /// Whether a workspace may be the home directory or an ancestor of it.
    pub allow_home: Setting<bool>,
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

/// How much of the machine the sandbox may use.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Memory of all processes together, without swap.
    pub memory: Setting<Size>,
    /// What may be written to disk.
    pub disk: Setting<Size>,
    /// The largest file, if a layer named it; see [`Effective::fsize`].
    pub fsize: Option<Setting<Size>>,
    /// CPU time.
    pub cpus: Setting<Cpus>,
    /// Processes and threads together.
    pub pids: Setting<u32>,
    /// The hard limit on open files of one process; see [`Limits::nofile_soft`].
    pub nofile: Setting<u32>,
    /// Wall-clock time of a run; none by default.
    pub timeout: Option<Setting<TimeSpan>>,
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

impl Limits {
    /// The soft limit that programs start with: some of them walk all descriptors up to it.
    const NOFILE_SOFT: u32 = 1024;

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
            files: Files { binds: Vec::new(), home: built_in(home), tmp_size: None, hide: Vec::new() },
            env: Env { rules: environment::built_in().map(pass).collect(), deny: BTreeMap::new() },
            network: built_in(Network::None),
            limits: Limits {
                memory: built_in(Size::mebibytes(2048)),
                disk: built_in(Size::mebibytes(1024)),
                fsize: None,
                cpus: built_in(Cpus::ONE),
                pids: built_in(512),
                nofile: built_in(65536),
                timeout: None,
            },
            protect: Protect {
                git_config: built_in(true),
                paths: Vec::new(),
                missing: built_in(Missing::None),
            },
            protections: Protection::ALL.iter().map(strength).collect(),
            api_socket: None,
            bridge_socket: None,
            control_socket: None,
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
