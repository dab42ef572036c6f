//! Turns the spec of an agent's or a wrapped command's sandbox and the facts of the host into the steps of its start.

pub mod disk;
pub mod files;
mod host_network;
pub mod ids;
pub mod landlock;
pub mod owners;
pub mod process_limits;
mod publish;
mod quotas;
pub mod step;

use crate::host::HostFacts;
use crate::plan::ids::UserNamespaceMaps;
use crate::plan::path::{below_root, c_string};
use crate::spec::policy::api::PORT_INSIDE;
pub use crate::spec::policy::hosts::DNS_PORT;
use crate::spec::policy::hosts::HostRules;
use crate::spec::policy::publish::PROXY_PORTS;
use crate::spec::{
    MailboxSpec, ModelApiSpec, MountKind, NetworkSpec, Protection, ProtectionStrength, SandboxIdentity,
    SandboxProfile, SandboxSpec,
};
use process_limits::ProcessLimits;
use saggar_sys::error::{Code, Error, Result};
use saggar_sys::seccomp::FilterProfile;
use std::path::{Path, PathBuf};
use step::{AgentStep, AgentSteps, SandboxService};

/// Everything that [`crate::launch`] needs to start a sandbox, as data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentPlan {
    /// Namespaces, as flags of clone3(2).
    pub namespaces: u64,
    /// The id maps of the user namespace.
    pub maps: UserNamespaceMaps,
    /// Files that the parent opens before the clone; steps refer to them by index.
    pub slots: Vec<SourceSlot>,
    /// The block of ids and the inner ids, when trees are idmapped.
    pub block: Option<BlockIds>,
    /// The steps that pid 1 runs before it serves requests.
    pub steps: AgentSteps,
    /// The domain that [`AgentStep::Landlock`] enters.
    pub landlock: Option<landlock::LandlockPlan>,
    /// The seccomp filter of pid 1.
    pub init_filter: FilterProfile,
    /// The seccomp filter of every program, on top of that.
    pub program_filter: FilterProfile,
    /// Preferred protections that are missing, each with the reason.
    pub degraded: Vec<DegradedProtection>,
    /// What holds the processes in place of limits that the cgroup turned out not to hold.
    pub process_limits: ProcessLimits,
    /// The parts of the network that the relay carries, with a network by policy.
    pub egress: Option<HostRules>,
}

/// A block of ids, and the ids of the programs in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockIds {
    /// Its first id on the host.
    pub base: u32,
    /// User id inside.
    pub uid: u32,
    /// Group id inside.
    pub gid: u32,
    /// The host's user id of the inner user: from the block, or the owner's own where a tree cannot be idmapped.
    pub host_uid: u32,
    /// The host's group id of the inner user.
    pub host_gid: u32,
}

impl BlockIds {
    /// The inner ids shifted into the block.
    pub fn shifted(base: u32, identity: &SandboxIdentity) -> Self {
        let SandboxIdentity { uid, gid, .. } = *identity;
        BlockIds { base, uid, gid, host_uid: base + uid, host_gid: base + gid }
    }

    /// Whether the programs have a host id from outside the block, which a host user may have too.
    pub fn uses_host_ids(&self) -> bool {
        (self.host_uid, self.host_gid) != (self.base + self.uid, self.base + self.gid)
    }
}

/// A file or directory that the policy or the command line names, opened by the parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceSlot {
    /// Its absolute path on the host, without links.
    pub path: PathBuf,
    /// How the parent prepares the tree.
    pub tree: TreeMode,
    /// Whether programs may write to it.
    pub writable: bool,
}

/// How the parent prepares the tree at a named path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreeMode {
    /// Not at all: the child opens the path again and compares.
    None,
    /// A detached, idmapped tree in which the owner is the inner user.
    Mapped,
    /// A detached tree without an id map: its file system does not support idmapped mounts.
    Plain {
        /// The required owner of its root: the inner user has this owner's host ids, so that the tree is the inner
        /// user's.
        owner: Option<(u32, u32)>,
    },
}

impl AgentPlan {
    /// The user and group of the programs on the host, if they are not the caller's.
    pub fn program_ids(&self) -> Option<(u32, u32)> {
        self.block.map(|block| (block.host_uid, block.host_gid))
    }

    /// The namespaces that the clone creates: all except a network namespace that the child creates itself.
    pub(crate) fn clone_flags(&self) -> u64 {
        let own = if self.steps.makes_network() { libc::CLONE_NEWNET } else { 0 };
        self.namespaces & !u64::from(own.cast_unsigned())
    }
}

/// A preferred protection that this sandbox lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DegradedProtection {
    /// Its name.
    pub name: String,
    /// The reason, for messages.
    pub reason: String,
}

/// Builds the plan.
///
/// # Errors
/// [`Code::Unsupported`] when a required protection is not available; [`Code::Invalid`] for a path that cannot be
/// mounted.
pub fn build(spec: &SandboxSpec, host: &HostFacts) -> Result<AgentPlan> {
    publish::check(spec)?;
    let mut degraded = Vec::new();
    let domain = landlock::domain(spec, host);
    check_landlock(spec, host.landlock_abi, &mut degraded)?;
    degraded.extend(shared_root_id(&spec.identity));
    degraded.extend(check_proc(spec, host.landlock_abi)?);
    degraded.extend(host_network::check(spec, host.landlock_abi)?);

    let block = owners::block(spec, host)?;
    let privileged = block.is_some();
    let mut steps = vec![
        AgentStep::AwaitMaps,
        AgentStep::BecomeUser { uid: spec.identity.uid, gid: spec.identity.gid, clear_groups: privileged },
        AgentStep::DieWithParent,
    ];
    if spec.network.has_own_namespace() {
        steps.push(AgentStep::MakeNetwork);
    }
    let mut files = files::AgentFiles::new(host, block.as_ref());
    files.add(spec)?;
    let (file_steps, slots) = files.into_parts();
    steps.extend(file_steps);
    steps.push(AgentStep::ChangeRoot);
    steps.push(AgentStep::SealRoot);
    steps.push(AgentStep::Hostname { name: c_string(&spec.hostname)? });
    steps.extend(spec.rlimits.iter().map(|limit| AgentStep::Rlimit {
        resource: limit.resource,
        soft: limit.soft,
        hard: limit.hard,
    }));
    steps.push(AgentStep::NewKeyring {
        required: strength_of(spec, Protection::Keyring) == ProtectionStrength::Require,
    });
    if spec.network.has_own_namespace() {
        // As late as possible: the namespace is created while the files are mounted.
        steps.push(AgentStep::JoinNetwork);
    }
    let egress = match &spec.network {
        NetworkSpec::Policy(rules) => {
            let mut ports = rules.reachable_ports();
            ports.extend(PROXY_PORTS);
            ports.sort_unstable();
            ports.dedup();
            steps.push(AgentStep::RedirectNetwork { ports });
            Some(rules.clone())
        }
        NetworkSpec::None | NetworkSpec::RestrictedHost(_) | NetworkSpec::Host => None,
    };
    if spec.model_api.is_some() {
        // With the host's network the port would be the host's.
        let port = spec.network.has_own_namespace().then_some(PORT_INSIDE);
        let path = below_root(Path::new(ModelApiSpec::SOCKET_PATH))?;
        steps.push(AgentStep::Listen { service: SandboxService::ModelApi, path, port });
    }
    if spec.mailbox.is_some() {
        let path = below_root(Path::new(MailboxSpec::SOCKET_PATH))?;
        steps.push(AgentStep::Listen { service: SandboxService::Mailbox, path, port: None });
    }
    if spec.terminal {
        steps.push(AgentStep::OpenTerminal);
    }
    if let Some(shown) = &spec.visible_workspace {
        steps.push(AgentStep::SendWorkspace { path: below_root(shown)? });
    }
    steps.push(AgentStep::NoNewPrivs);
    if domain.is_some() {
        steps.push(AgentStep::Landlock);
    }
    steps.extend([AgentStep::DropCapabilities, AgentStep::HideMemory]);
    if let NetworkSpec::RestrictedHost(network) = &spec.network {
        steps.extend(host_network::filters(network, host.landlock_abi).map(AgentStep::RestrictHostNetwork));
    }
    steps.push(AgentStep::Seccomp);

    let steps = AgentSteps::new(steps, domain.as_ref())
        .map_err(|e| Error::new(Code::Invalid, format!("make a plan: {e}")))?;
    Ok(AgentPlan {
        namespaces: namespaces(spec),
        maps: block.as_ref().map_or_else(|| ids::for_sandbox(&spec.identity), ids::for_block),
        slots,
        block,
        steps,
        landlock: domain,
        init_filter: match spec.profile {
            SandboxProfile::Strict | SandboxProfile::Container if egress.is_some() => {
                FilterProfile::InitNotify
            }
            SandboxProfile::Strict | SandboxProfile::Container => FilterProfile::InitAsk,
            SandboxProfile::Nesting => FilterProfile::Nesting,
        },
        program_filter: match spec.profile {
            SandboxProfile::Strict | SandboxProfile::Container => FilterProfile::AgentNotified,
            SandboxProfile::Nesting => FilterProfile::Nesting,
        },
        degraded,
        process_limits: ProcessLimits::default(),
        egress,
    })
}

/// Returns the strength that the policy gives to `protection`; required by default.
pub fn strength_of(spec: &SandboxSpec, protection: Protection) -> ProtectionStrength {
    spec.protections
        .iter()
        .find(|(p, ..)| *p == protection)
        .map_or(ProtectionStrength::Require, |(_, strength, _)| *strength)
}

fn check_landlock(spec: &SandboxSpec, abi: u32, degraded: &mut Vec<DegradedProtection>) -> Result<()> {
    let mut missing = |protection, what: &str, why: String| {
        if strength_of(spec, protection) == ProtectionStrength::Require {
            let hint = "boot with landlock in lsm=, or use --prefer landlock to start without it";
            return Err(Error::new(Code::Unsupported, format!("{what} is required: {why}")).hint(hint));
        }
        degraded.push(DegradedProtection { name: what.to_owned(), reason: why });
        Ok(())
    };
    if abi == 0 && spec.profile != SandboxProfile::Nesting {
        missing(
            Protection::Landlock,
            "landlock",
            "the kernel has no landlock, or it is switched off".into(),
        )?;
    }
    if abi < landlock::SCOPES_ABI {
        let why = format!("the kernel's landlock ABI is {abi}, scopes came with 6 (Linux 6.12)");
        missing(Protection::LandlockScope, "landlock-scope", why)?;
    }
    Ok(())
}

/// Returns the degraded protection of a sandbox whose programs have the id of root outside, as in a container without
/// CAP_SYS_ADMIN. Files that root may read by their mode are then theirs, if they are visible.
fn shared_root_id(identity: &SandboxIdentity) -> Option<DegradedProtection> {
    identity.has_root_id().then(|| DegradedProtection {
        name: "ids".to_owned(),
        reason: "saggar is root without CAP_SYS_ADMIN: programs have its user id 0 outside, without capabilities; start \
                 saggar as an ordinary user"
            .to_owned(),
    })
}

/// Returns the degraded protection of a sandbox that has the `/proc` of the container around it. Landlock denies programs
/// the environment, the memory and the files of the processes there (ptrace(2), "Ptrace access mode checking"), and nothing
/// else does.
fn check_proc(spec: &SandboxSpec, abi: u32) -> Result<Option<DegradedProtection>> {
    if spec.mounts.iter().all(|mount| mount.kind != MountKind::OuterProc) {
        return Ok(None);
    }
    if abi == 0 {
        let what =
            "the /proc of the container cannot be shown without landlock, which the kernel does not have";
        let hint =
            "boot with landlock in lsm=, or start the container with an unmasked /proc: see saggar doctor";
        return Err(Error::new(Code::Unsupported, what).hint(hint));
    }
    let reason = "something lies over parts of /proc here, and the kernel mounts no new one: programs see the \
                  processes of the container, with their arguments, and ps(1) can fail";
    Ok(Some(DegradedProtection { name: "proc".to_owned(), reason: reason.to_owned() }))
}

fn namespaces(spec: &SandboxSpec) -> u64 {
    let always = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWCGROUP;
    let network = if spec.network.has_own_namespace() { libc::CLONE_NEWNET } else { 0 };
    u64::from((always | network).cast_unsigned())
}
