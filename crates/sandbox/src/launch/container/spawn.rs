//! Spawns a process of a container: its arguments, the namespaces that it joins, and its cgroups.

use super::channel::ChildChannel;
use super::{ContainerCgroup, maps, process_setup};
use crate::launch::hint;
use crate::plan::container::{ContainerFilter, ContainerPlan};
use crate::spec::ProgramSpec;
use crate::spec::container::{CpuAffinity, Namespace, ProcessSpec};
use crate::stage::container::program_args::ProgramArgs;
use crate::stage::container::wire::{ChildReport, ChildRequest};
use crate::stage::container::{self as stage, ContainerChildArgs};
use crate::stage::program_path;
use nix::sys::socket::{setsockopt, sockopt};
use saggar_sys::error::{Code, Error, Result};
use saggar_sys::file::{self, Resolve};
use saggar_sys::scm::socket_pair;
use saggar_sys::{Errno, namespace, pidfd};
use std::ffi::{CString, OsStr};
use std::fs::OpenOptions;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// What a process is spawned with.
pub(super) struct SpawnRequest<'a> {
    pub(super) plan: &'a ContainerPlan,
    pub(super) program: Option<ProgramArgs>,
    pub(super) filter: Option<&'a ContainerFilter>,
    pub(super) joins: &'a [(OwnedFd, u64)],
    pub(super) start_socket: Option<OwnedFd>,
    pub(super) streams: Option<[OwnedFd; 3]>,
    pub(super) die_with_runtime: bool,
    /// Settings that the runtime applies from outside, before the process switches to its user.
    pub(super) process: Option<&'a ProcessSpec>,
    /// The value of `process.execCPUAffinity`; `None` for a container's init, to which it does not apply.
    pub(super) cpus: Option<&'a CpuAffinity>,
}

/// A process that waits for its first [`ChildRequest::Go`]. Dropping it without [`PendingChild::into_pidfd`] kills and
/// reaps it.
#[derive(Debug)]
pub(super) struct PendingChild {
    pub(super) pid: i32,
    pidfd: Option<OwnedFd>,
}

impl PendingChild {
    fn new(pid: i32, pidfd: OwnedFd) -> Self {
        PendingChild { pid, pidfd: Some(pidfd) }
    }

    /// Returns a pidfd of the process.
    pub(super) fn pidfd(&self) -> Result<&OwnedFd> {
        self.pidfd.as_ref().ok_or_else(|| Error::system("hold the process of the container", "it is gone"))
    }

    /// Keeps the process alive; returns its pidfd.
    pub(super) fn into_pidfd(mut self) -> Result<OwnedFd> {
        self.pidfd.take().ok_or_else(|| Error::system("hold the process of the container", "it is gone"))
    }
}

impl Drop for PendingChild {
    fn drop(&mut self) {
        if let Some(pidfd) = self.pidfd.take() {
            let _ = pidfd::signal(pidfd.as_fd(), libc::SIGKILL);
            let _ = pidfd::reap(pidfd.as_fd());
        }
    }
}

/// Spawns the process, in its namespaces and cgroups, with its id maps written; it then waits.
pub(super) fn spawn<'a>(
    request: SpawnRequest<'a>,
    cgroup: &dyn ContainerCgroup,
) -> Result<(PendingChild, ChildChannel<'a>)> {
    let plan = request.plan;
    let (first, channel) = begin_spawn(request, cgroup)?;
    let child = if plan.needs_intermediate { await_child(&first, &channel)? } else { first };
    if let Some(ids) = &plan.maps {
        maps::write_maps_of(child.pid, ids)?;
    }
    Ok((child, channel))
}

/// Spawns the process in its cgroups, without waiting. With an intermediate process, call [`await_child`] for its child
/// when the channel is readable.
pub(super) fn begin_spawn<'a>(
    request: SpawnRequest<'a>,
    cgroup: &dyn ContainerCgroup,
) -> Result<(PendingChild, ChildChannel<'a>)> {
    let plan = request.plan;
    let (ours, theirs) = socket_pair()?;
    setsockopt(&ours, sockopt::PassCred, &true).map_err(|e| Error::system("ask for credentials", e))?;
    let runtime = pidfd::open(std::process::id().cast_signed())
        .map_err(|e| Error::system("open a pidfd of saggar itself", e))?;
    let program = request.program.as_ref().map(ProgramArgs::name).unwrap_or_default();
    let born = ContainerChildArgs {
        plan,
        program: request.program,
        filter: request.filter,
        joins: request.joins,
        control: theirs,
        runtime,
        proc: open_proc()?,
        start_socket: request.start_socket,
        streams: request.streams,
        die_with_runtime: request.die_with_runtime,
    };
    let newborn = stage::spawn(born, ours, cgroup.clone_target()).map_err(hint::clone_failed)?;
    let first = PendingChild::new(newborn.pid, newborn.pidfd);
    let channel = ChildChannel::new(newborn.control, plan, program);
    match request.process {
        Some(settings) => process_setup::apply(first.pid, settings, request.cpus, cgroup)?,
        None => cgroup.enter(first.pid)?,
    }
    if plan.needs_intermediate {
        channel.send(ChildRequest::Go)?;
    }
    Ok((first, channel))
}

/// Waits for the child of the intermediate process, which is a child of this process too; the intermediate process has
/// then done its work.
pub(super) fn await_child(_intermediate: &PendingChild, channel: &ChildChannel<'_>) -> Result<PendingChild> {
    let pid = channel.receive_pid(ChildReport::Waiting)?;
    let pidfd = pidfd::open(pid).map_err(|e| Error::system("open a pidfd of the process", e))?;
    Ok(PendingChild::new(pid, pidfd))
}

fn open_proc() -> Result<OwnedFd> {
    let flags = libc::O_PATH | libc::O_DIRECTORY;
    let proc = file::open(file::cwd(), c"/proc", flags, 0, Resolve::Ordinary)
        .map_err(|e| Error::system("open /proc", e.desc()))?;
    let kind = nix::sys::statfs::fstatfs(&proc).map_err(|e| Error::system("look at /proc", e))?;
    if kind.filesystem_type() != nix::sys::statfs::PROC_SUPER_MAGIC {
        return Err(Error::new(Code::Unsupported, "/proc is not procfs").hint("mount proc on /proc"));
    }
    Ok(proc)
}

/// Opens the namespaces to join, and checks their types.
pub(super) fn open_joins(joins: &[(Namespace, PathBuf)]) -> Result<Vec<(OwnedFd, u64)>> {
    joins
        .iter()
        .map(|(kind, path)| open_namespace(*kind, path).map(|file| (file, kind.clone_flag())))
        .collect()
}

fn open_namespace(kind: Namespace, path: &Path) -> Result<OwnedFd> {
    let what = format!("join the {} namespace {}", kind.proc_name(), path.display());
    let invalid = |why: String| Error::new(Code::Invalid, format!("{what}: {why}"));
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
        .map_err(|error| invalid(super::channel::os_text(&error)))?;
    let file = OwnedFd::from(file);
    let found = namespace::namespace_kind(file.as_fd());
    if found == Ok(kind.clone_flag()) {
        return Ok(file);
    }
    let named = found.ok().and_then(|flag| Namespace::ALL.into_iter().find(|kind| kind.clone_flag() == flag));
    Err(invalid(match named {
        Some(other) => format!("it is a {} namespace", other.proc_name()),
        None => "it is no namespace".to_owned(),
    }))
}

/// Returns the arguments of a program, with its candidates on the container's own PATH.
pub(super) fn program_args(program: &ProgramSpec) -> Result<ProgramArgs> {
    let string = |parts: &[&[u8]]| {
        CString::new(parts.concat())
            .map_err(|_| Error::new(Code::Invalid, "process: an argument or a variable has a NUL byte"))
    };
    let name = program.argv.first().map(|name| name.as_bytes()).filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| Error::new(Code::Invalid, "process.args: there is no program"))?;
    let path = program.env.iter().rev().find(|(name, _)| name == "PATH");
    let path = path.map_or(OsStr::new(""), |(_, value)| value.as_os_str());
    let candidates = program_path::candidates(program, name, path);
    let candidates = candidates.iter().map(|path| string(&[path])).collect::<Result<_>>()?;
    let argv = program.argv.iter().map(|arg| string(&[arg.as_bytes()])).collect::<Result<_>>()?;
    let variable = |(name, value): &(std::ffi::OsString, std::ffi::OsString)| {
        string(&[name.as_bytes(), b"=", value.as_bytes()])
    };
    let env = program.env.iter().map(variable).collect::<Result<_>>()?;
    Ok(ProgramArgs::new(candidates, argv, env))
}

/// Duplicates streams for a process.
pub(super) fn duplicate_streams(streams: [BorrowedFd<'_>; 3]) -> Result<[OwnedFd; 3]> {
    let [stdin, stdout, stderr] = streams
        .map(|fd| fd.try_clone_to_owned().map_err(|e| Error::system("duplicate a standard stream", e)));
    Ok([stdin?, stdout?, stderr?])
}

/// Checks that the descriptors to preserve are open: otherwise one of saggar's own could take the number.
pub(super) fn check_preserved(count: u32) -> Result<()> {
    for number in 3..3 + i32::try_from(count).unwrap_or(i32::MAX - 3) {
        let flags = nix::fcntl::fcntl(
            // Borrowed for F_GETFD only.
            file::borrow_number(number).as_fd(),
            nix::fcntl::FcntlArg::F_GETFD,
        );
        match flags {
            Ok(flags) if flags & libc::FD_CLOEXEC == 0 => {}
            Ok(_) | Err(Errno::EBADF) => {
                let message = format!("--preserve-fds {count}: descriptor {number} is not open");
                return Err(Error::new(Code::Invalid, message));
            }
            Err(errno) => return Err(Error::system(format_args!("look at descriptor {number}"), errno)),
        }
    }
    Ok(())
}
