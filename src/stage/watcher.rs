//! The watcher: a second process, forked before a sandbox leaves anything on the host, that removes what a
//! killed supervisor could not (DECISIONS 11).
//!
//! It runs on the host with the supervisor's rights, in a session of its own, and holds one descriptor: the
//! read end of the supervisor's life pipe. The supervisor writes down each thing before it makes it, and
//! `done` when it has removed all of them itself; an end of the stream without `done` is the supervisor's
//! death. It was forked by a process with one thread, so it may use the heap.

use crate::cgroup;
use crate::sys::{args, clone, file, pidfd, process};
use nix::fcntl::OFlag;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The supervisor's side of the watcher.
#[derive(Debug)]
pub struct Watcher {
    life: File,
    pidfd: OwnedFd,
}

/// One thing that is to be removed when the supervisor dies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Charge {
    /// A cgroup and those below it, with the processes in them.
    Cgroup(PathBuf),
    /// A directory of ours with files in it, one level deep.
    Directory(PathBuf),
    /// A file elsewhere, as long as it is still this very one.
    File {
        /// Its path.
        path: PathBuf,
        /// st_dev
        device: u64,
        /// st_ino
        inode: u64,
    },
}

impl Charge {
    /// A line: a letter, numbers, and the path with every odd byte as `%XX`.
    fn encode(&self) -> String {
        let escaped = |path: &Path| -> String {
            let byte = |b: &u8| match b {
                b'%' | 0..=b' ' | 0x7f.. => format!("%{b:02x}"),
                plain => char::from(*plain).to_string(),
            };
            path.as_os_str().as_bytes().iter().map(byte).collect()
        };
        match self {
            Charge::Cgroup(path) => format!("c {}\n", escaped(path)),
            Charge::Directory(path) => format!("d {}\n", escaped(path)),
            Charge::File { path, device, inode } => format!("f {device} {inode} {}\n", escaped(path)),
        }
    }

    fn decode(line: &str) -> Option<Self> {
        let path = |text: &str| -> Option<PathBuf> {
            let mut bytes = Vec::new();
            let mut rest = text.bytes();
            while let Some(byte) = rest.next() {
                bytes.push(match byte {
                    b'%' => {
                        let digit = |b: Option<u8>| char::from(b?).to_digit(16);
                        u8::try_from(digit(rest.next())? * 16 + digit(rest.next())?).ok()?
                    }
                    plain => plain,
                });
            }
            Some(PathBuf::from(std::ffi::OsString::from(std::ffi::OsStr::from_bytes(&bytes))))
        };
        let mut words = line.split(' ');
        match (words.next()?, words.next()?, words.next(), words.next()) {
            ("c", text, None, None) => Some(Charge::Cgroup(path(text)?)),
            ("d", text, None, None) => Some(Charge::Directory(path(text)?)),
            ("f", device, Some(inode), Some(text)) => Some(Charge::File {
                path: path(text)?,
                device: device.parse().ok()?,
                inode: inode.parse().ok()?,
            }),
            _ => None,
        }
    }

    /// Removes it. What is gone already is fine.
    pub fn remove(&self) {
        match self {
            Charge::Cgroup(path) => cgroup::destroy(path),
            Charge::Directory(path) => {
                for entry in fs::read_dir(path).into_iter().flatten().flatten() {
                    let _ = fs::remove_file(entry.path());
                }
                let _ = fs::remove_dir(path);
            }
            Charge::File { path, device, inode } => {
                let same = path.symlink_metadata().is_ok_and(|m| m.dev() == *device && m.ino() == *inode);
                if same {
                    let _ = fs::remove_file(path);
                }
            }
        }
    }
}

impl Watcher {
    /// Forks the watcher.
    ///
    /// # Errors
    /// The error number of pipe2(2), clone(2) or pidfd_open(2).
    pub fn start() -> nix::Result<Self> {
        let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
        // SAFETY: the caller has one thread; `launch` asserts it again before the sandbox's clone.
        match unsafe { clone::fork()? } {
            0 => {
                drop(write);
                watch(read)
            }
            pid => Ok(Watcher { life: File::from(write), pidfd: pidfd::open(pid)? }),
        }
    }

    /// Puts something in the watcher's charge; call it before the thing is made.
    pub fn charge(&mut self, charge: &Charge) {
        // One write of less than PIPE_BUF bytes: whole or not at all. A watcher that is gone is the business
        // of the next start, which sweeps.
        let _ = self.life.write_all(charge.encode().as_bytes());
    }

    /// Lets the watcher go: everything is removed.
    pub fn dismiss(mut self) {
        let _ = self.life.write_all(b"done\n");
        drop(self.life);
        let _ = pidfd::signal(self.pidfd.as_fd(), libc::SIGKILL);
        let _ = pidfd::reap(self.pidfd.as_fd());
    }
}

fn watch(life: OwnedFd) -> ! {
    let _ = process::block_signals();
    let _ = nix::unistd::setsid();
    let _ = process::set_name(c"saggar:watch");
    // SAFETY: this process reads neither its arguments nor its environment.
    unsafe { args::blank() };
    // Owned descriptors of the supervisor's copy are never dropped here: this process ends by _exit.
    let life = keep_only(life);
    let mut charges = Vec::new();
    for line in BufReader::new(life).lines() {
        match line {
            Ok(line) if line == "done" => process::exit_now(0),
            Ok(line) => charges.extend(Charge::decode(&line)),
            Err(_) => break,
        }
    }
    for charge in &charges {
        charge.remove();
    }
    process::exit_now(0)
}

/// Closes every descriptor but the life pipe: the watcher must keep no pipe of the caller open.
fn keep_only(life: OwnedFd) -> File {
    use std::os::fd::{AsRawFd, IntoRawFd};
    let kept = file::duplicate_number(life.as_raw_fd()).unwrap_or(life).into_raw_fd();
    for (first, last) in [(0, kept - 1), (kept + 1, i32::MAX)] {
        // SAFETY: nothing below or above the life pipe is used or dropped again in this process.
        let _ = unsafe { file::close_range(first, last) };
    }
    // SAFETY: `kept` was taken out of its owner just now, and is open.
    unsafe { std::os::fd::FromRawFd::from_raw_fd(kept) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_survive_the_pipe() {
        let odd = PathBuf::from(std::ffi::OsStr::from_bytes(b"/a b/%\n\xff"));
        for charge in [
            Charge::Cgroup(odd.clone()),
            Charge::Directory("/run/saggar/x".into()),
            Charge::File { path: odd, device: 1, inode: u64::MAX },
        ] {
            assert_eq!(Charge::decode(charge.encode().trim_end_matches('\n')), Some(charge));
        }
        assert_eq!(Charge::decode("x"), None);
    }
}
