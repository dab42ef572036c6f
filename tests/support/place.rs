//! A scratch place on disk that belongs to the caller: home, runtime and state directories, a work folder.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::{SigHandler, Signal, signal};
use tempfile::TempDir;

use super::binary;
use super::caller::Caller;

/// Not `/tmp`: some agents refuse a home below it, and a sandbox has a `/tmp` of its own.
/// Short, since the path of a socket has 107 bytes.
const PARENT: &str = "/var/tmp";

/// A directory that is removed with everything in it when the test ends.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) caller: Caller,
    dir: TempDir,
}

/// Copies a program that is executed next. Not in this process: what another thread forks while the copy is open for
/// writing has it open for writing too, until it executes something, and execve(2) fails with ETXTBSY.
pub(crate) fn copy_program(from: &Path, to: &Path) {
    let status = Command::new("cp").arg(from).arg(to).status().expect("cp can be executed");
    assert!(status.success(), "copy {} to {}", from.display(), to.display());
}

impl Drop for Place {
    /// Opens what a file system has closed to everybody but root: an overlay's own directory has no mode at all.
    fn drop(&mut self) {
        fn open(dir: &Path) {
            let _ = fs::set_permissions(dir, fs::Permissions::from_mode(0o700));
            let entries = fs::read_dir(dir).into_iter().flatten().flatten();
            entries
                .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
                .for_each(|entry| open(&entry.path()));
        }
        if !nix::unistd::geteuid().is_root() {
            open(&self.join("state"));
        }
    }
}

impl Place {
    /// A new place for `caller`.
    pub(crate) fn new(caller: Caller) -> Self {
        let dir = tempfile::Builder::new().prefix("saggar-").rand_bytes(8).tempdir_in(PARENT).unwrap();
        let place = Place { caller, dir };
        place.own(place.path(), 0o755);
        for (name, mode) in
            [("home", 0o700), ("run", 0o700), ("state", 0o700), ("work", 0o755), ("tmp", 0o700)]
        {
            place.make_dir(name, mode);
        }
        place
    }

    /// What the host has mounted of saggar's, as this process sees it, except in the places of other tests.
    pub(crate) fn mounts(&self) -> BTreeSet<String> {
        let places = format!(" {PARENT}/saggar-");
        let here = format!(" {}/", self.path().display());
        let text = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let ours = text.lines().filter(|line| line.contains("saggar"));
        ours.filter(|line| !line.contains(&places) || line.contains(&here)).map(str::to_owned).collect()
    }

    /// The directory itself.
    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Closes it to other users: programs of the profile nesting may not write a tree of root's that others reach.
    pub(crate) fn close(&self) {
        fs::set_permissions(self.path(), fs::Permissions::from_mode(0o700)).unwrap();
    }

    /// A path inside.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The folder that agents work in.
    pub(crate) fn work(&self) -> PathBuf {
        self.join("work")
    }

    /// Makes a directory that the caller owns.
    pub(crate) fn make_dir(&self, name: &str, mode: u32) -> PathBuf {
        let path = self.join(name);
        fs::create_dir(&path).unwrap();
        self.own(&path, mode);
        path
    }

    /// Makes a file that the caller owns.
    pub(crate) fn make_file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.join(name);
        fs::write(&path, content).unwrap();
        self.own(&path, 0o644);
        path
    }

    /// Writes the configuration of the user, as an operator's layer.
    pub(crate) fn configure_user(&self, policy: &str) {
        for directory in ["home/.config", "home/.config/saggar"] {
            if !self.join(directory).exists() {
                self.make_dir(directory, 0o755);
            }
        }
        self.make_file("home/.config/saggar/config.toml", policy);
    }

    /// A command that runs as the caller, in the work folder, with an environment that names only this place.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(self.reachable(program));
        command
            .current_dir(self.work())
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("LANG", "C.UTF-8")
            .env("HOME", self.join("home"))
            .env("XDG_RUNTIME_DIR", self.join("run"))
            .env("XDG_STATE_HOME", self.join("state"));
        if self.caller.is_root() {
            // Root has its sessions in a directory of the whole host otherwise.
            command.env("SAGGAR_STATE_DIR", self.join("state/saggar"));
        }
        self.caller.apply(&mut command);
        default_ending_signals(&mut command);
        command
    }

    /// The program under test, as the caller.
    pub(crate) fn saggar(&self) -> Command {
        self.command(binary::saggar())
    }

    /// `program` at a path that the caller can get to: a checkout below a closed home is not one.
    pub(crate) fn reachable(&self, program: &Path) -> PathBuf {
        let open = |dir: &Path| fs::metadata(dir).is_ok_and(|meta| meta.mode() & 0o001 != 0);
        if self.caller == Caller::current() || program.ancestors().skip(1).all(open) {
            return program.to_owned();
        }
        let bin = self.join("bin");
        fs::create_dir_all(&bin).unwrap();
        self.own(&bin, 0o755);
        let here = bin.join(program.file_name().expect("a program has a name"));
        // A link costs nothing, but needs the same file system.
        if !here.exists() && fs::hard_link(program, &here).is_err() {
            copy_program(program, &here);
        }
        here
    }

    fn own(&self, path: &Path, mode: u32) {
        self.caller.own(path);
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
}

/// Gives the command the default actions of the signals that ask for an end. A shell that starts the tests in the
/// background, and nohup, have some of them ignored, and saggar goes on to ignore what it inherits so.
#[allow(unsafe_code, reason = "no library resets actions in a child alone")]
fn default_ending_signals(command: &mut Command) {
    let reset = || {
        for ending in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM] {
            // SAFETY: the default action runs no code of this process.
            unsafe { signal(ending, SigHandler::SigDfl) }?;
        }
        Ok(())
    };
    // SAFETY: sigaction(2) may be called between fork and execve (signal-safety(7)).
    unsafe { command.pre_exec(reset) };
}
