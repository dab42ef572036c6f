//! Notifications of a container's program for the service manager that started saggar (sd_notify(3)), so that the container
//! can be a service of `Type=notify`. The program cannot reach the socket of the service manager. It has one of its own,
//! as in runc and crun, and the process that waits for the program passes notifications on: only those in
//! [`PASSED`], because a program could name any process and any text.

use crate::error::{Error, Result};
use crate::spec::container::{ContainerMount, ContainerMountKind, ContainerSpec, Namespace, SourceLink};
use crate::state::container::ContainerDirectory;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use sd_notify::NotifyState;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, Permissions};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::Path;

/// The variable with the path of a socket for notifications.
const VARIABLE: &str = "NOTIFY_SOCKET";

/// The directory with the socket: in the state directory, and in the container.
const DIRECTORY: &str = "notify";
const DIRECTORY_INSIDE: &str = "/run/notify";
const SOCKET: &str = "notify.sock";

/// The notifications that are passed on.
const PASSED: [(&[u8], NotifyState<'static>); 4] = [
    (b"READY=1", NotifyState::Ready),
    (b"RELOADING=1", NotifyState::Reloading),
    (b"STOPPING=1", NotifyState::Stopping),
    (b"WATCHDOG=1", NotifyState::Watchdog),
];

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
    container.mounts.push(ContainerMount {
        destination: DIRECTORY_INSIDE.into(),
        kind: ContainerMountKind::Bind { source: path, recursive: false },
        set: libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV | libc::MOUNT_ATTR_NOEXEC,
        clear: 0,
        set_recursive: 0,
        clear_recursive: 0,
        propagation: Vec::new(),
        idmap: None,
        source_link: SourceLink::Target,
        covers_link: false,
    });
    Ok(())
}

/// The socket of a container whose notifications are passed on.
#[derive(Debug)]
pub(super) struct NotificationRelay {
    socket: UnixDatagram,
    /// The first process of the container, if the service manager is to watch it instead of this process.
    main_pid: Option<u32>,
}

impl NotificationRelay {
    /// Opens the socket of a container, before its program starts; `None` if the container has none, or no service manager
    /// waits.
    ///
    /// # Errors
    /// [`crate::error::Code::System`] if it cannot be bound.
    pub(super) fn open(directory: &ContainerDirectory, main_pid: Option<i32>) -> Result<Option<Self>> {
        let path = directory.path().join(DIRECTORY);
        if std::env::var_os(VARIABLE).is_none() || !path.is_dir() {
            return Ok(None);
        }
        let fail = |error| Error::system(format_args!("make {}", path.join(SOCKET).display()), error);
        let opened = File::open(&path).map_err(fail)?;
        // A socket path has at most 107 bytes, and the path of the directory may be longer.
        let short = format!("/proc/self/fd/{}/{SOCKET}", opened.as_raw_fd());
        let socket = UnixDatagram::bind(&short).map_err(fail)?;
        fs::set_permissions(&short, Permissions::from_mode(0o666)).map_err(fail)?;
        socket.set_nonblocking(true).map_err(fail)?;
        Ok(Some(NotificationRelay { socket, main_pid: main_pid.and_then(|pid| u32::try_from(pid).ok()) }))
    }

    /// Passes on what has arrived. Returns whether the program has said that it is ready.
    pub(super) fn pass_on(&self) -> bool {
        let mut is_ready = false;
        let mut buffer = [0; 4096];
        while let Ok(length) = self.socket.recv(&mut buffer) {
            for line in buffer[..length].split(|byte| *byte == b'\n') {
                let Some((_, state)) = PASSED.iter().find(|(text, _)| *text == line) else { continue };
                is_ready |= matches!(state, NotifyState::Ready);
                self.notify(state);
            }
        }
        is_ready
    }

    fn notify(&self, state: &NotifyState<'static>) {
        let mut states = vec![state.clone()];
        match state {
            NotifyState::Ready => states.extend(self.main_pid.map(NotifyState::MainPid)),
            NotifyState::Reloading => states.extend(NotifyState::monotonic_usec_now().ok()),
            _ => {}
        }
        if let Err(error) = sd_notify::notify(&states) {
            log::warn!("pass {state} on to the service manager: {error}");
        }
    }

    /// Waits until the program is ready or has ended.
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
            if self.pass_on() {
                return Ok(());
            }
            if is_over {
                log::warn!("the program ended before it notified the service manager that it is ready");
                return Ok(());
            }
        }
    }

    pub(super) fn poll_interest(&self) -> PollFd<'_> {
        PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)
    }
}
