//! Waiting for a path to appear or to go, by inotify on its directory.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::path::Path;

use nix::fcntl::{Flock, FlockArg};
use rustix::fs::inotify;

use super::deadline::Deadline;

/// Blocks until `path` exists; its directory must exist already.
pub(crate) fn until_exists(path: &Path) {
    until(path, "appear", |path| path.symlink_metadata().is_ok());
}

/// Blocks until the file at `path` has something in it; its directory must exist already.
pub(crate) fn until_written(path: &Path) {
    until(path, "get any content", |path| path.metadata().is_ok_and(|file| file.len() > 0));
}

/// Blocks until `path` is gone.
pub(crate) fn until_gone(path: &Path) {
    until(path, "go", |path| path.symlink_metadata().is_err());
}

/// Blocks until no process has a lock of the file at `path` (flock(2)).
pub(crate) fn until_unlocked(path: &Path) {
    let file = File::open(path).unwrap();
    drop(Flock::lock(file, FlockArg::LockShared).unwrap());
}

/// Blocks until this holds of `path`, which `verb` says; its directory must exist already.
pub(crate) fn until(path: &Path, verb: &str, holds: impl Fn(&Path) -> bool) {
    let deadline = Deadline::usual();
    let directory = path.parent().expect("a path in a directory");
    let watch = inotify::init(inotify::CreateFlags::CLOEXEC).unwrap();
    let events = inotify::WatchFlags::CREATE
        | inotify::WatchFlags::MODIFY
        | inotify::WatchFlags::DELETE
        | inotify::WatchFlags::MOVE
        | inotify::WatchFlags::DELETE_SELF;
    // The watch stands before the first look, so that no change falls between the two. A directory that is
    // gone already has taken the path with it.
    let watched = inotify::add_watch(&watch, directory, events);
    let mut buffer = [MaybeUninit::uninit(); 4096];
    while !holds(path) {
        let next = watched.map_err(io::Error::from).and_then(|_| deadline.readable(&watch));
        next.unwrap_or_else(|error| panic!("{} does not {verb}: {error}", path.display()));
        inotify::Reader::new(&watch, &mut buffer).next().unwrap();
    }
}
