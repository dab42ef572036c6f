//! Removes what a sandbox leaves on the host: its runtime directory, its cgroup, a socket elsewhere. The launcher
//! removes them at the end, or when the supervisor is killed; before the launcher exists, the watcher does; [`sweep`]
//! does if all of them were killed.

use crate::cgroup::{self, SandboxCgroups};
use crate::launch::agent::LaunchedSandbox;
use crate::launch::agent::skipped_entries::SkippedEntries;
use crate::launch::ids::PROJECT_IDS;
use crate::plan::path::c_path;
use crate::stage::agent::launcher::{self, Launcher, LauncherArgs, LauncherTasks, RequestFds};
use crate::stage::watcher::{CleanupItem, ReleasedWatcher, Watcher};
use crate::state;
use nix::fcntl::{Flock, FlockArg};
use saggar_sys::error::{Code, Error, Result};
use saggar_sys::exact_name::ExactPath;
use saggar_sys::file::FileId;
use saggar_sys::id::SandboxId;
use saggar_sys::read;
use saggar_sys::replace_file::SyncPolicy;
use saggar_sys::socket_record::SocketRecord;
use std::ffi::CString;
use std::fs::{self, File};
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

/// A directory without a lock may just be in creation: only an old one is swept.
const CREATION_GRACE: Duration = Duration::from_secs(10);

/// How often to make a directory again that concurrent sweeps remove.
const TRIES: usize = 100;

/// How long to wait while git has an index locked. Its own commands lock it for less, except for an editor.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

/// How long a start waits while another process sweeps the remains of a sandbox of the same id, and how often it looks.
const SWEEP_PATIENCE: Duration = Duration::from_secs(10);
const SWEEP_POLL: Duration = Duration::from_millis(10);

/// The file in the directory of all runtime directories whose lock is that of git indices.
const INDEX_LOCK: &str = "indices.lock";

/// The maximum size of a record, in bytes.
const RECORD_LIMIT: u64 = 1 << 20;

/// The record in a runtime directory: the other items to remove (DECISIONS 27).
#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct CleanupRecord {
    version: u32,
    /// The pid of the supervisor; 0 in records of earlier versions.
    #[serde(default)]
    supervisor: u32,
    cgroup: Option<PathBuf>,
    /// Cgroups in hierarchies of version 1.
    #[serde(default)]
    v1_cgroups: Vec<PathBuf>,
    sockets: Vec<(ExactPath, SocketRecord)>,
    /// Sessions with a project quota or a directory for changes: the session's directory, and the project id or 0.
    #[serde(default)]
    sessions: Vec<(ExactPath, u32)>,
    /// Entries of git indices that are skipped while the sandbox runs.
    #[serde(default)]
    skipped: Vec<SkippedEntries>,
}

/// Everything that a running sandbox leaves on the host, with the processes that remove it.
#[derive(Debug)]
pub struct CleanupGuard {
    watcher: Option<Watcher>,
    /// The watcher, after the launcher has taken over.
    released: Option<ReleasedWatcher>,
    /// The launcher, which has the rights that this process gives up.
    launcher: Option<Rc<Launcher>>,
    /// Whether the launcher was asked to remove the items.
    cleaning_up: bool,
    items: Vec<OwnedCleanupItem>,
    directory: Option<PathBuf>,
    cgroups: SandboxCgroups,
    record: CleanupRecord,
    _lock: Option<Flock<File>>,
}

/// A [`CleanupItem`] that owns its path.
#[derive(Debug)]
enum OwnedCleanupItem {
    Cgroup(CString),
    V1Cgroup(CString),
    Directory(CString),
    File(CString, FileId),
    Session(CString, u32),
}

impl OwnedCleanupItem {
    fn as_item(&self) -> CleanupItem<'_> {
        match self {
            OwnedCleanupItem::Cgroup(path) => CleanupItem::Cgroup(path),
            OwnedCleanupItem::V1Cgroup(path) => CleanupItem::V1Cgroup(path),
            OwnedCleanupItem::Directory(path) => CleanupItem::Directory(path),
            OwnedCleanupItem::File(path, is) => CleanupItem::File { path, id: *is },
            OwnedCleanupItem::Session(path, project) => CleanupItem::Session { path, project: *project },
        }
    }
}

/// Entries of git indices that a sandbox is about to skip. Until they are recorded no other sandbox restores them.
#[derive(Debug, Default)]
pub struct ClaimedEntries {
    entries: Vec<SkippedEntries>,
    _lock: Option<Flock<File>>,
}

impl ClaimedEntries {
    /// Finds the entries at `hidden` paths of the workspace. What a killed sandbox has left is not taken for what the
    /// repository had before.
    pub fn find(workspace: &Path, hidden: &[PathBuf]) -> Self {
        sweep_best_effort();
        let lock = lock_indices();
        let found = SkippedEntries::find(workspace, hidden, &entries_of_running_sandboxes(None));
        let entries = found.unwrap_or_else(|error| {
            log::warn!("git shows hidden files as changed: {error}");
            Vec::new()
        });
        ClaimedEntries { entries, _lock: lock }
    }

    /// Entries of an index that no other sandbox uses.
    pub fn unshared(entries: Vec<SkippedEntries>) -> Self {
        ClaimedEntries { entries, _lock: None }
    }
}

/// What a new guard has to remove.
#[derive(Debug)]
pub struct HostArtifacts {
    /// The cgroups that will be made.
    pub cgroups: SandboxCgroups,
    /// Whether a runtime directory is needed: for a sandbox with a name given by the user, or with sockets.
    pub directory: bool,
    /// Entries of git indices that are to be skipped while the sandbox runs. They need a runtime directory too.
    pub skipped: ClaimedEntries,
}

impl CleanupGuard {
    /// Starts the watcher and makes the runtime directory of `id`, locked. A sandbox that leaves nothing on the host
    /// has no watcher.
    ///
    /// # Errors
    /// [`Code::Exists`] when a sandbox with that id is running; [`Code::System`].
    pub fn new(id: &SandboxId, leaves: HostArtifacts) -> Result<Self> {
        let ClaimedEntries { entries: skipped, _lock: claim } = leaves.skipped;
        let record = CleanupRecord {
            version: 1,
            supervisor: std::process::id(),
            cgroup: leaves.cgroups.unified.clone(),
            v1_cgroups: leaves.cgroups.v1.iter().map(|one| one.path().to_owned()).collect(),
            sockets: Vec::new(),
            sessions: Vec::new(),
            skipped,
        };
        let mut guard = CleanupGuard {
            watcher: None,
            released: None,
            launcher: None,
            cleaning_up: false,
            items: Vec::new(),
            directory: None,
            cgroups: leaves.cgroups,
            record,
            _lock: None,
        };
        let has_directory = leaves.directory || !guard.record.skipped.is_empty();
        if guard.cgroups.directories().next().is_some() || has_directory {
            guard.watcher = Some(Watcher::start().map_err(|e| Error::system("start the watcher", e))?);
        }
        if has_directory {
            let directory = state::sandbox_dir(id)?;
            guard._lock = Some(make_directory(id, &directory)?);
            let item = OwnedCleanupItem::Directory(c_path(&directory)?);
            match guard.record.skipped.is_empty() {
                true => guard.register(item),
                // Its record has the entries to restore, which the watcher cannot do.
                false => guard.items.push(item),
            }
            guard.directory = Some(directory);
            guard.write_record()?;
            // From here on no other sandbox restores them.
            drop(claim);
            guard.skip_entries();
        }
        // The last one is removed first, and kills.
        for path in guard.record.v1_cgroups.clone() {
            guard.register(OwnedCleanupItem::V1Cgroup(c_path(&path)?));
        }
        if let Some(path) = guard.record.cgroup.clone() {
            guard.register(OwnedCleanupItem::Cgroup(c_path(&path)?));
        }
        Ok(guard)
    }

    /// The runtime directory, if there is one.
    pub fn directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }

    /// Forks the launcher, which from now on runs the operations that need rights: it ends the sandbox, removes the
    /// registered items, and starts workers, which inherit `descriptors` besides those of their requests. Nothing more
    /// can be registered afterwards.
    ///
    /// # Errors
    /// [`Code::System`] when it cannot be forked.
    pub fn spawn_launcher(
        &mut self,
        launched: &mut LaunchedSandbox,
        descriptors: &[RawFd],
        work: &mut dyn LauncherTasks,
    ) -> Result<Rc<Launcher>> {
        let charges = launcher::encode_cleanup(self.items.iter().rev().map(OwnedCleanupItem::as_item));
        let init = (launched.pid, launched.pidfd.as_fd());
        let (skipped, directory) = (&*self.record.skipped, self.directory.as_deref());
        let tasks = &mut TasksWithEntries { tasks: work, skipped, directory };
        let launcher = Launcher::spawn(LauncherArgs { init, cleanup: &charges, descriptors, tasks });
        let launcher = Rc::new(launcher.map_err(|e| Error::system("start the launcher", e))?);
        launched.launcher = Some(Rc::clone(&launcher));
        self.launcher = Some(Rc::clone(&launcher));
        self.released = self.watcher.take().map(Watcher::release);
        Ok(launcher)
    }

    /// Waits until the watcher has exited, because it shares this process's memory and keeps rights that this process
    /// has given up. Call it before reading the first byte from outside. The watcher exits while this process confines
    /// itself.
    pub fn await_watcher(&mut self) {
        self.released = None;
    }

    /// The sandbox's cgroups, which may have been made.
    pub fn cgroups(&self) -> &SandboxCgroups {
        &self.cgroups
    }

    /// Registers a socket outside of the runtime directory, before it is renamed to its final path.
    ///
    /// # Errors
    /// [`Code::System`] when it cannot be recorded.
    pub fn add_socket(&mut self, path: PathBuf, socket: SocketRecord) -> Result<()> {
        let charge = OwnedCleanupItem::File(c_path(&path)?, FileId { device: socket.dev, inode: socket.ino });
        self.register(charge);
        self.record.sockets.push((ExactPath(path), socket));
        self.write_record()
    }

    /// Registers what a session uses while its sandbox runs: the quota of its project, before that is set, and the
    /// directory for changes. Such a sandbox has a runtime directory, which has the record.
    ///
    /// # Errors
    /// [`Code::System`] when it cannot be recorded.
    pub fn add_session(&mut self, directory: &Path, project: Option<u32>) -> Result<()> {
        let project = project.unwrap_or(0);
        self.register(OwnedCleanupItem::Session(c_path(directory)?, project));
        self.record.sessions.push((ExactPath(directory.to_owned()), project));
        self.write_record()
    }

    /// Updates a registered socket after the rename to its final path, which changed its metadata.
    ///
    /// # Errors
    /// [`Code::System`] when it cannot be recorded.
    pub fn update_socket(&mut self, socket: SocketRecord) -> Result<()> {
        for (_, known) in &mut self.record.sockets {
            if known.is_same_file(&socket) {
                *known = socket;
            }
        }
        self.write_record()
    }

    /// Makes the launcher start the removal: every program of the sandbox has exited, and its pid 1 is about to. Call
    /// it before pid 1 is reaped.
    pub fn begin_cleanup(&mut self) {
        if let Some(launcher) = self.launcher.as_ref().filter(|_| !self.cleaning_up) {
            launcher.clean_up();
            self.cleaning_up = true;
        }
    }

    /// Whether the launcher was asked to clean up.
    pub fn is_cleaning_up(&self) -> bool {
        self.cleaning_up
    }

    /// It is not an error if git has an index locked, or if the user may not write it: programs then find hidden files
    /// that are changed.
    fn skip_entries(&self) {
        for entries in &self.record.skipped {
            if let Err(error) = entries.skip(LOCK_PATIENCE) {
                let level = if error.code() == Code::State { log::Level::Warn } else { log::Level::Info };
                log::log!(level, "git shows hidden files as changed: {error}");
            }
        }
    }

    fn register(&mut self, charge: OwnedCleanupItem) {
        if let Some(watcher) = &mut self.watcher {
            watcher.register(&charge.as_item());
        }
        self.items.push(charge);
    }

    fn write_record(&self) -> Result<()> {
        let Some(directory) = &self.directory else { return Ok(()) };
        let text = serde_json::to_vec(&self.record).unwrap_or_default();
        state::replace_record(&directory.join("guard.json"), &text, 0o666, SyncPolicy::None)
    }
}

impl Drop for CleanupGuard {
    fn drop(&mut self) {
        self.begin_cleanup();
        if self.launcher.take().is_some_and(|launcher| launcher.wait()) {
            // Others may use these paths by now.
            return;
        }
        let is_restored = restore_entries(&self.record.skipped, self.directory.as_deref(), LOCK_PATIENCE);
        // The directory goes last, because its record and lock protect the other items.
        for charge in self.items.iter().rev() {
            if is_restored || !matches!(charge, OwnedCleanupItem::Directory(_)) {
                charge.as_item().remove();
            }
        }
        if let Some(watcher) = self.watcher.take() {
            watcher.dismiss();
        }
    }
}

/// The launcher's tasks, and the restoration of git indices at its end.
struct TasksWithEntries<'a> {
    tasks: &'a mut dyn LauncherTasks,
    skipped: &'a [SkippedEntries],
    /// The runtime directory, with the record.
    directory: Option<&'a Path>,
}

impl LauncherTasks for TasksWithEntries<'_> {
    fn run_inline(&mut self, worker: u32, argument: u64) -> bool {
        self.tasks.run_inline(worker, argument)
    }

    fn verify_peer(&mut self, connection: BorrowedFd<'_>) -> Option<u8> {
        self.tasks.verify_peer(connection)
    }

    fn on_long_lived(&mut self) {
        self.tasks.on_long_lived();
    }

    fn run_worker(&mut self, worker: u32, argument: u64, fds: RequestFds) {
        self.tasks.run_worker(worker, argument, fds);
    }

    fn on_end(&mut self) -> bool {
        restore_entries(self.skipped, self.directory, LOCK_PATIENCE)
    }
}

/// Restores the entries of git indices that no other sandbox hides; `own` is the directory of the record that they are
/// from. Returns false if an index is locked; another error would occur again.
fn restore_entries(skipped: &[SkippedEntries], own: Option<&Path>, patience: Duration) -> bool {
    if skipped.is_empty() {
        return true;
    }
    let _lock = lock_indices();
    let others = entries_of_running_sandboxes(own);
    let mut is_done = true;
    for entries in skipped.iter().filter_map(|entries| entries.without(&others)) {
        if let Err(error) = entries.restore(patience) {
            let is_locked = error.code() == Code::State;
            is_done &= !is_locked;
            // A start that sweeps what others have left does not repeat what they reported at their end.
            let level = if is_locked && patience.is_zero() { log::Level::Debug } else { log::Level::Warn };
            log::log!(level, "git does not look at files that were hidden: {error}");
        }
    }
    is_done
}

/// The entries that running sandboxes hide, except for the one with the runtime directory `own`.
pub fn entries_of_running_sandboxes(own: Option<&Path>) -> Vec<SkippedEntries> {
    let runtime = state::existing_runtime_path();
    let directories = runtime.and_then(|path| fs::read_dir(path).ok()).into_iter().flatten().flatten();
    let others = directories.map(|entry| entry.path()).filter(|directory| Some(directory.as_path()) != own);
    let entries = |directory: PathBuf| {
        let skipped = read_record(&directory)?.skipped;
        (!skipped.is_empty() && is_running(&directory)).then_some(skipped)
    };
    others.filter_map(entries).flatten().collect()
}

/// Whether a process holds the lock of this runtime directory.
fn is_running(directory: &Path) -> bool {
    let lock = state::lock_options().open(directory.join("lock"));
    lock.is_ok_and(|file| Flock::lock(file, FlockArg::LockExclusiveNonblock).is_err())
}

/// Takes the lock of all indices: while entries are found and recorded, and while they are restored. Without it, two
/// sandboxes on one work tree could restore what the other hides.
fn lock_indices() -> Option<Flock<File>> {
    let open = |runtime: &Path| {
        let path = runtime.join(INDEX_LOCK);
        let opened = state::lock_options().create(true).open(&path);
        opened.map_err(|e| Error::system(format_args!("open {}", path.display()), e))
    };
    Flock::lock(state::with_shared_locks(open).ok()?, FlockArg::LockExclusive).ok()
}

/// Makes the directory and takes its lock; first removes the remains of a dead sandbox with the same id.
fn make_directory(id: &SandboxId, directory: &Path) -> Result<Flock<File>> {
    use std::os::unix::fs::DirBuilderExt;
    let taken = || {
        Error::new(Code::Exists, format!("id {id}: a sandbox of this name is running"))
            .hint("choose another --id, or end that sandbox first")
    };
    let fails = |what: &str, path: &Path, e: std::io::Error| {
        Error::system(format_args!("{what} {}", path.display()), e)
    };
    let path = directory.join("lock");
    let until = Instant::now() + SWEEP_PATIENCE;
    for _ in 0..TRIES {
        match fs::DirBuilder::new().mode(0o700).create(directory) {
            Ok(()) => {}
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
                while !sweep_one(directory, Duration::ZERO) {
                    if is_in_use(directory) || Instant::now() >= until {
                        return Err(taken());
                    }
                    std::thread::sleep(SWEEP_POLL);
                }
                continue;
            }
            Err(e) => return Err(fails("make", directory, e)),
        }
        let file = match state::lock_options().create_new(true).open(&path) {
            Ok(file) => file,
            // A sweep has removed it, taking it for one in removal.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
            Err(e) => return Err(fails("make", &path, e)),
        };
        // Only a sweep can hold the lock before this process; it treats a directory without a record as a leftover of a
        // dead sandbox, or leaves it alone.
        let lock =
            Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, e)| fails("lock", &path, e.into()))?;
        if lock.metadata().is_ok_and(|meta| meta.nlink() > 0) {
            return Ok(lock);
        }
    }
    Err(taken())
}

/// Whether the process that made the directory lives. Otherwise another process sweeps it, which takes its lock for that.
fn is_in_use(directory: &Path) -> bool {
    let supervisor = read_record(directory).map(|record| record.supervisor);
    supervisor.is_some_and(|pid| pid == 0 || Path::new(&format!("/proc/{pid}")).exists())
}

/// Removes the remains of sandboxes whose supervisor and watcher are both dead; returns their number.
///
/// # Errors
/// As [`state::check_private_directory`].
pub fn sweep() -> Result<usize> {
    let root = state::existing_runtime_path();
    // A sandbox without a name has no runtime directory, only a cgroup.
    let is_known = |id: &str| root.as_ref().is_some_and(|root| root.join(id).exists());
    let cgroups = || cgroup::remove_stale(CREATION_GRACE, is_known);
    let Some(root) = &root else { return Ok(cgroups()) };
    state::check_private_directory(root)?;
    let entries =
        fs::read_dir(root).map_err(|e| Error::system(format_args!("read {}", root.display()), e))?;
    let own = ["ids", state::counters::FILE_NAME, INDEX_LOCK, state::RUNTIME_MARKER];
    let sandboxes = entries.flatten().filter(|entry| own.iter().all(|name| entry.file_name() != *name));
    let swept = sandboxes.filter(|entry| sweep_one(&entry.path(), CREATION_GRACE)).count();
    Ok(swept + cgroups())
}

/// Removes the remains of the dead sandbox that left a socket at `path`, if there is one, and the socket if it is
/// exactly the recorded one. Any other file at `path` is kept.
pub fn sweep_socket(path: &Path) {
    if path.symlink_metadata().is_err() {
        return;
    }
    let Some(root) = state::existing_runtime_path() else { return };
    if state::check_private_directory(&root).is_err() {
        return;
    }
    let names_it = |directory: &Path| {
        read_record(directory).is_some_and(|record| record.sockets.iter().any(|(at, _)| at.0 == path))
    };
    for entry in fs::read_dir(&root).into_iter().flatten().flatten() {
        if names_it(&entry.path()) {
            sweep_one(&entry.path(), CREATION_GRACE);
        }
    }
}

/// Reads a record; a missing or unreadable one is `None`.
fn read_record(directory: &Path) -> Option<CleanupRecord> {
    serde_json::from_slice(&read::small_file(&directory.join("guard.json"), RECORD_LIMIT)?).ok()
}

/// Calls [`sweep`] for a command with another purpose: an error is only logged.
pub fn sweep_best_effort() {
    if let Err(error) = sweep() {
        log::debug!("{error}");
    }
}

/// Removes the remains in one runtime directory; returns false if its sandbox is running.
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
        // The process that made it makes it again; a directory in removal becomes empty as well.
        return fs::remove_dir(directory).is_ok();
    }
    let record = read_record(directory);
    if record.is_none() && age < making {
        // The process that made it is about to take the lock.
        return false;
    }
    // Without a record, only the directory can be removed.
    if let Some(record) = record {
        // Where git has locked an index, a later sweep restores it.
        if !restore_entries(&record.skipped, Some(directory), Duration::ZERO) {
            return false;
        }
        if let Some(Ok(path)) = record.cgroup.filter(|path| is_our_cgroup(path)).map(|path| c_path(&path)) {
            CleanupItem::Cgroup(&path).remove();
        }
        for path in record.v1_cgroups.into_iter().filter(|path| is_our_cgroup(path)) {
            if let Ok(path) = c_path(&path) {
                CleanupItem::V1Cgroup(&path).remove();
            }
        }
        for (ExactPath(path), project) in
            record.sessions.into_iter().filter(|(_, number)| *number == 0 || PROJECT_IDS.contains(number))
        {
            if let Ok(path) = c_path(&path) {
                CleanupItem::Session { path: &path, project }.remove();
            }
        }
        for (ExactPath(path), socket) in record.sockets {
            // Nothing has kept the inode since: by its number alone it could be another file by now (DECISIONS 21).
            let found = nix::sys::stat::lstat(&path).ok().and_then(|stat| SocketRecord::from_stat(&stat));
            if let Ok(path) = c_path(&path)
                && found == Some(socket)
            {
                CleanupItem::File { path: &path, id: FileId { device: socket.dev, inode: socket.ino } }
                    .remove();
            }
        }
    }
    if let Ok(path) = c_path(directory) {
        CleanupItem::Directory(&path).remove();
    }
    !directory.exists()
}

/// Only this user can write the record's directory; even so, a record may only name a cgroup of saggar.
fn is_our_cgroup(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.as_encoded_bytes().starts_with(b"saggar-"));
    path.starts_with("/sys/fs/cgroup") && name == Some(true)
}
