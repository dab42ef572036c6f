//! Notifications of a container's program for the service manager that started saggar (sd_notify(3)), so that the container
//! can be a service of `Type=notify`. The program cannot reach the socket of the service manager. It has one of its own,
//! as in runc and crun, and the process that waits for the program passes notifications on: only those in
//! [`PASSED`], because a program could name any process and any text.

use crate::error::{Error, Result};
use crate::spec::container::{ContainerMount, ContainerMountKind, ContainerSpec, Namespace};
use crate::state::container::ContainerDirectory;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{Mode, umask};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};
use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;

/// The variable with the path of a socket for notifications.
const VARIABLE: &str = "NOTIFY_SOCKET";

/// The directory with the socket: in the state directory, and in the container.
const DIRECTORY: &str = "notify";
const DIRECTORY_INSIDE: &str = "/run/notify";
const SOCKET: &str = "notify.sock";

/// The notifications that are passed on.
const PASSED: [&[u8]; 4] = [READY, RELOADING, b"STOPPING=1", b"WATCHDOG=1"];
const READY: &[u8] = b"READY=1";
const RELOADING: &[u8] = b"RELOADING=1";

/// The largest number of messages that are read at once: a program can send without end.
const MAX_MESSAGES: usize = 16;
/// How often they are read when the program has ended.
const MAX_ROUNDS: usize = 64;

/// Adds the socket to a container, if a service manager waits for notifications. A container whose configuration names a
/// socket has that one.
///
/// # Errors
/// [`crate::error::Code::System`] if its directory cannot be created.
pub(super) fn add_socket(container: &mut ContainerSpec, directory: &ContainerDirectory) -> Result<()> {
    let Some(process) = &mut container.process else { return Ok(()) };
    let environment = &mut process.program.env;
    let is_named = environment.iter().any(|(name, _)| name == OsStr::new(VARIABLE));
    if std::env::var_os(VARIABLE).is_none() || is_named || !container.namespaces.has(Namespace::Mount) {
        return Ok(());
    }
    let path = directory.path().join(DIRECTORY);
    // The program may have another user, and enters through the mount alone.
    let made = DirBuilder::new().mode(0o755).create(&path);
    made.and_then(|()| fs::set_permissions(&path, Permissions::from_mode(0o755)))
        .map_err(|error| Error::system(format_args!("create {}", path.display()), error))?;
    environment.push((VARIABLE.into(), Path::new(DIRECTORY_INSIDE).join(SOCKET).into()));
    // Sockets of a read-only mount can be connected to, and nothing in it can be replaced.
    let attributes =
        libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV | libc::MOUNT_ATTR_NOEXEC;
    let bind = ContainerMountKind::Bind { source: path, recursive: false };
    container.mounts.push(ContainerMount::new(DIRECTORY_INSIDE, bind, attributes));
    Ok(())
}

/// The socket of a container whose notifications are passed on.
#[derive(Debug)]
pub(super) struct NotificationRelay {
    socket: UnixDatagram,
    manager: UnixDatagram,
    /// The first process of the container, if the service manager is to watch it instead of this process.
    main_pid: Option<i32>,
    /// A message that says that the program is ready, which the service manager has not taken yet.
    unsent: RefCell<Option<Vec<u8>>>,
}

impl NotificationRelay {
    /// Opens the socket of a container, before its program starts; `None` if the container has none, or no service manager
    /// waits.
    ///
    /// # Errors
    /// [`crate::error::Code::System`] if a socket cannot be opened.
    pub(super) fn open(directory: &ContainerDirectory, main_pid: Option<i32>) -> Result<Option<Self>> {
        let path = directory.path().join(DIRECTORY);
        let Some(name) = std::env::var_os(VARIABLE).filter(|_| path.is_dir()) else { return Ok(None) };
        let manager = connect_to_manager(&name).map_err(|error| {
            Error::system(format_args!("connect to {VARIABLE}={}", name.display()), error)
        })?;
        let socket = bind_socket(&path)
            .map_err(|error| Error::system(format_args!("make {}", path.join(SOCKET).display()), error))?;
        Ok(Some(NotificationRelay { socket, manager, main_pid, unsent: RefCell::default() }))
    }

    /// Passes on what has arrived. Returns whether the service manager has got the message that the program is ready. Until it
    /// takes that, nothing more is read.
    pub(super) fn pass_on(&self) -> bool {
        let mut is_ready = false;
        if let Some(message) = self.unsent.take() {
            is_ready = self.send_ready(message);
        }
        let mut buffer = [0; 4096];
        for _ in 0..MAX_MESSAGES {
            if self.unsent.borrow().is_some() {
                break;
            }
            let Ok(length) = self.socket.recv(&mut buffer) else { break };
            for line in buffer[..length].split(|byte| *byte == b'\n').filter(|line| PASSED.contains(line)) {
                if line == READY {
                    let pid = self.main_pid.map(|pid| format!("\nMAINPID={pid}")).unwrap_or_default();
                    is_ready |= self.send_ready([READY, pid.as_bytes()].concat());
                } else {
                    // A service manager that is behind loses these.
                    let _ = self.manager.send(&if line == RELOADING { reloading() } else { line.to_vec() });
                }
            }
        }
        is_ready
    }

    /// Passes on what the program sent before it ended. Returns as [`NotificationRelay::pass_on`].
    pub(super) fn pass_on_rest(&self) -> bool {
        let has_more = || {
            let mut fds = [self.poll_interest()];
            poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
        };
        let mut is_ready = false;
        // Other processes of the container can send without end.
        for _ in 0..MAX_ROUNDS {
            if !has_more() {
                break;
            }
            is_ready |= self.pass_on();
        }
        is_ready
    }

    fn send_ready(&self, message: Vec<u8>) -> bool {
        match self.manager.send(&message) {
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.unsent.replace(Some(message));
                false
            }
            Err(error) => {
                log::warn!("notify the service manager: {error}");
                true
            }
        }
    }

    /// Waits until the service manager knows that the program is ready, or the program has ended.
    ///
    /// # Errors
    /// [`crate::error::Code::System`].
    pub(super) fn wait_ready(&self, init: BorrowedFd<'_>) -> Result<()> {
        loop {
            let mut fds = [self.poll_interest(), PollFd::new(init, PollFlags::POLLIN)];
            match poll(&mut fds, PollTimeout::NONE) {
                Err(Errno::EINTR) => continue,
                Err(errno) => return Err(Error::system("wait for the program's notification", errno)),
                Ok(_) => {}
            }
            let is_over = fds[1].any().unwrap_or(false);
            if self.pass_on() || (is_over && self.pass_on_rest()) {
                return Ok(());
            }
            if is_over {
                log::warn!("the program ended before it notified the service manager that it is ready");
                return Ok(());
            }
        }
    }

    /// What to wait for before the next [`NotificationRelay::pass_on`].
    pub(super) fn poll_interest(&self) -> PollFd<'_> {
        match self.unsent.borrow().is_some() {
            true => PollFd::new(self.manager.as_fd(), PollFlags::POLLOUT),
            false => PollFd::new(self.socket.as_fd(), PollFlags::POLLIN),
        }
    }
}

/// A path, or the name of an abstract socket after `@` (sd_notify(3)).
fn connect_to_manager(name: &OsStr) -> std::io::Result<UnixDatagram> {
    let manager = UnixDatagram::unbound()?;
    match name.as_bytes().strip_prefix(b"@") {
        Some(name) => manager.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
        None => manager.connect(name)?,
    }
    manager.set_nonblocking(true)?;
    Ok(manager)
}

fn bind_socket(directory: &Path) -> std::io::Result<UnixDatagram> {
    let opened = File::open(directory)?;
    // The program may have another user. The mode is not set by path, at which something else could be by then.
    let umask = umask(Mode::from_bits_truncate(0o111));
    // A socket path has at most 107 bytes, and the path of the directory may be longer.
    let socket = UnixDatagram::bind(format!("/proc/self/fd/{}/{SOCKET}", opened.as_raw_fd()));
    nix::sys::stat::umask(umask);
    let socket = socket?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// The message with the time, which services of the type `notify-reload` need.
fn reloading() -> Vec<u8> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap_or_else(|_| TimeSpec::new(0, 0));
    let usec = i128::from(now.tv_sec()) * 1_000_000 + i128::from(now.tv_nsec()) / 1000;
    format!("RELOADING=1\nMONOTONIC_USEC={usec}").into_bytes()
}
