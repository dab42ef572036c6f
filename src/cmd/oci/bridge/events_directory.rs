//! The directory of a bridge's stored events (`org.saggar.spool`), which outlives the container.
//!
//! ```text
//! NAME.events/    of the user who calls saggar, mode 0700; locked (flock) by the supervisor that stores events
//!     spool/      crates/session/src/spool; of the supervisor's own id while it runs
//! ```
//! The bridge's socket is bound before this directory is touched, so that a container of the same name is refused. The
//! lock also excludes a supervisor that listens no more and writes its last events, or whose socket was removed.
//!
//! The directory is opened by name: only root or the caller can write `bridge.directory` ([`super::socket_path`] checks it).

use crate::error::{Code, Error, Result};
use crate::session::spool::{SessionSpool, spool_directory};
use crate::state::check_private_directory;
use crate::state::container::SidecarSpool;
use crate::state::delegated_directory;
use crate::supervise::sidecar::OpenSpool;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag, open};
use nix::sys::stat::Mode;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::time::{Duration, Instant};

/// How long a supervisor of the same name may take to write its last events and to exit.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Creates or opens the directory, and the events of earlier containers in it.
///
/// # Errors
/// [`Code::Refused`] for a directory that another user owns or can write; [`Code::Exists`] while another supervisor
/// stores events in it; [`Code::System`].
pub(super) fn open_spool(place: &SidecarSpool) -> Result<OpenSpool> {
    let lock = lock_directory(place)?;
    let remembered = usize::try_from(place.remembered).unwrap_or(usize::MAX);
    let (store, saved) = SessionSpool::open(&place.directory, place.max_bytes, remembered)?;
    let directory = delegated_directory::open_delegated(&spool_directory(&place.directory))?;
    Ok(OpenSpool { store: Box::new(store), saved, remembered, directory, lock })
}

fn lock_directory(place: &SidecarSpool) -> Result<Flock<File>> {
    let path = &place.directory;
    let fails = |e: io::Error| {
        Error::system(format_args!("open the directory of events {}", path.display()), e)
            .hint("it is made beside the socket of the bridge: see org.saggar.spool in saggar-oci(8)")
    };
    match DirBuilder::new().mode(0o700).create(path) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(fails(e)),
        _ => {}
    }
    let flags = OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mut directory = File::from(open(path, flags, Mode::empty()).map_err(|e| fails(e.into()))?);
    check_private_directory(path)?;
    let deadline = Instant::now() + LOCK_TIMEOUT;
    loop {
        directory = match Flock::lock(directory, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(lock),
            Err((directory, Errno::EWOULDBLOCK | Errno::EINTR)) if Instant::now() < deadline => directory,
            Err((_, Errno::EWOULDBLOCK | Errno::EINTR)) => {
                let message = format!("another container stores events in {}", path.display());
                return Err(Error::new(Code::Exists, message)
                    .hint("delete that container first, or give this one another name"));
            }
            Err((_, e)) => return Err(fails(e.into())),
        };
        std::thread::sleep(LOCK_POLL_INTERVAL);
    }
}
