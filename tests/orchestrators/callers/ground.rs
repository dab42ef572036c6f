//! What every caller stands on: a directory, the runtime at a path that the caller reaches, and a place for
//! cgroups; and the proof that nothing of it is left.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use procfs::process::Process;
use tempfile::TempDir;

use crate::account::Account;
use crate::deadline::Deadline;
use crate::output::patience;

/// The ground under one caller.
#[derive(Debug)]
pub(crate) struct Ground {
    pub(crate) account: Account,
    pub(crate) runtime: PathBuf,
    /// Below the mount point of each hierarchy: the parent of all cgroups of containers. With systemd a slice.
    pub(crate) cgroup: String,
    dir: TempDir,
}

impl Ground {
    /// For this account.
    pub(crate) fn new(account: Account, runtime: &Path) -> Self {
        // Short: sockets are below it, and the path of a socket has 107 bytes.
        let dir = tempfile::Builder::new().prefix("sgr-").rand_bytes(6).tempdir_in("/var/tmp").unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        account.own(dir.path());
        let name = runtime.file_name().unwrap();
        let copy = dir.path().join("bin").join(name);
        fs::create_dir(dir.path().join("bin")).unwrap();
        fs::copy(runtime, &copy).unwrap_or_else(|error| panic!("{}: {error}", runtime.display()));
        let unique = dir.path().file_name().unwrap().to_string_lossy().into_owned();
        let cgroup = match is_systemd() {
            // A dash would be a slice below another.
            true => format!("{}.slice", unique.replace('-', "")),
            false => format!("saggar-test-{unique}"),
        };
        let ground = Ground { account, runtime: copy, cgroup, dir };
        for name in ["home", "run", "state", "share"] {
            ground.make(name);
        }
        ground
    }

    /// The directory.
    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// A path in it, as text.
    pub(crate) fn at(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    /// Makes a directory that the account owns.
    pub(crate) fn make(&self, name: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        self.account.own(&path);
        path
    }

    /// A command as the account, with a home and a runtime directory here.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = self.account.command(program);
        command
            .env("HOME", self.at("home"))
            .env("USER", &self.account.name)
            .env("XDG_RUNTIME_DIR", self.runtime_dir())
            .env("XDG_CONFIG_HOME", self.at("home"))
            .current_dir(self.path());
        command
    }

    /// The user's manager is reached by its own.
    fn runtime_dir(&self) -> String {
        match is_systemd() && self.account.uid != 0 {
            true => format!("/run/user/{}", self.account.uid),
            false => self.at("run"),
        }
    }

    /// What is left of containers: cgroups, processes and mounts. Short-lived ends are waited for.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let deadline = Deadline::after(patience());
        loop {
            let mut left = self.cgroups_left();
            left.extend(self.processes_left());
            left.extend(self.mounts_left());
            left.extend(self.states_left());
            if left.is_empty() {
                return left;
            }
            if deadline.remaining().is_zero() {
                self.sweep();
                return left;
            }
            // conmon and shims end after their container, and tell nobody: no event.
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Directories below the parent of cgroups. The parent itself is the caller's, and goes here.
    fn cgroups_left(&self) -> Vec<String> {
        let mut left = Vec::new();
        for hierarchy in self.hierarchies() {
            let parent = hierarchy.join(&self.cgroup);
            // Podman's and Buildah's own, which they leave; one that is in use stays.
            for own in [
                parent.join("conmon"),
                hierarchy.join("libpod_parent/conmon"),
                hierarchy.join("libpod_parent"),
            ] {
                let _ = fs::remove_dir(own);
            }
            let below = fs::read_dir(&parent).into_iter().flatten().flatten();
            left.extend(
                below
                    .filter(|entry| entry.path().is_dir())
                    .map(|entry| format!("cgroup {}", entry.path().display())),
            );
            if left.is_empty() {
                let _ = fs::remove_dir(&parent);
            }
        }
        left
    }

    /// Processes whose command line, program or root is below the directory.
    fn processes_left(&self) -> Vec<String> {
        let line = |pid: &i32| {
            fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().replace('\0', " ")
        };
        self.pids_left().iter().map(|pid| format!("process {pid}: {}", line(pid))).collect()
    }

    fn pids_left(&self) -> Vec<i32> {
        let here = self.path();
        let inside = |path: Option<PathBuf>| path.is_some_and(|path| path.starts_with(here));
        let ours = |process: &Process| {
            let line = process.cmdline().unwrap_or_default().join(" ");
            line.contains(here.to_str().unwrap()) || inside(process.root().ok()) || inside(process.exe().ok())
        };
        let all = procfs::process::all_processes().unwrap().flatten();
        let me = std::process::id().cast_signed();
        all.filter(|process| process.pid() != me && ours(process)).map(|process| process.pid()).collect()
    }

    /// What a runtime keeps of containers: files that name our directory. Podman gives no root for them.
    fn states_left(&self) -> Vec<String> {
        let here = self.path().as_os_str().as_encoded_bytes();
        let names_us =
            |file: &Path| fs::read(file).is_ok_and(|text| text.windows(here.len()).any(|part| part == here));
        let mut left = Vec::new();
        for runtime in ["saggar", "runc", "crun"] {
            for place in [format!("/run/{runtime}"), format!("{}/{runtime}", self.runtime_dir())] {
                for container in fs::read_dir(place).into_iter().flatten().flatten() {
                    let files = fs::read_dir(container.path()).into_iter().flatten().flatten();
                    let ours = files.map(|file| file.path()).filter(|file| names_us(file));
                    left.extend(ours.map(|file| format!("state {}", file.display())));
                }
            }
        }
        left
    }

    /// Ends and removes what has been left, for those who come after.
    fn sweep(&self) {
        for pid in self.pids_left() {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        for mount in self.mounts_left() {
            let _ = umount2(mount.trim_start_matches("mount "), MntFlags::MNT_DETACH);
        }
        for hierarchy in self.hierarchies() {
            remove_tree(&hierarchy.join(&self.cgroup));
        }
    }

    /// Where the parent of cgroups is: at the top of all hierarchies, or of what the user's manager has.
    fn hierarchies(&self) -> Vec<PathBuf> {
        let mounts = Process::myself().and_then(|myself| myself.mountinfo()).unwrap();
        let cgroups = mounts.into_iter().filter(|mount| mount.fs_type.starts_with("cgroup"));
        let uid = self.account.uid;
        let below = match is_systemd() && uid != 0 {
            true => format!("user.slice/user-{uid}.slice/user@{uid}.service"),
            false => String::new(),
        };
        cgroups.map(|mount| mount.mount_point.join(&below)).collect()
    }

    fn mounts_left(&self) -> Vec<String> {
        let mounts = Process::myself().and_then(|myself| myself.mountinfo()).unwrap();
        let here = mounts.into_iter().filter(|mount| mount.mount_point.starts_with(self.path()));
        here.map(|mount| format!("mount {}", mount.mount_point.display())).collect()
    }
}

/// Whether containers are units of systemd: in the guest that has it.
pub(crate) fn is_systemd() -> bool {
    std::env::var("SAGGAR_GUEST").is_ok_and(|guest| guest == "systemd")
}

/// Whether this machine has cgroup v2 alone.
pub(crate) fn is_unified() -> bool {
    Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
}

/// Removes a cgroup with those below it. Processes that were killed may take a moment.
fn remove_tree(cgroup: &Path) {
    for below in fs::read_dir(cgroup).into_iter().flatten().flatten().filter(|entry| entry.path().is_dir()) {
        remove_tree(&below.path());
    }
    // After a failure alone. No event of both versions of cgroups tells that one is empty.
    let deadline = Deadline::after(Duration::from_secs(2));
    while cgroup.exists() && fs::remove_dir(cgroup).is_err() && !deadline.remaining().is_zero() {
        thread::sleep(Duration::from_millis(20));
    }
}
