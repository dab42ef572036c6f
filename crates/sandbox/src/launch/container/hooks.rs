//! Runs hooks (runtime-spec, config.md, "POSIX-platform Hooks"): programs of the bundle, which the runtime runs, never
//! the container's own process.

use super::channel::ChildEvent;
use super::spawn::{self, PendingChild};
use super::{NoCgroup, facts};
use crate::plan::container as plan;
use crate::plan::path::c_path;
use crate::spec::ProgramSpec;
use crate::spec::container::Hook;
use crate::stage::container::wire::ChildRequest;
use nix::sys::wait::WaitStatus;
use saggar_sys::error::{Error, Result};
use saggar_sys::{Errno, file, pidfd};
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The maximum number of bytes of a hook's output that an error contains.
const MAX_OUTPUT: usize = 4096;

/// Where hooks run.
#[derive(Debug, Clone, Copy)]
pub struct HookPoint<'a> {
    /// The namespaces, each a file with its CLONE_NEW* flag; those that the runtime is already in are skipped, and an
    /// empty list means the runtime's.
    namespaces: &'a [(OwnedFd, u64)],
    /// The working directory, if it is on the host: the bundle, as with other runtimes.
    bundle: Option<&'a Path>,
    /// The environment of a hook that sets none.
    environment: HookEnvironment<'a>,
}

/// The default environment of hooks.
#[derive(Debug, Clone, Copy)]
enum HookEnvironment<'a> {
    /// The runtime's environment.
    Runtime,
    /// Empty: a host program in the container's namespaces must trust neither environment (CVE-2025-23266).
    Empty,
    /// The environment of the container's process.
    Process(&'a [(OsString, OsString)]),
}

impl<'a> HookPoint<'a> {
    /// In the runtime's namespaces, and in the bundle while it exists.
    pub fn runtime(bundle: &'a Path) -> Self {
        HookPoint { namespaces: &[], bundle: Some(bundle), environment: HookEnvironment::Runtime }
    }

    /// In the container's namespaces before the change of its root, where the bundle is visible.
    pub(super) fn before_pivot(namespaces: &'a [(OwnedFd, u64)], bundle: &'a Path) -> Self {
        HookPoint { namespaces, bundle: Some(bundle), environment: HookEnvironment::Empty }
    }

    /// In the container's namespaces and root, with the environment of its process.
    pub(super) fn inside(namespaces: &'a [(OwnedFd, u64)], environment: &'a [(OsString, OsString)]) -> Self {
        HookPoint { namespaces, bundle: None, environment: HookEnvironment::Process(environment) }
    }

    fn environment(&self) -> Vec<(OsString, OsString)> {
        match self.environment {
            HookEnvironment::Runtime => std::env::vars_os().collect(),
            HookEnvironment::Empty => Vec::new(),
            HookEnvironment::Process(environment) => environment.to_vec(),
        }
    }

    fn working_directory(&self) -> PathBuf {
        self.bundle.filter(|bundle| bundle.is_dir()).unwrap_or(Path::new("/")).to_owned()
    }
}

/// Runs `hooks` in order, each with `state` (JSON) on its standard input; stops at the first that fails.
///
/// # Errors
/// [`saggar_sys::error::Code::System`], with the hook and its output: it could not be run, exited with a status other than
/// 0, or exceeded its timeout, after which it was killed with its process group.
pub fn run(kind: &str, hooks: &[Hook], state: &str, place: HookPoint<'_>) -> Result<()> {
    for (number, hook) in hooks.iter().enumerate() {
        run_one(hook, state, place)
            .map_err(|error| error.context(format_args!("{kind} hook #{number} {}", hook.path.display())))?;
    }
    Ok(())
}

fn run_one(hook: &Hook, state: &str, place: HookPoint<'_>) -> Result<()> {
    let joins = foreign_namespaces(place.namespaces)?;
    let user_namespace = joins.iter().any(|(_, flags)| flags & libc::CLONE_NEWUSER as u64 != 0);
    let program = program(hook, place);
    let cwd = c_path(&program.cwd)?;
    let plan = plan::build_hook(!joins.is_empty(), user_namespace, cwd);
    let input = file::sealed_memfd(c"saggar-state", state.as_bytes())
        .and_then(|file| nix::unistd::lseek(&file, 0, nix::unistd::Whence::SeekSet).map(|_| file))
        .map_err(|e| Error::system("write down the state", e))?;
    let (reader, output) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC | nix::fcntl::OFlag::O_NONBLOCK)
        .map_err(|e| Error::system("make a pipe", e))?;
    // The hook's end is blocking, as programs expect of a pipe.
    nix::fcntl::fcntl(&output, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::empty()))
        .map_err(|e| Error::system("make a pipe", e))?;
    let errors = output.try_clone().map_err(|e| Error::system("duplicate a pipe", e))?;
    let request = spawn::SpawnRequest {
        plan: &plan,
        program: Some(spawn::program_args(&program)?),
        filter: None,
        joins: &joins,
        start_socket: None,
        streams: Some([input, output, errors]),
        die_with_runtime: true,
        process: None,
        cpus: None,
    };
    let (child, channel) = spawn::spawn(request, &NoCgroup)?;
    channel.send(ChildRequest::Go)?;
    while !matches!(channel.next_event()?, ChildEvent::End) {}
    let deadline = hook.timeout.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    wait_for_hook(child, deadline, File::from(reader))
}

fn foreign_namespaces(namespaces: &[(OwnedFd, u64)]) -> Result<Vec<(OwnedFd, u64)>> {
    let foreign = namespaces.iter().filter(|(file, flag)| !facts::is_our_namespace(file, *flag));
    foreign
        .map(|(file, flag)| file.try_clone().map(|file| (file, *flag)))
        .collect::<std::io::Result<_>>()
        .map_err(|e| Error::system("duplicate a namespace", e))
}

fn program(hook: &Hook, place: HookPoint<'_>) -> ProgramSpec {
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
    ProgramSpec { argv, file: Some(hook.path.clone()), env, cwd: place.working_directory() }
}

/// Waits for the exit of a hook, and reads its output so that it never blocks on the pipe. Processes that it leaves
/// behind are not waited for.
fn wait_for_hook(child: PendingChild, deadline: Option<Instant>, mut reader: File) -> Result<()> {
    let (mut output, mut open) = (Vec::new(), true);
    loop {
        let ended = wait_for(child.pidfd()?, open.then_some(&reader), deadline)?;
        open = open && read_all(&mut reader, &mut output);
        match ended {
            Some(true) => break,
            Some(false) => {}
            None => {
                // The hook has a session of its own: this kills every process that has not left its process group.
                let _ = nix::sys::signal::killpg(
                    nix::unistd::Pid::from_raw(child.pid),
                    nix::sys::signal::Signal::SIGKILL,
                );
                return Err(Error::system("it ran longer than its timeout", "killed"));
            }
        }
    }
    let pidfd = child.into_pidfd()?;
    let status = pidfd::reap(pidfd.as_fd()).map_err(|e| Error::system("wait for it", e))?;
    let how = match status {
        WaitStatus::Exited(_, 0) => return Ok(()),
        WaitStatus::Exited(_, status) => format!("exit status {status}"),
        WaitStatus::Signaled(_, signal, _) => format!("killed by {signal}"),
        other => format!("{other:?}"),
    };
    let told = String::from_utf8_lossy(&output);
    Err(Error::system(how, format_args!("its output was {:?}", told.trim())))
}

/// Waits until the hook has exited (true) or has output (false); `None` at the deadline.
fn wait_for(pidfd: &OwnedFd, reader: Option<&File>, deadline: Option<Instant>) -> Result<Option<bool>> {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let mut fds = vec![PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
    fds.extend(reader.map(|said| PollFd::new(said.as_fd(), PollFlags::POLLIN)));
    loop {
        let timeout = match deadline {
            None => PollTimeout::NONE,
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                // poll(2) counts whole milliseconds.
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

/// Reads the available output; returns false at end of file.
fn read_all(reader: &mut File, output: &mut Vec<u8>) -> bool {
    let mut buffer = [0; MAX_OUTPUT];
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return false,
            Ok(len) => {
                let room = MAX_OUTPUT.saturating_sub(output.len()).min(len);
                output.extend_from_slice(&buffer[..room]);
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
        let program = program(&hook, HookPoint::runtime(Path::new("/no/such/bundle")));
        assert_eq!(program.argv, ["/bin/hook"]);
        assert_eq!(program.env, [("A".into(), "1=2".into())]);
        assert_eq!(program.cwd, Path::new("/"), "a bundle that is gone keeps no hook from running");
    }
}
