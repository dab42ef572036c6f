//! The interpreter of a container's steps.

use super::files::ContainerFiles;
use super::process::{self as settle, HomeVariable};
use super::wire::{ChildNeed, ChildReport, ChildRequest};
use super::{ContainerChildArgs, await_go};
use crate::plan::container::step::ContainerStep;
use crate::stage::parent_death;
use crate::stage::trees::receive_trees;
use saggar_sys::file::{self, Resolve};
use saggar_sys::process::{self, SchedAttr};
use saggar_sys::{Errno, SysResult, caps, keyring, mount, namespace, net, pty, scm};
use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

/// What a walk has made so far.
struct ContainerWalk<'a> {
    args: ContainerChildArgs<'a>,
    files: ContainerFiles,
    home: HomeVariable,
    /// The program that was found.
    program_index: usize,
    entered_directory: bool,
}

/// Runs every step and becomes the program. When one fails it is told how many there are from it to the end (whoever
/// hears of it may know the last ones alone), and why; nothing is given back to the heap on the way out.
pub(super) fn walk(args: ContainerChildArgs<'_>) -> ! {
    let plan = args.plan;
    let mut walk = ContainerWalk {
        args,
        files: ContainerFiles::new(),
        home: [0; 1024],
        program_index: 0,
        entered_directory: false,
    };
    let steps = plan.steps.as_slice();
    for (left, step) in (1..=u32::try_from(steps.len()).unwrap_or(u32::MAX)).rev().zip(steps) {
        if let Err(errno) = walk.run(step) {
            let report = ChildReport::Failed { step: left, errno: errno as i32 };
            let _ = scm::send(walk.args.control.as_fd(), &report.encode(), &[]);
            process::exit_now(if errno == Errno::ENOENT { 127 } else { 126 });
        }
    }
    // A container without a program has nothing to become.
    process::exit_now(0)
}

impl ContainerWalk<'_> {
    fn run(&mut self, step: &ContainerStep) -> SysResult<()> {
        match step {
            ContainerStep::AwaitGo => self.await_go(),
            ContainerStep::HideMemory => process::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0),
            ContainerStep::JoinNamespace { namespace } => {
                let flag = namespace.clone_flag();
                let join = self.args.joins.iter().find(|(_, kind)| *kind == flag).ok_or(Errno::EBADF)?;
                super::join_namespace(&join.0, flag)
            }
            ContainerStep::BecomeRoot { uid, gid } => become_root(*uid, *gid),
            ContainerStep::NewCgroupNamespace => namespace::unshare(libc::CLONE_NEWCGROUP),
            ContainerStep::NewTimeNamespace => self.time_namespace(),
            ContainerStep::NewKeyring => keyring::join_new_session().or_else(ignore_missing),
            ContainerStep::LoopbackUp => net::loopback_up().map(drop),
            ContainerStep::AwaitNetDevices => {
                let control = self.args.control.as_fd();
                let socket = net::route_socket()?;
                scm::send(
                    control,
                    &ChildReport::Needs(ChildNeed::NetDevices).encode(),
                    &[socket.as_raw_fd()],
                )?;
                await_go(control)
            }
            ContainerStep::NewSession => nix::unistd::setsid().map(drop),
            ContainerStep::BecomeSubreaper => process::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0),
            ContainerStep::Terminal { size, uid, console } => self.terminal(*size, *uid, *console),
            ContainerStep::AwaitHooks => {
                let control = self.args.control.as_fd();
                settle::send_namespaces(control, self.args.proc.as_fd())?;
                await_go(control)
            }
            ContainerStep::ReceiveTrees { count } => self.receive_trees(*count),
            ContainerStep::Hostname { name } => nix::unistd::sethostname(OsStr::from_bytes(name.to_bytes())),
            ContainerStep::Domainname { name } => process::set_domain_name(name),
            ContainerStep::Sysctl { path, value } => self.sysctl(path, value),
            ContainerStep::MemoryPolicy { mode, nodes } => process::set_memory_policy(*mode, nodes),
            ContainerStep::AwaitStart => {
                let door = self.args.start_socket.take().ok_or(Errno::EBADF)?;
                let control = self.args.control.as_fd();
                let proc = self.args.proc.as_fd();
                let die = self.args.die_with_runtime;
                self.args.control = settle::await_start(control, door.as_fd(), proc, die)?;
                Ok(())
            }
            ContainerStep::FindProgram => {
                // The change of user has undone the bond to the runtime. What waits for a start keeps it until
                // then; a program that is to outlive the runtime, and waits for nobody, has none from here on.
                if self.args.die_with_runtime || self.args.start_socket.is_some() {
                    parent_death::die_with(self.args.runtime.as_fd())?;
                } else {
                    process::prctl(libc::PR_SET_PDEATHSIG, 0, 0, 0)?;
                }
                self.program_index = settle::find_program(self.args.program.as_ref().ok_or(Errno::EINVAL)?)?;
                Ok(())
            }
            ContainerStep::SetHome { uid } => {
                settle::find_home(*uid, &mut self.home);
                let variable = CStr::from_bytes_until_nul(&self.home).map_err(|_| Errno::EINVAL)?;
                self.args.program.as_mut().ok_or(Errno::EINVAL)?.set_home(variable);
                Ok(())
            }
            ContainerStep::Seccomp => {
                settle::load_filter(self.args.filter.ok_or(Errno::EINVAL)?, self.args.control.as_fd())
            }
            ContainerStep::Execute => self.execute(),
            settings => match self.files_step(settings) {
                Some(done) => done,
                None => self.setting(settings),
            },
        }
    }

    /// The steps of the file tree; `None` for another step.
    fn files_step(&mut self, step: &ContainerStep) -> Option<SysResult<()>> {
        let files = &mut self.files;
        Some(match step {
            ContainerStep::Propagation { flags } | ContainerStep::RootPropagation { flags } => {
                let root = file::open(file::cwd(), c"/", libc::O_PATH, 0, Resolve::Ordinary);
                let recursive = flags & libc::MS_REC != 0;
                root.and_then(|root| mount::change(root.as_fd(), 0, 0, flags & !libc::MS_REC, recursive))
            }
            ContainerStep::AttachRoot { path, received, parent_private } => {
                files.attach_root(path, *received, *parent_private)
            }
            ContainerStep::OpenRoot { path } => files.open_root(path),
            ContainerStep::Mount(mount) => files.mount(mount),
            ContainerStep::Device(device) => files.device(device),
            ContainerStep::Symlink { path, target, replace } => files.symlink(path, target, *replace),
            ContainerStep::MakeDirectory { path } => files.make_directory(path),
            ContainerStep::Seal { kept, .. } => files.seal(*kept),
            ContainerStep::Mask { path, proc } => files.mask(path, *proc),
            ContainerStep::ReadOnly { path, proc } => files.read_only(path, *proc),
            ContainerStep::SealRoot => files.seal_root(),
            ContainerStep::PivotRoot => files.pivot(),
            ContainerStep::MoveRoot => files.enter_root(true),
            ContainerStep::EnterRoot => files.enter_root(false),
            _ => return None,
        })
    }

    /// What the process sets on itself.
    fn setting(&mut self, step: &ContainerStep) -> SysResult<()> {
        match step {
            ContainerStep::CpuAffinity { cpus } => process::set_affinity(0, cpus),
            ContainerStep::Scheduler(asked) => process::set_scheduler(SchedAttr {
                size: 0,
                policy: asked.policy,
                flags: asked.flags,
                nice: asked.nice,
                priority: asked.priority,
                runtime: asked.runtime,
                deadline: asked.deadline,
                period: asked.period,
            }),
            ContainerStep::IoPriority { value } => process::set_io_priority(*value),
            ContainerStep::Personality { value } => process::set_personality(*value),
            // The runtime has made room for it, or has said that there is none.
            ContainerStep::Rlimit { resource, soft, hard } => process::lower_limit(*resource, *soft, *hard),
            ContainerStep::Umask { mask } => {
                nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(*mask));
                Ok(())
            }
            ContainerStep::SecurityLabel { file, value } => self.label(file, value),
            ContainerStep::LimitBoundingSet { keep } => caps::limit_bounding_set(*keep),
            ContainerStep::ChownStreams { uid, gid } => settle::chown_pipes(*uid, *gid),
            ContainerStep::SetUser { uid, gid, groups } => {
                process::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0)?;
                process::set_ids(*uid, *gid, groups.as_deref())?;
                process::prctl(libc::PR_SET_KEEPCAPS, 0, 0, 0)
            }
            ContainerStep::SetCapabilities { effective, permitted, inheritable, ambient, until_exec } => {
                let more = if *until_exec { 1 << caps::SYS_ADMIN } else { 0 };
                caps::set(effective | more, permitted | more, *inheritable, *ambient)?;
                // A change of ids or rights has cleared it.
                parent_death::die_with(self.args.runtime.as_fd())
            }
            ContainerStep::NoNewPrivs => process::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0),
            ContainerStep::WorkingDirectory { path, as_user } => {
                match settle::enter_working_directory(path) {
                    _ if *as_user && self.entered_directory => Ok(()),
                    // Root may be refused where the user is not: NFS, FUSE.
                    Err(Errno::EACCES | Errno::EPERM) if !*as_user => Ok(()),
                    other => {
                        self.entered_directory = true;
                        other
                    }
                }
            }
            ContainerStep::CloseDescriptors { from } => {
                if !self.args.die_with_runtime {
                    // Nothing that follows changes ids or rights, which would clear or need it: a runtime that
                    // leaves at once is not the end of what it has started.
                    process::prctl(libc::PR_SET_PDEATHSIG, 0, 0, 0)?;
                }
                process::reset_signals();
                file::cloexec_from(i32::try_from(*from).map_err(|_| Errno::EBADF)?)
            }
            _ => Err(Errno::ENOSYS),
        }
    }

    /// Waits until the runtime has done what only it can do.
    fn request(&self, need: ChildNeed) -> SysResult<()> {
        scm::send(self.args.control.as_fd(), &ChildReport::Needs(need).encode(), &[])?;
        await_go(self.args.control.as_fd())
    }

    fn await_go(&self) -> SysResult<()> {
        parent_death::die_with(self.args.runtime.as_fd())?;
        await_go(self.args.control.as_fd())?;
        for (number, stream) in (0..).zip(self.args.streams.iter().flatten()) {
            become_stream(stream, number)?;
        }
        nix::sys::stat::umask(nix::sys::stat::Mode::empty());
        Ok(())
    }

    /// The namespace is made for children; its offsets cannot be changed once somebody is in it.
    fn time_namespace(&self) -> SysResult<()> {
        namespace::unshare(libc::CLONE_NEWTIME)?;
        self.request(ChildNeed::TimeOffsets)?;
        let own = c"self/ns/time_for_children";
        let file = file::open(self.args.proc.as_fd(), own, libc::O_RDONLY, 0, Resolve::Ordinary)?;
        namespace::join(file.as_fd(), libc::CLONE_NEWTIME)
    }

    fn receive_trees(&mut self, count: usize) -> SysResult<()> {
        scm::send(self.args.control.as_fd(), &ChildReport::Needs(ChildNeed::Trees).encode(), &[])?;
        let is_trees = |message: &[u8]| ChildRequest::decode(message) == Some(ChildRequest::Trees);
        receive_trees(self.args.control.as_fd(), count, is_trees, &mut self.files.trees)
    }

    /// The slave becomes the standard streams and the controlling terminal of this session; the master leaves.
    fn terminal(&mut self, size: Option<(u16, u16)>, uid: u32, console: bool) -> SysResult<()> {
        let (number, master, slave) = self.files.terminal(console)?;
        if let Some((columns, rows)) = size {
            let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
            pty::set_window_size(slave.as_fd(), &size)?;
        }
        match nix::unistd::fchown(&slave, Some(uid.into()), None) {
            // An id that the user namespace does not map: the later change of the user says so.
            Err(Errno::EINVAL) | Ok(()) => {}
            Err(errno) => return Err(errno),
        }
        scm::send(
            self.args.control.as_fd(),
            &ChildReport::Terminal { number }.encode(),
            &[master.as_raw_fd()],
        )?;
        for number in 0..3 {
            become_stream(&slave, number)?;
        }
        pty::take_controlling(slave.as_fd())
    }

    fn sysctl(&self, path: &CStr, value: &CStr) -> SysResult<()> {
        // The runtime's /proc shows the parameters of whoever looks.
        let parameters =
            file::open(self.args.proc.as_fd(), c"sys", libc::O_PATH, 0, Resolve::BeneathNoLinks)?;
        let file = file::open(parameters.as_fd(), path, libc::O_WRONLY, 0, Resolve::BeneathNoLinks)?;
        file::write_all(file.as_fd(), value.to_bytes())
    }

    /// CVE-2019-16884, CVE-2025-52881: in the runtime's own /proc nothing of the container's lies over the file.
    fn label(&self, name: &CStr, value: &CStr) -> SysResult<()> {
        let proc = self.args.proc.as_fd();
        let directory = file::open(proc, c"thread-self/attr", libc::O_PATH, 0, Resolve::Ordinary)?;
        let opened = file::open(directory.as_fd(), name, libc::O_WRONLY, 0, Resolve::BeneathNoLinks)?;
        if !super::rooted_path::is_proc(opened.as_fd())? {
            return Err(Errno::ELOOP);
        }
        file::write_all(opened.as_fd(), value.to_bytes())
    }

    fn execute(&mut self) -> SysResult<()> {
        let image = self.args.program.as_ref().ok_or(Errno::EINVAL)?;
        let path = image.candidates().get(self.program_index).ok_or(Errno::ENOENT)?;
        // SAFETY: an image holds null-terminated lists of C strings; HOME lies in this walk.
        Err(unsafe { process::execve(path, image.argv(), image.env()) })
    }
}

/// Puts a descriptor in the place of a standard stream.
fn become_stream(fd: &OwnedFd, number: i32) -> SysResult<()> {
    // SAFETY: the numbers of the standard streams, which no owned descriptor of this process has.
    let stream = unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(number) };
    let mut stream = std::mem::ManuallyDrop::new(stream);
    nix::unistd::dup2(fd, &mut stream)
}

/// Kernels without keys have nothing to keep apart.
fn ignore_missing(errno: Errno) -> SysResult<()> {
    if errno == Errno::ENOSYS { Ok(()) } else { Err(errno) }
}

/// Id 0 where it is mapped, else the ids of the process, and else whoever we are. Capabilities stay: the ids that
/// we come with are not root's in this namespace.
fn become_root(uid: Option<u32>, gid: Option<u32>) -> SysResult<()> {
    let either = |set: &dyn Fn(u32) -> SysResult<()>, id: u32| match set(0) {
        Err(Errno::EINVAL) => set(id),
        other => other,
    };
    process::set_ids(None, None, Some(&[]))?;
    if let Some(gid) = gid {
        either(&|id| process::set_ids(None, Some(id), None), gid)?;
    }
    if let Some(uid) = uid {
        either(&|id| process::set_ids(Some(id), None, None), uid)?;
    }
    Ok(())
}
