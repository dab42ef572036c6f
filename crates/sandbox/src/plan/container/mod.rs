//! Turns the spec of a container and the facts of the host into the steps of its start. Pure: no I/O.

pub mod device;
mod device_planner;
pub mod filesystem;
pub mod mount;
mod process;
pub mod seccomp;
pub mod step;

use crate::plan::path::{c_path, c_string, relative_to_root};
use crate::spec::container::{ContainerSpec, IdMaps, Namespace, ProcessSpec, TimeOffsets};
use mount::{MountPlanner, OpenedTree, SourceTree};
use saggar_sys::error::{Code, Error, Result};
use saggar_sys::seccomp::SockFilter;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::path::{Path, PathBuf};
use step::{ContainerStep, ContainerSteps};

/// A compiled filter of a container, loaded as the last thing before execve.
#[derive(Clone)]
pub struct ContainerFilter {
    /// The BPF program.
    pub program: Vec<SockFilter>,
    /// SECCOMP_FILTER_FLAG_* of seccomp(2); never NEW_LISTENER, which follows from `listener`.
    pub flags: u32,
    /// The process that answers SECCOMP_RET_USER_NOTIF.
    pub listener: Option<SeccompListener>,
}

impl std::fmt::Debug for ContainerFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (instructions, flags) = (self.program.len(), self.flags);
        write!(f, "Filter {{ {instructions} instructions, flags {flags:#x}, listener {:?} }}", self.listener)
    }
}

/// `listenerPath` and `listenerMetadata`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeccompListener {
    /// The socket to which the descriptor is sent.
    pub path: PathBuf,
    /// Metadata sent along with it.
    pub metadata: Option<String>,
}

/// The files of /proc/PID/ns with their CLONE_NEW* flags, in the order in which the child sends them.
pub const NAMESPACES: [(&std::ffi::CStr, u64); 8] = [
    (c"self/ns/user", libc::CLONE_NEWUSER as u64),
    (c"self/ns/mnt", libc::CLONE_NEWNS as u64),
    (c"self/ns/pid", libc::CLONE_NEWPID as u64),
    (c"self/ns/net", libc::CLONE_NEWNET as u64),
    (c"self/ns/ipc", libc::CLONE_NEWIPC as u64),
    (c"self/ns/uts", libc::CLONE_NEWUTS as u64),
    (c"self/ns/cgroup", libc::CLONE_NEWCGROUP as u64),
    (c"self/ns/time", libc::CLONE_NEWTIME as u64),
];

/// The cgroup of a container in one hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerHierarchy {
    /// Its controllers, as in the name of its directory below /sys/fs/cgroup (`cpu,cpuacct`, `memory`, `systemd`,
    /// `unified`); empty for the only hierarchy of a cgroup v2 host.
    pub name: String,
    /// The container's own directory on the host.
    pub directory: PathBuf,
    /// Symbolic links to the directory (`cpu`, `cpuacct`).
    pub links: Vec<String>,
}

/// Options of the command line that affect the start of a process.
#[derive(Debug, Clone, Copy, Default)]
pub struct ContainerOptions {
    /// `--no-pivot`: move the root and chroot, for an initramfs.
    pub no_pivot: bool,
    /// `--no-new-keyring`: stay in the caller's session keyring.
    pub no_new_keyring: bool,
    /// `--no-mount-fallback`: flags of a remount that the host has locked are an error.
    pub no_mount_fallback: bool,
    /// `--preserve-fds` and LISTEN_FDS together: number of file descriptors from 3 on that stay open.
    pub preserve_fds: u32,
    /// Whether the process dies with the runtime for its whole life (foreground `run`), and not only until it is
    /// created.
    pub die_with_runtime: bool,
    /// `exec` only: descendants of the program stay below it, even when their parent exits.
    pub subreaper: bool,
}

/// Facts about the host and the caller that the plan depends on.
#[derive(Debug, Clone, Default)]
pub struct ContainerFacts {
    /// Whether the runtime has CAP_SYS_ADMIN in its own user namespace.
    pub privileged: bool,
    /// Whether processes of the container's user namespace may change their groups: not if an ordinary user wrote the
    /// map.
    pub setgroups: bool,
    /// Capabilities that the kernel knows.
    pub known_capabilities: u64,
    /// The runtime's own bounding set: without a user namespace, the container cannot get more.
    pub bounding: u64,
    /// Joined namespaces that are the same as the runtime's.
    pub shared: BTreeSet<Namespace>,
    /// The container's cgroups.
    pub hierarchies: Vec<ContainerHierarchy>,
    /// Whether /proc/kcore exists, as the target of /dev/core.
    pub kcore: bool,
    /// Whether SELinux is enabled.
    pub selinux: bool,
    /// Whether AppArmor is enabled.
    pub apparmor: bool,
    /// For a user namespace: paths of devices in the container, with the path of the same device on the host.
    pub host_devices: BTreeMap<PathBuf, PathBuf>,
}

/// Everything that [`crate::launch::container`] needs, as data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerPlan {
    /// Namespaces that the clone creates, as flags of clone3(2).
    pub namespaces: u64,
    /// Namespaces to join.
    pub joins: Vec<(Namespace, PathBuf)>,
    /// Whether an intermediate process joins them: before a user namespace is created or joined, and for a pid
    /// namespace, which applies to children only.
    pub needs_intermediate: bool,
    /// The id maps of the new user namespace.
    pub maps: Option<IdMaps>,
    /// Trees that the parent opens for the child.
    pub trees: Vec<OpenedTree>,
    /// Offsets of the new time namespace.
    pub time: TimeOffsets,
    /// The same in the format of the kernel, if the intermediate process creates that namespace: in a joined user
    /// namespace, an ordinary user may not write to a child's files in /proc.
    pub early_time_offsets: Option<CString>,
    /// The steps of the child.
    pub steps: ContainerSteps,
    /// Descriptions of requested settings that are not applied.
    pub warnings: Vec<String>,
}

/// Builds the plan of `create`; `filter` is whether there is a filter, `terminal` whether the caller receives the
/// terminal's master.
///
/// # Errors
/// [`Code::Invalid`] and [`Code::Unsupported`], with the property of config.json.
pub fn build(
    container: &ContainerSpec,
    facts: &ContainerFacts,
    options: ContainerOptions,
    filter: Option<&ContainerFilter>,
) -> Result<ContainerPlan> {
    let namespaces = &container.namespaces;
    let mut warnings = Vec::new();
    let joins: Vec<_> = Namespace::ALL
        .into_iter()
        .filter(|namespace| !facts.shared.contains(namespace))
        .filter_map(|namespace| namespaces.joined.get(&namespace).map(|path| (namespace, path.clone())))
        .collect();
    let joins_any = |wanted: &[Namespace]| joins.iter().any(|(joined, _)| wanted.contains(joined));
    let intermediate = joins_any(&[Namespace::User, Namespace::Pid])
        || (namespaces.new.contains(&Namespace::User) && !joins.is_empty());

    let new = |namespace| namespaces.new.contains(&namespace);
    let mut steps = vec![ContainerStep::AwaitGo];
    let early_clocks = new(Namespace::Time) && joins_any(&[Namespace::User]);
    if new(Namespace::Time) && !early_clocks {
        // While the parent may still write to the child's files in /proc.
        steps.push(ContainerStep::NewTimeNamespace);
    }
    steps.push(ContainerStep::HideMemory);
    if !intermediate {
        steps.extend(
            joins.iter().map(|(namespace, _)| ContainerStep::JoinNamespace { namespace: *namespace }),
        );
    }
    if namespaces.has(Namespace::User) {
        steps.push(become_root(container));
    }
    if new(Namespace::Cgroup) {
        steps.push(ContainerStep::NewCgroupNamespace);
    }
    if !options.no_new_keyring {
        steps.push(ContainerStep::NewKeyring);
    }
    if new(Namespace::Network) {
        steps.push(ContainerStep::LoopbackUp);
    }
    if !container.net_devices.is_empty() {
        if !namespaces.has(Namespace::Network) || facts.shared.contains(&Namespace::Network) {
            return Err(invalid("linux.netDevices needs a network namespace of the container's own"));
        }
        steps.push(ContainerStep::AwaitNetDevices);
    }
    steps.push(ContainerStep::NewSession);
    let trees = if namespaces.has(Namespace::Mount) && !facts.shared.contains(&Namespace::Mount) {
        file_steps(container, facts, options, (&mut steps, &mut warnings))?
    } else {
        chroot_steps(container, &mut steps, &mut warnings)?;
        Vec::new()
    };
    inside_steps(container, facts, &mut steps)?;
    if let Some(process) = &container.process {
        let surroundings = process::ProcessContext { container, facts, filter };
        process::settings(process, &surroundings, &mut steps, &mut warnings)?;
        steps.extend([
            ContainerStep::FindProgram,
            ContainerStep::CloseDescriptors { from: 3 + options.preserve_fds },
        ]);
        steps.push(ContainerStep::AwaitStart);
        if filter.is_some() {
            steps.push(ContainerStep::Seccomp);
        }
        steps.push(ContainerStep::Execute);
    } else {
        steps.extend([
            ContainerStep::CloseDescriptors { from: 3 + options.preserve_fds },
            ContainerStep::AwaitStart,
        ]);
    }
    let late = [Namespace::Cgroup, Namespace::Time];
    Ok(ContainerPlan {
        namespaces: namespaces.new.iter().filter(|n| !late.contains(n)).map(|n| n.clone_flag()).sum(),
        joins,
        needs_intermediate: intermediate,
        maps: if new(Namespace::User) { container.id_maps.clone() } else { None },
        trees,
        time: container.time_offsets,
        early_time_offsets: if early_clocks {
            Some(c_string(&container.time_offsets.to_string())?)
        } else {
            None
        },
        steps: ordered_steps(steps)?,
        warnings,
    })
}

/// Builds the plan of `exec`: the steps of a process that an intermediate process has put into all namespaces.
///
/// # Errors
/// As [`build`].
pub fn build_exec(
    container: &ContainerSpec,
    process: &ProcessSpec,
    facts: &ContainerFacts,
    options: ContainerOptions,
    filter: Option<&ContainerFilter>,
) -> Result<ContainerPlan> {
    let mut warnings = Vec::new();
    let mut steps = vec![ContainerStep::AwaitGo, ContainerStep::HideMemory];
    if container.namespaces.has(Namespace::User) {
        steps.push(ContainerStep::BecomeRoot { uid: Some(process.uid), gid: Some(process.gid) });
    }
    if !options.no_new_keyring {
        steps.push(ContainerStep::NewKeyring);
    }
    steps.push(ContainerStep::NewSession);
    if options.subreaper {
        steps.push(ContainerStep::BecomeSubreaper);
    }
    if !container.namespaces.has(Namespace::Mount) {
        steps.push(ContainerStep::OpenRoot { path: c_path(&container.root.path)? });
        terminal(process, false, &mut steps);
        steps.push(ContainerStep::EnterRoot);
    } else if process.terminal {
        steps.push(ContainerStep::OpenRoot { path: c"/".to_owned() });
        terminal(process, false, &mut steps);
    }
    memory_policy(container, &mut steps);
    if let Some(cpus) = &process.cpu_affinity.at_exec {
        steps.push(ContainerStep::CpuAffinity { cpus: cpus.clone() });
    }
    let surroundings = process::ProcessContext { container, facts, filter };
    process::settings(process, &surroundings, &mut steps, &mut warnings)?;
    steps.extend([
        ContainerStep::FindProgram,
        ContainerStep::CloseDescriptors { from: 3 + options.preserve_fds },
    ]);
    if filter.is_some() {
        steps.push(ContainerStep::Seccomp);
    }
    steps.push(ContainerStep::Execute);
    Ok(ContainerPlan {
        namespaces: 0,
        joins: Vec::new(),
        needs_intermediate: true,
        maps: None,
        trees: Vec::new(),
        time: TimeOffsets::default(),
        early_time_offsets: None,
        steps: ordered_steps(steps)?,
        warnings,
    })
}

/// Builds the plan of a hook. With `joins`, an intermediate process has put it into the container's namespaces.
pub(crate) fn build_hook(joins: bool, user_namespace: bool, cwd: CString) -> ContainerPlan {
    let mut steps = vec![ContainerStep::AwaitGo, ContainerStep::HideMemory];
    if user_namespace {
        steps.push(ContainerStep::BecomeRoot { uid: Some(0), gid: Some(0) });
    }
    let umask = ContainerStep::Umask { mask: 0o022 };
    steps.extend([
        ContainerStep::NewSession,
        umask,
        // Joining a mount namespace has changed the working directory.
        ContainerStep::WorkingDirectory { path: cwd, as_user: false },
        ContainerStep::FindProgram,
        ContainerStep::CloseDescriptors { from: 3 },
        ContainerStep::Execute,
    ]);
    ContainerPlan {
        namespaces: 0,
        joins: Vec::new(),
        needs_intermediate: joins,
        maps: None,
        trees: Vec::new(),
        time: TimeOffsets::default(),
        early_time_offsets: None,
        steps: ContainerSteps::for_hook(steps),
        warnings: Vec::new(),
    }
}

fn ordered_steps(steps: Vec<ContainerStep>) -> Result<ContainerSteps> {
    ContainerSteps::new(steps).map_err(|error| invalid(format!("make a plan: {error}")))
}

/// Mount operations need an id that is mapped; the process has the capabilities since its creation. A joined namespace
/// already has its map.
fn become_root(container: &ContainerSpec) -> ContainerStep {
    let (uid, gid) = container.process.as_ref().map_or((0, 0), |process| (process.uid, process.gid));
    if !container.namespaces.new.contains(&Namespace::User) {
        return ContainerStep::BecomeRoot { uid: Some(uid), gid: Some(gid) };
    }
    let ids = container.id_maps.as_ref();
    let mapped = |map: &[crate::spec::container::IdExtent], id| (!map.is_empty()).then_some(id);
    ContainerStep::BecomeRoot {
        uid: ids.and_then(|ids| mapped(&ids.uid, uid)),
        gid: ids.and_then(|ids| mapped(&ids.gid, gid)),
    }
}

/// Adds the steps of the root file system and the mounts, up to the change of the root. Returns the trees that the parent
/// opens for them.
fn file_steps(
    container: &ContainerSpec,
    facts: &ContainerFacts,
    options: ContainerOptions,
    (steps, warnings): (&mut Vec<ContainerStep>, &mut Vec<String>),
) -> Result<Vec<OpenedTree>> {
    let mut mounts = MountPlanner::new(container, facts, !options.no_mount_fallback);
    let root = c_path(&container.root.path)?;
    let received = mounts.parent_opens();
    if received {
        let tree = |place| {
            OpenedTree::Host(SourceTree {
                path: root.clone(),
                path_only: place,
                follow_link: true,
                recursive: true,
                idmap: None,
                idmap_recursive: false,
            })
        };
        mounts.trees.extend([tree(true), tree(false)]);
    }
    for mount in &container.mounts {
        mounts.add(mount)?;
    }
    let mut device_steps = Vec::new();
    device_planner::device_steps(container, facts, &mut mounts, (&mut device_steps, warnings))?;
    let propagation = container.root.propagation;
    // The propagation setting is the root's, which gets it at the end. Until then no mount of the container may
    // propagate to the host, while mounts of the host still propagate to containers that request it; an unbindable tree
    // could not be cloned.
    let shared = propagation.filter(|flags| flags & libc::MS_SHARED != 0);
    if container.namespaces.new.contains(&Namespace::Mount) {
        steps.push(ContainerStep::Propagation { flags: shared.unwrap_or(libc::MS_SLAVE | libc::MS_REC) });
    }
    if !mounts.trees.is_empty() {
        steps.push(ContainerStep::ReceiveTrees { count: mounts.trees.len() });
    }
    steps.push(ContainerStep::AttachRoot { path: root, received, parent_private: shared.is_some() });
    let sealed = mounts.sealed;
    steps.extend(mounts.mounts.into_iter().map(|mount| ContainerStep::Mount(Box::new(mount))));
    let links = mounts.links.into_iter();
    steps.extend(links.map(|(path, target)| ContainerStep::Symlink { path, target, replace: false }));
    let trees = mounts.trees;
    steps.extend(device_steps);
    if let Some(process) = &container.process {
        let path = relative_to_root(&process.program.cwd)?;
        if !path.is_empty() {
            steps.push(ContainerStep::MakeDirectory { path });
        }
        terminal(process, true, steps);
    }
    steps.push(ContainerStep::AwaitHooks);
    let sealed = sealed.into_iter().enumerate();
    steps.extend(sealed.filter_map(|(kept, path)| Some(ContainerStep::Seal { kept, path: path? })));
    let of_proc = |path: &Path| {
        path.starts_with("/proc")
            && container.mounts.iter().any(|mount| mount.destination == Path::new("/proc"))
    };
    for path in &container.read_only_paths {
        steps.push(ContainerStep::ReadOnly { path: relative_to_root(path)?, proc: of_proc(path) });
    }
    for path in &container.masked_paths {
        steps.push(ContainerStep::Mask { path: relative_to_root(path)?, proc: of_proc(path) });
    }
    if container.root.read_only {
        steps.push(ContainerStep::SealRoot);
    }
    if !container.namespaces.new.contains(&Namespace::Mount) {
        steps.push(ContainerStep::EnterRoot);
        return Ok(trees);
    }
    steps.push(if options.no_pivot { ContainerStep::MoveRoot } else { ContainerStep::PivotRoot });
    if let Some(flags) = propagation {
        steps.push(ContainerStep::RootPropagation { flags });
    }
    Ok(trees)
}

/// Adds the steps for a container without a mount namespace, which only gets a chroot, because a mount would be the
/// host's. Such a container is valid (config-linux.md, Namespaces: a type that is not listed is inherited), but
/// rejected if its protections need mounts.
fn chroot_steps(
    container: &ContainerSpec,
    steps: &mut Vec<ContainerStep>,
    warnings: &mut Vec<String>,
) -> Result<()> {
    let needs = |what: &str| {
        let hint = "add {\"type\": \"mount\"} to linux.namespaces";
        Err(invalid(format!("{what} needs a mount namespace of the container's own")).hint(hint))
    };
    if !container.masked_paths.is_empty() || !container.read_only_paths.is_empty() {
        return needs("linux.maskedPaths or linux.readonlyPaths");
    }
    if container.root.read_only {
        return needs("root.readonly");
    }
    if !container.mounts.is_empty() {
        let count = container.mounts.len();
        warnings.push(format!(
            "mounts: all {count} left out: without a mount namespace they would be the host's"
        ));
    }
    steps.push(ContainerStep::OpenRoot { path: c_path(&container.root.path)? });
    if let Some(process) = &container.process {
        terminal(process, false, steps);
    }
    steps.extend([ContainerStep::AwaitHooks, ContainerStep::EnterRoot]);
    Ok(())
}

fn terminal(process: &ProcessSpec, console: bool, steps: &mut Vec<ContainerStep>) {
    if process.terminal {
        steps.push(ContainerStep::Terminal { size: process.console_size, uid: process.uid, console });
    }
}

/// Adds the steps for host and domain name, kernel parameters and the memory policy.
fn inside_steps(
    container: &ContainerSpec,
    facts: &ContainerFacts,
    steps: &mut Vec<ContainerStep>,
) -> Result<()> {
    let own = |namespace| container.namespaces.has(namespace) && !facts.shared.contains(&namespace);
    for (name, what, step) in [
        (
            &container.hostname,
            "hostname",
            (|name| ContainerStep::Hostname { name }) as fn(CString) -> ContainerStep,
        ),
        (&container.domainname, "domainname", |name| ContainerStep::Domainname { name }),
    ] {
        let Some(name) = name else { continue };
        if !own(Namespace::Uts) {
            return Err(invalid(format!("{what} needs a UTS namespace of the container's own")));
        }
        steps.push(step(c_string(name)?));
    }
    for (name, value) in &container.sysctl {
        let parts = sysctl_parts(name)?;
        let words: Vec<&str> = parts.iter().map(String::as_str).collect();
        let needed = match words.as_slice() {
            ["net", ..] => Namespace::Network,
            ["fs", "mqueue", ..] => Namespace::Ipc,
            ["kernel", "hostname" | "domainname"] => Namespace::Uts,
            ["kernel", last] if IPC_SYSCTLS.contains(last) => Namespace::Ipc,
            ["user", ..] => Namespace::User,
            _ => {
                let message =
                    format!("linux.sysctl {name}: it belongs to no namespace, it would change the host");
                return Err(invalid(message));
            }
        };
        if !own(needed) {
            let message = format!(
                "linux.sysctl {name} needs a {} namespace of the container's own",
                needed.proc_name()
            );
            return Err(invalid(message));
        }
        steps.push(ContainerStep::Sysctl { path: c_string(&parts.join("/"))?, value: c_string(value)? });
    }
    memory_policy(container, steps);
    Ok(())
}

/// A process inherits the policy of its parent, and a process of `exec` is not a child of the container's init.
fn memory_policy(container: &ContainerSpec, steps: &mut Vec<ContainerStep>) {
    if let Some(policy) = &container.memory_policy {
        steps.push(ContainerStep::MemoryPolicy { mode: policy.mode, nodes: policy.nodes.clone() });
    }
}

/// Kernel parameters that belong to an ipc namespace (ipc_namespaces(7)).
const IPC_SYSCTLS: [&str; 8] =
    ["msgmax", "msgmnb", "msgmni", "sem", "shmall", "shmmax", "shmmni", "shm_rmid_forced"];

/// Splits a name as sysctl(8) does: the first of `.` and `/` is the separator, the other one belongs to names.
fn sysctl_parts(name: &str) -> Result<Vec<String>> {
    let (separator, other) = match name.find(['.', '/']) {
        Some(at) if name.as_bytes()[at] == b'/' => ('/', '/'),
        _ => ('.', '/'),
    };
    let part = |part: &str| if other != separator { part.replace(other, ".") } else { part.to_owned() };
    let parts: Vec<String> = name.split(separator).map(part).collect();
    let plain = |part: &String| !part.is_empty() && part != "." && part != "..";
    if parts.len() < 2 || !parts.iter().all(plain) {
        return Err(invalid(format!("linux.sysctl {name:?} is no name of a kernel parameter")));
    }
    Ok(parts)
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(Code::Invalid, message)
}
