//! Descriptors in the loops' [`mio::Poll`].

use crate::error::{Error, Result};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Registers a descriptor for reading.
///
/// # Errors
/// [`crate::error::Code::System`].
pub(super) fn register(registry: &Registry, fd: BorrowedFd<'_>, token: Token) -> Result<()> {
    registry
        .register(&mut SourceFd(&fd.as_raw_fd()), token, Interest::READABLE)
        .map_err(|e| Error::system("watch a descriptor", e))
}
