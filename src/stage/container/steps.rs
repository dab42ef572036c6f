//! The interpreter of a container's steps.

use super::files::{Files, Node};
use super::process::{self as settle, HomeVariable};
use super::wire::{Answer, LEN, Need, Report};
use super::{Born, await_go, die_with};
use crate::plan::container::step::Step;
use crate::sys::file::{self, Resolve};
use crate::sys::process::{self, SchedAttr};
use crate::sys::{Errno, SysResult, caps, keyring, mount, namespace, net, pty, scm};
use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

/// What a walk has made so far.
struct Walk<'a> {
    born: Born<'a>,
    files: Files,
    home: HomeVariable,
    /// The program that was found.
    found: usize,
    entered: bool,
}

/// Runs every step and becomes the program. When one fails it is told how many there are from it to the end (whoever
/// hears of it may know the last ones alone), and why; nothing is given back to the heap on the way out.
pub(super) fn walk(born: Born<'_>) -> ! {
    let plan = born.plan;
    let mut walk = Walk { born, files: Files::new(), home: [0; 1024], found: 0, entered: false };
    let steps = plan.steps.as_slice();
    for (left, step) in (1..=u32::try_from(steps.len()).unwrap_or(u32::MAX)).rev().zip(steps) {
        if let Err(errno) = walk.run(step) {
            let report = Report::Failed { step: left, errno: errno as i32 };
            let _ = scm::send(walk.born.control.as_fd(), &report.encode(), &[]);
            process::exit_now(if errno == Errno::ENOENT { 127 } else { 126 });
        }
    }
    // A container without a program has nothing to become.
    process::exit_now(0)
}

impl Walk<'_> {
    fn run(&mut self, step: &Step) -> SysResult<()> {
        match step {
            Step::AwaitGo => self.await_go(),
            Step::Hide => process::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0),
            Step::Join { namespace } => {
                let flag = namespace.flag();
                let join = self.born.joins.iter().find(|(_, kind)| *kind == flag).ok_or(Errno::EBADF)?;
                super::join(&join.0, flag)
            }
            Step::BecomeRoot { uid, gid } => become_root(*uid, *gid),
            Step::NewCgroupNamespace => namespace::unshare(libc::CLONE_NEWCGROUP),
            Step::NewTimeNamespace => self.time_namespace(),
            Step::NewKeyring => keyring::join_new_session().or_else(unless_missing),
            Step::LoopbackUp => net::loopback_up().map(drop),
            Step::AwaitNetDevices => {
                let control = self.born.control.as_fd();
                let socket = net::route_socket()?;
                scm::send(control, &Report::Needs(Need::NetDevices).encode(), &[socket.as_raw_fd()])?;
                await_go(control)
            }
            Step::NewSession => nix::unistd::setsid().map(drop),
            Step::Subreaper => process::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0),
            Step::Terminal { size, uid, console } => self.terminal(*size, *uid, *console),
            Step::AwaitHooks => {
                let control = self.born.control.as_fd();
                settle::tell_namespaces(control, self.born.proc.as_fd())?;
                await_go(control)
            }
            Step::ReceiveTrees { count } => self.receive_trees(*count),
            Step::Hostname { name } => nix::unistd::sethostname(OsStr::from_bytes(name.to_bytes())),
            Step::Domainname { name } => process::set_domain_name(name),
            Step::Sysctl { path, value } => self.sysctl(path, value),
            Step::MemoryPolicy { mode, nodes } => process::set_memory_policy(*mode, nodes),
            Step::AwaitStart => {
                let door = self.born.door.take().ok_or(Errno::EBADF)?;
                let control = self.born.control.as_fd();
                let proc = self.born.proc.as_fd();
                let die = self.born.die_with_runtime;
                self.born.control = settle::await_start(control, door.as_fd(), proc, die)?;
                Ok(())
            }
            Step::FindProgram => {
                // The change of user has undone the bond to the runtime. What waits for a start keeps it until
                // then; a program that is to outlive the runtime, and waits for nobody, has none from here on.
                if self.born.die_with_runtime || self.born.door.is_some() {
                    die_with(self.born.runtime.as_fd())?;
                } else {
                    process::prctl(libc::PR_SET_PDEATHSIG, 0, 0, 0)?;
                }
                self.found = settle::find_program(self.born.image.as_ref().ok_or(Errno::EINVAL)?)?;
                Ok(())
            }
            Step::Home { uid } => {
                settle::find_home(*uid, &mut self.home);
                let variable = CStr::from_bytes_until_nul(&self.home).map_err(|_| Errno::EINVAL)?;
                self.born.image.as_mut().ok_or(Errno::EINVAL)?.set_home(variable);
                Ok(())
            }
            Step::Seccomp => settle::load(self.born.filter.ok_or(Errno::EINVAL)?, self.born.control.as_fd()),
            Step::Execute => self.execute(),
            settings => match self.files_step(settings) {
                Some(done) => done,
                None => self.setting(settings),
            },
        }
    }

    /// The steps of the file tree; `None` for another step.
    fn files_step(&mut self, step: &Step) -> Option<SysResult<()>> {
        let files = &mut self.files;
        Some(match step {
            Step::Propagation { flags } | Step::RootPropagation { flags } => {
                let root = file::open(file::cwd(), c"/", libc::O_PATH, 0, Resolve::Ordinary);
                let recursive = flags & libc::MS_REC != 0;
                root.and_then(|root| mount::change(root.as_fd(), 0, 0, flags & !libc::MS_REC, recursive))
            }
            Step::Root { path, received, parent_private } => {
                files.attach_root(path, *received, *parent_private)
            }
            Step::OpenRoot { path } => files.open_root(path),
            Step::Mount(mount) => files.mount(mount),
            Step::Device { path, kind, major, minor, mode, uid, gid, bind } => files.device(&Node {
                path,
                kind: *kind,
                major: *major,
                minor: *minor,
                mode: *mode,
                uid: *uid,
                gid: *gid,
                bind: *bind,
            }),
            Step::Symlink { path, target, replace } => files.symlink(path, target, *replace),
            Step::MakeDirectory { path } => files.make_directory(path),
            Step::Seal { kept, .. } => files.seal(*kept),
            Step::Mask { path, proc } => files.mask(path, *proc),
            Step::ReadOnly { path, proc } => files.read_only(path, *proc),
            Step::SealRoot => files.seal_root(),
            Step::PivotRoot => files.pivot(),
            Step::MoveRoot => files.enter_root(true),
            Step::EnterRoot => files.enter_root(false),
            _ => return None,
        })
    }

    /// What the process sets on itself.
    fn setting(&mut self, step: &Step) -> SysResult<()> {
        match step {
            Step::CpuAffinity { cpus } => process::set_affinity(0, cpus),
            Step::Scheduler(asked) => process::set_scheduler(SchedAttr {
                size: 0,
                policy: asked.policy,
                flags: asked.flags,
                nice: asked.nice,
                priority: asked.priority,
                runtime: asked.runtime,
                deadline: asked.deadline,
                period: asked.period,
            }),
            Step::IoPriority { value } => process::set_io_priority(*value),
            Step::Personality { value } => process::set_personality(*value),
            // The runtime has made room for it, or has said that there is none.
            Step::Rlimit { resource, soft, hard } => process::lower_limit(*resource, *soft, *hard),
            Step::Umask { mask } => {
                nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(*mask));
                Ok(())
            }
            Step::SecurityLabel { file, value } => self.label(file, value),
            Step::BoundingSet { keep } => caps::bound(*keep),
            Step::OwnStreams { uid, gid } => settle::own_streams(*uid, *gid),
            Step::User { uid, gid, groups } => {
                process::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0)?;
                process::set_ids(*uid, *gid, groups.as_deref())?;
                process::prctl(libc::PR_SET_KEEPCAPS, 0, 0, 0)
            }
            Step::Capabilities { effective, permitted, inheritable, ambient, until_exec } => {
                let more = if *until_exec { 1 << caps::SYS_ADMIN } else { 0 };
                caps::set(effective | more, permitted | more, *inheritable, *ambient)?;
                // A change of ids or rights has cleared it.
                die_with(self.born.runtime.as_fd())
            }
            Step::NoNewPrivs => process::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0),
            Step::WorkingDirectory { path, as_user } => match settle::enter(path) {
                _ if *as_user && self.entered => Ok(()),
                // Root may be refused where the user is not: NFS, FUSE.
                Err(Errno::EACCES | Errno::EPERM) if !*as_user => Ok(()),
                other => {
                    self.entered = true;
                    other
                }
            },
            Step::CloseDescriptors { from } => {
                if !self.born.die_with_runtime {
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
    fn need(&self, need: Need) -> SysResult<()> {
        scm::send(self.born.control.as_fd(), &Report::Needs(need).encode(), &[])?;
        await_go(self.born.control.as_fd())
    }

    fn await_go(&self) -> SysResult<()> {
        die_with(self.born.runtime.as_fd())?;
        await_go(self.born.control.as_fd())?;
        for (number, stream) in (0..).zip(self.born.streams.iter().flatten()) {
            become_stream(stream, number)?;
        }
        nix::sys::stat::umask(nix::sys::stat::Mode::empty());
        Ok(())
    }

    /// The namespace is made for children; its offsets cannot be changed once somebody is in it.
    fn time_namespace(&self) -> SysResult<()> {
        namespace::unshare(libc::CLONE_NEWTIME)?;
        self.need(Need::TimeOffsets)?;
        let own = c"self/ns/time_for_children";
        let file = file::open(self.born.proc.as_fd(), own, libc::O_RDONLY, 0, Resolve::Ordinary)?;
        namespace::join(file.as_fd(), libc::CLONE_NEWTIME)
    }

    fn receive_trees(&mut self, count: usize) -> SysResult<()> {
        scm::send(self.born.control.as_fd(), &Report::Needs(Need::Trees).encode(), &[])?;
        let mut next = 0;
        while next < count {
            let mut buffer = [0; LEN];
            let received = scm::receive(self.born.control.as_fd(), &mut buffer)?;
            if Answer::decode(&buffer[..received.len]) != Some(Answer::Trees) {
                process::exit_now(125);
            }
            for tree in received.fds.into_iter().flatten() {
                *self.files.trees.get_mut(next).ok_or(Errno::E2BIG)? = Some(tree);
                next += 1;
            }
        }
        Ok(())
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
        scm::send(self.born.control.as_fd(), &Report::Terminal { number }.encode(), &[master.as_raw_fd()])?;
        for number in 0..3 {
            become_stream(&slave, number)?;
        }
        pty::take_controlling(slave.as_fd())
    }

    fn sysctl(&self, path: &CStr, value: &CStr) -> SysResult<()> {
        // The runtime's /proc shows the parameters of whoever looks.
        let parameters =
            file::open(self.born.proc.as_fd(), c"sys", libc::O_PATH, 0, Resolve::BeneathNoLinks)?;
        let file = file::open(parameters.as_fd(), path, libc::O_WRONLY, 0, Resolve::BeneathNoLinks)?;
        file::write_all(file.as_fd(), value.to_bytes())
    }

    /// CVE-2019-16884, CVE-2025-52881: in the runtime's own /proc nothing of the container's lies over the file.
    fn label(&self, name: &CStr, value: &CStr) -> SysResult<()> {
        let proc = self.born.proc.as_fd();
        let directory = file::open(proc, c"thread-self/attr", libc::O_PATH, 0, Resolve::Ordinary)?;
        let opened = file::open(directory.as_fd(), name, libc::O_WRONLY, 0, Resolve::BeneathNoLinks)?;
        if !super::files::is_proc(opened.as_fd())? {
            return Err(Errno::ELOOP);
        }
        file::write_all(opened.as_fd(), value.to_bytes())
    }

    fn execute(&mut self) -> SysResult<()> {
        let image = self.born.image.as_ref().ok_or(Errno::EINVAL)?;
        let path = image.candidates().get(self.found).ok_or(Errno::ENOENT)?;
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
fn unless_missing(errno: Errno) -> SysResult<()> {
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
