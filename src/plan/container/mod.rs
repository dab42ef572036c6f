//! From the model of a container and what the host can do to the steps of its start. Pure: no I/O.

pub mod filesystem;
pub mod mount;
mod process;
pub mod step;

use crate::error::{Code, Error, Result};
use crate::spec::container::{Container, ContainerMountKind, IdMaps, Namespace, Process, TimeOffsets};
use crate::sys::seccomp::SockFilter;
use mount::{Mounts, Tree};
use std::collections::BTreeSet;
use std::ffi::CString;
use std::path::{Component, Path, PathBuf};
use step::{Step, Steps};

/// A compiled filter of a container, loaded as the last thing before execve.
#[derive(Clone)]
pub struct Filter {
    /// The program.
    pub program: Vec<SockFilter>,
    /// SECCOMP_FILTER_FLAG_* of seccomp(2); never NEW_LISTENER, which [`Filter::listener`] asks for.
    pub flags: u32,
    /// Who answers SECCOMP_RET_USER_NOTIF.
    pub listener: Option<Listener>,
}

impl std::fmt::Debug for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (instructions, flags) = (self.program.len(), self.flags);
        write!(f, "Filter {{ {instructions} instructions, flags {flags:#x}, listener {:?} }}", self.listener)
    }
}

/// `listenerPath` and `listenerMetadata`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// The socket that gets the descriptor.
    pub path: PathBuf,
    /// What is told beside it.
    pub metadata: Option<String>,
}

/// The files of /proc/PID/ns with their CLONE_NEW* flags, as the child tells them.
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
pub struct Hierarchy {
    /// Its controllers as its directory below /sys/fs/cgroup is named (`cpu,cpuacct`, `memory`, `systemd`,
    /// `unified`); empty for the one and only hierarchy of a cgroup2 host.
    pub name: String,
    /// The container's own directory on the host.
    pub own: PathBuf,
    /// Names that lead to the directory, besides its own (`cpu`, `cpuacct`).
    pub links: Vec<String>,
}

/// Options of the command line that change how a process is made.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// `--no-pivot`: move the root and chroot, for an initramfs.
    pub no_pivot: bool,
    /// `--no-new-keyring`: stay in the caller's session keyring.
    pub no_new_keyring: bool,
    /// `--preserve-fds` and LISTEN_FDS together: how many descriptors from 3 on stay open.
    pub preserve_fds: u32,
    /// Whether the process dies with us for good (foreground `run`), and not only until it is created.
    pub die_with_runtime: bool,
    /// `exec` only: what the program starts stays below it, also when its parent ends.
    pub subreaper: bool,
}

/// What the plan needs to know of the host and of the caller.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// Whether we have CAP_SYS_ADMIN in our own user namespace.
    pub privileged: bool,
    /// Whether processes of its user namespace may change their groups: not when an ordinary user wrote the map.
    pub setgroups: bool,
    /// Capabilities that the kernel knows.
    pub known_capabilities: u64,
    /// Our own bounding set: no more can be given without a user namespace.
    pub bounding: u64,
    /// Joined namespaces that are the runtime's own.
    pub shared: BTreeSet<Namespace>,
    /// The container's cgroups.
    pub hierarchies: Vec<Hierarchy>,
    /// Whether there is a /proc/kcore, for /dev/core to lead to.
    pub kcore: bool,
    /// Whether SELinux is on.
    pub selinux: bool,
    /// Whether AppArmor is on.
    pub apparmor: bool,
}

/// Everything that [`crate::launch::container`] needs, as data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Namespaces that the clone makes, as flags of clone3(2).
    pub namespaces: u64,
    /// Namespaces that are joined.
    pub joins: Vec<(Namespace, PathBuf)>,
    /// Whether an intermediate process joins them: before a user namespace is made or joined, and for a pid
    /// namespace, which holds for children alone.
    pub intermediate: bool,
    /// The id maps of the new user namespace.
    pub maps: Option<IdMaps>,
    /// Trees that the parent opens for the child.
    pub trees: Vec<Tree>,
    /// Offsets of the new time namespace.
    pub time: TimeOffsets,
    /// The same as the kernel takes them, where the intermediate process makes that namespace: in a user namespace
    /// that is joined, a child's files in /proc are not an ordinary user's to write.
    pub early_clocks: Option<CString>,
    /// What the child does.
    pub steps: Steps,
    /// What was asked for and is not given, in words.
    pub warnings: Vec<String>,
}

/// Makes the plan of `create`; `filter` says whether there is one, `terminal` whether somebody takes its master.
///
/// # Errors
/// [`Code::Invalid`] and [`Code::Unsupported`], naming the property of config.json.
pub fn build(
    container: &Container,
    facts: &Facts,
    options: Options,
    filter: Option<&Filter>,
) -> Result<Plan> {
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
    let mut steps = vec![Step::AwaitGo];
    let early_clocks = new(Namespace::Time) && joins_any(&[Namespace::User]);
    if new(Namespace::Time) && !early_clocks {
        // While our files in /proc are the parent's to write.
        steps.push(Step::NewTimeNamespace);
    }
    steps.push(Step::Hide);
    if !intermediate {
        steps.extend(joins.iter().map(|(namespace, _)| Step::Join { namespace: *namespace }));
    }
    if namespaces.has(Namespace::User) {
        steps.push(become_root(container));
    }
    if new(Namespace::Cgroup) {
        steps.push(Step::NewCgroupNamespace);
    }
    if !options.no_new_keyring {
        steps.push(Step::NewKeyring);
    }
    if new(Namespace::Network) {
        steps.push(Step::LoopbackUp);
    }
    if !container.net_devices.is_empty() {
        if !namespaces.has(Namespace::Network) || facts.shared.contains(&Namespace::Network) {
            return Err(invalid("linux.netDevices needs a network namespace of the container's own"));
        }
        steps.push(Step::AwaitNetDevices);
    }
    steps.push(Step::NewSession);
    let mut trees = Vec::new();
    if namespaces.has(Namespace::Mount) && !facts.shared.contains(&Namespace::Mount) {
        files(container, facts, options, &mut steps, &mut trees)?;
    } else {
        in_the_runtimes_mounts(container, &mut steps, &mut warnings)?;
    }
    inside_steps(container, facts, &mut steps)?;
    if let Some(process) = &container.process {
        let surroundings = process::Surroundings { container, facts, filter };
        process::settings(process, &surroundings, &mut steps, &mut warnings)?;
        steps.extend([Step::FindProgram, Step::CloseDescriptors { from: 3 + options.preserve_fds }]);
        steps.push(Step::AwaitStart);
        if filter.is_some() {
            steps.push(Step::Seccomp);
        }
        steps.push(Step::Execute);
    } else {
        steps.extend([Step::CloseDescriptors { from: 3 + options.preserve_fds }, Step::AwaitStart]);
    }
    let late = [Namespace::Cgroup, Namespace::Time];
    Ok(Plan {
        namespaces: namespaces.new.iter().filter(|n| !late.contains(n)).map(|n| n.flag()).sum(),
        joins,
        intermediate,
        maps: if new(Namespace::User) { container.ids.clone() } else { None },
        trees,
        time: container.time,
        early_clocks: if early_clocks { Some(c_text(&container.time.to_string())?) } else { None },
        steps: checked(steps)?,
        warnings,
    })
}

/// Makes the plan of `exec`: what a process does that an intermediate process has put into all namespaces.
///
/// # Errors
/// As [`build`].
pub fn build_exec(
    container: &Container,
    process: &Process,
    facts: &Facts,
    options: Options,
    filter: Option<&Filter>,
) -> Result<Plan> {
    let mut warnings = Vec::new();
    let mut steps = vec![Step::AwaitGo, Step::Hide];
    if container.namespaces.has(Namespace::User) {
        steps.push(Step::BecomeRoot { uid: Some(process.uid), gid: Some(process.gid) });
    }
    if !options.no_new_keyring {
        steps.push(Step::NewKeyring);
    }
    steps.push(Step::NewSession);
    if options.subreaper {
        steps.push(Step::Subreaper);
    }
    if !container.namespaces.has(Namespace::Mount) {
        steps.push(Step::OpenRoot { path: c_path(&container.root.path)? });
        terminal(process, false, &mut steps);
        steps.push(Step::EnterRoot);
    } else if process.terminal {
        steps.push(Step::OpenRoot { path: c"/".to_owned() });
        terminal(process, false, &mut steps);
    }
    memory_policy(container, &mut steps);
    if let Some(cpus) = &process.cpu_affinity.last {
        steps.push(Step::CpuAffinity { cpus: cpus.clone() });
    }
    let surroundings = process::Surroundings { container, facts, filter };
    process::settings(process, &surroundings, &mut steps, &mut warnings)?;
    steps.extend([Step::FindProgram, Step::CloseDescriptors { from: 3 + options.preserve_fds }]);
    if filter.is_some() {
        steps.push(Step::Seccomp);
    }
    steps.push(Step::Execute);
    Ok(Plan {
        namespaces: 0,
        joins: Vec::new(),
        intermediate: true,
        maps: None,
        trees: Vec::new(),
        time: TimeOffsets::default(),
        early_clocks: None,
        steps: checked(steps)?,
        warnings,
    })
}

/// Makes the plan of a hook. With `joins` an intermediate process has put it into the container's namespaces.
pub fn of_hook(joins: bool, user_namespace: bool, cwd: CString) -> Plan {
    let mut steps = vec![Step::AwaitGo, Step::Hide];
    if user_namespace {
        steps.push(Step::BecomeRoot { uid: Some(0), gid: Some(0) });
    }
    let umask = Step::Umask { mask: 0o022 };
    steps.extend([
        Step::NewSession,
        umask,
        // Joining a mount namespace has changed it.
        Step::WorkingDirectory { path: cwd, as_user: false },
        Step::FindProgram,
        Step::CloseDescriptors { from: 3 },
        Step::Execute,
    ]);
    Plan {
        namespaces: 0,
        joins: Vec::new(),
        intermediate: joins,
        maps: None,
        trees: Vec::new(),
        time: TimeOffsets::default(),
        early_clocks: None,
        steps: Steps::of_hook(steps),
        warnings: Vec::new(),
    }
}

fn checked(steps: Vec<Step>) -> Result<Steps> {
    Steps::new(steps).map_err(|error| invalid(format!("make a plan: {error}")))
}

/// Mount operations need an id that is mapped; its capabilities the process has by its birth. A namespace that
/// is joined has its map already.
fn become_root(container: &Container) -> Step {
    let (uid, gid) = container.process.as_ref().map_or((0, 0), |process| (process.uid, process.gid));
    if !container.namespaces.new.contains(&Namespace::User) {
        return Step::BecomeRoot { uid: Some(uid), gid: Some(gid) };
    }
    let ids = container.ids.as_ref();
    let mapped = |map: &[crate::spec::container::IdExtent], id| (!map.is_empty()).then_some(id);
    Step::BecomeRoot {
        uid: ids.and_then(|ids| mapped(&ids.uid, uid)),
        gid: ids.and_then(|ids| mapped(&ids.gid, gid)),
    }
}

/// The steps of the root file system and the mounts, up to the change of the root.
fn files(
    container: &Container,
    facts: &Facts,
    options: Options,
    steps: &mut Vec<Step>,
    trees: &mut Vec<Tree>,
) -> Result<()> {
    let mut mounts = Mounts::new(container, facts);
    let root = c_path(&container.root.path)?;
    let received = mounts.parent_opens();
    if received {
        let tree =
            |place| Tree { path: root.clone(), place, recursive: true, idmap: None, idmap_recursive: false };
        mounts.trees.extend([tree(true), tree(false)]);
    }
    for mount in &container.mounts {
        mounts.add(mount)?;
    }
    let propagation = container.root.propagation;
    // The word is the root's, which gets it in the end. Until then nothing of ours may reach the host by any mount,
    // and what the host mounts may still come to those that ask for it; an unbindable tree could not be cloned.
    let shared = propagation.filter(|flags| flags & libc::MS_SHARED != 0);
    if container.namespaces.new.contains(&Namespace::Mount) {
        steps.push(Step::Propagation { flags: shared.unwrap_or(libc::MS_SLAVE | libc::MS_REC) });
    }
    if !mounts.trees.is_empty() {
        steps.push(Step::ReceiveTrees { count: mounts.trees.len() });
    }
    steps.push(Step::Root { path: root, received, parent_private: shared.is_some() });
    let sealed = mounts.sealed;
    steps.extend(mounts.mounts.into_iter().map(|mount| Step::Mount(Box::new(mount))));
    let links = mounts.links.into_iter();
    steps.extend(links.map(|(path, target)| Step::Symlink { path, target, replace: false }));
    trees.extend(mounts.trees);
    devices(container, facts, steps)?;
    if let Some(process) = &container.process {
        let path = inside(&process.program.cwd)?;
        if !path.is_empty() {
            steps.push(Step::MakeDirectory { path });
        }
        terminal(process, true, steps);
    }
    steps.push(Step::AwaitHooks);
    let sealed = sealed.into_iter().enumerate();
    steps.extend(sealed.filter_map(|(kept, path)| Some(Step::Seal { kept, path: path? })));
    let of_proc = |path: &Path| {
        path.starts_with("/proc") && container.mounts.iter().any(|mount| mount.at == Path::new("/proc"))
    };
    for path in &container.read_only {
        steps.push(Step::ReadOnly { path: inside(path)?, proc: of_proc(path) });
    }
    for path in &container.masked {
        steps.push(Step::Mask { path: inside(path)?, proc: of_proc(path) });
    }
    if container.root.read_only {
        steps.push(Step::SealRoot);
    }
    if !container.namespaces.new.contains(&Namespace::Mount) {
        steps.push(Step::EnterRoot);
        return Ok(());
    }
    steps.push(if options.no_pivot { Step::MoveRoot } else { Step::PivotRoot });
    if let Some(flags) = propagation {
        steps.push(Step::RootPropagation { flags });
    }
    Ok(())
}

/// Without a mount namespace there is only a chroot: a mount would be the host's. The container is to be had all the
/// same (config-linux.md, Namespaces: a type that is not listed is inherited), but not without what protects it.
fn in_the_runtimes_mounts(
    container: &Container,
    steps: &mut Vec<Step>,
    warnings: &mut Vec<String>,
) -> Result<()> {
    let needs = |what: &str| {
        let hint = "add {\"type\": \"mount\"} to linux.namespaces";
        Err(invalid(format!("{what} needs a mount namespace of the container's own")).hint(hint))
    };
    if !container.masked.is_empty() || !container.read_only.is_empty() {
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
    steps.push(Step::OpenRoot { path: c_path(&container.root.path)? });
    if let Some(process) = &container.process {
        terminal(process, false, steps);
    }
    steps.extend([Step::AwaitHooks, Step::EnterRoot]);
    Ok(())
}

fn terminal(process: &Process, console: bool, steps: &mut Vec<Step>) {
    if process.terminal {
        steps.push(Step::Terminal { size: process.console_size, uid: process.uid, console });
    }
}

/// Device nodes and the links of /dev (runtime-spec, config-linux.md, "Default Devices").
fn devices(container: &Container, facts: &Facts, steps: &mut Vec<Step>) -> Result<()> {
    let bind = container.namespaces.has(Namespace::User);
    for device in &container.devices {
        steps.push(Step::Device {
            path: inside(&device.path)?,
            kind: device.kind,
            major: device.major,
            minor: device.minor,
            mode: device.mode,
            uid: device.uid,
            gid: device.gid,
            bind: bind && device.kind != libc::S_IFIFO,
        });
    }
    for (path, target) in &container.links {
        // The image's own ptmx would be that of whatever devpts the image came from.
        let replace = path == Path::new("/dev/ptmx");
        steps.push(Step::Symlink { path: inside(path)?, target: c_path(target)?, replace });
    }
    // A bind of the host's whole /dev brings what is in it.
    let is_bind = |kind: &ContainerMountKind| matches!(kind, ContainerMountKind::Bind { .. });
    let host_dev = container.mounts.iter().any(|mount| mount.at == Path::new("/dev") && is_bind(&mount.kind));
    if facts.kcore && !host_dev {
        let (path, target) = (c_text("dev/core")?, c_text("/proc/kcore")?);
        steps.push(Step::Symlink { path, target, replace: false });
    }
    Ok(())
}

/// Names, kernel parameters, the memory policy.
fn inside_steps(container: &Container, facts: &Facts, steps: &mut Vec<Step>) -> Result<()> {
    let own = |namespace| container.namespaces.has(namespace) && !facts.shared.contains(&namespace);
    for (name, what, step) in [
        (&container.hostname, "hostname", (|name| Step::Hostname { name }) as fn(CString) -> Step),
        (&container.domainname, "domainname", |name| Step::Domainname { name }),
    ] {
        let Some(name) = name else { continue };
        if !own(Namespace::Uts) {
            return Err(invalid(format!("{what} needs a UTS namespace of the container's own")));
        }
        steps.push(step(c_text(name)?));
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
            let message =
                format!("linux.sysctl {name} needs a {} namespace of the container's own", needed.file());
            return Err(invalid(message));
        }
        steps.push(Step::Sysctl { path: c_text(&parts.join("/"))?, value: c_text(value)? });
    }
    memory_policy(container, steps);
    Ok(())
}

/// A process inherits the policy of its parent, and what `exec` adds is no child of the container's.
fn memory_policy(container: &Container, steps: &mut Vec<Step>) {
    if let Some(policy) = &container.memory_policy {
        steps.push(Step::MemoryPolicy { mode: policy.mode, nodes: policy.nodes.clone() });
    }
}

/// Kernel parameters that belong to an ipc namespace (ipc_namespaces(7)).
const IPC_SYSCTLS: [&str; 8] =
    ["msgmax", "msgmnb", "msgmni", "sem", "shmall", "shmmax", "shmmni", "shm_rmid_forced"];

/// As sysctl(8): the first separator of `.` and `/` separates, the other one belongs to names.
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

/// An absolute path inside, without its leading slash; links and `..` in it are the child's to resolve. A relative
/// one begins at the root.
fn inside(path: &Path) -> Result<CString> {
    let parts = path.components().filter(|part| !matches!(part, Component::RootDir | Component::CurDir));
    c_path(&parts.collect::<PathBuf>())
}

pub(crate) fn c_path(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_encoded_bytes())
        .map_err(|_| invalid(format!("the path {} has a NUL byte", path.display())))
}

fn c_text(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| invalid(format!("the text {text:?} has a NUL byte")))
}
