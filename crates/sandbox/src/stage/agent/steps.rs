//! The interpreter of [`AgentStep`]s: one small function for each kind.

use super::AgentChildArgs;
use super::network::NetworkNamespaceBuilder;
use super::wire::{InitReport, InitRequest};
use super::{hide, overlay, trampoline};
use crate::plan::agent::DNS_PORT;
use crate::plan::agent::step::{AgentStep, BindSource, EMPTY_DIRECTORY, MAX_TREES, SandboxService};
use crate::stage::parent_death;
use crate::stage::trees::receive_trees;
use crate::stage::wire::LEN;
use nix::sys::socket::AddressFamily;
use saggar_sys::file::{self, Resolve};
use saggar_sys::mount::{self, MOUNT_ATTR_NODEV, MOUNT_ATTR_NOEXEC, MOUNT_ATTR_NOSUID, MOUNT_ATTR_RDONLY};
use saggar_sys::redirect::{self, SocketProtocol};
use saggar_sys::seccomp::{self, FilterProfile};
use saggar_sys::{
    Errno, SysResult, args, caps, keyring, landlock, net, process, reject_sniffer, scm, service_socket,
};
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// What a mount is that holds neither programs nor devices.
pub(super) const CLOSED: u64 = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;

/// What a step leaves for later ones.
struct AgentWalk {
    /// The new root.
    root: Option<OwnedFd>,
    /// What executes programs.
    trampoline: Option<OwnedFd>,
    /// Trees that the parent made, by slot.
    trees: [Option<OwnedFd>; MAX_TREES],
    /// The network namespace, on its way.
    network: Option<NetworkNamespaceBuilder>,
}

/// Runs every step; what executes programs in the sandbox that they made. The index and the error number of the step
/// that failed.
pub(super) fn walk(args: &AgentChildArgs<'_>) -> Result<OwnedFd, (usize, Errno)> {
    let mut state =
        AgentWalk { root: None, trampoline: None, trees: [const { None }; MAX_TREES], network: None };
    let steps = args.plan.steps.as_slice();
    for (index, step) in steps.iter().enumerate() {
        run(args, &mut state, step).map_err(|errno| (index, errno))?;
    }
    state.trampoline.ok_or((steps.len(), Errno::EBADF))
}

fn run(args: &AgentChildArgs<'_>, state: &mut AgentWalk, step: &AgentStep) -> SysResult<()> {
    match step {
        AgentStep::AwaitMaps => await_maps(args.control.as_fd()),
        AgentStep::BecomeUser { uid, gid, clear_groups } => process::become_user(*uid, *gid, *clear_groups),
        AgentStep::DieWithParent => parent_death::die_with(args.supervisor.as_fd()),
        AgentStep::NewRoot { size, inodes } => {
            let root = new_root(size, inodes)?;
            state.trampoline = Some(trampoline::install(root.as_fd())?);
            state.root = Some(root);
            Ok(())
        }
        AgentStep::ReceiveTrees { count } => {
            receive_trees(args.control.as_fd(), *count, is_trees, &mut state.trees)
        }
        AgentStep::MakeNetwork => {
            state.network = Some(NetworkNamespaceBuilder::start()?);
            Ok(())
        }
        AgentStep::JoinNetwork => state.network.take().ok_or(Errno::EBADF)?.join(),
        AgentStep::RedirectNetwork { ports } => redirect_network(args.control.as_fd(), ports),
        AgentStep::Listen { service, path, port } => listen(args.control.as_fd(), *service, path, *port),
        AgentStep::Hostname { name } => match nix::unistd::sethostname(os_str(name)) {
            Err(Errno::EPERM) => Ok(()),
            result => result,
        },
        AgentStep::Rlimit { resource, soft, hard } => process::lower_limit(*resource, *soft, *hard),
        AgentStep::NewKeyring { required } => match keyring::join_new_session() {
            Err(errno) if *required => Err(errno),
            _ => Ok(()),
        },
        AgentStep::OpenTerminal => open_terminal(args.control.as_fd()),
        AgentStep::SendWorkspace { path } => send_workspace(args.control.as_fd(), path),
        AgentStep::NoNewPrivs => process::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0),
        AgentStep::Landlock => enter_landlock(args, state),
        AgentStep::DropCapabilities => caps::drop_all(),
        AgentStep::HideMemory => hide_memory(),
        AgentStep::RestrictHostNetwork(narrowing) => {
            seccomp::load(narrowing.program()).map_err(Errno::from_raw)
        }
        AgentStep::Seccomp => load_filter(args),
        in_root => in_new_root(args, state, state.root.as_ref().ok_or(Errno::EBADF)?.as_fd(), in_root),
    }
}

/// The steps that work below the new root.
fn in_new_root(
    args: &AgentChildArgs<'_>,
    state: &AgentWalk,
    root: BorrowedFd<'_>,
    step: &AgentStep,
) -> SysResult<()> {
    match step {
        AgentStep::Mkdir { path, mode } => file::mkdir(root, path, *mode),
        AgentStep::Touch { path } if is_private_path(path) => {
            file::make_node(root, path, libc::S_IFREG | 0o444, 0)
        }
        AgentStep::Touch { path } => create_file(root, path).map(drop),
        AgentStep::Symlink { path, target } => file::symlink(target, root, path),
        AgentStep::WriteFile { path, content } => {
            file::write_all(create_file(root, path)?.as_fd(), content.as_bytes())
        }
        AgentStep::Bind { source, path, writable, device } => {
            let tree = source_tree(args, &state.trees, source)?;
            let writable = if *writable || *device { 0 } else { MOUNT_ATTR_RDONLY };
            let nodev = if *device { MOUNT_ATTR_NOEXEC } else { MOUNT_ATTR_NODEV };
            mount::seal_tree(tree.as_fd(), MOUNT_ATTR_NOSUID | nodev | writable, true)?;
            attach(tree.as_fd(), root, path)
        }
        AgentStep::Pin { path, read_only } => {
            let at = open_mount_point(root, path)?;
            let tree = mount::clone_tree(at.as_fd(), true)?;
            let attributes = if *read_only { MOUNT_ATTR_RDONLY } else { 0 };
            mount::seal_tree(tree.as_fd(), attributes, true)?;
            mount::attach(tree.as_fd(), at.as_fd())
        }
        AgentStep::Tmpfs { path, size, inodes, mode } => {
            let options =
                [(c"size", Some(&**size)), (c"nr_inodes", Some(&**inodes)), (c"mode", Some(&**mode))];
            new_mount(root, path, c"tmpfs", &options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)
        }
        AgentStep::Overlay { path } => overlay::mount_overlay(root, path),
        AgentStep::ReplaceIndex { directory, content, mode, mtime } => {
            // Without it git shows hidden files as changed.
            let _ = hide::replace_index(root, directory, content, *mode, *mtime);
            Ok(())
        }
        AgentStep::Proc { path, hide_foreign: hide } => {
            let hidden = [(c"hidepid", Some(c"invisible"))];
            new_mount(root, path, c"proc", if *hide { &hidden } else { &[] }, CLOSED)
        }
        AgentStep::OuterProc { path } => {
            let tree = mount::clone_tree_at(file::cwd(), c"/proc")?;
            mount::seal_tree(tree.as_fd(), CLOSED | MOUNT_ATTR_RDONLY, true)?;
            attach(tree.as_fd(), root, path)
        }
        AgentStep::NamespaceLimit { path, limit: most } => {
            let limit = file::open(root, path, libc::O_WRONLY, 0, Resolve::BeneathNoLinks)?;
            file::write_all(limit.as_fd(), most.to_bytes())
        }
        AgentStep::Devpts { path, max } => {
            let options = [(c"ptmxmode", Some(c"0666")), (c"mode", Some(c"0620")), (c"max", Some(&**max))];
            new_mount(root, path, c"devpts", &options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC)
        }
        AgentStep::Mqueue { path } => new_mount(root, path, c"mqueue", &[], CLOSED),
        AgentStep::MaskFile { path } => {
            let null = mount::clone_tree_at(file::cwd(), c"/dev/null")?;
            mount::seal_tree(null.as_fd(), MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, false)?;
            attach(null.as_fd(), root, path)
        }
        AgentStep::MaskDirectory { path } => {
            let empty = mount::clone_tree(open_mount_point(root, EMPTY_DIRECTORY)?.as_fd(), false)?;
            mount::seal_tree(empty.as_fd(), CLOSED | MOUNT_ATTR_RDONLY, false)?;
            attach(empty.as_fd(), root, path)
        }
        AgentStep::HideFile { path } => hide::hide_file(root, path),
        AgentStep::HideDirectory { path } => hide::hide_directory(root, path),
        AgentStep::Seal { path } => {
            mount::seal_tree(open_mount_point(root, path)?.as_fd(), MOUNT_ATTR_RDONLY, false)
        }
        AgentStep::ChangeRoot => {
            nix::unistd::fchdir(root)?;
            mount::pivot_to_working_directory()
        }
        AgentStep::SealRoot => mount::seal_tree(root, MOUNT_ATTR_RDONLY, false),
        _ => Err(Errno::ENOSYS),
    }
}

/// Waits for [`InitRequest::Go`]. The end of the stream means that the launcher gave up.
fn await_maps(control: BorrowedFd<'_>) -> SysResult<()> {
    let mut buffer = [0; LEN];
    let received = scm::receive(control, &mut buffer)?;
    match InitRequest::decode(&buffer[..received.len]) {
        Some(InitRequest::Go) => Ok(()),
        _ => process::exit_now(125),
    }
}

/// A tmpfs laid over "/": absolute paths go on to mean the host's tree, since a lookup starts at the root
/// that this process has, which lies below it; the new root is reached by its descriptor alone.
fn new_root(size: &CStr, inodes: &CStr) -> SysResult<OwnedFd> {
    let options = [(c"size", Some(size)), (c"nr_inodes", Some(inodes)), (c"mode", Some(c"0755"))];
    let root = mount::new_filesystem(c"tmpfs", &options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)?;
    let old = file::open(file::cwd(), c"/", libc::O_PATH | libc::O_DIRECTORY, 0, Resolve::Ordinary)?;
    mount::attach(root.as_fd(), old.as_fd())?;
    Ok(root)
}

/// The mount point `path`, reached without following any link and without leaving the new root.
pub(super) fn open_mount_point(root: BorrowedFd<'_>, path: &CStr) -> SysResult<OwnedFd> {
    file::open(root, path, libc::O_PATH | libc::O_NOFOLLOW, 0, Resolve::BeneathNoLinks)
}

/// Attaches a tree at `path`. The mount point is opened first, unless that is as safe without: two calls less for each of
/// some thirty mounts.
fn attach(tree: BorrowedFd<'_>, root: BorrowedFd<'_>, path: &CStr) -> SysResult<()> {
    match is_private_path(path) {
        true => mount::attach_at(tree, root, path),
        false => mount::attach(tree, open_mount_point(root, path)?.as_fd()),
    }
}

/// Whether nothing can be on the way of a path but a directory that a step has made in the new root: it has one name, or
/// a second one in such a directory. The last name of a mount point is never followed, whatever it is.
fn is_private_path(path: &CStr) -> bool {
    const MADE: [&[u8]; 4] = [b"dev", b"etc", b"proc", b"var"];
    let mut names = path.to_bytes().split(|byte| *byte == b'/');
    match (names.next(), names.next(), names.next()) {
        (Some(name), None, None) => !name.is_empty() && name != b"." && name != b"..",
        (Some(first), Some(last), None) => {
            MADE.contains(&first) && !last.is_empty() && last != b"." && last != b".."
        }
        _ => false,
    }
}

fn create_file(root: BorrowedFd<'_>, path: &CStr) -> SysResult<OwnedFd> {
    let flags = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY | libc::O_NOFOLLOW;
    file::open(root, path, flags, 0o444, Resolve::BeneathNoLinks)
}

fn new_mount(
    root: BorrowedFd<'_>,
    path: &CStr,
    kind: &CStr,
    options: &[(&CStr, Option<&CStr>)],
    attributes: u64,
) -> SysResult<()> {
    let tree = mount::new_filesystem(kind, options, attributes)?;
    attach(tree.as_fd(), root, path)
}

fn is_trees(message: &[u8]) -> bool {
    InitRequest::decode(message) == Some(InitRequest::Trees)
}

fn source_tree(
    args: &AgentChildArgs<'_>,
    trees: &[Option<OwnedFd>; MAX_TREES],
    source: &BindSource,
) -> SysResult<OwnedFd> {
    match source {
        BindSource::System(path) => mount::clone_tree_at(file::cwd(), path),
        BindSource::Tree { slot, .. } => {
            let tree = trees.get(*slot).and_then(Option::as_ref).ok_or(Errno::EBADF)?;
            file::duplicate(tree.as_raw_fd())
        }
        BindSource::Checked { slot, path } => {
            // The parent's descriptor belongs to the parent's mount namespace and cannot be cloned here:
            // the path is walked again in ours, and must end at the very same file.
            let opened = args.files.get(*slot).ok_or(Errno::EBADF)?;
            let relative =
                CStr::from_bytes_with_nul(path.to_bytes_with_nul().strip_prefix(b"/").unwrap_or(b"\0"))
                    .map_err(|_| Errno::EINVAL)?;
            let host = file::open(file::cwd(), c"/", libc::O_PATH, 0, Resolve::Ordinary)?;
            let again = file::open(host.as_fd(), relative, libc::O_PATH, 0, Resolve::BeneathNoLinks)?;
            if file::identity(again.as_fd())? != file::identity(opened.as_fd())? {
                return Err(Errno::ESTALE);
            }
            mount::clone_tree(again.as_fd(), true)
        }
    }
}

/// The sockets stay sockets of this namespace, whoever holds them.
fn redirect_network(control: BorrowedFd<'_>, ports: &[u16]) -> SysResult<()> {
    let route = net::route_socket()?;
    redirect::make_all_addresses_local(route.as_fd(), AddressFamily::Inet)?;
    // Without IPv6, or where it is switched off, nothing can be sent by it, and so nothing has to be caught.
    let _ = redirect::make_all_addresses_local(route.as_fd(), AddressFamily::Inet6);
    let names = [(SocketProtocol::Udp, DNS_PORT), (SocketProtocol::Tcp, DNS_PORT)];
    let connections = ports.iter().filter(|port| **port != DNS_PORT).map(|port| (SocketProtocol::Tcp, *port));
    for (kind, port) in names.into_iter().chain(connections) {
        let socket = redirect::listen_everywhere(kind, port)?;
        scm::send(
            control,
            &InitReport::CapturedListener { protocol: kind, port }.encode(),
            &[socket.as_raw_fd()],
        )?;
    }
    for (family, answer) in reject_sniffer::ALL_KINDS {
        // A wall tells of what it stops where it can: without these it is as high.
        let Ok(socket) = reject_sniffer::open_reject_sniffer(family, answer) else { continue };
        scm::send(
            control,
            &InitReport::RejectSniffer { family, kind: answer }.encode(),
            &[socket.as_raw_fd()],
        )?;
    }
    Ok(())
}

/// They are there before the first program is, so that none finds nobody.
fn listen(control: BorrowedFd<'_>, service: SandboxService, path: &CStr, port: Option<u16>) -> SysResult<()> {
    let report = InitReport::ServiceListener(service).encode();
    let socket = service_socket::listen_at(path)?;
    scm::send(control, &report, &[socket.as_raw_fd()])?;
    if let Some(port) = port {
        let socket = service_socket::listen_on_loopback(port)?;
        scm::send(control, &report, &[socket.as_raw_fd()])?;
    }
    Ok(())
}

/// The master goes to the supervisor, who opens the slave from it: programs find it as /dev/pts/0.
fn open_terminal(control: BorrowedFd<'_>) -> SysResult<()> {
    let flags = libc::O_RDWR | libc::O_NOCTTY;
    let master = file::open(file::cwd(), c"/dev/pts/ptmx", flags, 0, Resolve::Ordinary)?;
    scm::send(control, &InitReport::Terminal.encode(), &[master.as_raw_fd()])
}

/// It leads where the programs look, whatever they do to themselves later.
fn send_workspace(control: BorrowedFd<'_>, path: &CStr) -> SysResult<()> {
    let root = file::open(file::cwd(), c"/", libc::O_PATH, 0, Resolve::Ordinary)?;
    let flags = libc::O_PATH | libc::O_DIRECTORY;
    let workspace = file::open(root.as_fd(), path, flags, 0, Resolve::BeneathNoLinks)?;
    scm::send(control, &InitReport::Workspace.encode(), &[workspace.as_raw_fd()])
}

fn enter_landlock(args: &AgentChildArgs<'_>, state: &AgentWalk) -> SysResult<()> {
    let Some(domain) = &args.plan.landlock else { return Ok(()) };
    let ruleset = landlock::create_ruleset(&domain.attr, domain.abi)?;
    for rule in &domain.rules {
        let path = file::open(file::cwd(), &rule.path, libc::O_PATH, 0, Resolve::Ordinary)?;
        landlock::allow_beneath(ruleset.as_fd(), path.as_fd(), rule.access)?;
    }
    if let Some(trampoline) = &state.trampoline {
        trampoline::allow(ruleset.as_fd(), trampoline.as_fd(), domain.attr.access_fs)?;
    }
    for port in &domain.ports {
        landlock::allow_connect(ruleset.as_fd(), *port)?;
    }
    if domain.streams {
        for stream in 0..=2 {
            allow_stream(ruleset.as_fd(), stream, domain.attr.access_fs)?;
        }
    }
    landlock::restrict_self(ruleset.as_fd())
}

/// A standard stream that is a file, a FIFO or a device is no path of the sandbox, and its programs may still say
/// `/dev/stderr`: they get what the descriptor gives anyway, and no more. A pipe without a name is outside of what Landlock
/// looks at.
fn allow_stream(ruleset: BorrowedFd<'_>, stream: i32, handled: u64) -> SysResult<()> {
    // A copy, since the number may be closed: then there is nothing to allow.
    let Ok(file) = file::duplicate(stream) else { return Ok(()) };
    let kind = nix::sys::stat::fstat(&file)?.st_mode & libc::S_IFMT;
    if !matches!(kind, libc::S_IFREG | libc::S_IFIFO | libc::S_IFCHR | libc::S_IFBLK) {
        return Ok(());
    }
    let mode = nix::fcntl::fcntl(&file, nix::fcntl::FcntlArg::F_GETFL)? & libc::O_ACCMODE;
    let read = if mode == libc::O_WRONLY { 0 } else { landlock::READ_FILE };
    let write = if mode == libc::O_RDONLY { 0 } else { landlock::WRITE_FILE | landlock::TRUNCATE };
    match handled & (read | write) {
        0 => Ok(()),
        access => match landlock::allow_beneath(ruleset, file.as_fd(), access) {
            // Neither has a memfd a path.
            Err(Errno::EBADFD) => Ok(()),
            other => other,
        },
    }
}

/// Without a listener (inside of a sandbox whose filter has one, or before Linux 5.0) the calls that it would be asked
/// about fail by the filter alone.
fn load_filter(args: &AgentChildArgs<'_>) -> SysResult<()> {
    let mut filter = args.plan.init_filter;
    if filter.has_listener() {
        let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
        if let Ok(Some(listener)) = seccomp::load_with(seccomp::program(filter), flags) {
            let report = InitReport::Listener.encode();
            return scm::send(args.control.as_fd(), &report, &[listener.as_raw_fd()]);
        }
        filter = FilterProfile::Init;
    }
    seccomp::load(seccomp::program(filter)).map_err(Errno::from_raw)
}

fn hide_memory() -> SysResult<()> {
    process::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0)?;
    process::set_name(super::init::NAME)?;
    // SAFETY: this process never returns to code that reads its arguments or its environment.
    unsafe { args::blank_arguments() };
    Ok(())
}

fn os_str(text: &CStr) -> &std::ffi::OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(text.to_bytes())
}
