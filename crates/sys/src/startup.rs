//! The parts of Rust's runtime start that saggar needs before `main`.

use super::call;
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};

const NULL: &CStr = c"/dev/null";

static STDOUT_WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Whether standard output was closed when the process started. What is written to it is lost, and no error says so.
pub fn stdout_was_closed() -> bool {
    STDOUT_WAS_CLOSED.load(Ordering::Relaxed)
}

/// Call it first in the process. It opens `/dev/null` for each standard stream that is closed, so that no file opened
/// later takes its number. It ignores SIGPIPE, so that a closed pipe is reported as an error of write(2).
pub fn prepare_process() {
    let mut streams = [0, 1, 2].map(|fd| libc::pollfd { fd, events: 0, revents: 0 });
    let looked = call!(libc::SYS_poll, streams.as_mut_ptr(), streams.len(), 0);
    let is_closed = |stream: &libc::pollfd| looked.is_err() || stream.revents & libc::POLLNVAL != 0;
    for stream in streams.iter().filter(|stream| is_closed(stream)) {
        if call!(libc::SYS_fcntl, stream.fd, libc::F_GETFD).is_err() {
            if stream.fd == libc::STDOUT_FILENO {
                STDOUT_WAS_CLOSED.store(true, Ordering::Relaxed);
            }
            // open returns the lowest free number, which is the stream's.
            let opened = call!(libc::SYS_openat, libc::AT_FDCWD, NULL.as_ptr(), libc::O_RDWR, 0);
            if opened != Ok(stream.fd.into()) {
                std::process::abort();
            }
        }
    }
    // SAFETY: no handler is installed.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}
