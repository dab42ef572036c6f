//! The processes beside a container: the supervisor, saggar executed by itself, and the guard, its fork.
//!
//! Who runs here: processes of the host with the runtime's rights and one thread each, in a session of their own,
//! their standard streams on /dev/null.

use super::{Answer, remove_socket};
use crate::bridge::adapter::{self, Once};
use crate::bridge::io::Listener;
use crate::cgroup::Group;
use crate::cmd::oci::container::{Found, Status};
use crate::cmd::oci::group::ForExec;
use crate::cmd::oci::{filter, undo, update};
use crate::error::{Code, Error, Result};
use crate::host::peer::Peers;
use crate::id::SandboxId;
use crate::launch::container::{self as launch, Console, Options, Starting};
use crate::launch::ids::{self, IdBlock};
use crate::plan::container::Filter;
use crate::spec::Program;
use crate::spec::container::{Container, Process};
use crate::spec::policy::{self, CommandLine, Home, Places};
use crate::stage::beside;
use crate::state::container::{Beside, Record, Root};
use crate::supervise::beside::{Ends, How, Job, Room, run};
use crate::supervise::signals;
use crate::sys::{pidfd, process, scm};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::wait::WaitStatus;
use nix::unistd::{Pid, geteuid};
use serde_json::Value;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// The supervisor's whole life; `ROOT ID` of its container, and the runtime on standard input. The exit status.
pub(in crate::cmd) fn beside(args: &[OsString]) -> u8 {
    let (Some(root), Some(id)) = (args.first(), args.get(1).and_then(|id| id.to_str())) else { return 2 };
    if beside::close_inherited().and_then(|()| launch::protect_self().map_err(|_| Errno::EPERM)).is_err() {
        return 125;
    }
    let Ok(runtime) = std::io::stdin().as_fd().try_clone_to_owned() else { return 125 };
    let served = stand(&runtime, Path::new(root), id);
    match served {
        Ok(Some((job, mut room))) => {
            drop(runtime);
            match run(job, &mut room) {
                Ok(()) => 0,
                Err(error) => {
                    log::error!("{error}");
                    room.kill();
                    1
                }
            }
        }
        // The runtime is gone, and with it the init.
        Ok(None) => 0,
        Err(error) => {
            answer(&runtime, &Answer::Failed(error));
            125
        }
    }
}

fn answer(runtime: &OwnedFd, answer: &Answer) {
    // A runtime that is gone needs none.
    let text = serde_json::to_vec(answer).unwrap_or_default();
    let _ = scm::send(runtime.as_fd(), &text, &[]);
}

/// Everything up to the loop; `None` when the runtime has gone.
fn stand(runtime: &OwnedFd, root: &Path, id: &str) -> Result<Option<(Job, Inside)>> {
    alone()?;
    let Some(ends) = receive(runtime)? else { return Ok(None) };
    let found = Found::new(Root::new(Some(root))?.find(&SandboxId::parse(id)?)?)?;
    let beside = found.record.bridge.clone();
    let beside = beside.ok_or_else(|| Error::new(Code::Invalid, "its record has none"))?;
    let container = found.config()?.container;
    let process = container.process.clone();
    let process = process.ok_or_else(|| Error::new(Code::Invalid, "the container has no process"))?;
    let adapter = adapter::by_name(&beside.adapter)
        .ok_or_else(|| Error::new(Code::Invalid, format!("there is no adapter {:?}", beside.adapter)))?;
    crate::log::install_file(&found.directory.path().join("bridge.log"), true, log::LevelFilter::Info)?;
    keep_apart(ends.init.as_fd())?;
    let signals = signals::open()?;
    let listener = Listener::bind(&beside.socket)?;
    let control = Listener::bind(&found.directory.path().join("control.sock"));
    // A longer name than a socket can have, in a state directory that is not the usual one.
    let control = control.inspect_err(|error| log::warn!("there is no control socket: {error}")).ok();
    let socket = (listener.record().dev, listener.record().ino);
    let init = duplicate(ends.init.as_fd())?;
    let remains = Beside { socket_file: Some(socket), ..beside };
    let (pid, guard) = fork_guard(&found.record, &remains, init.as_fd())?;
    answer(runtime, &Answer::Ready { guard: pid, socket });
    let job = Job {
        name: id.to_owned(),
        adapter: Box::new(Once::new(adapter)),
        listener,
        control,
        ends,
        guard,
        signals,
        environment: process.program.env.clone(),
        directory: process.program.cwd.clone(),
        ids: own_ids()?,
    };
    let filter = filter::again(&container)?;
    Ok(Some((job, Inside { found, container, filter, process, init })))
}

/// Refuses a container whose programs would pass for those of the host at the sockets.
fn keep_apart(init: BorrowedFd<'_>) -> Result<()> {
    let peers = Peers::of_this_process().map_err(|e| Error::system("judge the callers of the bridge", e))?;
    match peers.take_for_own(init) {
        false => Ok(()),
        true => Err(Error::new(Code::Invalid, "its programs are in the pid and user namespaces of the host")
            .hint("give the container a pid namespace (no --pid=host, no hostPID)")),
    }
}

/// A session of its own, and nothing of the caller's standard streams.
fn alone() -> Result<()> {
    let fails = |e: Errno| Error::system("leave the caller's session", e);
    nix::unistd::setsid().map_err(fails)?;
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
    let _ = process::set_name(c"saggar:bridge");
    let null = OpenOptions::new().read(true).write(true).open("/dev/null");
    let null = null.map_err(|e| Error::system("open /dev/null", e))?;
    nix::unistd::dup2_stdin(&null).map_err(fails)?;
    nix::unistd::dup2_stdout(&null).map_err(fails)?;
    nix::unistd::dup2_stderr(&null).map_err(fails)
}

/// A block of ids of root's, for the id of its supervisor; held as long as this process lives.
fn own_ids() -> Result<Option<IdBlock>> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    let places = Places::of_this_host("/".into(), geteuid().as_raw());
    let range = policy::load(&places, Home::Tmp, CommandLine::default())?.effective.ids.range.value;
    ids::take(range.first..=range.last).map(Some)
}

/// What the runtime hands over once the init is there.
fn receive(runtime: &OwnedFd) -> Result<Option<Ends>> {
    let mut buffer = [0; 8];
    let received =
        scm::receive(runtime.as_fd(), &mut buffer).map_err(|e| Error::system("hear the runtime", e))?;
    let [Some(stdin), Some(stdout), Some(pass), Some(started), Some(init), ..] = received.fds else {
        return Ok(None);
    };
    Ok(Some(Ends { stdin, stdout, pass, started, init }))
}

fn duplicate(fd: BorrowedFd<'_>) -> Result<OwnedFd> {
    fd.try_clone_to_owned().map_err(|e| Error::system("duplicate a pidfd", e))
}

/// The container, as the supervisor reaches into it.
struct Inside {
    found: Found,
    container: Container,
    filter: Option<Filter>,
    /// What commands of the bridge have in common with the container's own program.
    process: Process,
    init: OwnedFd,
}

impl Room for Inside {
    fn init(&self) -> BorrowedFd<'_> {
        self.init.as_fd()
    }

    fn exec(&mut self, argv: Vec<OsString>, streams: [BorrowedFd<'_>; 3]) -> Result<Starting> {
        let program = Program { argv, file: None, ..self.process.program.clone() };
        let process = Process { program, terminal: false, ..self.process.clone() };
        let (init, pid) = self.found.init()?;
        let state = self.found.state(Status::Running).to_string();
        let request = launch::Exec {
            container: &self.container,
            process: &process,
            init: init.as_fd(),
            pid,
            filter: self.filter.as_ref(),
            console: Console::None,
            streams: Some(streams),
            options: Options { die_with_runtime: true, subreaper: true, ..Options::default() },
            state: &state,
        };
        let group = self.found.group()?;
        launch::begin_exec(&request, &ForExec::new(&group, pid)?)
    }

    fn kill(&mut self) {
        kill(&self.found.record, self.init.as_fd());
    }

    fn freeze(&mut self, freeze: bool) -> Result<()> {
        let group = self.found.group()?;
        if freeze { group.freeze() } else { group.thaw() }
    }

    fn is_frozen(&self) -> bool {
        self.found.is_frozen()
    }

    fn stats(&self) -> Result<Value> {
        let stats = self.found.group()?.stats()?;
        serde_json::to_value(stats).map_err(|e| Error::system("tell what the container uses", e))
    }

    fn update(&mut self, resources: &str) -> Result<()> {
        // Rules for devices are exchanged whole, after the limits: they could not be taken back with them.
        let asked: Value = serde_json::from_str(resources).unwrap_or_default();
        if !asked["devices"].is_null() {
            let message = "update: devices of a container cannot change here";
            return Err(Error::new(Code::Unsupported, message).hint("use saggar update for them"));
        }
        update::change(&self.found, resources.as_bytes())
    }

    fn state(&self) -> Value {
        // The record is that of its making.
        let status = match (pidfd::has_ended(self.init.as_fd()), self.is_frozen()) {
            (true, _) => Status::Stopped,
            (false, true) => Status::Paused,
            (false, false) => Status::Running,
        };
        self.found.state(status)
    }

    fn signal(&self, signal: i32) -> Result<()> {
        pidfd::signal(self.init.as_fd(), signal).map_err(|e| Error::system("send a signal", e.desc()))
    }

    fn exit(&self) -> Option<How> {
        let process = self.found.record.process.as_ref()?;
        let code = match process.zombie_status() {
            Some(code) => code,
            // It has been reaped, by whoever is its parent.
            None => pidfd::exit_code(self.init.as_fd()).ok().flatten()?,
        };
        match WaitStatus::from_raw(Pid::from_raw(process.pid), code).ok()? {
            WaitStatus::Exited(_, code) => Some(How::Exited(code)),
            WaitStatus::Signaled(_, signal, _) => Some(How::Killed(signal as i32)),
            _ => None,
        }
    }
}

/// Kills a container: its init, and what else is in cgroups that are its alone.
fn kill(record: &Record, init: BorrowedFd<'_>) {
    let _ = pidfd::signal(init, libc::SIGKILL);
    let Some(place) = &record.cgroup else { return };
    let killed = Group::open(place).and_then(|group| {
        group.let_killed_die();
        if undo::is_ours(place) { group.kill_all(libc::SIGKILL) } else { Ok(()) }
    });
    if let Err(error) = killed {
        log::error!("{error}");
    }
}

/// The guard: it waits for the end of the supervisor, and ends a container that is left then. Its pid, and a pidfd of it.
fn fork_guard(record: &Record, beside: &Beside, init: BorrowedFd<'_>) -> Result<(i32, OwnedFd)> {
    let fails = |e: Errno| Error::system("start the guard of the container", e);
    let supervisor = pidfd::open(std::process::id().cast_signed()).map_err(fails)?;
    let supervisor = supervisor.as_fd();
    beside::fork(&[init, supervisor], || {
        let _ = process::block_signals();
        let _ = nix::unistd::setsid();
        let _ = process::set_name(c"saggar:guard");
        if wait([init, supervisor]) == Some([true, false]) {
            // It has something to do after the end of the container too: it tells its servers.
            wait([supervisor]);
        } else {
            kill(record, init);
        }
        remove_socket(beside);
        0
    })
    .map_err(fails)
}

/// Waits until one of these processes has ended, and says which have. `None`: they cannot be watched, which is as bad as
/// their end.
fn wait<const N: usize>(processes: [BorrowedFd<'_>; N]) -> Option<[bool; N]> {
    let mut fds = processes.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
    loop {
        match poll(&mut fds, PollTimeout::NONE) {
            Err(Errno::EINTR) => {}
            Err(_) => return None,
            Ok(_) => return Some(fds.map(|fd| fd.any() == Some(true))),
        }
    }
}
