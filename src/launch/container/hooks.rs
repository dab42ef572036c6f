//! Hooks (runtime-spec, config.md, "POSIX-platform Hooks"): programs that the bundle names, run by the runtime,
//! never by the container's own process.

use super::birth::{self, Child};
use super::talk::Heard;
use super::{NoCgroup, facts};
use crate::error::{Error, Result};
use crate::plan::container as plan;
use crate::spec::Program;
use crate::spec::container::Hook;
use crate::stage::container::wire::Answer;
use crate::sys::{Errno, file, pidfd};
use nix::sys::wait::WaitStatus;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What a hook says is told in its error, this much of it.
const TOLD: usize = 4096;

/// Where a hook runs.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// Whose namespaces, each a file with its CLONE_NEW* flag; those that are the runtime's own are passed over, and
    /// none at all is the runtime's.
    namespaces: &'a [(OwnedFd, u64)],
    /// Its working directory, when that is one of the host's: the bundle, as with other runtimes.
    bundle: Option<&'a Path>,
    /// What a hook has that names no environment.
    environment: Environment<'a>,
}

/// The environment of whom.
#[derive(Debug, Clone, Copy)]
enum Environment<'a> {
    /// The runtime's.
    Runtime,
    /// None: a program of the host, in the container's namespaces, is to trust neither side's (CVE-2025-23266).
    Empty,
    /// That of the container's process.
    Process(&'a [(OsString, OsString)]),
}

impl<'a> Place<'a> {
    /// The runtime's namespaces, in the bundle while that is there.
    pub fn runtime(bundle: &'a Path) -> Self {
        Place { namespaces: &[], bundle: Some(bundle), environment: Environment::Runtime }
    }

    /// The container's namespaces before its root is entered: the bundle is to be seen there.
    pub(super) fn before_root(namespaces: &'a [(OwnedFd, u64)], bundle: &'a Path) -> Self {
        Place { namespaces, bundle: Some(bundle), environment: Environment::Empty }
    }

    /// The container's namespaces and its root, and the environment of its process.
    pub(super) fn inside(namespaces: &'a [(OwnedFd, u64)], environment: &'a [(OsString, OsString)]) -> Self {
        Place { namespaces, bundle: None, environment: Environment::Process(environment) }
    }

    fn environment(&self) -> Vec<(OsString, OsString)> {
        match self.environment {
            Environment::Runtime => std::env::vars_os().collect(),
            Environment::Empty => Vec::new(),
            Environment::Process(environment) => environment.to_vec(),
        }
    }

    fn working_directory(&self) -> PathBuf {
        self.bundle.filter(|bundle| bundle.is_dir()).unwrap_or(Path::new("/")).to_owned()
    }
}

/// Runs `hooks` in order, each with `state` (JSON) on its standard input; stops at the first that fails.
///
/// # Errors
/// [`crate::error::Code::System`], naming the hook and what it said: it could not be run, ended with another status
/// than 0, or ran longer than its timeout, when it was killed with its process group.
pub fn run(kind: &str, hooks: &[Hook], state: &str, place: Place<'_>) -> Result<()> {
    for (number, hook) in hooks.iter().enumerate() {
        run_one(hook, state, place)
            .map_err(|error| error.context(format_args!("{kind} hook #{number} {}", hook.path.display())))?;
    }
    Ok(())
}

fn run_one(hook: &Hook, state: &str, place: Place<'_>) -> Result<()> {
    let joins = foreign(place.namespaces)?;
    let user_namespace = joins.iter().any(|(_, flags)| flags & libc::CLONE_NEWUSER as u64 != 0);
    let program = program(hook, place);
    let cwd = plan::c_path(&program.cwd)?;
    let plan = plan::of_hook(!joins.is_empty(), user_namespace, cwd);
    let input = file::sealed(c"saggar-state", state.as_bytes())
        .and_then(|file| nix::unistd::lseek(&file, 0, nix::unistd::Whence::SeekSet).map(|_| file))
        .map_err(|e| Error::system("write down the state", e))?;
    let (said, output) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC | nix::fcntl::OFlag::O_NONBLOCK)
        .map_err(|e| Error::system("make a pipe", e))?;
    // The hook writes as to any other pipe.
    nix::fcntl::fcntl(&output, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::empty()))
        .map_err(|e| Error::system("make a pipe", e))?;
    let errors = output.try_clone().map_err(|e| Error::system("duplicate a pipe", e))?;
    let request = birth::Request {
        plan: &plan,
        image: Some(birth::image(&program)?),
        filter: None,
        joins: &joins,
        door: None,
        streams: Some([input, output, errors]),
        die_with_runtime: true,
        process: None,
        cpus: None,
    };
    let (child, talk) = birth::bear(request, &NoCgroup)?;
    talk.answer(Answer::Go)?;
    while !matches!(talk.next()?, Heard::End) {}
    let deadline = hook.timeout.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    wait(child, deadline, File::from(said))
}

fn foreign(namespaces: &[(OwnedFd, u64)]) -> Result<Vec<(OwnedFd, u64)>> {
    let foreign = namespaces.iter().filter(|(file, flag)| !facts::is_our_namespace(file, *flag));
    foreign
        .map(|(file, flag)| file.try_clone().map(|file| (file, *flag)))
        .collect::<std::io::Result<_>>()
        .map_err(|e| Error::system("duplicate a namespace", e))
}

fn program(hook: &Hook, place: Place<'_>) -> Program {
    let path = hook.path.clone().into_os_string();
    let argv = if hook.args.is_empty() { vec![path] } else { hook.args.iter().map(OsString::from).collect() };
    let variable = |text: &String| {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        (name.into(), value.into())
    };
    let env = match &hook.env {
        Some(env) => env.iter().map(variable).collect(),
        None => place.environment(),
    };
    Program { argv, file: Some(hook.path.clone()), env, cwd: place.working_directory() }
}

/// Waits for the end of a hook, and reads what it says so that it never waits for us. What it leaves running keeps
/// nobody waiting.
fn wait(child: Child, deadline: Option<Instant>, mut said: File) -> Result<()> {
    let (mut told, mut open) = (Vec::new(), true);
    loop {
        let ended = wait_for(child.pidfd()?, open.then_some(&said), deadline)?;
        open = open && read_all(&mut said, &mut told);
        match ended {
            Some(true) => break,
            Some(false) => {}
            None => {
                // Its own session, begun for this: everything that it has not moved elsewhere goes with it.
                let _ = nix::sys::signal::killpg(
                    nix::unistd::Pid::from_raw(child.pid),
                    nix::sys::signal::Signal::SIGKILL,
                );
                return Err(Error::system("it ran longer than its timeout", "killed"));
            }
        }
    }
    let pidfd = child.keep()?;
    let status = pidfd::reap(pidfd.as_fd()).map_err(|e| Error::system("wait for it", e))?;
    let how = match status {
        WaitStatus::Exited(_, 0) => return Ok(()),
        WaitStatus::Exited(_, status) => format!("exit status {status}"),
        WaitStatus::Signaled(_, signal, _) => format!("killed by {signal}"),
        other => format!("{other:?}"),
    };
    let told = String::from_utf8_lossy(&told);
    Err(Error::system(how, format_args!("it said {:?}", told.trim())))
}

/// Waits until the hook has ended (true) or says something (false); `None` when the time is over.
fn wait_for(pidfd: &OwnedFd, said: Option<&File>, deadline: Option<Instant>) -> Result<Option<bool>> {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let mut fds = vec![PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
    fds.extend(said.map(|said| PollFd::new(said.as_fd(), PollFlags::POLLIN)));
    loop {
        let timeout = match deadline {
            None => PollTimeout::NONE,
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                // A poll counts whole milliseconds.
                PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
            }
        };
        match poll(&mut fds, timeout) {
            Ok(0) if deadline.is_some_and(|deadline| Instant::now() >= deadline) => return Ok(None),
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => {
                let ready = |fd: &PollFd<'_>| fd.revents().is_some_and(|events| !events.is_empty());
                return Ok(Some(ready(&fds[0])));
            }
            Err(errno) => return Err(Error::system("wait for it", errno)),
        }
    }
}

/// Reads what there is; false at the end of it.
fn read_all(said: &mut File, told: &mut Vec<u8>) -> bool {
    let mut buffer = [0; TOLD];
    loop {
        match said.read(&mut buffer) {
            Ok(0) => return false,
            Ok(len) => {
                let room = TOLD.saturating_sub(told.len()).min(len);
                told.extend_from_slice(&buffer[..room]);
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_without_arguments_is_called_by_its_path() {
        let hook =
            Hook { path: "/bin/hook".into(), args: vec![], env: Some(vec!["A=1=2".into()]), timeout: None };
        let program = program(&hook, Place::runtime(Path::new("/no/such/bundle")));
        assert_eq!(program.argv, ["/bin/hook"]);
        assert_eq!(program.env, [("A".into(), "1=2".into())]);
        assert_eq!(program.cwd, Path::new("/"), "a bundle that is gone keeps no hook from running");
    }
}
