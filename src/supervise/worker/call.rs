//! A request that has an answer: JSON in a file in memory, and JSON on a pipe. Both have a bound.

use crate::error::{Code, Error, Result};
use crate::stage::launcher::Launcher;
use nix::fcntl::OFlag;
use nix::sys::memfd::{MFdFlags, memfd_create};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;

/// The most of a request, and of an answer, in bytes.
pub(in crate::supervise) const MOST: usize = 16 << 20;

/// Starts a worker on a request; where its answer comes.
///
/// # Errors
/// [`Code::System`]: there is no launcher any more, too.
pub(in crate::supervise) fn start(
    launcher: &Launcher,
    worker: u32,
    request: &impl Serialize,
    beside: Option<BorrowedFd<'_>>,
) -> Result<File> {
    let fails = |e: nix::Error| Error::system("have the launcher do something", e);
    let request = written(request).map_err(|e| Error::system("write a request to the launcher", e))?;
    let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(fails)?;
    let fds: Vec<RawFd> =
        [write.as_raw_fd(), request.as_raw_fd()].into_iter().chain(beside.map(|fd| fd.as_raw_fd())).collect();
    launcher.work(worker, 0, &fds).map_err(fails)?;
    Ok(File::from(read))
}

/// The same, and waits for the answer.
///
/// # Errors
/// As [`start`] and [`parse`].
pub(super) fn call<T: DeserializeOwned>(
    launcher: &Launcher,
    worker: u32,
    request: &impl Serialize,
) -> Result<T> {
    let mut said = Vec::new();
    let answer = start(launcher, worker, request, None)?;
    answer.take(MOST as u64).read_to_end(&mut said).map_err(|e| Error::system("hear from a worker", e))?;
    parse(&said)
}

/// Reads an answer.
///
/// # Errors
/// What the worker failed of; [`Code::System`] when it was killed before it was done.
pub(in crate::supervise) fn parse<T: DeserializeOwned>(said: &[u8]) -> Result<T> {
    let killed = |_| Error::new(Code::System, "the process that was to do it was killed");
    serde_json::from_slice::<Result<T>>(said).map_err(killed)?
}

/// Takes what has come of an answer; true when that is all.
pub(in crate::supervise) fn hear(mut answer: &File, said: &mut Vec<u8>) -> bool {
    let mut chunk = [0; 64 << 10];
    loop {
        match answer.read(&mut chunk) {
            Ok(count) if count > 0 && said.len() < MOST => said.extend_from_slice(&chunk[..count]),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return false,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            _ => return true,
        }
    }
}

/// The worker's side: what is asked for.
///
/// # Errors
/// [`Code::Invalid`] for what is none.
pub(in crate::supervise) fn asked<T: DeserializeOwned>(request: OwnedFd) -> Result<T> {
    let none = || Error::new(Code::Invalid, "a request to a worker is none");
    let request = File::from(request);
    let length = request.metadata().ok().and_then(|meta| usize::try_from(meta.len()).ok());
    let length = length.filter(|length| *length <= MOST).ok_or_else(none)?;
    let mut text = vec![0; length];
    request.read_exact_at(&mut text, 0).map_err(|_| none())?;
    serde_json::from_slice(&text).map_err(|_| none())
}

/// The worker's side: what came of it. The supervisor may be gone by now.
pub(in crate::supervise) fn answer<T: Serialize>(to: OwnedFd, result: &Result<T>) {
    if let Ok(text) = serde_json::to_vec(result) {
        let _ = File::from(to).write_all(&text);
    }
}

/// A request, in a file in memory.
pub(in crate::supervise) fn written(request: &impl Serialize) -> std::io::Result<File> {
    let text = serde_json::to_vec(request)?;
    let mut file = File::from(memfd_create(c"request", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(&text)?;
    Ok(file)
}
