//! A request with a result: JSON in a memory file, and JSON on a pipe, both of bounded size.

use crate::error::{Code, Error, Result};
use crate::stage::agent::launcher::Launcher;
use nix::fcntl::OFlag;
use nix::sys::memfd::{MFdFlags, memfd_create};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;

/// Largest request and largest result, in bytes.
pub(in crate::supervise) const MAX_MESSAGE_SIZE: usize = 16 << 20;
/// Most workers that are started for one call.
const MAX_STARTS: u32 = 3;

/// Starts a worker for a request; returns the pipe for its result.
///
/// # Errors
/// [`Code::System`], also when the launcher has exited.
pub(in crate::supervise) fn start_worker(
    launcher: &Launcher,
    worker: u32,
    request: &impl Serialize,
    extra_fd: Option<BorrowedFd<'_>>,
) -> Result<File> {
    let fails = |e: nix::Error| Error::system("have the launcher do something", e);
    let request = encode_request(request).map_err(|e| Error::system("write a request to the launcher", e))?;
    let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(fails)?;
    let fds: Vec<RawFd> = [write.as_raw_fd(), request.as_raw_fd()]
        .into_iter()
        .chain(extra_fd.map(|fd| fd.as_raw_fd()))
        .collect();
    launcher.start_worker(worker, 0, &fds).map_err(fails)?;
    Ok(File::from(read))
}

/// Starts a worker for a request and waits for its result. A worker that was killed is replaced, so what is called has the
/// same effect when it is done twice, or in part and then whole: nothing else would do it later.
///
/// # Errors
/// As [`start_worker`] and [`parse_response`].
pub(super) fn call_worker<T: DeserializeOwned>(
    launcher: &Launcher,
    worker: u32,
    request: &impl Serialize,
) -> Result<T> {
    let mut said = Vec::new();
    for _ in 0..MAX_STARTS {
        said.clear();
        let answer = start_worker(launcher, worker, request, None)?;
        answer
            .take(MAX_MESSAGE_SIZE as u64)
            .read_to_end(&mut said)
            .map_err(|e| Error::system("receive from a worker", e))?;
        // Results of these calls are short, and so written at once.
        if !said.is_empty() {
            break;
        }
    }
    parse_response(&said)
}

/// Parses a result.
///
/// # Errors
/// The error of the worker; [`Code::System`] when it was killed before it was done.
pub(in crate::supervise) fn parse_response<T: DeserializeOwned>(said: &[u8]) -> Result<T> {
    let killed = |_| Error::new(Code::System, "the process that was to do it was killed");
    serde_json::from_slice::<Result<T>>(said).map_err(killed)?
}

/// Receives available bytes of a result; true when it is complete.
pub(in crate::supervise) fn receive(mut answer: &File, received: &mut Vec<u8>) -> bool {
    let mut chunk = [0; 64 << 10];
    loop {
        match answer.read(&mut chunk) {
            Ok(count) if count > 0 && received.len() < MAX_MESSAGE_SIZE => {
                received.extend_from_slice(&chunk[..count])
            }
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return false,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            _ => return true,
        }
    }
}

/// In the worker: reads the request.
///
/// # Errors
/// [`Code::Invalid`] for an invalid request.
pub(in crate::supervise) fn read_request<T: DeserializeOwned>(request: OwnedFd) -> Result<T> {
    let none = || Error::new(Code::Invalid, "invalid request to a worker");
    let request = File::from(request);
    let length = request.metadata().ok().and_then(|meta| usize::try_from(meta.len()).ok());
    let length = length.filter(|length| *length <= MAX_MESSAGE_SIZE).ok_or_else(none)?;
    let mut text = vec![0; length];
    request.read_exact_at(&mut text, 0).map_err(|_| none())?;
    serde_json::from_slice(&text).map_err(|_| none())
}

/// In the worker: writes the result. The supervisor may have exited by now.
pub(in crate::supervise) fn write_response<T: Serialize>(to: OwnedFd, result: &Result<T>) {
    if let Ok(text) = serde_json::to_vec(result) {
        let _ = File::from(to).write_all(&text);
    }
}

/// A request, in a memory file.
pub(in crate::supervise) fn encode_request(request: &impl Serialize) -> std::io::Result<File> {
    let text = serde_json::to_vec(request)?;
    let mut file = File::from(memfd_create(c"request", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(&text)?;
    Ok(file)
}
