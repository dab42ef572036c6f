//! A session's directory and its lock, which agents need since they do not lock their data.

#![expect(
    clippy::disallowed_methods,
    reason = "the session's own directory, where no program of a sandbox can write"
)]

use crate::image::DiskImage;
use crate::record::SessionRecord;
use crate::{copy, quarantine, remove, snapshot};
use nix::fcntl::{Flock, FlockArg};
use saggar_sandbox::state;
use saggar_sys::error::{Code, Error, Result};
use saggar_sys::id::SandboxId;
use saggar_sys::replace_file::{SyncPolicy, Writers, replace_file};
use saggar_sys::{beneath, read};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Largest agent.json that is read, in bytes.
const MAX_AGENT_RECORD_SIZE: u64 = 1 << 20;

/// How long to wait for the processes of a killed supervisor, and the interval of the checks.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// An open, locked session.
#[derive(Debug)]
pub struct Session {
    directory: PathBuf,
    /// The directory of home and workspace: the session's directory, or its mounted image.
    data_directory: PathBuf,
    _lock: Flock<File>,
}

/// agent.json: the agent's id of the conversation, for the server's id.
#[derive(Debug, Default, Serialize, Deserialize)]
struct AgentSessionRecord {
    version: u32,
    session: String,
    agent_session: String,
}

/// Whether a session is created or resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// The session must not exist yet.
    New,
    /// The session must exist.
    Resume,
}

/// The lock of a session without a supervisor; no supervisor can start until it is dropped.
#[derive(Debug)]
pub struct SessionLock {
    _lock: Flock<File>,
}

/// The directory of the session `id`.
///
/// # Errors
/// [`Code::Invalid`] when the session does not exist.
pub fn session_directory(id: &SandboxId) -> Result<PathBuf> {
    let sessions = state::sessions_path()?;
    let directory = sessions.join(id.as_str());
    if directory.join("lock").symlink_metadata().is_err() {
        return Err(Error::new(Code::Invalid, format!("session {id} does not exist"))
            .hint(format!("sessions are in {}", sessions.display())));
    }
    state::check_private_directory(&directory)?;
    Ok(directory)
}

/// Takes the lock of the session `id`.
///
/// # Errors
/// [`Code::Exists`] while a supervisor serves it; as [`session_directory`].
pub fn lock_session(id: &SandboxId) -> Result<SessionLock> {
    let directory = session_directory(id)?;
    let path = directory.join("lock");
    let file = state::lock_options()
        .open(&path)
        .map_err(|e| Error::system(format_args!("open {}", path.display()), e))?;
    let lock = acquire_lock(file, &directory).ok_or_else(|| match is_served(id) {
        true => Error::new(
            Code::Exists,
            format!("session {id} is being served: its agent may be at work on these files"),
        )
        .hint(format!(
            "end its sandbox first: saggar session end {id}, permanently, or the method shutdown of its control socket; \
             only diff shows what a session is at"
        )),
        false => at_work_error(id),
    })?;
    Ok(SessionLock { _lock: lock })
}

/// Whether a supervisor serves the session.
pub fn is_served(id: &SandboxId) -> bool {
    let record = session_directory(id).ok().and_then(|directory| SessionRecord::read(&directory));
    record.is_some_and(|record| record.with_actual_state().is_served())
}

/// The error for a session that no supervisor serves, and that another command holds.
pub fn at_work_error(id: &SandboxId) -> Error {
    Error::new(Code::Exists, format!("another command works on session {id}")).hint(
        "wait until it ends: an apply or another command for its files, or a question of saggar mcp control that waits \
         for an answer",
    )
}

/// The agent's own id of the conversation of the session in `directory`, if it is known.
pub fn read_agent_session(directory: &Path) -> Option<String> {
    let text = read::small_file(&directory.join("agent.json"), MAX_AGENT_RECORD_SIZE)?;
    let record: AgentSessionRecord = serde_json::from_slice(&text).ok()?;
    (record.version == 1).then_some(record.agent_session)
}

/// Takes the lock of a session; `None` while a supervisor serves it or another command works on it. A supervisor holds the
/// lock until it has exited, and its watcher and pid 1 may hold a copy slightly longer; a session without a record is being
/// created or removed. These cases are waited for.
fn acquire_lock(mut file: File, directory: &Path) -> Option<Flock<File>> {
    let until = Instant::now() + LOCK_TIMEOUT;
    loop {
        // Looked at before the lock: a process that has exited meanwhile has released it.
        let is_transient = SessionRecord::read(directory).is_none_or(|record| record.is_exiting());
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Some(lock),
            Err((back, _)) => file = back,
        }
        if !is_transient || Instant::now() >= until {
            return None;
        }
        sleep(LOCK_POLL_INTERVAL);
    }
}

impl Session {
    /// Creates or opens the session `id` and takes its lock.
    ///
    /// # Errors
    /// [`Code::Exists`] when it exists and must be new, or when a supervisor serves it; [`Code::Invalid`] when it does
    /// not exist and must be resumed; [`Code::System`].
    pub fn open(id: &SandboxId, mode: OpenMode) -> Result<Self> {
        let directory = state::sessions_dir()?.join(id.as_str());
        let lock = loop {
            match (mode, directory.join("lock").exists()) {
                (OpenMode::New, true) => {
                    return Err(Error::new(Code::Exists, format!("session {id} exists"))
                        .hint("use --resume to continue it, or choose another name"));
                }
                (OpenMode::Resume, false) => {
                    return Err(Error::new(Code::Invalid, format!("session {id} does not exist"))
                        .hint(format!("sessions are in {}", state::sessions_dir()?.display())));
                }
                _ => state::ensure_private_directory(&directory)?,
            }
            let path = directory.join("lock");
            let file = match state::lock_options().create(true).open(&path) {
                // Another command has just removed the session.
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                file => file.map_err(|e| Error::system(format_args!("open {}", path.display()), e))?,
            };
            let lock = acquire_lock(file, &directory).ok_or_else(|| match is_served(id) {
                true => Error::new(Code::Exists, format!("session {id} is being served by another saggar"))
                    .hint("one agent at a time has a conversation: end the other one first"),
                false => at_work_error(id),
            })?;
            if lock.metadata().is_ok_and(|meta| meta.nlink() > 0) {
                break lock;
            }
        };
        snapshot::finish_restore(&directory)?;
        Ok(Session { data_directory: directory.clone(), directory, _lock: lock })
    }

    /// The session's directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The directory of home, workspace and the changes of an overlay.
    pub fn data_directory(&self) -> &Path {
        &self.data_directory
    }

    /// Mounts the session's image as the data directory, for this process and its children.
    ///
    /// # Errors
    /// As [`DiskImage::mount`].
    pub fn mount_image(&mut self, bytes: u64, inodes: u64) -> Result<()> {
        let image = DiskImage::for_session(&self.directory);
        image.mount(bytes, inodes)?;
        self.data_directory = image.mount_point();
        Ok(())
    }

    /// Removes the session with all of its data.
    ///
    /// # Errors
    /// As [`remove::remove_directory`].
    pub fn remove(&self) -> Result<()> {
        if self.data_directory != self.directory {
            DiskImage::for_session(&self.directory).unmount();
        }
        remove::remove_directory(&self.directory)
    }

    /// The directory to which files under protected names are moved.
    pub fn quarantine_directory(&self) -> PathBuf {
        self.directory.join(quarantine::QUARANTINE_DIRECTORY)
    }

    /// Opens the audit log of answers to permission requests: one JSON object per line, append-only, readable only by
    /// the owner (DECISIONS 27).
    ///
    /// # Errors
    /// [`Code::System`].
    pub fn open_audit_log(&self) -> Result<File> {
        let path = self.directory.join("audit.jsonl");
        let mut options = File::options();
        options.append(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC);
        options.open(&path).map_err(|e| Error::system(format_args!("open {}", path.display()), e))
    }

    /// Path of the file that exists once install.sh has succeeded in this session.
    pub fn installed_marker(&self) -> PathBuf {
        self.directory.join("installed")
    }

    /// Writes the MCP servers of a start; returns the path. The file can be read by every user who can reach it, but
    /// the directory is accessible only to us.
    ///
    /// # Errors
    /// [`Code::System`].
    pub fn write_mcp_config(&self, json: &[u8]) -> Result<PathBuf> {
        let path = self.directory.join("mcp.json");
        let write = |file: &mut File| {
            file.write_all(json)?;
            file.set_permissions(fs::Permissions::from_mode(0o644))
        };
        replace_file(&path, Writers::One, 0o600, SyncPolicy::None, write)
            .map_err(|e| Error::system(format_args!("write {}", path.display()), e))?;
        Ok(path)
    }

    /// The agent's home, created if it is missing.
    ///
    /// # Errors
    /// As [`state::ensure_private_directory`].
    pub fn home(&self) -> Result<PathBuf> {
        let home = self.data_directory.join("home");
        state::ensure_private_directory(&home)?;
        Ok(home)
    }

    /// The workspace: a new copy of `source`, or the copy of an earlier run.
    ///
    /// # Errors
    /// As [`copy::copy_tree`].
    pub fn workspace(&self, source: &Path) -> Result<PathBuf> {
        let workspace = self.data_directory.join("workspace");
        if !workspace.is_dir() {
            // Copied under another name and renamed: a partial copy is never used as a workspace.
            let unfinished = self.data_directory.join("workspace.new");
            remove::remove_directory(&unfinished)?;
            let opened = beneath::open_root(source)
                .map_err(|e| Error::system(format_args!("copy {}", source.display()), e))?;
            let manifest = copy::copy_tree(source, opened.as_fd(), &unfinished)?;
            manifest.store(&self.directory)?;
            fs::rename(&unfinished, &workspace)
                .map_err(|e| Error::system(format_args!("put {} in its place", workspace.display()), e))?;
        }
        Ok(workspace)
    }

    /// The agent's own id of the conversation, from an earlier run. A record that cannot be read is ignored: a new
    /// conversation begins, and that is reported.
    pub fn agent_session(&self) -> Option<String> {
        read_agent_session(&self.directory)
    }

    /// Saves the agent's own id of the conversation.
    ///
    /// # Errors
    /// [`Code::System`].
    pub fn save_agent_session(&self, session: &str, agent_session: &str) -> Result<()> {
        let record =
            AgentSessionRecord { version: 1, session: session.into(), agent_session: agent_session.into() };
        let text = serde_json::to_vec(&record).unwrap_or_default();
        state::replace_record(&self.directory.join("agent.json"), &text, 0o666, SyncPolicy::Content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{RecordWriter, StateReason};
    use crate::session_state::SessionTransition;
    use std::sync::mpsc;
    use std::thread;

    fn lock_file(directory: &Path) -> File {
        state::lock_options().create(true).open(directory.join("lock")).unwrap()
    }

    /// Whether a thread of this process sleeps.
    fn sleeps(thread: i32) -> bool {
        let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'))
    }

    /// The session of a supervisor that has recorded its end and has not exited: this process.
    fn closed_session() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let id = SandboxId::parse("closed").unwrap();
        let fresh = SessionRecord::new(&id, Path::new("/"), None);
        let mut writer = RecordWriter::create(directory.path(), fresh).unwrap();
        writer.close(SessionTransition::Pause, Some(StateReason::Shutdown), None).unwrap();
        directory
    }

    #[test]
    fn exiting_supervisor_is_waited_for() {
        let directory = closed_session();
        let held = Flock::lock(lock_file(directory.path()), FlockArg::LockExclusive).unwrap();
        let (sender, receiver) = mpsc::channel();
        let (path, file) = (directory.path().to_owned(), lock_file(directory.path()));
        let acquiring = thread::spawn(move || {
            sender.send(nix::unistd::gettid().as_raw()).unwrap();
            acquire_lock(file, &path).is_some()
        });
        let thread = receiver.recv().unwrap();
        while !sleeps(thread) && !acquiring.is_finished() {
            thread::yield_now();
        }
        drop(held);
        assert!(acquiring.join().unwrap());
    }

    #[test]
    fn lock_of_another_command_is_not_waited_for() {
        let directory = closed_session();
        let text = fs::read_to_string(directory.path().join("session.json")).unwrap();
        let mut record: serde_json::Value = serde_json::from_str(&text).unwrap();
        record.as_object_mut().unwrap().remove("exiting").expect("it names the supervisor");
        fs::write(directory.path().join("session.json"), record.to_string()).unwrap();
        let _held = Flock::lock(lock_file(directory.path()), FlockArg::LockExclusive).unwrap();
        assert!(acquire_lock(lock_file(directory.path()), directory.path()).is_none());
    }
}
