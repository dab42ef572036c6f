//! A prepared sandbox as data: the report of `explain`, and its JSON.

use super::agent::AgentSection;
use super::network::NetworkSection;
use super::tree::{SandboxTree, hiding_cover};
use super::{environment, landlock, limits, processes};
use crate::app::prepare::PreparedSandbox;
use crate::app::{degraded, scripts};
use crate::cgroup::{self, CgroupPlace};
use crate::plan::agent::step::AgentStep;
use crate::plan::agent::{AgentPlan, BlockIds};
use crate::spec::policy::EffectivePolicy;
use crate::spec::policy::rows::PolicyRow;
use crate::spec::policy::{Setting, TimeSpan};
use crate::spec::{HostIdMapping, MaskKind, MountKind, MountSpec, Origin, OverlayUpper};
use crate::sys::seccomp;
use crate::sys::untrusted_directory::UntrustedDirectory;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// The report of a sandbox.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct SandboxReport {
    pub(super) version: u32,
    pub(super) profile: PolicyValue,
    pub(super) workspace: String,
    /// Where programs start.
    pub(super) start_directory: String,
    /// The agent, if the sandbox is that of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) agent: Option<AgentSection>,
    /// Why git does not work in the workspace, if it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) git_problem: Option<String>,
    pub(super) files: FilesSection,
    pub(super) environment: Vec<environment::VariableRow>,
    pub(super) system_calls: SystemCallsSection,
    pub(super) landlock: landlock::LandlockSection,
    pub(super) limits: Vec<limits::LimitRow>,
    pub(super) network: NetworkSection,
    /// The access to the model API: the rows of `[api]`, if configured.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) api: Vec<PolicyRow>,
    /// The sessions that MCP clients outside can use: the rows of `[mcp]`, if configured.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) mcp: Vec<PolicyRow>,
    /// The mailbox of a run: the rows of `[mailbox]`, if configured.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) mailbox: Vec<PolicyRow>,
    /// The answers to the agent's permission requests: the rows of `[permissions]`.
    pub(super) permissions: Vec<PolicyRow>,
    /// Locked parts of the policy, which no layer can widen.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) locked: Vec<PolicyRow>,
    /// Scripts of the agent's folder, which run inside before the agent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) scripts: Vec<ScriptRow>,
    /// Settings of the sockets and their buffers: the rows of `[bridge]`.
    pub(super) bridge: Vec<PolicyRow>,
    /// The processes of the sandbox, and their rights.
    pub(super) processes: Vec<processes::ProcessRow>,
    pub(super) identity: IdentitySection,
    pub(super) namespaces: Vec<&'static str>,
    pub(super) degraded: Vec<DegradedRow>,
}

/// A value of the policy, its meaning, and the layer that sets it.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct PolicyValue {
    pub(super) value: String,
    pub(super) layer: String,
    pub(super) what: &'static str,
}

/// The file tree.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct FilesSection {
    pub(super) mounts: Vec<MountRow>,
    pub(super) links: Vec<LinkRow>,
    /// Files that saggar writes.
    pub(super) made: Vec<String>,
    pub(super) protected: Vec<PinRow>,
    pub(super) masks: Vec<MaskRow>,
    pub(super) unmatched: Vec<UnmatchedRow>,
}

/// One mount.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct MountRow {
    pub(super) path: String,
    pub(super) what: String,
    pub(super) writable: bool,
    pub(super) layer: String,
    pub(super) why: String,
}

/// A symbolic link that saggar creates.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct LinkRow {
    pub(super) path: String,
    pub(super) target: String,
}

/// A path of a writable tree that is read-only or cannot be renamed.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct PinRow {
    pub(super) path: String,
    /// If false, the path is writable but cannot be renamed or removed.
    pub(super) read_only: bool,
    /// Whether a start creates it because it is missing.
    pub(super) made: bool,
    pub(super) layer: String,
    pub(super) why: String,
}

/// A covered path: of `/proc`, or hidden by the policy.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct MaskRow {
    pub(super) path: String,
    pub(super) how: &'static str,
    pub(super) layer: String,
}

/// An entry of `files.hide` or `protect.paths` that names nothing in the workspace.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct UnmatchedRow {
    pub(super) key: &'static str,
    pub(super) value: String,
    pub(super) layer: String,
}

/// The system call filter of every program.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct SystemCallsSection {
    pub(super) profile: &'static str,
    pub(super) what: &'static str,
    pub(super) allowed: usize,
    pub(super) refused: Vec<RefusedCalls>,
}

/// System calls that are denied for one reason.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct RefusedCalls {
    pub(super) group: &'static str,
    pub(super) why: &'static str,
    /// Whether it depends on the arguments.
    pub(super) in_part: bool,
    pub(super) calls: &'static [&'static str],
}

/// The identity of the programs.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct IdentitySection {
    pub(super) inside: UidAndGid,
    pub(super) outside: UidAndGid,
    pub(super) what: &'static str,
}

/// A user and a group.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct UidAndGid {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// A script of the agent's folder.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct ScriptRow {
    pub(super) name: &'static str,
    pub(super) when: &'static str,
    /// The time limit after which it is killed.
    pub(super) limit: String,
    pub(super) layer: String,
}

/// A protection that this sandbox does not have.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct DegradedRow {
    pub(super) what: String,
    pub(super) why: String,
}

impl SandboxReport {
    /// Creates the report; `own` are variables that saggar sets at the start, `folder` is the agent's.
    pub(super) fn of(prepared: &PreparedSandbox, own: &[&str], folder: Option<&Path>) -> SandboxReport {
        let policy = &prepared.policy.effective;
        let place = CgroupPlace::choose(&prepared.id, &prepared.spec.limits, &prepared.spec.cgroup);
        let mut missing = cgroup::find_missing(&place, &prepared.spec.limits);
        degraded::process_limits(&missing, &prepared.spec.limits, &prepared.spec.identity)
            .explain(&mut missing);
        let limits = limits::rows(prepared, &missing);
        let degraded = prepared.plan.degraded.iter().chain(&missing);
        let degraded = degraded
            .map(|entry| DegradedRow { what: entry.name.clone(), why: entry.reason.clone() })
            .collect();
        SandboxReport {
            version: 1,
            profile: PolicyValue {
                value: policy.profile.value.to_string(),
                layer: policy.profile.layer.to_string(),
                what: profile(prepared.spec.profile),
            },
            workspace: shown(&prepared.workspace),
            start_directory: shown(&prepared.start_directory),
            agent: folder.map(|_| AgentSection::of(policy)),
            git_problem: prepared.git_problem.clone(),
            files: files(prepared),
            environment: environment::variables(prepared, own),
            system_calls: calls(&prepared.plan),
            landlock: landlock::of(&prepared.plan),
            limits,
            network: NetworkSection::of(policy, &prepared.spec.network),
            api: policy_rows(policy, "api."),
            mcp: policy_rows(policy, "mcp."),
            mailbox: policy_rows(policy, "mailbox."),
            permissions: policy_rows(policy, "permissions."),
            bridge: policy_rows(policy, "bridge."),
            locked: policy_rows(policy, "locked"),
            scripts: folder.map_or_else(Vec::new, |folder| script_rows(folder, &policy.limits.script)),
            processes: processes::of(prepared),
            identity: identity(&prepared.spec.identity, prepared.plan.block.as_ref()),
            namespaces: namespaces(prepared.plan.namespaces),
            degraded,
        }
    }
}

fn script_rows(folder: &Path, limit: &Setting<TimeSpan>) -> Vec<ScriptRow> {
    let row = |(name, when)| ScriptRow {
        name,
        when,
        limit: limit.value.to_string(),
        layer: limit.layer.to_string(),
    };
    // A folder that has become inaccessible since it was checked has no scripts.
    UntrustedDirectory::open(folder)
        .map_or_else(|_| Vec::new(), |folder| scripts::list(&folder).map(row).collect())
}

/// Returns the rows of the policy whose keys begin with `table`.
pub(super) fn policy_rows(policy: &EffectivePolicy, table: &str) -> Vec<PolicyRow> {
    policy.rows().into_iter().filter(|row| row.key.starts_with(table)).collect()
}

fn profile(profile: crate::spec::SandboxProfile) -> &'static str {
    match profile {
        crate::spec::SandboxProfile::Strict => {
            "an allow-list of system calls, landlock file rules, a masked /proc"
        }
        crate::spec::SandboxProfile::Container => {
            "as strict, with the /proc of the container around saggar if the kernel mounts no new one"
        }
        crate::spec::SandboxProfile::Nesting => {
            "for a program that makes sandboxes of its own: namespaces and mounts are allowed, landlock has no file \
             rules, /proc is not masked; files are held by the mounts and the user namespace alone"
        }
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn files(prepared: &PreparedSandbox) -> FilesSection {
    let tree = SandboxTree::new(prepared);
    let mount = |mount: &MountSpec| MountRow {
        path: shown(&mount.destination),
        what: describe_mount(mount),
        writable: mount.writable,
        layer: mount.origin.to_string(),
        why: mount.purpose.to_string(),
    };
    let hidden = |(path, origin): &(PathBuf, Origin)| MaskRow {
        path: shown(path),
        how: hiding_cover(&tree.entry_at(path).node),
        layer: origin.to_string(),
    };
    let mask = |mask: &crate::spec::ProcMask| MaskRow {
        path: format!("/proc/{}", mask.name),
        layer: Origin::BUILT_IN.to_string(),
        how: match mask.kind {
            MaskKind::File => "/dev/null lies over it",
            MaskKind::Directory => "an empty directory lies over it",
            MaskKind::ReadOnly => "read-only",
        },
    };
    FilesSection {
        mounts: tree.mounts().map(mount).collect(),
        links: tree
            .links()
            .iter()
            .map(|(path, target)| LinkRow { path: shown(path), target: shown(target) })
            .collect(),
        made: tree.files().iter().map(|path| shown(path)).collect(),
        protected: prepared
            .spec
            .pinned_paths
            .iter()
            .map(|pin| PinRow {
                path: shown(&pin.path),
                read_only: pin.read_only,
                made: prepared.missing.iter().any(|missing| missing.path == pin.path),
                layer: pin.origin.to_string(),
                why: pin.reason.to_string(),
            })
            .collect(),
        masks: tree.masks().map(mask).chain(tree.hidden().map(hidden)).collect(),
        unmatched: prepared
            .unmatched
            .iter()
            .map(|entry| UnmatchedRow {
                key: entry.key,
                value: shown(&entry.text),
                layer: entry.layer.to_string(),
            })
            .collect(),
    }
}

/// Describes a mount.
pub(super) fn describe_mount(mount: &MountSpec) -> String {
    match &mount.kind {
        MountKind::System { source } | MountKind::Named { source } if *source == mount.destination => {
            "of the host".to_owned()
        }
        MountKind::System { source } | MountKind::Named { source } => {
            format!("{} of the host", source.display())
        }
        MountKind::Overlay { lower, changes } => {
            let changes = match changes {
                OverlayUpper::Memory { size, inodes } => {
                    format!("in memory, at most {} and {inodes} inodes", bytes(*size))
                }
                OverlayUpper::Directory(directory) => format!("in {}", directory.display()),
            };
            format!("an overlay over {} of the host, its changes {changes}", lower.display())
        }
        MountKind::Tmpfs { size, .. } => format!("memory, at most {}", bytes(*size)),
        MountKind::Proc => "processes".to_owned(),
        MountKind::OuterProc => "of the container, with its processes".to_owned(),
        MountKind::Devpts { max } => format!("at most {max} terminals"),
        MountKind::Mqueue => "message queues".to_owned(),
    }
}

/// Formats a size in the syntax of a policy.
fn bytes(size: u64) -> String {
    let units = [(30, "G"), (20, "M"), (10, "K")];
    match units.iter().find(|(shift, _)| size != 0 && size.trailing_zeros() >= *shift) {
        Some((shift, unit)) => format!("{}{unit}", size >> shift),
        None => size.to_string(),
    }
}

fn calls(plan: &AgentPlan) -> SystemCallsSection {
    let description = seccomp::describe(plan.program_filter);
    let narrowings = plan.steps.as_slice().iter().filter_map(|step| match step {
        AgentStep::RestrictHostNetwork(narrowing) => Some(narrowing.describe()),
        _ => None,
    });
    SystemCallsSection {
        profile: description.name,
        what: description.comment,
        allowed: description.allowed,
        refused: [description]
            .into_iter()
            .chain(narrowings)
            .flat_map(|description| description.refusals)
            .map(|refusal| RefusedCalls {
                group: refusal.group,
                why: refusal.comment,
                in_part: refusal.in_part,
                calls: refusal.calls,
            })
            .collect(),
    }
}

fn identity(identity: &crate::spec::SandboxIdentity, block: Option<&BlockIds>) -> IdentitySection {
    let (outside, what) = match (identity.map, block) {
        (HostIdMapping::Caller { uid, gid }, _) => {
            (UidAndGid { uid, gid }, "the caller's own ids, and no other")
        }
        (HostIdMapping::Block { .. }, Some(block)) if block.uses_host_ids() => (
            UidAndGid { uid: block.host_uid, gid: block.host_gid },
            "the owner's own ids, since a file system cannot be idmapped; all others are a block of the sandbox's alone",
        ),
        (HostIdMapping::Block { base }, _) => (
            UidAndGid { uid: base + identity.uid, gid: base + identity.gid },
            "a block of 65536 host ids that is the sandbox's alone, chosen at the start; this one is free now",
        ),
    };
    IdentitySection { inside: UidAndGid { uid: identity.uid, gid: identity.gid }, outside, what }
}

fn namespaces(flags: u64) -> Vec<&'static str> {
    const KINDS: [(i32, &str); 7] = [
        (libc::CLONE_NEWUSER, "user"),
        (libc::CLONE_NEWNS, "mount"),
        (libc::CLONE_NEWPID, "pid"),
        (libc::CLONE_NEWIPC, "ipc"),
        (libc::CLONE_NEWUTS, "uts"),
        (libc::CLONE_NEWNET, "net"),
        (libc::CLONE_NEWCGROUP, "cgroup"),
    ];
    let has = |flag: i32| flags & u64::from(flag.cast_unsigned()) != 0;
    KINDS.iter().filter(|(flag, _)| has(*flag)).map(|(_, name)| *name).collect()
}
