//! `saggar mcp mailbox` inside a sandbox: carries the bytes between its standard streams and the socket of the mailbox.

use crate::error::{Code, Error, Result};
use crate::spec::MailboxSpec;
use std::io::{self, ErrorKind, Read, Write, stdin, stdout};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Whether this process runs in a sandbox that has a mailbox.
pub fn is_inside() -> bool {
    std::fs::symlink_metadata(MailboxSpec::SOCKET_PATH).is_ok()
}

/// Carries the bytes until the client closes standard input. Returns the exit status.
///
/// # Errors
/// [`Code::State`]: nothing serves the socket, or its server has ended the conversation; [`Code::System`]: a stream failed.
pub fn carry_conversation() -> Result<u8> {
    let path = MailboxSpec::SOCKET_PATH;
    let socket = UnixStream::connect(path).map_err(|e| match e.kind() {
        ErrorKind::ConnectionRefused => Error::new(Code::State, format!("connect to {path}: {e}"))
            .hint("the mailbox of this sandbox is no longer served"),
        _ => Error::system(format_args!("connect to {path}"), e),
    })?;
    let clone = socket.try_clone().map_err(|e| Error::system("copy the socket of the mailbox", e))?;
    let is_closed_by_client = Arc::new(AtomicBool::new(false));
    let closed = Arc::clone(&is_closed_by_client);
    thread::spawn(move || {
        let _ = carry(stdin().lock(), &clone);
        closed.store(true, Ordering::Release);
        let _ = clone.shutdown(Shutdown::Write);
    });
    match carry(&socket, stdout().lock()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(0),
        Ok(_) if is_closed_by_client.load(Ordering::Acquire) => Ok(0),
        Ok(_) => Err(Error::new(Code::State, format!("{path} has closed the conversation"))
            .hint("start the server again; the mailbox has every message that was acknowledged")),
        Err(error) => Err(Error::system("carry the conversation with the mailbox", error)),
    }
}

/// Passes each piece on as it comes; [`io::copy`] may wait for more of them.
fn carry(mut from: impl Read, mut to: impl Write) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => {
                to.write_all(buffer.get(..length).unwrap_or_default())?;
                to.flush()?;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
