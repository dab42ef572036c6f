//! The sandbox of an agent: lowers a policy to a [`SandboxSpec`] (saggar(1) and saggar-security(7)).

use super::policy::effective::CgroupPolicy;
use super::policy::hosts::DNS_PORT;
use super::policy::{
    self, BindAccess, EffectivePolicy, HomeSource, PolicyLayer, SandboxCgroupDriver, Setting,
};
use super::{
    HostIdMapping, MailboxSpec, MaskKind, ModelApiSpec, MountKind, MountSpec, NetworkSpec, Origin,
    OverlayUpper, PinnedPath, ProcMask, RestrictedHostNetwork, RlimitSpec, RootCgroupSpec, SandboxIdentity,
    SandboxProfile, SandboxSpec, hidden_in_git, limits, mount_order,
};
use saggar_sys::error::{Code, Error, Result};
use saggar_sys::id::SandboxId;
use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// The home directory of programs, for every uid (DECISIONS 24). It is not below /tmp, which agents refuse.
pub const SANDBOX_HOME: &str = "/home/agent";

/// The uid and gid in the sandbox if root starts it.
pub const INNER_ID: u32 = 1000;

const MIB: u64 = 1 << 20;

/// Inputs of the command that are not in the policy.
#[derive(Debug, Clone)]
pub struct AgentSandboxRequest {
    /// The name of the sandbox.
    pub id: SandboxId,
    /// The mapping of sandbox ids to host ids.
    pub id_mapping: HostIdMapping,
    /// The work tree, canonicalized; it has the same path in the sandbox.
    pub workspace: PathBuf,
    /// Paths that programs cannot read: of the work tree, relative to it, and absolute paths.
    pub hidden_paths: Vec<(PathBuf, Origin)>,
    /// The storage of changes to the work tree, if it is mounted under an overlay.
    pub overlay_upper: Option<OverlayUpper>,
    /// The agent's folder, if it is not the workspace.
    pub agent_folder: Option<PathBuf>,
    /// A persistent home directory on the host, if there is one.
    pub home: Option<PathBuf>,
    /// The program and its package, if they are outside of the private root (DECISIONS 25), each with the
    /// layer that named it.
    pub program_mounts: Vec<(PathBuf, Origin)>,
    /// Further host paths that saggar itself needs in the sandbox: source, destination, writable, purpose.
    pub runtime_mounts: Vec<(PathBuf, PathBuf, bool, &'static str)>,
    /// Those of them in which programs make no links.
    pub linkless_mounts: Vec<PathBuf>,
    /// The upstream of the model API, whose key stays outside the sandbox.
    pub model_api: Option<ModelApiSpec>,
    /// The mailbox of a run.
    pub mailbox: Option<MailboxSpec>,
    /// Protected paths that exist ([`super::protect`]).
    pub pinned_paths: Vec<PinnedPath>,
    /// Whether a standard stream is a terminal.
    pub terminal: bool,
    /// Whether the supervisor needs to see the work tree as programs do.
    pub visible_workspace: bool,
    /// The container around saggar, with the profile `container`.
    pub container: Option<OuterContainer>,
    /// Whether the standard streams are the caller's own.
    pub reopen_streams: bool,
    /// The replacement of a network namespace, if the host supports none and the policy only prefers one.
    pub network_fallback: Option<NetworkFallback>,
}

/// The container around saggar.
#[derive(Debug, Clone, Default)]
pub struct OuterContainer {
    /// Whether the sandbox has its `/proc`, because the kernel mounts no new one.
    pub shows_proc: bool,
    /// Its host name, which is that of the sandbox if a filter denies sethostname(2).
    pub host_name: String,
}

/// The restricted host network, in place of a network namespace.
#[derive(Debug, Clone, Default)]
pub struct NetworkFallback {
    /// The reason why a network namespace is not available.
    pub reason: String,
    /// The resolv.conf of the host.
    pub resolv_conf: String,
    /// Whether programs may listen on unix sockets.
    pub unix_listeners: bool,
}

/// Lowers a policy to the model.
///
/// # Errors
/// Those of [`limits::lower`].
pub fn lower_policy(policy: &EffectivePolicy, request: AgentSandboxRequest) -> Result<SandboxSpec> {
    let network = network(policy, &request);
    let default_id = match request.id_mapping {
        HostIdMapping::Caller { uid, .. } if uid != 0 => None,
        _ => Some(INNER_ID),
    };
    let (own_uid, own_gid) = match request.id_mapping {
        HostIdMapping::Caller { uid, gid } => (uid, gid),
        HostIdMapping::Block { .. } => (INNER_ID, INNER_ID),
    };
    let chosen = |named: &Option<Setting<u32>>, own: u32| {
        named.as_ref().map(|id| id.value).or(default_id).unwrap_or(own)
    };
    let identity = SandboxIdentity {
        uid: chosen(&policy.ids.uid, own_uid),
        gid: chosen(&policy.ids.gid, own_gid),
        map: request.id_mapping,
    };
    let mut spec = SandboxSpec {
        id: request.id.clone(),
        profile: policy.profile.value,
        identity,
        hostname: "saggar".to_owned(),
        mounts: system_mounts(policy, request.container.as_ref().is_some_and(|outer| outer.shows_proc)),
        links: links(),
        files: generated_files(
            &identity,
            &network,
            request.network_fallback.as_ref(),
            request.container.as_ref(),
        ),
        network,
        published_ports: policy
            .publish
            .iter()
            .map(|setting| (setting.value, layer_origin(&setting.layer)))
            .collect(),
        model_api: request.model_api.clone(),
        mailbox: request.mailbox.clone(),
        pinned_paths: request.pinned_paths.clone(),
        git_indices: Vec::new(),
        linkless_mounts: request.linkless_mounts.clone(),
        hidden_paths: request
            .hidden_paths
            .iter()
            .map(|(path, origin)| (request.workspace.join(path), origin.clone()))
            .collect(),
        proc_masks: match policy.profile.value {
            SandboxProfile::Strict | SandboxProfile::Container if identity.has_root_id() => {
                [PROC_MASKS, ROOT_PROC_MASKS].concat()
            }
            SandboxProfile::Strict | SandboxProfile::Container => PROC_MASKS.to_vec(),
            SandboxProfile::Nesting => Vec::new(),
        },
        rlimits: rlimits(policy),
        limits: limits::lower(policy)?,
        cgroup: root_cgroup(policy)?,
        terminal: request.terminal,
        visible_workspace: request.visible_workspace.then(|| request.workspace.clone()),
        reopen_streams: request.reopen_streams,
        protections: policy
            .protections
            .iter()
            .map(|(protection, setting)| (*protection, setting.value, layer_origin(&setting.layer)))
            .collect(),
    };
    if spec.network == NetworkSpec::Host {
        spec.mounts.push(system_mount("/etc/resolv.conf", "names of hosts"));
        spec.mounts.push(system_mount("/etc/hosts", "names of hosts"));
    }
    let hidden = &request.hidden_paths;
    mount_order::append(&mut spec.mounts, named_mounts(policy, &request));
    let in_workspace = hidden.iter().map(|(path, _)| path.as_path()).filter(|path| path.is_relative());
    let git = hidden_in_git::files(in_workspace);
    // Who names one of the host's own means that.
    spec.files
        .extend(git.into_iter().filter(|(at, _)| spec.mounts.iter().all(|mount| mount.destination != *at)));
    Ok(spec)
}

/// Where the cgroup is made, if root starts the sandbox.
///
/// # Errors
/// [`Code::Invalid`] for a name that systemd does not know as that of a slice.
pub fn root_cgroup(policy: &EffectivePolicy) -> Result<RootCgroupSpec> {
    let CgroupPolicy { parent, driver } = &policy.cgroup;
    let uses_systemd = driver.value == SandboxCgroupDriver::Systemd;
    if uses_systemd && !parent.value.is_slice() {
        let message = format!(
            "sandbox.cgroup_parent = {}, from {}, is not a slice, and sandbox.cgroup_driver is systemd, from {}",
            parent.value, parent.layer, driver.layer
        );
        return Err(Error::new(Code::Invalid, message).hint("use a name that ends with .slice"));
    }
    Ok(RootCgroupSpec { parent: parent.value.clone(), uses_systemd })
}

fn network(policy: &EffectivePolicy, request: &AgentSandboxRequest) -> NetworkSpec {
    let own = match policy.network.value {
        policy::NetworkMode::None => NetworkSpec::None,
        policy::NetworkMode::Host => return NetworkSpec::Host,
        policy::NetworkMode::Policy => NetworkSpec::Policy(policy.hosts.rules()),
    };
    let Some(NetworkFallback { reason: why, unix_listeners: listens, .. }) = &request.network_fallback else {
        return own;
    };
    let ports = match own {
        NetworkSpec::Policy(rules) => rules.unconditional_ports(),
        _ => Vec::new(),
    };
    let sockets = request.model_api.is_some()
        || request.mailbox.is_some()
        || policy.api_socket.is_some()
        || !policy.sockets.is_empty();
    NetworkSpec::RestrictedHost(RestrictedHostNetwork {
        ports,
        reason: why.clone(),
        unix_sockets: sockets,
        unix_listeners: *listens,
    })
}

/// The layer of a policy as an origin of the model.
pub fn layer_origin(layer: &PolicyLayer) -> Origin {
    match layer {
        PolicyLayer::BuiltIn => Origin::BUILT_IN,
        other => Origin(Cow::Owned(other.to_string())),
    }
}

fn built_in_mount(at: &str, kind: MountKind, writable: bool, why: &'static str) -> MountSpec {
    MountSpec { destination: at.into(), kind, writable, origin: Origin::BUILT_IN, purpose: why.into() }
}

fn system_mount(path: &str, why: &'static str) -> MountSpec {
    built_in_mount(path, MountKind::System { source: path.into() }, false, why)
}

fn tmpfs_mount(at: &str, size: u64, mode: u32, why: &'static str) -> MountSpec {
    let inodes = (size / 16384).clamp(1024, 262_144);
    built_in_mount(at, MountKind::Tmpfs { size, inodes, mode }, true, why)
}

const PROGRAMS: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

const CONFIGURATION: [&str; 8] = [
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/ssl",
    "/etc/pki",
];

/// The files and trees of the host that every sandbox shows.
pub fn system_paths() -> impl Iterator<Item = &'static Path> {
    PROGRAMS.into_iter().chain(CONFIGURATION).map(Path::new)
}

/// The mounts of the system that every program needs, and the private ones. The sizes of the file systems
/// in memory add up to less than the memory limit.
fn system_mounts(policy: &EffectivePolicy, outer_proc: bool) -> Vec<MountSpec> {
    const DEVICES: [&str; 6] =
        ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];
    let memory = policy.limits.memory.value.bytes();
    let scratch = policy.tmp_size().value.bytes().min(memory / 4);
    let mut mounts = PROGRAMS.map(|path| system_mount(path, "programs and libraries")).to_vec();
    mounts.extend(CONFIGURATION.map(|path| system_mount(path, "configuration that programs need")));
    let (proc, purpose) = match outer_proc {
        true => (MountKind::OuterProc, "the processes of the container around saggar"),
        false => (MountKind::Proc, "the sandbox's own processes"),
    };
    mounts.push(built_in_mount("/proc", proc, false, purpose));
    let devices = MountKind::Tmpfs { size: 65536, inodes: 64, mode: 0o755 };
    mounts.push(built_in_mount("/dev", devices, false, "a few devices"));
    for path in DEVICES {
        let kind = MountKind::System { source: path.into() };
        mounts.push(built_in_mount(path, kind, true, "a harmless device"));
    }
    mounts.push(built_in_mount("/dev/pts", MountKind::Devpts { max: 64 }, true, "terminals of its own"));
    mounts.push(tmpfs_mount("/dev/shm", (memory / 8).max(MIB), 0o1777, "shared memory of its own"));
    mounts.push(built_in_mount("/dev/mqueue", MountKind::Mqueue, true, "message queues of its own"));
    mounts.push(tmpfs_mount("/run", 16 * MIB, 0o755, "private, in memory"));
    let mut tmp = tmpfs_mount("/tmp", scratch, 0o1777, "private, in memory");
    tmp.origin = layer_origin(&policy.tmp_size().layer);
    mounts.push(tmp);
    if policy.files.home.value == HomeSource::Tmp {
        let mut home = tmpfs_mount(SANDBOX_HOME, scratch, 0o700, "private, in memory");
        home.origin = layer_origin(&policy.files.home.layer);
        mounts.push(home);
    }
    mounts
}

/// The paths of the host that a layer or the command named. Of two at one path, the later one is meant.
fn named_mounts(policy: &EffectivePolicy, request: &AgentSandboxRequest) -> Vec<MountSpec> {
    let mut mounts = Vec::new();
    let named = |source: &Path, at: &Path, writable, origin, why: &'static str| MountSpec {
        destination: at.to_owned(),
        kind: MountKind::Named { source: source.to_owned() },
        writable,
        origin,
        purpose: why.into(),
    };
    if let Some(home) = &request.home {
        let origin = layer_origin(&policy.files.home.layer);
        mounts.push(named(home, SANDBOX_HOME.as_ref(), true, origin, "the lasting home"));
    }
    for (program, by) in &request.program_mounts {
        mounts.push(named(program, program, false, by.clone(), "the program and its package"));
    }
    let mut workspace =
        named(&request.workspace, &request.workspace, true, Origin::COMMAND_LINE, "the workspace");
    if let Some(changes) = &request.overlay_upper {
        workspace.kind = MountKind::Overlay { lower: request.workspace.clone(), changes: changes.clone() };
    }
    mounts.push(workspace);
    if let Some(folder) = &request.agent_folder {
        let why = "the agent's folder";
        mounts.push(named(
            folder,
            policy::provenance::AGENT_FOLDER.as_ref(),
            false,
            Origin::COMMAND_LINE,
            why,
        ));
    }
    for bind in &policy.files.binds {
        let writable = bind.value.access == BindAccess::ReadWrite;
        let why = if writable { "named, read-write" } else { "named, read-only" };
        mounts.push(named(
            &bind.value.source,
            &bind.value.destination,
            writable,
            layer_origin(&bind.layer),
            why,
        ));
    }
    // Neither a read-only mount nor landlock (up to ABI 8) prevents connect(2) to a socket.
    for Setting { value, layer } in &policy.sockets {
        mounts.push(named(
            &value.source,
            value.destination(),
            false,
            layer_origin(layer),
            "a unix socket of the host",
        ));
    }
    for (source, at, writable, why) in &request.runtime_mounts {
        mounts.push(named(source, at, *writable, Origin::BUILT_IN, why));
    }
    mounts
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

/// The files of /etc that saggar generates. They contain nothing of the host's users, hosts or identity.
fn generated_files(
    identity: &SandboxIdentity,
    network: &NetworkSpec,
    fallback: Option<&NetworkFallback>,
    container: Option<&OuterContainer>,
) -> Vec<(PathBuf, String)> {
    let SandboxIdentity { uid, gid, .. } = identity;
    // Root is listed separately only if the user is not root itself.
    let (root_user, root_group) = (
        if *uid == 0 { "" } else { "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n" },
        if *gid == 0 { "" } else { "root:x:0:\n" },
    );
    let passwd = format!(
        "{root_user}agent:x:{uid}:{gid}:agent:{SANDBOX_HOME}:/bin/bash\n\
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
    // Where every address is synthetic, the resolver is in the sandbox too.
    let resolver = match network {
        NetworkSpec::None => "# no network\n".to_owned(),
        NetworkSpec::Policy(_) => "nameserver 127.0.0.1\n".to_owned(),
        // UDP is not available; resolvers accept queries over TCP too (RFC 7766).
        NetworkSpec::RestrictedHost(RestrictedHostNetwork { ports, .. }) if ports.contains(&DNS_PORT) => {
            let resolv_conf = fallback.map_or("", |without| &without.resolv_conf);
            format!("options use-vc\n{resolv_conf}")
        }
        NetworkSpec::RestrictedHost(_) => "# no names\n".to_owned(),
        NetworkSpec::Host => return files,
    };
    let names = match container {
        Some(outer) if !outer.host_name.is_empty() => format!("localhost saggar {}", outer.host_name),
        _ => "localhost saggar".to_owned(),
    };
    files.push(("/etc/hosts".into(), format!("127.0.0.1 {names}\n::1 {names}\n")));
    files.push(("/etc/resolv.conf".into(), resolver));
    files
}

/// Files of `/proc` that leak information of the host. Each is masked only if the host's /proc has it.
const PROC_MASKS: &[ProcMask] = &[
    ProcMask { name: "kcore", kind: MaskKind::File },
    ProcMask { name: "keys", kind: MaskKind::File },
    // `key-users` is not listed: it shows only users that the sandbox's user namespace maps.
    ProcMask { name: "kmsg", kind: MaskKind::File },
    ProcMask { name: "timer_list", kind: MaskKind::File },
    ProcMask { name: "sched_debug", kind: MaskKind::File },
    ProcMask { name: "latency_stats", kind: MaskKind::File },
    ProcMask { name: "interrupts", kind: MaskKind::File },
    ProcMask { name: "kallsyms", kind: MaskKind::File },
    ProcMask { name: "scsi", kind: MaskKind::Directory },
    ProcMask { name: "acpi", kind: MaskKind::Directory },
    ProcMask { name: "asound", kind: MaskKind::Directory },
    ProcMask { name: "bus", kind: MaskKind::ReadOnly },
    ProcMask { name: "fs", kind: MaskKind::ReadOnly },
    ProcMask { name: "irq", kind: MaskKind::ReadOnly },
    ProcMask { name: "sys", kind: MaskKind::ReadOnly },
    // Reading gives nothing; only a descriptor for writing must be prevented.
    ProcMask { name: "sysrq-trigger", kind: MaskKind::ReadOnly },
];

/// Files that only root can read, where programs have its id.
const ROOT_PROC_MASKS: &[ProcMask] = &[
    ProcMask { name: "allocinfo", kind: MaskKind::File },
    ProcMask { name: "dynamic_debug", kind: MaskKind::Directory },
    ProcMask { name: "kpagecgroup", kind: MaskKind::File },
    ProcMask { name: "kpagecount", kind: MaskKind::File },
    ProcMask { name: "kpageflags", kind: MaskKind::File },
    ProcMask { name: "lock_stat", kind: MaskKind::File },
    ProcMask { name: "pagetypeinfo", kind: MaskKind::File },
    ProcMask { name: "slabinfo", kind: MaskKind::File },
    ProcMask { name: "vmallocinfo", kind: MaskKind::File },
    ProcMask { name: "vmcore", kind: MaskKind::File },
    ProcMask { name: "tty", kind: MaskKind::Directory },
];

fn rlimits(policy: &EffectivePolicy) -> Vec<RlimitSpec> {
    let nofile = &policy.limits.nofile;
    let fsize = policy.fsize();
    // At least 64 MiB: agents keep their transcript in one file.
    let fsize_bytes = fsize.value.bytes().max(64 * MIB);
    let both =
        |resource, name, value, origin| RlimitSpec { resource, name, soft: value, hard: value, origin };
    let number = |resource: libc::__rlimit_resource_t| resource.cast_signed();
    vec![
        // Not 0: with a limit below 1 the kernel writes no core file, but still starts the host's core
        // handler, as root (core(5)).
        both(number(libc::RLIMIT_CORE), "core", 1, Origin::BUILT_IN),
        both(number(libc::RLIMIT_MEMLOCK), "memlock", 8 * MIB, Origin::BUILT_IN),
        both(number(libc::RLIMIT_RTPRIO), "rtprio", 0, Origin::BUILT_IN),
        both(number(libc::RLIMIT_NICE), "nice", 0, Origin::BUILT_IN),
        both(number(libc::RLIMIT_FSIZE), "fsize", fsize_bytes, layer_origin(&fsize.layer)),
        RlimitSpec {
            resource: number(libc::RLIMIT_NOFILE),
            name: "nofile",
            soft: policy.limits.nofile_soft().into(),
            hard: nofile.value.into(),
            origin: layer_origin(&nofile.layer),
        },
    ]
}

#[cfg(test)]
mod folder_tests;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::HostRules;

    #[test]
    fn the_resolver_of_a_network_by_policy_is_inside() {
        let identity =
            SandboxIdentity { uid: 1000, gid: 1000, map: HostIdMapping::Caller { uid: 1000, gid: 1000 } };
        let resolver = |network: NetworkSpec| {
            let files = generated_files(&identity, &network, None, None);
            files.into_iter().find(|(path, _)| path == Path::new("/etc/resolv.conf")).map(|(_, text)| text)
        };
        assert_eq!(
            resolver(NetworkSpec::Policy(HostRules::default())).as_deref(),
            Some("nameserver 127.0.0.1\n")
        );
        assert_eq!(resolver(NetworkSpec::None).as_deref(), Some("# no network\n"));
        // The host's own file is visible.
        assert_eq!(resolver(NetworkSpec::Host), None);
    }
}
