//! The interpreter of [`Step`]s: one small function for each kind.

use super::Born;
use super::network::Making;
use super::wire::{LEN, Report, Request};
use super::{overlay, trampoline};
use crate::plan::DNS_PORT;
use crate::plan::step::{EMPTY, MAX_TREES, Source, Step};
use crate::sys::catch::{self, Kind};
use crate::sys::file::{self, Resolve};
use crate::sys::mount::{self, MOUNT_ATTR_NODEV, MOUNT_ATTR_NOEXEC, MOUNT_ATTR_NOSUID, MOUNT_ATTR_RDONLY};
use crate::sys::seccomp::{self, Profile};
use crate::sys::{Errno, SysResult, args, caps, keyring, landlock, net, offer, process, scm, unheard};
use nix::sys::socket::AddressFamily;
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// What a step leaves for later ones.
struct Made {
    /// The new root.
    root: Option<OwnedFd>,
    /// What executes programs.
    trampoline: Option<OwnedFd>,
    /// Trees that the parent made, by slot.
    trees: [Option<OwnedFd>; MAX_TREES],
    /// The network namespace, on its way.
    network: Option<Making>,
}

/// Runs every step; what executes programs in the sandbox that they made. The index and the error number of the step
/// that failed.
pub(super) fn walk(born: &Born<'_>) -> Result<OwnedFd, (usize, Errno)> {
    let mut made = Made { root: None, trampoline: None, trees: [const { None }; MAX_TREES], network: None };
    let steps = born.plan.steps.as_slice();
    for (index, step) in steps.iter().enumerate() {
        run(born, &mut made, step).map_err(|errno| (index, errno))?;
    }
    made.trampoline.ok_or((steps.len(), Errno::EBADF))
}

fn run(born: &Born<'_>, made: &mut Made, step: &Step) -> SysResult<()> {
    match step {
        Step::AwaitMaps => await_maps(born.control.as_fd()),
        Step::BecomeUser { uid, gid, clear_groups } => process::become_user(*uid, *gid, *clear_groups),
        Step::DieWithParent => die_with_parent(born.supervisor.as_fd()),
        Step::NewRoot { size, inodes } => {
            let root = new_root(size, inodes)?;
            made.trampoline = Some(trampoline::place(root.as_fd())?);
            made.root = Some(root);
            Ok(())
        }
        Step::ReceiveTrees { count } => receive_trees(born.control.as_fd(), *count, &mut made.trees),
        Step::MakeNetwork => {
            made.network = Some(Making::begin()?);
            Ok(())
        }
        Step::JoinNetwork => made.network.take().ok_or(Errno::EBADF)?.join(),
        Step::CatchNetwork { ports } => catch_network(born.control.as_fd(), ports),
        Step::OfferApi { path, port } => offer_api(born.control.as_fd(), path, *port),
        Step::Hostname { name } => nix::unistd::sethostname(os_str(name)),
        Step::Rlimit { resource, soft, hard } => process::lower_limit(*resource, *soft, *hard),
        Step::NewKeyring { required } => match keyring::join_new_session() {
            Err(errno) if *required => Err(errno),
            _ => Ok(()),
        },
        Step::OpenTerminal => open_terminal(born.control.as_fd()),
        Step::ShowWorkspace { path } => show_workspace(born.control.as_fd(), path),
        Step::NoNewPrivs => process::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0),
        Step::Landlock => enter_landlock(born, made),
        Step::DropCapabilities => caps::drop_all(),
        Step::HideMemory => hide_memory(),
        Step::Narrow(narrowing) => seccomp::load(narrowing.program()).map_err(Errno::from_raw),
        Step::Seccomp => load_filter(born),
        in_root => in_new_root(born, made, made.root.as_ref().ok_or(Errno::EBADF)?.as_fd(), in_root),
    }
}

/// The steps that work below the new root.
fn in_new_root(born: &Born<'_>, made: &Made, root: BorrowedFd<'_>, step: &Step) -> SysResult<()> {
    const CLOSED: u64 = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
    match step {
        Step::Mkdir { path, mode } => file::mkdir(root, path, *mode),
        Step::Touch { path } => touch(root, path).map(drop),
        Step::Symlink { path, target } => file::symlink(target, root, path),
        Step::WriteFile { path, content } => file::write_all(touch(root, path)?.as_fd(), content.as_bytes()),
        Step::Bind { source, path, writable, device } => {
            let tree = source_tree(born, &made.trees, source)?;
            let writable = if *writable || *device { 0 } else { MOUNT_ATTR_RDONLY };
            let nodev = if *device { MOUNT_ATTR_NOEXEC } else { MOUNT_ATTR_NODEV };
            mount::seal_tree(tree.as_fd(), MOUNT_ATTR_NOSUID | nodev | writable, true)?;
            mount::attach(tree.as_fd(), target(root, path)?.as_fd())
        }
        Step::Pin { path, read_only } => {
            let at = target(root, path)?;
            let tree = mount::clone_tree(at.as_fd(), true)?;
            let attributes = if *read_only { MOUNT_ATTR_RDONLY } else { 0 };
            mount::seal_tree(tree.as_fd(), attributes, true)?;
            mount::attach(tree.as_fd(), at.as_fd())
        }
        Step::Tmpfs { path, size, inodes, mode } => {
            let options =
                [(c"size", Some(&**size)), (c"nr_inodes", Some(&**inodes)), (c"mode", Some(&**mode))];
            new_mount(root, path, c"tmpfs", &options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)
        }
        Step::Overlay { path } => overlay::lay(root, path),
        Step::Proc { path, hide } => {
            let hidden = [(c"hidepid", Some(c"invisible"))];
            new_mount(root, path, c"proc", if *hide { &hidden } else { &[] }, CLOSED)
        }
        Step::Quota { path, most } => {
            let limit = file::open(root, path, libc::O_WRONLY, 0, Resolve::BeneathNoLinks)?;
            file::write_all(limit.as_fd(), most.to_bytes())
        }
        Step::Devpts { path, max } => {
            let options = [(c"ptmxmode", Some(c"0666")), (c"mode", Some(c"0620")), (c"max", Some(&**max))];
            new_mount(root, path, c"devpts", &options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC)
        }
        Step::Mqueue { path } => new_mount(root, path, c"mqueue", &[], CLOSED),
        Step::MaskFile { path } => {
            let null = mount::clone_tree_at(file::cwd(), c"/dev/null")?;
            mount::seal_tree(null.as_fd(), MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, false)?;
            mount::attach(null.as_fd(), target(root, path)?.as_fd())
        }
        Step::MaskDirectory { path } => {
            let empty = mount::clone_tree(target(root, EMPTY)?.as_fd(), false)?;
            mount::seal_tree(empty.as_fd(), CLOSED | MOUNT_ATTR_RDONLY, false)?;
            mount::attach(empty.as_fd(), target(root, path)?.as_fd())
        }
        Step::Seal { path } => mount::seal_tree(target(root, path)?.as_fd(), MOUNT_ATTR_RDONLY, false),
        Step::ChangeRoot => {
            nix::unistd::fchdir(root)?;
            mount::pivot_to_working_directory()
        }
        Step::SealRoot => mount::seal_tree(root, MOUNT_ATTR_RDONLY, false),
        _ => Err(Errno::ENOSYS),
    }
}

/// Waits for [`Request::Go`]. The end of the stream means that the launcher gave up.
fn await_maps(control: BorrowedFd<'_>) -> SysResult<()> {
    let mut buffer = [0; LEN];
    let received = scm::receive(control, &mut buffer)?;
    match Request::decode(&buffer[..received.len]) {
        Some(Request::Go) => Ok(()),
        _ => process::exit_now(125),
    }
}

/// The signal alone would miss a supervisor that died before it was set, and getppid(2) says 0 across pid
/// namespaces: so its pidfd is looked at afterwards.
fn die_with_parent(supervisor: BorrowedFd<'_>) -> SysResult<()> {
    process::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as u64, 0, 0)?;
    if process::is_ready(supervisor.as_raw_fd(), libc::POLLIN)? {
        process::exit_now(125);
    }
    Ok(())
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
pub(super) fn target(root: BorrowedFd<'_>, path: &CStr) -> SysResult<OwnedFd> {
    file::open(root, path, libc::O_PATH | libc::O_NOFOLLOW, 0, Resolve::BeneathNoLinks)
}

fn touch(root: BorrowedFd<'_>, path: &CStr) -> SysResult<OwnedFd> {
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
    mount::attach(tree.as_fd(), target(root, path)?.as_fd())
}

/// Trees come a few in a message, in the order of their slots. The end of the stream means that the launcher
/// gave up, and has said why.
fn receive_trees(
    control: BorrowedFd<'_>,
    count: usize,
    trees: &mut [Option<OwnedFd>; MAX_TREES],
) -> SysResult<()> {
    let mut next = 0;
    while next < count {
        let mut buffer = [0; LEN];
        let received = scm::receive(control, &mut buffer)?;
        if Request::decode(&buffer[..received.len]) != Some(Request::Trees) {
            process::exit_now(125);
        }
        for tree in received.fds.into_iter().flatten() {
            *trees.get_mut(next).ok_or(Errno::E2BIG)? = Some(tree);
            next += 1;
        }
    }
    Ok(())
}

fn source_tree(born: &Born<'_>, trees: &[Option<OwnedFd>; MAX_TREES], source: &Source) -> SysResult<OwnedFd> {
    match source {
        Source::System(path) => mount::clone_tree_at(file::cwd(), path),
        Source::Tree { slot, .. } => {
            let tree = trees.get(*slot).and_then(Option::as_ref).ok_or(Errno::EBADF)?;
            file::duplicate_number(tree.as_raw_fd())
        }
        Source::Checked { slot, path } => {
            // The parent's descriptor belongs to the parent's mount namespace and cannot be cloned here:
            // the path is walked again in ours, and must end at the very same file.
            let opened = born.files.get(*slot).ok_or(Errno::EBADF)?;
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
fn catch_network(control: BorrowedFd<'_>, ports: &[u16]) -> SysResult<()> {
    let route = net::route_socket()?;
    catch::claim_every_address(route.as_fd(), AddressFamily::Inet)?;
    // Without IPv6, or where it is switched off, nothing can be sent by it, and so nothing has to be caught.
    let _ = catch::claim_every_address(route.as_fd(), AddressFamily::Inet6);
    let names = [(Kind::Udp, DNS_PORT), (Kind::Tcp, DNS_PORT)];
    let connections = ports.iter().filter(|port| **port != DNS_PORT).map(|port| (Kind::Tcp, *port));
    for (kind, port) in names.into_iter().chain(connections) {
        let socket = catch::listen_everywhere(kind, port)?;
        scm::send(control, &Report::Caught { kind, port }.encode(), &[socket.as_raw_fd()])?;
    }
    for (family, answer) in unheard::ALL {
        // A wall tells of what it stops where it can: without these it is as high.
        let Ok(socket) = unheard::witness(family, answer) else { continue };
        scm::send(control, &Report::Witness { family, answer }.encode(), &[socket.as_raw_fd()])?;
    }
    Ok(())
}

/// They are there before the first program is, so that none finds nobody.
fn offer_api(control: BorrowedFd<'_>, path: &CStr, port: Option<u16>) -> SysResult<()> {
    let socket = offer::listen_at(path)?;
    scm::send(control, &Report::Offered.encode(), &[socket.as_raw_fd()])?;
    if let Some(port) = port {
        let socket = offer::listen_on_loopback(port)?;
        scm::send(control, &Report::Offered.encode(), &[socket.as_raw_fd()])?;
    }
    Ok(())
}

/// The master goes to the supervisor, who opens the slave from it: programs find it as /dev/pts/0.
fn open_terminal(control: BorrowedFd<'_>) -> SysResult<()> {
    let flags = libc::O_RDWR | libc::O_NOCTTY;
    let master = file::open(file::cwd(), c"/dev/pts/ptmx", flags, 0, Resolve::Ordinary)?;
    scm::send(control, &Report::Terminal.encode(), &[master.as_raw_fd()])
}

/// It leads where the programs look, whatever they do to themselves later.
fn show_workspace(control: BorrowedFd<'_>, path: &CStr) -> SysResult<()> {
    let root = file::open(file::cwd(), c"/", libc::O_PATH, 0, Resolve::Ordinary)?;
    let flags = libc::O_PATH | libc::O_DIRECTORY;
    let workspace = file::open(root.as_fd(), path, flags, 0, Resolve::BeneathNoLinks)?;
    scm::send(control, &Report::Workspace.encode(), &[workspace.as_raw_fd()])
}

fn enter_landlock(born: &Born<'_>, made: &Made) -> SysResult<()> {
    let Some(domain) = &born.plan.landlock else { return Ok(()) };
    let ruleset = landlock::create_ruleset(&domain.attr, domain.abi)?;
    for rule in &domain.rules {
        let path = file::open(file::cwd(), &rule.path, libc::O_PATH, 0, Resolve::Ordinary)?;
        landlock::allow_beneath(ruleset.as_fd(), path.as_fd(), rule.access)?;
    }
    if let Some(trampoline) = &made.trampoline {
        trampoline::allow(ruleset.as_fd(), trampoline.as_fd(), domain.attr.access_fs)?;
    }
    for port in &domain.ports {
        landlock::allow_connecting(ruleset.as_fd(), *port)?;
    }
    if domain.streams {
        for stream in 0..=2 {
            allow_stream(ruleset.as_fd(), stream, domain.attr.access_fs)?;
        }
    }
    landlock::restrict_self(ruleset.as_fd())
}

/// A standard stream that is a regular file is no path of the sandbox, and its programs may still say
/// `/dev/stderr`: they get what the descriptor gives anyway, and no more.
fn allow_stream(ruleset: BorrowedFd<'_>, stream: i32, handled: u64) -> SysResult<()> {
    // A copy, since the number may be closed: then there is nothing to allow.
    let Ok(file) = file::duplicate_number(stream) else { return Ok(()) };
    if nix::sys::stat::fstat(&file)?.st_mode & libc::S_IFMT != libc::S_IFREG {
        return Ok(());
    }
    let mode = nix::fcntl::fcntl(&file, nix::fcntl::FcntlArg::F_GETFL)? & libc::O_ACCMODE;
    let read = if mode == libc::O_WRONLY { 0 } else { landlock::READ_FILE };
    let write = if mode == libc::O_RDONLY { 0 } else { landlock::WRITE_FILE | landlock::TRUNCATE };
    match handled & (read | write) {
        0 => Ok(()),
        access => landlock::allow_beneath(ruleset, file.as_fd(), access),
    }
}

/// Without a listener (inside of a sandbox whose filter has one, or before Linux 5.0) the calls that it would be asked
/// about fail by the filter alone.
fn load_filter(born: &Born<'_>) -> SysResult<()> {
    let filter = match born.plan.program_filter.for_init() {
        Profile::Telling => {
            let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
            if let Ok(Some(listener)) = seccomp::load_with(seccomp::program(Profile::Telling), flags) {
                let report = Report::Listener.encode();
                return scm::send(born.control.as_fd(), &report, &[listener.as_raw_fd()]);
            }
            Profile::Init
        }
        filter => filter,
    };
    seccomp::load(seccomp::program(filter)).map_err(Errno::from_raw)
}

fn hide_memory() -> SysResult<()> {
    process::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0)?;
    process::set_name(c"saggar:init")?;
    // SAFETY: this process never returns to code that reads its arguments or its environment.
    unsafe { args::blank() };
    Ok(())
}

fn os_str(text: &CStr) -> &std::ffi::OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(text.to_bytes())
}
