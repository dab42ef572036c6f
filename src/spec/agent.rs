//! The sandbox that an agent gets: from a policy to a [`SandboxSpec`] (DESIGN, "The sandbox an agent gets by
//! default"; SECURITY, "Defaults").

use super::policy::hosts::DNS_PORT;
use super::policy::{self, Access, Effective, Home, Layer, Setting};
use super::{
    Api, Changes, Cover, IdMap, Identity, Mount, MountKind, Narrow, Network, Origin, Pin, ProcMask, Profile,
    Rlimit, SandboxSpec, limits,
};
use crate::error::Result;
use crate::id::SandboxId;
use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// Where the home directory of programs is, whoever they are (DECISIONS 24): not under /tmp, which agents
/// refuse.
pub const HOME: &str = "/home/agent";

/// Where the agent's own folder lies when it is not the workspace.
pub const AGENT_FOLDER: &str = "/run/agent";

/// The user and group inside, when root started the sandbox.
pub const INNER_ID: u32 = 1000;

const MIB: u64 = 1 << 20;

/// What the command knows and no policy says.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The sandbox's name.
    pub id: SandboxId,
    /// Where inner ids lie on the host.
    pub map: IdMap,
    /// The work tree, without links; it has the same path inside.
    pub workspace: PathBuf,
    /// Where changes of the work tree go, when it lies under an overlay.
    pub changes: Option<Changes>,
    /// The agent's folder, when it is not the workspace.
    pub agent_folder: Option<PathBuf>,
    /// A lasting home of the host, when there is one.
    pub home: Option<PathBuf>,
    /// The program and its package, when they lie outside of the private root (DECISIONS 25).
    /// Each with who named it.
    pub program: Vec<(PathBuf, Origin)>,
    /// More of the host that saggar itself needs inside: source, destination, writable, why.
    pub own: Vec<(PathBuf, PathBuf, bool, &'static str)>,
    /// The way to the model API, where its key stays outside.
    pub api: Option<Api>,
    /// Protected paths that exist ([`super::protect`]).
    pub pins: Vec<Pin>,
    /// Whether a standard stream is a terminal.
    pub terminal: bool,
    /// Whether the supervisor is to see the work tree as the programs do.
    pub shown: bool,
    /// Whether the standard streams are the caller's own.
    pub streams: bool,
    /// Without a network namespace, where the policy prefers to go on.
    pub without_network: Option<WithoutNetwork>,
}

/// What there is instead of a network namespace.
#[derive(Debug, Clone, Default)]
pub struct WithoutNetwork {
    /// Why none is to be had.
    pub why: String,
    /// The resolv.conf of the host.
    pub resolvers: String,
    /// Whether a program is to listen on a unix socket.
    pub listens: bool,
}

/// Lowers a policy to the model.
///
/// # Errors
/// Those of [`limits::lower`].
pub fn lower(policy: &Effective, asked: Asked) -> Result<SandboxSpec> {
    let network = network(policy, &asked);
    let default_id = match asked.map {
        IdMap::Own { uid, .. } if uid != 0 => None,
        _ => Some(INNER_ID),
    };
    let (own_uid, own_gid) = match asked.map {
        IdMap::Own { uid, gid } => (uid, gid),
        IdMap::Block { .. } => (INNER_ID, INNER_ID),
    };
    let chosen = |named: &Option<Setting<u32>>, own: u32| {
        named.as_ref().map(|id| id.value).or(default_id).unwrap_or(own)
    };
    let identity = Identity {
        uid: chosen(&policy.ids.uid, own_uid),
        gid: chosen(&policy.ids.gid, own_gid),
        map: asked.map,
    };
    let mut spec = SandboxSpec {
        id: asked.id.clone(),
        profile: policy.profile.value,
        identity,
        hostname: "saggar".to_owned(),
        mounts: system_mounts(policy),
        links: links(),
        files: made_files(&identity, &network, asked.without_network.as_ref()),
        network,
        publish: policy.publish.iter().map(|setting| (setting.value, origin(&setting.layer))).collect(),
        api: asked.api.clone(),
        pins: asked.pins.clone(),
        hidden: policy
            .files
            .hide
            .iter()
            .map(|path| (asked.workspace.join(path.value.as_path()), origin(&path.layer)))
            .collect(),
        proc_masks: if policy.profile.value == Profile::Strict { PROC_MASKS.to_vec() } else { Vec::new() },
        rlimits: rlimits(policy),
        limits: limits::lower(policy)?,
        terminal: asked.terminal,
        shown: asked.shown.then(|| asked.workspace.clone()),
        streams: asked.streams,
        protections: policy
            .protections
            .iter()
            .map(|(protection, setting)| (*protection, setting.value, origin(&setting.layer)))
            .collect(),
    };
    if spec.network == Network::Host {
        spec.mounts.push(system("/etc/resolv.conf", "names of hosts"));
        spec.mounts.push(system("/etc/hosts", "names of hosts"));
    }
    named_mounts(policy, &asked, &mut spec.mounts);
    Ok(spec)
}

fn network(policy: &Effective, asked: &Asked) -> Network {
    let own = match policy.network.value {
        policy::Network::None => Network::None,
        policy::Network::Host => return Network::Host,
        policy::Network::Policy => Network::Policy(policy.hosts.rules()),
    };
    let Some(WithoutNetwork { why, listens, .. }) = &asked.without_network else { return own };
    let ports = match own {
        Network::Policy(rules) => rules.bare_ports(),
        _ => Vec::new(),
    };
    let sockets = asked.api.is_some() || policy.api_socket.is_some() || !policy.sockets.is_empty();
    Network::Narrow(Narrow { ports, why: why.clone(), sockets, listens: *listens })
}

/// A layer of the policy as an origin of the model.
pub fn origin(layer: &Layer) -> Origin {
    match layer {
        Layer::BuiltIn => Origin::BUILT_IN,
        other => Origin(Cow::Owned(other.to_string())),
    }
}

fn built_in(at: &str, kind: MountKind, writable: bool, why: &'static str) -> Mount {
    Mount { at: at.into(), kind, writable, origin: Origin::BUILT_IN, why: why.into() }
}

fn system(path: &str, why: &'static str) -> Mount {
    built_in(path, MountKind::System { source: path.into() }, false, why)
}

fn tmpfs(at: &str, size: u64, mode: u32, why: &'static str) -> Mount {
    let inodes = (size / 16384).clamp(1024, 262_144);
    built_in(at, MountKind::Tmpfs { size, inodes, mode }, true, why)
}

/// What every program needs of the system, and the private rest. The sizes of what lies in memory add up to
/// less than the memory limit.
fn system_mounts(policy: &Effective) -> Vec<Mount> {
    const ETC: [&str; 8] = [
        "/etc/alternatives",
        "/etc/ca-certificates",
        "/etc/ld.so.cache",
        "/etc/ld.so.conf",
        "/etc/ld.so.conf.d",
        "/etc/localtime",
        "/etc/ssl",
        "/etc/pki",
    ];
    const DEVICES: [&str; 6] =
        ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];
    let memory = policy.limits.memory.value.bytes();
    let scratch = policy.tmp_size().value.bytes().min(memory / 4);
    let mut mounts = vec![system("/usr", "programs and libraries")];
    for path in ["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"] {
        mounts.push(system(path, "programs and libraries"));
    }
    mounts.extend(ETC.map(|path| system(path, "configuration that programs need")));
    let proc = MountKind::Proc;
    mounts.push(built_in("/proc", proc, false, "the sandbox's own processes"));
    let devices = MountKind::Tmpfs { size: 65536, inodes: 64, mode: 0o755 };
    mounts.push(built_in("/dev", devices, false, "a few devices"));
    for path in DEVICES {
        let kind = MountKind::System { source: path.into() };
        mounts.push(built_in(path, kind, true, "a harmless device"));
    }
    mounts.push(built_in("/dev/pts", MountKind::Devpts { max: 64 }, true, "terminals of its own"));
    mounts.push(tmpfs("/dev/shm", (memory / 8).max(MIB), 0o1777, "shared memory of its own"));
    mounts.push(built_in("/dev/mqueue", MountKind::Mqueue, true, "message queues of its own"));
    mounts.push(tmpfs("/run", 16 * MIB, 0o755, "private, in memory"));
    let mut tmp = tmpfs("/tmp", scratch, 0o1777, "private, in memory");
    tmp.origin = origin(&policy.tmp_size().layer);
    mounts.push(tmp);
    if policy.files.home.value == Home::Tmp {
        let mut home = tmpfs(HOME, scratch, 0o700, "private, in memory");
        home.origin = origin(&policy.files.home.layer);
        mounts.push(home);
    }
    mounts
}

fn named_mounts(policy: &Effective, asked: &Asked, mounts: &mut Vec<Mount>) {
    let named = |source: &Path, at: &Path, writable, origin, why: &'static str| Mount {
        at: at.to_owned(),
        kind: MountKind::Named { source: source.to_owned() },
        writable,
        origin,
        why: why.into(),
    };
    if let Some(home) = &asked.home {
        let origin = origin(&policy.files.home.layer);
        mounts.push(named(home, HOME.as_ref(), true, origin, "the lasting home"));
    }
    for (program, by) in &asked.program {
        mounts.push(named(program, program, false, by.clone(), "the program and its package"));
    }
    let mut workspace =
        named(&asked.workspace, &asked.workspace, true, Origin::COMMAND_LINE, "the workspace");
    if let Some(changes) = &asked.changes {
        workspace.kind = MountKind::Overlay { lower: asked.workspace.clone(), changes: changes.clone() };
    }
    mounts.push(workspace);
    if let Some(folder) = &asked.agent_folder {
        let why = "the agent's folder";
        mounts.push(named(folder, AGENT_FOLDER.as_ref(), false, Origin::COMMAND_LINE, why));
    }
    for bind in &policy.files.binds {
        let writable = bind.value.access == Access::ReadWrite;
        let why = if writable { "named, read-write" } else { "named, read-only" };
        mounts.push(named(&bind.value.source, &bind.value.dest, writable, origin(&bind.layer), why));
    }
    // To connect is no right of landlock's (up to ABI 8), and no write to the mount.
    for Setting { value, layer } in &policy.sockets {
        mounts.push(named(&value.source, value.dest(), false, origin(layer), "a unix socket of the host"));
    }
    for (source, at, writable, why) in &asked.own {
        mounts.push(named(source, at, *writable, Origin::BUILT_IN, why));
    }
}

fn links() -> Vec<(PathBuf, PathBuf)> {
    [
        ("/dev/ptmx", "pts/ptmx"),
        ("/dev/fd", "/proc/self/fd"),
        ("/dev/stdin", "/proc/self/fd/0"),
        ("/dev/stdout", "/proc/self/fd/1"),
        ("/dev/stderr", "/proc/self/fd/2"),
        ("/var/tmp", "/tmp"),
        ("/var/run", "/run"),
        ("/etc/mtab", "/proc/self/mounts"),
    ]
    .map(|(path, target)| (path.into(), target.into()))
    .to_vec()
}

/// The files of /etc that saggar writes: nothing of the host's users, hosts or identity is in them.
fn made_files(
    identity: &Identity,
    network: &Network,
    without: Option<&WithoutNetwork>,
) -> Vec<(PathBuf, String)> {
    let Identity { uid, gid, .. } = identity;
    // Root keeps its name in the list only when it is not the user itself.
    let (root_user, root_group) = (
        if *uid == 0 { "" } else { "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n" },
        if *gid == 0 { "" } else { "root:x:0:\n" },
    );
    let passwd = format!(
        "{root_user}agent:x:{uid}:{gid}:agent:{HOME}:/bin/bash\n\
         nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
    );
    let group = format!("{root_group}agent:x:{gid}:\nnogroup:x:65534:\n");
    let mut files: Vec<(PathBuf, String)> = vec![
        ("/etc/passwd".into(), passwd),
        ("/etc/group".into(), group),
        ("/etc/nsswitch.conf".into(), "passwd: files\ngroup: files\nhosts: files dns\n".into()),
        ("/etc/machine-id".into(), format!("{}\n", "0".repeat(32))),
        ("/etc/hostname".into(), "saggar\n".into()),
    ];
    // Where every address is the sandbox's own, so is that of its resolver.
    let resolver = match network {
        Network::None => "# no network\n".to_owned(),
        Network::Policy(_) => "nameserver 127.0.0.1\n".to_owned(),
        // There is no UDP, and resolvers take questions over TCP too (RFC 7766).
        Network::Narrow(Narrow { ports, .. }) if ports.contains(&DNS_PORT) => {
            format!("options use-vc\n{}", without.map_or("", |without| &without.resolvers))
        }
        Network::Narrow(_) => "# no names\n".to_owned(),
        Network::Host => return files,
    };
    files.push(("/etc/hosts".into(), "127.0.0.1 localhost saggar\n::1 localhost saggar\n".into()));
    files.push(("/etc/resolv.conf".into(), resolver));
    files
}

/// What leaks in `/proc` (SECURITY, "Defaults"); each counts only where the host's /proc has it.
const PROC_MASKS: &[ProcMask] = &[
    ProcMask { name: "kcore", how: Cover::File },
    ProcMask { name: "keys", how: Cover::File },
    // Not `key-users`: it counts the keys of those users alone that the sandbox's user namespace maps.
    ProcMask { name: "kmsg", how: Cover::File },
    ProcMask { name: "timer_list", how: Cover::File },
    ProcMask { name: "sched_debug", how: Cover::File },
    ProcMask { name: "latency_stats", how: Cover::File },
    ProcMask { name: "interrupts", how: Cover::File },
    ProcMask { name: "kallsyms", how: Cover::File },
    ProcMask { name: "sysrq-trigger", how: Cover::File },
    ProcMask { name: "scsi", how: Cover::Directory },
    ProcMask { name: "acpi", how: Cover::Directory },
    ProcMask { name: "asound", how: Cover::Directory },
    ProcMask { name: "bus", how: Cover::ReadOnly },
    ProcMask { name: "fs", how: Cover::ReadOnly },
    ProcMask { name: "irq", how: Cover::ReadOnly },
    ProcMask { name: "sys", how: Cover::ReadOnly },
];

fn rlimits(policy: &Effective) -> Vec<Rlimit> {
    let nofile = &policy.limits.nofile;
    let fsize = policy.fsize();
    // Never below tens of MB: agents keep their transcript in one file (AGENT-WIRE, section 7).
    let fsize_bytes = fsize.value.bytes().max(64 * MIB);
    let both = |resource, name, value, origin| Rlimit { resource, name, soft: value, hard: value, origin };
    let number = |resource: libc::__rlimit_resource_t| resource.cast_signed();
    vec![
        // Not 0: below 1 the kernel writes no file, and yet starts the host's core handler, as root (core(5)).
        both(number(libc::RLIMIT_CORE), "core", 1, Origin::BUILT_IN),
        both(number(libc::RLIMIT_MEMLOCK), "memlock", 8 * MIB, Origin::BUILT_IN),
        both(number(libc::RLIMIT_RTPRIO), "rtprio", 0, Origin::BUILT_IN),
        both(number(libc::RLIMIT_NICE), "nice", 0, Origin::BUILT_IN),
        both(number(libc::RLIMIT_FSIZE), "fsize", fsize_bytes, origin(&fsize.layer)),
        Rlimit {
            resource: number(libc::RLIMIT_NOFILE),
            name: "nofile",
            soft: policy.limits.nofile_soft().into(),
            hard: nofile.value.into(),
            origin: origin(&nofile.layer),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Rules;

    #[test]
    fn the_resolver_of_a_network_by_policy_is_inside() {
        let identity = Identity { uid: 1000, gid: 1000, map: IdMap::Own { uid: 1000, gid: 1000 } };
        let resolver = |network: Network| {
            let files = made_files(&identity, &network, None);
            files.into_iter().find(|(path, _)| path == Path::new("/etc/resolv.conf")).map(|(_, text)| text)
        };
        assert_eq!(resolver(Network::Policy(Rules::default())).as_deref(), Some("nameserver 127.0.0.1\n"));
        assert_eq!(resolver(Network::None).as_deref(), Some("# no network\n"));
        // The host's own is shown.
        assert_eq!(resolver(Network::Host), None);
    }
}
