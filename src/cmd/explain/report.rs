//! A prepared sandbox as data: what `explain` prints, and its JSON.

use super::network::Network;
use super::tree::Tree;
use super::{environment, landlock, limits};
use crate::cgroup;
use crate::cmd::prepare::Prepared;
use crate::cmd::scripts;
use crate::plan::step::Step;
use crate::plan::{Block, Plan};
use crate::spec::policy::Effective;
use crate::spec::policy::show::Row;
use crate::spec::policy::{Setting, TimeSpan};
use crate::spec::{Changes, Cover, IdMap, Mount, MountKind};
use crate::sys::folder::Folder;
use crate::sys::seccomp;
use serde::Serialize;
use std::path::Path;

/// Everything about a sandbox.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Report {
    pub(super) version: u32,
    pub(super) profile: Valued,
    pub(super) workspace: String,
    pub(super) files: Files,
    pub(super) environment: Vec<environment::Variable>,
    pub(super) system_calls: Calls,
    pub(super) landlock: landlock::Landlock,
    pub(super) limits: Vec<limits::Row>,
    pub(super) network: Network,
    /// The way to the model API: the rows of `[api]`, where there is one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) api: Vec<Row>,
    /// What is said to the agent's questions: the rows of `[permissions]`.
    pub(super) permissions: Vec<Row>,
    /// Parts of the policy that nobody can widen any more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) locked: Vec<Row>,
    /// Scripts of the agent's folder, which run inside before the agent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) scripts: Vec<ScriptRow>,
    /// What holds of the sockets and what they keep: the rows of `[bridge]`.
    pub(super) bridge: Vec<Row>,
    pub(super) identity: Identity,
    pub(super) namespaces: Vec<&'static str>,
    pub(super) degraded: Vec<Lack>,
}

/// A word of the policy, what it means, and who said it.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Valued {
    pub(super) value: String,
    pub(super) layer: String,
    pub(super) what: &'static str,
}

/// The file tree.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Files {
    pub(super) mounts: Vec<MountRow>,
    pub(super) links: Vec<Link>,
    /// Files that saggar writes.
    pub(super) made: Vec<String>,
    pub(super) protected: Vec<PinRow>,
    pub(super) masks: Vec<Mask>,
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

/// A symbolic link of saggar's.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Link {
    pub(super) path: String,
    pub(super) target: String,
}

/// A path of a writable tree that cannot be changed, or not be renamed.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct PinRow {
    pub(super) path: String,
    /// False: it is only held in its place.
    pub(super) read_only: bool,
    /// Whether a start makes it, since it is not there.
    pub(super) made: bool,
    pub(super) layer: String,
    pub(super) why: String,
}

/// A covered path of `/proc`.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Mask {
    pub(super) path: String,
    pub(super) how: &'static str,
}

/// The filter of every program.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Calls {
    pub(super) profile: &'static str,
    pub(super) what: &'static str,
    pub(super) allowed: usize,
    pub(super) refused: Vec<Refused>,
}

/// Calls that are refused for one reason.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Refused {
    pub(super) group: &'static str,
    pub(super) why: &'static str,
    /// Whether it depends on the arguments.
    pub(super) in_part: bool,
    pub(super) calls: &'static [&'static str],
}

/// Who the programs are.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Identity {
    pub(super) inside: Ids,
    pub(super) outside: Ids,
    pub(super) what: &'static str,
}

/// A user and a group.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Ids {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// A script of the agent's folder.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct ScriptRow {
    pub(super) name: &'static str,
    pub(super) when: &'static str,
    /// When it is killed, and who said so.
    pub(super) limit: String,
    pub(super) layer: String,
}

/// A protection that this sandbox does not have.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Lack {
    pub(super) what: String,
    pub(super) why: String,
}

impl Report {
    /// The report; `own` are variables that saggar sets when it starts, `folder` is the agent's.
    pub(super) fn of(prepared: &Prepared, own: &[&str], folder: Option<&Path>) -> Report {
        let policy = &prepared.policy.effective;
        let missing = cgroup::foresee(cgroup::place(&prepared.id).as_deref(), &prepared.spec.limits);
        let limits = limits::rows(prepared, &missing);
        let degraded = prepared.plan.degraded.iter().chain(&missing);
        let degraded = degraded.map(|lack| Lack { what: lack.what.clone(), why: lack.why.clone() }).collect();
        Report {
            version: 1,
            profile: Valued {
                value: policy.profile.value.to_string(),
                layer: policy.profile.layer.to_string(),
                what: profile(prepared.spec.profile),
            },
            workspace: shown(&prepared.workspace),
            files: files(prepared),
            environment: environment::variables(prepared, own),
            system_calls: calls(&prepared.plan),
            landlock: landlock::of(&prepared.plan),
            limits,
            network: Network::of(policy, &prepared.spec.network),
            api: rows(policy, "api."),
            permissions: rows(policy, "permissions."),
            bridge: rows(policy, "bridge."),
            locked: rows(policy, "locked"),
            scripts: folder.map_or_else(Vec::new, |folder| of_folder(folder, &policy.limits.script)),
            identity: identity(&prepared.spec.identity, prepared.plan.block.as_ref()),
            namespaces: namespaces(prepared.plan.namespaces),
            degraded,
        }
    }
}

fn of_folder(folder: &Path, limit: &Setting<TimeSpan>) -> Vec<ScriptRow> {
    let row = |(name, when)| ScriptRow {
        name,
        when,
        limit: limit.value.to_string(),
        layer: limit.layer.to_string(),
    };
    // What cannot be opened any more since it was looked at has no scripts either.
    Folder::open(folder).map_or_else(|_| Vec::new(), |folder| scripts::found(&folder).map(row).collect())
}

/// The rows of the policy whose keys begin so.
pub(super) fn rows(policy: &Effective, table: &str) -> Vec<Row> {
    policy.rows().into_iter().filter(|row| row.key.starts_with(table)).collect()
}

fn profile(profile: crate::spec::Profile) -> &'static str {
    match profile {
        crate::spec::Profile::Strict => "an allow-list of system calls, landlock file rules, a masked /proc",
        crate::spec::Profile::Nesting => {
            "for a program that makes sandboxes of its own: namespaces and mounts are allowed, landlock has no file \
             rules, /proc is not masked; files are held by the mounts and the user namespace alone"
        }
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn files(prepared: &Prepared) -> Files {
    let tree = Tree::new(prepared);
    let mount = |mount: &Mount| MountRow {
        path: shown(&mount.at),
        what: what(mount),
        writable: mount.writable,
        layer: mount.origin.to_string(),
        why: mount.why.to_string(),
    };
    let mask = |mask: &crate::spec::ProcMask| Mask {
        path: format!("/proc/{}", mask.name),
        how: match mask.how {
            Cover::File => "/dev/null lies over it",
            Cover::Directory => "an empty directory lies over it",
            Cover::ReadOnly => "read-only",
        },
    };
    Files {
        mounts: tree.mounts().map(mount).collect(),
        links: tree
            .links()
            .iter()
            .map(|(path, target)| Link { path: shown(path), target: shown(target) })
            .collect(),
        made: tree.files().iter().map(|path| shown(path)).collect(),
        protected: prepared
            .spec
            .pins
            .iter()
            .map(|pin| PinRow {
                path: shown(&pin.at),
                read_only: pin.read_only,
                made: prepared.missing.iter().any(|missing| missing.path == pin.at),
                layer: pin.origin.to_string(),
                why: pin.why.to_string(),
            })
            .collect(),
        masks: tree.masks().map(mask).collect(),
    }
}

/// What a mount is, in words.
pub(super) fn what(mount: &Mount) -> String {
    match &mount.kind {
        MountKind::System { source } | MountKind::Named { source } if *source == mount.at => {
            "of the host".to_owned()
        }
        MountKind::System { source } | MountKind::Named { source } => {
            format!("{} of the host", source.display())
        }
        MountKind::Overlay { lower, changes } => {
            let changes = match changes {
                Changes::Memory { size, inodes } => {
                    format!("in memory, at most {} and {inodes} inodes", bytes(*size))
                }
                Changes::Directory(directory) => format!("in {}", directory.display()),
            };
            format!("an overlay over {} of the host, its changes {changes}", lower.display())
        }
        MountKind::Tmpfs { size, .. } => format!("memory, at most {}", bytes(*size)),
        MountKind::Proc => "processes".to_owned(),
        MountKind::Devpts { max } => format!("at most {max} terminals"),
        MountKind::Mqueue => "message queues".to_owned(),
    }
}

/// A size as it stands in a policy.
fn bytes(size: u64) -> String {
    let units = [(30, "G"), (20, "M"), (10, "K")];
    match units.iter().find(|(shift, _)| size != 0 && size.trailing_zeros() >= *shift) {
        Some((shift, unit)) => format!("{}{unit}", size >> shift),
        None => size.to_string(),
    }
}

fn calls(plan: &Plan) -> Calls {
    let description = seccomp::describe(plan.program_filter);
    let narrowings = plan.steps.as_slice().iter().filter_map(|step| match step {
        Step::Narrow(narrowing) => Some(narrowing.describe()),
        _ => None,
    });
    Calls {
        profile: description.name,
        what: description.comment,
        allowed: description.allowed,
        refused: [description]
            .into_iter()
            .chain(narrowings)
            .flat_map(|description| description.refusals)
            .map(|refusal| Refused {
                group: refusal.group,
                why: refusal.comment,
                in_part: refusal.in_part,
                calls: refusal.calls,
            })
            .collect(),
    }
}

fn identity(identity: &crate::spec::Identity, block: Option<&Block>) -> Identity {
    let (outside, what) = match (identity.map, block) {
        (IdMap::Own { uid, gid }, _) => (Ids { uid, gid }, "the caller's own ids, and no other"),
        (IdMap::Block { .. }, Some(block)) if block.is_direct() => (
            Ids { uid: block.host_uid, gid: block.host_gid },
            "the owner's own ids, since a file system cannot be idmapped; all others are a block of the sandbox's alone",
        ),
        (IdMap::Block { base }, _) => (
            Ids { uid: base + identity.uid, gid: base + identity.gid },
            "a block of 65536 host ids that is the sandbox's alone, chosen at the start; this one is free now",
        ),
    };
    Identity { inside: Ids { uid: identity.uid, gid: identity.gid }, outside, what }
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
