//! What a sandbox leaves on the host while it runs, and who removes it: its runtime directory, its cgroup,
//! a socket elsewhere. The guard has its launcher remove them in the end, or when the supervisor is killed; before
//! there is a launcher the watcher does; [`sweep`] does when all were killed.

use crate::cgroup;
use crate::error::{Code, Error, Result};
use crate::id::SandboxId;
use crate::launch::Launched;
use crate::session::project::NUMBERS;
use crate::stage::launcher::{self, Held, Launcher, Work};
use crate::stage::watcher::{Charge, Watcher};
use crate::state::{self, SocketRecord};
use crate::sys::file::FileId;
use crate::sys::read;
use nix::fcntl::{Flock, FlockArg};
use std::ffi::CString;
use std::fs::{self, File};
use std::os::fd::{AsFd, RawFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, SystemTime};

/// A directory without a lock may be one that is just being made: only an old one is swept.
const MAKING: Duration = Duration::from_secs(10);

/// The largest record that is read.
const RECORD_LIMIT: u64 = 1 << 20;

/// The record in a runtime directory: what else is to be removed (DECISIONS 27).
#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Record {
    version: u32,
    cgroup: Option<PathBuf>,
    sockets: Vec<(PathBuf, SocketRecord)>,
    /// Sessions with a project quota or a place for changes: the directory, the number of the project or 0.
    #[serde(default)]
    sessions: Vec<(PathBuf, u32)>,
}

/// Everything that one running sandbox leaves on the host.
#[derive(Debug)]
pub struct Guard {
    watcher: Option<Watcher>,
    /// Once this process has no rights of its own.
    launcher: Option<Rc<Launcher>>,
    /// The launcher was told to remove what is in charge.
    ending: bool,
    charges: Vec<Owned>,
    directory: Option<PathBuf>,
    record: Record,
    _lock: Option<Flock<File>>,
}

/// A [`Charge`] that owns its path.
#[derive(Debug)]
enum Owned {
    Cgroup(CString),
    Directory(CString),
    File(CString, FileId),
    Session(CString, u32),
}

impl Owned {
    fn as_charge(&self) -> Charge<'_> {
        match self {
            Owned::Cgroup(path) => Charge::Cgroup(path),
            Owned::Directory(path) => Charge::Directory(path),
            Owned::File(path, is) => Charge::File { path, is: *is },
            Owned::Session(path, project) => Charge::Session { path, project: *project },
        }
    }
}

/// What a guard begins with.
#[derive(Debug, Clone, Copy)]
pub struct Leaves<'a> {
    /// The cgroup that is to be made.
    pub cgroup: Option<&'a Path>,
    /// Whether there is a runtime directory: where a sandbox has a name that somebody knows, or sockets.
    pub directory: bool,
}

impl Guard {
    /// Starts the watcher and makes the runtime directory of `id`, locked. A sandbox that leaves nothing has
    /// no watcher.
    ///
    /// # Errors
    /// [`Code::Exists`] when a sandbox of that id runs; [`Code::System`].
    pub fn new(id: &SandboxId, leaves: Leaves<'_>) -> Result<Self> {
        let record = Record {
            version: 1,
            cgroup: leaves.cgroup.map(Path::to_owned),
            sockets: Vec::new(),
            sessions: Vec::new(),
        };
        let mut guard = Guard {
            watcher: None,
            launcher: None,
            ending: false,
            charges: Vec::new(),
            directory: None,
            record,
            _lock: None,
        };
        if leaves.cgroup.is_some() || leaves.directory {
            guard.watcher = Some(Watcher::start().map_err(|e| Error::system("start the watcher", e))?);
        }
        if leaves.directory {
            let directory = state::sandbox_dir(id)?;
            guard._lock = Some(make_directory(id, &directory)?);
            guard.charge(Owned::Directory(c_path(&directory)?));
            guard.directory = Some(directory);
            guard.write_record()?;
        }
        if let Some(cgroup) = leaves.cgroup {
            guard.charge(Owned::Cgroup(c_path(cgroup)?));
        }
        Ok(guard)
    }

    /// The runtime directory, where there is one.
    pub fn directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }

    /// The pid of whoever cleans up after this process: the launcher, before that the watcher.
    pub fn watcher(&self) -> Option<i32> {
        let launcher = self.launcher.as_ref().map(|launcher| launcher.pid());
        launcher.or_else(|| self.watcher.as_ref().map(Watcher::pid))
    }

    /// Forks the launcher, which from now on does what takes rights: it ends the sandbox, removes what is in charge,
    /// and starts workers, which have these descriptors beside those of their requests. After this nothing more can be
    /// taken in charge.
    ///
    /// # Errors
    /// [`Code::System`] when it cannot be started.
    pub fn part(
        &mut self,
        launched: &mut Launched,
        descriptors: [Option<RawFd>; 2],
        work: &mut Work<'_>,
    ) -> Result<Rc<Launcher>> {
        let charges = launcher::encode(self.charges.iter().rev().map(Owned::as_charge));
        let init = (launched.pid, launched.pidfd.as_fd());
        let launcher = Launcher::part(Held { init, charges: &charges, descriptors, work });
        let launcher = Rc::new(launcher.map_err(|e| Error::system("start the launcher", e))?);
        launched.launcher = Some(Rc::clone(&launcher));
        self.launcher = Some(Rc::clone(&launcher));
        // It shares our memory, and has rights that we are about to give up.
        if let Some(watcher) = self.watcher.take() {
            watcher.dismiss();
        }
        Ok(launcher)
    }

    /// The sandbox's cgroup, where one may have been made.
    pub fn cgroup(&self) -> Option<&Path> {
        self.record.cgroup.as_deref()
    }

    /// Takes a socket outside of the runtime directory in charge, before it has its name there.
    ///
    /// # Errors
    /// [`Code::System`] when it cannot be recorded.
    pub fn add_socket(&mut self, path: PathBuf, socket: SocketRecord) -> Result<()> {
        let charge = Owned::File(c_path(&path)?, FileId { device: socket.dev, inode: socket.ino });
        self.charge(charge);
        self.record.sockets.push((path, socket));
        self.write_record()
    }

    /// Takes in charge what a session has for the time of a sandbox: the limit of its project, before that is set,
    /// and the place for changes. Such a sandbox has a runtime directory, where it is recorded.
    ///
    /// # Errors
    /// [`Code::System`] when it cannot be recorded.
    pub fn add_session(&mut self, directory: &Path, project: Option<u32>) -> Result<()> {
        let project = project.unwrap_or(0);
        self.charge(Owned::Session(c_path(directory)?, project));
        self.record.sessions.push((directory.to_owned(), project));
        self.write_record()
    }

    /// A socket that was taken in charge has got its name, which changed it.
    ///
    /// # Errors
    /// [`Code::System`] when it cannot be recorded.
    pub fn socket_has_its_name(&mut self, socket: SocketRecord) -> Result<()> {
        for (_, known) in &mut self.record.sockets {
            if known.same_file(&socket) {
                *known = socket;
            }
        }
        self.write_record()
    }

    /// Has the launcher begin with the removal: no program of the sandbox is left, and its pid 1 is about to end. Call
    /// it before that is reaped.
    pub fn end(&mut self) {
        if let Some(launcher) = self.launcher.as_ref().filter(|_| !self.ending) {
            launcher.end();
            self.ending = true;
        }
    }

    /// Whether the launcher was told to end.
    pub fn is_ending(&self) -> bool {
        self.ending
    }

    fn charge(&mut self, charge: Owned) {
        if let Some(watcher) = &mut self.watcher {
            watcher.charge(&charge.as_charge());
        }
        self.charges.push(charge);
    }

    fn write_record(&self) -> Result<()> {
        let Some(directory) = &self.directory else { return Ok(()) };
        let text = serde_json::to_vec(&self.record).unwrap_or_default();
        let (new, path) = (directory.join("guard.json.new"), directory.join("guard.json"));
        fs::write(&new, text)
            .and_then(|()| fs::rename(&new, &path))
            .map_err(|e| Error::system(format_args!("write {}", path.display()), e))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.end();
        if self.launcher.take().is_some_and(|launcher| launcher.wait()) {
            // Its names may be somebody else's by now.
            return;
        }
        // The directory, whose record and lock stand for the rest, goes last.
        for charge in self.charges.iter().rev() {
            charge.as_charge().remove();
        }
        if let Some(watcher) = self.watcher.take() {
            watcher.dismiss();
        }
    }
}

fn c_path(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_encoded_bytes())
        .map_err(|_| Error::new(Code::Invalid, format!("the path {} has a NUL byte", path.display())))
}

/// Makes the directory and takes its lock; what a dead sandbox of the same id left is removed first.
fn make_directory(id: &SandboxId, directory: &Path) -> Result<Flock<File>> {
    use std::os::unix::fs::DirBuilderExt;
    let taken = || {
        Error::new(Code::Exists, format!("id {id}: a sandbox of this name is running"))
            .hint("choose another --id, or end that sandbox first")
    };
    for attempt in 0..2 {
        match fs::DirBuilder::new().mode(0o700).create(directory) {
            Ok(()) => {}
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists && attempt == 0 => {
                if !sweep_one(directory, Duration::ZERO) {
                    return Err(taken());
                }
                continue;
            }
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => return Err(taken()),
            Err(e) => return Err(Error::system(format_args!("make {}", directory.display()), e)),
        }
        let path = directory.join("lock");
        let opened = state::lock_options().create_new(true).open(&path);
        if opened.as_ref().is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound) && attempt == 0 {
            // A sweep has taken it for one that is being removed.
            continue;
        }
        let file = opened.map_err(|e| Error::system(format_args!("make {}", path.display()), e))?;
        return Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|_| taken());
    }
    Err(taken())
}

/// Removes what sandboxes left whose supervisor and watcher are both dead; how many there were.
///
/// # Errors
/// As [`state::check_own`].
pub fn sweep() -> Result<usize> {
    let root = state::runtime_path();
    // A sandbox that nobody named has no runtime directory: its cgroup is all there is.
    let cgroups = || cgroup::sweep(MAKING, |id| root.join(id).exists());
    if root.symlink_metadata().is_err() {
        return Ok(cgroups());
    }
    state::check_own(&root)?;
    let entries =
        fs::read_dir(&root).map_err(|e| Error::system(format_args!("read {}", root.display()), e))?;
    let own = ["ids", state::counters::FILE];
    let sandboxes = entries.flatten().filter(|entry| own.iter().all(|name| entry.file_name() != *name));
    let swept = sandboxes.filter(|entry| sweep_one(&entry.path(), MAKING)).count();
    Ok(swept + cgroups())
}

/// Removes the dead sandbox that left a socket at `path`, if one did, and the socket when it is exactly what that
/// sandbox recorded. Whatever else is at `path` stays.
pub fn sweep_socket(path: &Path) {
    if path.symlink_metadata().is_err() {
        return;
    }
    let root = state::runtime_path();
    if state::check_own(&root).is_err() {
        return;
    }
    let names_it = |directory: &Path| {
        read_record(directory).is_some_and(|record| record.sockets.iter().any(|(at, _)| at == path))
    };
    for entry in fs::read_dir(&root).into_iter().flatten().flatten() {
        if names_it(&entry.path()) {
            sweep_one(&entry.path(), MAKING);
        }
    }
}

/// A record that is missing or unreadable is as none.
fn read_record(directory: &Path) -> Option<Record> {
    serde_json::from_slice(&read::small_file(&directory.join("guard.json"), RECORD_LIMIT)?).ok()
}

/// [`sweep`] by a command that is about something else: what cannot be swept is not its business.
pub fn sweep_by_the_way() {
    if let Err(error) = sweep() {
        log::debug!("{error}");
    }
}

/// Removes the remains in one runtime directory; false when its sandbox lives.
fn sweep_one(directory: &Path, making: Duration) -> bool {
    let lock = match state::lock_options().open(directory.join("lock")) {
        Ok(file) => match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Some(lock),
            Err(_) => return false,
        },
        Err(_) => None,
    };
    let age = directory.metadata().and_then(|meta| meta.modified()).ok();
    let age = age.and_then(|at| SystemTime::now().duration_since(at).ok()).unwrap_or_default();
    if lock.is_none() && age < making {
        // Its maker makes an empty one again; one that is being removed is empty as well in the end.
        return fs::remove_dir(directory).is_ok();
    }
    // Without a record there is nothing but the directory to remove.
    if let Some(record) = read_record(directory) {
        if let Some(Ok(path)) = record.cgroup.filter(|path| is_our_cgroup(path)).map(|path| c_path(&path)) {
            Charge::Cgroup(&path).remove();
        }
        for (path, project) in
            record.sessions.into_iter().filter(|(_, number)| *number == 0 || NUMBERS.contains(number))
        {
            if let Ok(path) = c_path(&path) {
                Charge::Session { path: &path, project }.remove();
            }
        }
        for (path, socket) in record.sockets {
            // Nobody has held it since: by its inode alone it could be another's by now (DECISIONS 21).
            let found = nix::sys::stat::lstat(&path).ok().and_then(|stat| SocketRecord::of(&stat));
            if let Ok(path) = c_path(&path)
                && found == Some(socket)
            {
                Charge::File { path: &path, is: FileId { device: socket.dev, inode: socket.ino } }.remove();
            }
        }
    }
    if let Ok(path) = c_path(directory) {
        Charge::Directory(&path).remove();
    }
    !directory.exists()
}

/// The record lies in a directory that is ours alone; even so it may name nothing but a cgroup of ours.
fn is_our_cgroup(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.as_encoded_bytes().starts_with(b"saggar-"));
    path.starts_with("/sys/fs/cgroup") && name == Some(true)
}
