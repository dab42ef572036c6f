//! What Rust's runtime does for a program before `main` that we cannot do without.

use super::call;
use std::ffi::CStr;

const NULL: &CStr = c"/dev/null";

/// Call it first in the process: standard streams that are closed become `/dev/null`, so that no file that is opened
/// later takes their numbers, and SIGPIPE is ignored, so that a reader that went is an error like any other.
pub fn begin() {
    let mut streams = [0, 1, 2].map(|fd| libc::pollfd { fd, events: 0, revents: 0 });
    let looked = call!(libc::SYS_poll, streams.as_mut_ptr(), streams.len(), 0);
    let is_closed = |stream: &libc::pollfd| looked.is_err() || stream.revents & libc::POLLNVAL != 0;
    for stream in streams.iter().filter(|stream| is_closed(stream)) {
        if call!(libc::SYS_fcntl, stream.fd, libc::F_GETFD).is_err() {
            // The lowest number that is free, and that is this one.
            let opened = call!(libc::SYS_openat, libc::AT_FDCWD, NULL.as_ptr(), libc::O_RDWR, 0);
            if opened != Ok(stream.fd.into()) {
                std::process::abort();
            }
        }
    }
    // SAFETY: no handler is installed.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}
