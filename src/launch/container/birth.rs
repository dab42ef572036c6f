//! The birth of a process of a container: what it is born with, who joins what, and its place in the cgroups.

use super::talk::Talk;
use super::{Cgroup, maps, settle};
use crate::error::{Code, Error, Result};
use crate::launch::{hint, socket_pair};
use crate::plan::container::{Filter, Plan};
use crate::spec::Program;
use crate::spec::container::{CpuAffinity, Namespace, Process};
use crate::stage::container::image::Image;
use crate::stage::container::wire::{Answer, Report};
use crate::stage::container::{self as stage, Born};
use crate::sys::file::{self, Resolve};
use crate::sys::{Errno, namespace, pidfd};
use nix::sys::socket::{setsockopt, sockopt};
use std::ffi::{CString, OsStr};
use std::fs::OpenOptions;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// What a process is born for.
pub(super) struct Request<'a> {
    pub(super) plan: &'a Plan,
    pub(super) image: Option<Image>,
    pub(super) filter: Option<&'a Filter>,
    pub(super) joins: &'a [(OwnedFd, u64)],
    pub(super) door: Option<OwnedFd>,
    pub(super) streams: Option<[OwnedFd; 3]>,
    pub(super) die_with_runtime: bool,
    /// Settings that we make on it from outside, before it is anybody.
    pub(super) process: Option<&'a Process>,
    /// Where `process.execCPUAffinity` holds: it is not for the first process of a container.
    pub(super) cpus: Option<&'a CpuAffinity>,
}

/// A process that waits for its first [`Answer::Go`]. Dropped without [`Child::keep`] it is killed and reaped.
#[derive(Debug)]
pub(super) struct Child {
    pub(super) pid: i32,
    pidfd: Option<OwnedFd>,
}

impl Child {
    fn new(pid: i32, pidfd: OwnedFd) -> Self {
        Child { pid, pidfd: Some(pidfd) }
    }

    /// A pidfd of it.
    pub(super) fn pidfd(&self) -> Result<&OwnedFd> {
        self.pidfd.as_ref().ok_or_else(|| Error::system("hold the process of the container", "it is gone"))
    }

    /// It lives on; its pidfd.
    pub(super) fn keep(mut self) -> Result<OwnedFd> {
        self.pidfd.take().ok_or_else(|| Error::system("hold the process of the container", "it is gone"))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if let Some(pidfd) = self.pidfd.take() {
            let _ = pidfd::signal(pidfd.as_fd(), libc::SIGKILL);
            let _ = pidfd::reap(pidfd.as_fd());
        }
    }
}

/// Makes the process, in its namespaces and cgroups, with its ids mapped; it waits.
pub(super) fn bear<'a>(request: Request<'a>, cgroup: &dyn Cgroup) -> Result<(Child, Talk<'a>)> {
    let plan = request.plan;
    let (first, talk) = begin(request, cgroup)?;
    let child = if plan.intermediate { born_inside(&first, &talk)? } else { first };
    if let Some(ids) = &plan.maps {
        maps::write(child.pid, ids)?;
    }
    Ok((child, talk))
}

/// Makes the process in its cgroups, and waits for nothing. An intermediate process is on its way: as soon as there
/// is something to hear, [`born_inside`] has what it made.
pub(super) fn begin<'a>(request: Request<'a>, cgroup: &dyn Cgroup) -> Result<(Child, Talk<'a>)> {
    let plan = request.plan;
    let (ours, theirs) = socket_pair()?;
    setsockopt(&ours, sockopt::PassCred, &true).map_err(|e| Error::system("ask for credentials", e))?;
    let runtime = pidfd::open(std::process::id().cast_signed())
        .map_err(|e| Error::system("open a pidfd of saggar itself", e))?;
    let program = request.image.as_ref().map(Image::name).unwrap_or_default();
    let born = Born {
        plan,
        image: request.image,
        filter: request.filter,
        joins: request.joins,
        control: theirs,
        runtime,
        proc: open_proc()?,
        door: request.door,
        streams: request.streams,
        die_with_runtime: request.die_with_runtime,
    };
    let newborn = stage::bear(born, ours, cgroup.birthplace()).map_err(hint::clone_failed)?;
    let first = Child::new(newborn.pid, newborn.pidfd);
    let talk = Talk::new(newborn.control, plan, program);
    match request.process {
        Some(settings) => settle::join(first.pid, settings, request.cpus, cgroup)?,
        None => cgroup.enter(first.pid)?,
    }
    if plan.intermediate {
        talk.answer(Answer::Go)?;
    }
    Ok((first, talk))
}

/// Waits for the child of the intermediate process, which is ours; there is nothing left for that one to do.
pub(super) fn born_inside(_intermediate: &Child, talk: &Talk<'_>) -> Result<Child> {
    let pid = talk.pid_of(Report::Waiting)?;
    let pidfd = pidfd::open(pid).map_err(|e| Error::system("open a pidfd of the process", e))?;
    Ok(Child::new(pid, pidfd))
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

/// Opens the namespaces that are joined, and makes sure of what they are.
pub(super) fn open_joins(joins: &[(Namespace, PathBuf)]) -> Result<Vec<(OwnedFd, u64)>> {
    joins.iter().map(|(kind, path)| open_namespace(*kind, path).map(|file| (file, kind.flag()))).collect()
}

fn open_namespace(kind: Namespace, path: &Path) -> Result<OwnedFd> {
    let what = format!("join the {} namespace {}", kind.file(), path.display());
    let invalid = |why: String| Error::new(Code::Invalid, format!("{what}: {why}"));
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
        .map_err(|error| invalid(super::talk::os_text(&error)))?;
    let file = OwnedFd::from(file);
    let found = namespace::namespace_kind(file.as_fd());
    if found == Ok(kind.flag()) {
        return Ok(file);
    }
    let named = found.ok().and_then(|flag| Namespace::ALL.into_iter().find(|kind| kind.flag() == flag));
    Err(invalid(match named {
        Some(other) => format!("it is a {} namespace", other.file()),
        None => "it is no namespace".to_owned(),
    }))
}

/// The program of a process, its candidates on the container's own PATH.
pub(super) fn image(program: &Program) -> Result<Image> {
    let string = |parts: &[&[u8]]| {
        CString::new(parts.concat())
            .map_err(|_| Error::new(Code::Invalid, "process: an argument or a variable has a NUL byte"))
    };
    let name = program.argv.first().map(|name| name.as_bytes()).filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| Error::new(Code::Invalid, "process.args: there is no program"))?;
    let path = program.env.iter().rev().find(|(name, _)| name == "PATH");
    let path = path.map_or(OsStr::new(""), |(_, value)| value.as_os_str());
    let candidates = if let Some(file) = &program.file {
        vec![string(&[file.as_os_str().as_bytes()])?]
    } else if name.contains(&b'/') {
        vec![string(&[name])?]
    } else {
        let directories = path.as_bytes().split(|b| *b == b':').filter(|d| d.starts_with(b"/"));
        directories.map(|directory| string(&[directory, b"/", name])).collect::<Result<_>>()?
    };
    let argv = program.argv.iter().map(|arg| string(&[arg.as_bytes()])).collect::<Result<_>>()?;
    let variable = |(name, value): &(std::ffi::OsString, std::ffi::OsString)| {
        string(&[name.as_bytes(), b"=", value.as_bytes()])
    };
    let env = program.env.iter().map(variable).collect::<Result<_>>()?;
    Ok(Image::new(candidates, argv, env))
}

/// Streams for a process of its own.
pub(super) fn streams(streams: [BorrowedFd<'_>; 3]) -> Result<[OwnedFd; 3]> {
    let [stdin, stdout, stderr] = streams
        .map(|fd| fd.try_clone_to_owned().map_err(|e| Error::system("duplicate a standard stream", e)));
    Ok([stdin?, stdout?, stderr?])
}

/// The descriptors that are to stay open must be there: one of ours would stand in the gap.
pub(super) fn check_preserved(count: u32) -> Result<()> {
    for number in 3..3 + i32::try_from(count).unwrap_or(i32::MAX - 3) {
        let flags = nix::fcntl::fcntl(
            // Only looked at.
            file::number(number).as_fd(),
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
