//! session.json: what a session is, where it runs, and the data of a later start.
//!
//! It is written atomically: under a temporary name, then renamed. It is synced later by [`RecordWriter::sync`], so
//! that clients do not wait for the disk; until then the version before it has the temporary name. If the machine stops
//! in between, the session has failed in any case.
//!
//! The holder of the session's lock writes the file; any process of its owner may read it. The state that a dead
//! supervisor left in the file is corrected ([`SessionRecord::with_actual_state`]).

#![expect(
    clippy::disallowed_methods,
    reason = "the session's own directory, where no program of a sandbox can write"
)]

use super::session_state::{SessionState, SessionTransition};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, Flock, FlockArg, RenameFlags, renameat2};
use saggar_sandbox::state;
use saggar_sandbox::state::process::{ProcessId, boot_id};
use saggar_sys::error::{Code, Error, Result};
use saggar_sys::id::SandboxId;
use saggar_sys::read;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Version of the file format.
const RECORD_VERSION: u32 = 1;
/// Largest file that is read, in bytes.
const MAX_SIZE: u64 = 1 << 20;
/// Most characters of a cause.
const MAX_CAUSE_LENGTH: usize = 4096;
/// Name of the file, and the temporary name of a new version.
const FILE_NAME: &str = "session.json";
const NEW_FILE_NAME: &str = "session.json.new";
/// Name of the new version while the version before is not synced yet.
const UNSYNCED_FILE_NAME: &str = "session.json.next";
/// How long to wait for the processes of a killed supervisor.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);
/// A directory without a record may be a session that is being created; this is how long that may take.
const CREATION_GRACE: Duration = Duration::from_secs(10);

/// Why a session is in its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StateReason {
    /// A user or server requested it.
    Request,
    /// A server shut down the bridge.
    Shutdown,
    /// A signal to the supervisor.
    Signal,
    /// The only turn of a `saggar agent` is over.
    Done,
    /// A time limit other than the idle limit.
    Timeout,
    /// The idle limit.
    Idle,
    /// The agent exited by itself.
    Crash,
    /// The start failed.
    Start,
    /// A protection was undone.
    Policy,
    /// saggar itself failed, or the sandbox was killed from outside.
    Runtime,
    /// The supervisor has died without recording a reason.
    Lost,
}

/// The options of the session's creation, for later starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionOptions {
    /// The arguments of `saggar session create`.
    #[serde(with = "saggar_sys::exact_name::list")]
    pub arguments: Vec<OsString>,
    /// The directory to which relative paths among them refer.
    #[serde(with = "saggar_sys::exact_name")]
    pub directory: PathBuf,
}

/// The content of session.json.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionRecord {
    /// Version of the format, 1.
    pub version: u32,
    /// Id of the session.
    pub id: String,
    /// The agent's folder.
    pub folder: String,
    /// The state that its supervisor recorded last.
    pub state: SessionState,
    /// The reason of the state, if it is known.
    pub reason: Option<StateReason>,
    /// The reason as text for people.
    pub cause: Option<String>,
    /// Id of its current or last sandbox.
    pub sandbox: Option<String>,
    /// The supervisor, until it has recorded its end.
    pub supervisor: Option<ProcessId>,
    /// The supervisor that has recorded its end; it holds the lock of the session until it has exited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exiting: Option<ProcessId>,
    /// The process that cleans up after the supervisor.
    pub watcher: Option<ProcessId>,
    /// pid 1 of the sandbox.
    pub init: Option<ProcessId>,
    /// Path of the work tree.
    pub workspace: Option<String>,
    /// Path of the bridge's socket, while a supervisor runs.
    pub bridge_socket: Option<String>,
    /// Path of the control socket, while a supervisor runs.
    pub control_socket: Option<String>,
    /// Time of creation, RFC 3339.
    pub created: String,
    /// Time of the last change of the state, RFC 3339.
    pub changed: String,
    /// `None` if it was not created by `saggar session create`.
    pub options: Option<SessionOptions>,
    /// Hosts allowed by the user for the life of the session, as HOST:PORT.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub consented: Vec<String>,
}

/// Checks the directory of sessions before they are listed; false if there is none.
///
/// # Errors
/// [`Code::System`] if it cannot be looked at: that is not the same as no session.
fn check_listed(sessions: &Path) -> Result<bool> {
    match sessions.symlink_metadata() {
        Ok(_) => state::check_private_directory(sessions).map(|()| true),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(Error::system(format_args!("read {}", sessions.display()), e)),
    }
}

impl SessionRecord {
    /// The record of a new session.
    pub fn new(id: &SandboxId, folder: &Path, options: Option<SessionOptions>) -> Self {
        let now = now_rfc3339();
        SessionRecord {
            version: RECORD_VERSION,
            id: id.to_string(),
            folder: folder.to_string_lossy().into_owned(),
            state: SessionState::Starting,
            reason: None,
            cause: None,
            sandbox: None,
            supervisor: None,
            exiting: None,
            watcher: None,
            init: None,
            workspace: None,
            bridge_socket: None,
            control_socket: None,
            created: now.clone(),
            changed: now,
            options,
            consented: Vec::new(),
        }
    }

    /// Reads the record of the session in `directory`; `None` if there is none that can be read.
    pub fn read(directory: &Path) -> Option<Self> {
        let parse = |name: &str| {
            let text = read::small_file(&directory.join(name), MAX_SIZE)?;
            serde_json::from_slice::<SessionRecord>(&text)
                .ok()
                .filter(|record| record.version == RECORD_VERSION)
        };
        parse(FILE_NAME).or_else(|| parse(NEW_FILE_NAME))
    }

    /// Corrects the state: a session whose supervisor has died without recording its end has failed.
    #[must_use]
    pub fn with_actual_state(mut self) -> Self {
        let Some(supervisor) = self.supervisor.take_if(|supervisor| !supervisor.is_alive_or_hidden()) else {
            return self;
        };
        (self.bridge_socket, self.control_socket) = (None, None);
        // A crash of the agent is the better reason.
        if matches!(self.state, SessionState::Starting | SessionState::Active | SessionState::Paused) {
            let how = if supervisor.boot_id == boot_id() { "was killed" } else { "ended with the machine" };
            self.cause = Some(format!("its supervisor, process {}, {how}", supervisor.pid));
            (self.state, self.reason) = (SessionState::Error, Some(StateReason::Lost));
        }
        self
    }

    /// Whether a supervisor serves it. Call it on the result of [`SessionRecord::with_actual_state`].
    pub fn is_served(&self) -> bool {
        self.supervisor.is_some()
    }

    /// Whether a process of its last sandbox is about to exit that can still hold a copy of the session's lock.
    pub(crate) fn is_exiting(&self) -> bool {
        let is_dead = self.supervisor.as_ref().is_some_and(|supervisor| !supervisor.is_alive_or_hidden());
        let processes = [&self.exiting, &self.init, &self.watcher].into_iter().flatten();
        is_dead || (self.supervisor.is_none() && processes.into_iter().any(ProcessId::is_alive_or_hidden))
    }

    /// No supervisor serves it from now on.
    fn set_exiting(&mut self) {
        if let Some(supervisor) = self.supervisor.take() {
            self.exiting = Some(supervisor);
        }
    }

    /// Waits until no process of its last sandbox is left that could still write or remove files: a killed supervisor
    /// leaves two processes, which are about to exit.
    pub fn await_exit(&self, patience: Duration) {
        for process in [&self.init, &self.watcher].into_iter().flatten() {
            if let Ok(pidfd) = process.open_pidfd_to_wait() {
                state::process::wait_for_exit(&pidfd, patience);
            }
        }
    }

    /// Finds the session `id`, with its actual state.
    ///
    /// # Errors
    /// [`Code::Invalid`] when the session does not exist.
    pub fn find(id: &str) -> Result<(SandboxId, PathBuf, Self)> {
        let id = SandboxId::parse(id)?;
        let sessions = state::sessions_path()?;
        let directory = sessions.join(id.as_str());
        if directory.join("lock").symlink_metadata().is_err() {
            return Err(Error::new(Code::Invalid, format!("session {id} does not exist"))
                .hint(format!("saggar session list names those in {}", sessions.display())));
        }
        state::check_private_directory(&directory)?;
        let record = SessionRecord::read(&directory).unwrap_or_else(|| unreadable_record(&id, &directory));
        Ok((id, directory, record.with_actual_state()))
    }

    /// All sessions of this user with their actual states, sorted by name.
    ///
    /// # Errors
    /// As [`state::sessions_path`] and [`state::check_private_directory`].
    pub fn list() -> Result<Vec<Self>> {
        let sessions = state::sessions_path()?;
        if !check_listed(&sessions)? {
            return Ok(Vec::new());
        }
        let entries = fs::read_dir(&sessions)
            .map_err(|e| Error::system(format_args!("read {}", sessions.display()), e))?;
        let mut all: Vec<SessionRecord> = entries
            .flatten()
            .filter_map(|entry| {
                let id = SandboxId::parse(entry.file_name().to_str()?).ok()?;
                SessionRecord::read_listed(&id, &entry.path())
            })
            .collect();
        all.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(all)
    }

    /// Those of the sessions `ids` that exist, as [`SessionRecord::list`] has them, in this order.
    ///
    /// # Errors
    /// As [`SessionRecord::list`]; [`Code::Invalid`] for an id that no session can have.
    pub fn list_named(ids: &[String]) -> Result<Vec<Self>> {
        let sessions = state::sessions_path()?;
        check_listed(&sessions)?;
        let mut found = Vec::new();
        for id in ids {
            let id = SandboxId::parse(id)?;
            found.extend(SessionRecord::read_listed(&id, &sessions.join(id.as_str())));
        }
        Ok(found)
    }

    /// The record of the session in this directory with its actual state; `None` for one that does not exist or is being
    /// created.
    fn read_listed(id: &SandboxId, directory: &Path) -> Option<Self> {
        let made = directory.join("lock").symlink_metadata().ok()?;
        let record = SessionRecord::read(directory).or_else(|| {
            let age = SystemTime::now().duration_since(made.modified().ok()?).unwrap_or_default();
            (age > CREATION_GRACE).then(|| unreadable_record(id, directory))
        });
        Some(record?.with_actual_state())
    }
}

/// The record of a session whose creation was interrupted, or whose record is damaged.
fn unreadable_record(id: &SandboxId, directory: &Path) -> SessionRecord {
    let mut record = SessionRecord::new(id, Path::new(""), None);
    (record.state, record.reason) = (SessionState::Error, Some(StateReason::Lost));
    record.cause = Some(format!("{} is missing or cannot be read", directory.join(FILE_NAME).display()));
    record
}

/// Locks the record of a session against other writers; the lock of the session itself is its supervisor's.
fn lock(directory: &Path) -> Result<Flock<File>> {
    let fails = |e| Error::system(format_args!("lock {}", directory.display()), e);
    let place = File::open(directory).map_err(fails)?;
    Flock::lock(place, FlockArg::LockExclusive).map_err(|(_, e)| fails(e.into()))
}

fn now_rfc3339() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}

/// Writes a record for a process without the right to; see [`RecordWriter::write_delegated`].
pub type RecordSink = Box<dyn FnMut(&SessionRecord) -> Result<()>>;

/// Writes the record of a session whose lock this process holds.
pub struct RecordWriter {
    directory: PathBuf,
    record: SessionRecord,
    /// Writes the record if this process may not.
    sink: Option<RecordSink>,
    /// The file that was renamed and is not synced yet.
    unsynced: Option<File>,
    /// The agent has run.
    agent_has_run: bool,
    /// The session was removed.
    is_removed: bool,
    /// The session has output of a script.
    is_kept: bool,
}

impl fmt::Debug for RecordWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper").field("record", &self.record).finish_non_exhaustive()
    }
}

impl RecordWriter {
    /// Writes the first record of the session in `directory`, or changes an existing one to `starting` if its state
    /// allows [`SessionTransition::Restart`].
    ///
    /// # Errors
    /// [`Code::Ended`], [`Code::State`] when it cannot be started again; [`Code::System`].
    pub fn create(directory: &Path, fresh: SessionRecord) -> Result<Self> {
        if let Some(old) = SessionRecord::read(directory) {
            old.with_actual_state().await_exit(EXIT_TIMEOUT);
        }
        // A worker of a killed supervisor may still be writing what that supervisor said.
        let _lock = lock(directory)?;
        let record = match SessionRecord::read(directory) {
            Some(old) => {
                let old = old.with_actual_state();
                // A supervisor that died while it was starting has failed; a running one would hold the lock.
                let state = old
                    .state
                    .apply(SessionTransition::Restart)
                    .map_err(|illegal| illegal.to_error(&fresh.id))?;
                let options = fresh.options.or(old.options);
                SessionRecord { state, created: old.created, options, consented: old.consented, ..fresh }
            }
            None => fresh,
        };
        let record = SessionRecord { supervisor: ProcessId::current(), ..record };
        let mut keeper = RecordWriter::for_dead_session(directory, record);
        keeper.replace_file()?;
        Ok(keeper)
    }

    /// A writer for the record of a session without a supervisor, to end it.
    pub fn for_dead_session(directory: &Path, record: SessionRecord) -> Self {
        RecordWriter {
            directory: directory.to_owned(),
            record,
            sink: None,
            unsynced: None,
            agent_has_run: false,
            is_removed: false,
            is_kept: false,
        }
    }

    /// The current record.
    pub fn record(&self) -> &SessionRecord {
        &self.record
    }

    /// The directory of its session.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether its agent has run since it was started.
    pub fn agent_has_run(&self) -> bool {
        self.agent_has_run
    }

    /// Writes the fields of the start, then delegates all writes to `sink`: this process is about to drop the right to
    /// write.
    ///
    /// # Errors
    /// [`Code::System`].
    pub fn delegate_to(&mut self, sink: RecordSink) -> Result<()> {
        self.replace_file()?;
        self.unsynced = None;
        self.sink = Some(sink);
        Ok(())
    }

    /// Writes a record that `supervisor` delegated, but only the fields that a supervisor may change: state, reason,
    /// consents, and that no supervisor serves it any more. `written` is called when the file is renamed, before it is
    /// synced; for the last record, after which other processes write, when it is synced.
    ///
    /// # Errors
    /// [`Code::State`] when another supervisor serves the session meanwhile; [`Code::System`] when it may not be on disk.
    pub fn write_delegated(
        directory: &Path,
        supervisor: Option<&ProcessId>,
        submitted: SessionRecord,
        written: impl FnOnce(Result<()>),
    ) -> Result<()> {
        // An earlier version may be in the process of being synced.
        let _lock = lock(directory)?;
        let lost = || Error::new(Code::State, format!("{} is gone", directory.join(FILE_NAME).display()));
        let mut record = SessionRecord::read(directory).ok_or_else(lost)?;
        let is_last = submitted.supervisor.is_none();
        // A worker that was killed after the last record was there is started again.
        let is_written = is_last && record.supervisor.is_none() && record.changed == submitted.changed;
        if record.supervisor.as_ref() != supervisor && !is_written {
            let message = format!("session {} has another supervisor, or none", record.id);
            return Err(Error::new(Code::State, message));
        }
        let cause = submitted.cause.map(|cause| cause.chars().take(MAX_CAUSE_LENGTH).collect());
        (record.state, record.reason, record.cause) = (submitted.state, submitted.reason, cause);
        (record.changed, record.consented) = (submitted.changed, submitted.consented);
        if is_last {
            record.set_exiting();
            (record.bridge_socket, record.control_socket) = (None, None);
        }
        let mut keeper = RecordWriter::for_dead_session(directory, record);
        if is_last {
            written(keeper.replace_file().and_then(|()| keeper.sync()));
            return Ok(());
        }
        keeper.replace_file()?;
        written(Ok(()));
        keeper.sync()
    }

    /// Whether the session was removed.
    pub fn is_removed(&self) -> bool {
        self.is_removed
    }

    /// Call after the session was removed.
    pub fn mark_removed(&mut self) {
        self.is_removed = true;
    }

    /// Whether the session stays although its agent has not run: it has the output of a script.
    pub fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// The session stays.
    pub fn mark_kept(&mut self) {
        self.is_kept = true;
    }

    /// Changes fields that are not part of the state; they are written with the next transition.
    pub fn set_fields(&mut self, change: impl FnOnce(&mut SessionRecord)) {
        change(&mut self.record);
    }

    /// Records the hosts that the user has allowed for the session.
    ///
    /// # Errors
    /// [`Code::System`].
    pub fn save_consents(&mut self, hosts: Vec<String>) -> Result<()> {
        self.record.consented = hosts;
        self.replace_file()
    }

    /// Applies a transition; false when nothing changed.
    ///
    /// # Errors
    /// As [`super::session_state::IllegalTransition::to_error`]; [`Code::System`].
    pub fn transition(
        &mut self,
        transition: SessionTransition,
        why: Option<StateReason>,
        cause: Option<String>,
    ) -> Result<bool> {
        let state =
            self.record.state.apply(transition).map_err(|illegal| illegal.to_error(&self.record.id))?;
        self.agent_has_run |= transition == SessionTransition::Run;
        if (state, why, &cause) == (self.record.state, self.record.reason, &self.record.cause) {
            return Ok(false);
        }
        (self.record.state, self.record.reason, self.record.cause) = (state, why, cause);
        self.record.changed = now_rfc3339();
        self.replace_file()?;
        Ok(true)
    }

    /// Writes the last record of this supervisor: a transition, and that no supervisor serves the session any more.
    ///
    /// # Errors
    /// As [`RecordWriter::transition`] and [`RecordWriter::sync`].
    pub fn close(
        &mut self,
        transition: SessionTransition,
        why: Option<StateReason>,
        cause: Option<String>,
    ) -> Result<()> {
        let record = &mut self.record;
        record.set_exiting();
        (record.bridge_socket, record.control_socket) = (None, None);
        record.changed = now_rfc3339();
        if let Ok(state) = record.state.apply(transition) {
            (record.state, record.reason, record.cause) = (state, why, cause);
        }
        self.replace_file()?;
        self.sync()
    }

    /// Syncs the file.
    ///
    /// # Errors
    /// [`Code::System`].
    pub fn sync(&mut self) -> Result<()> {
        let Some(file) = self.unsynced.take() else { return Ok(()) };
        let fail = |e| Error::system(format_args!("sync {}", self.directory.join(FILE_NAME).display()), e);
        file.sync_all().map_err(fail)?;
        File::open(&self.directory).and_then(|directory| directory.sync_all()).map_err(fail)?;
        // The version before is no longer needed.
        let _ = fs::remove_file(self.directory.join(NEW_FILE_NAME));
        Ok(())
    }

    /// Renames the new record. The version before keeps the name [`NEW_FILE_NAME`] until this one is synced; if that
    /// was not synced itself, the one before it stays there.
    fn replace_file(&mut self) -> Result<()> {
        if let Some(scribe) = &mut self.sink {
            return scribe(&self.record);
        }
        let path = self.directory.join(FILE_NAME);
        let has_kept = self.unsynced.is_some();
        let new = self.directory.join(if has_kept { UNSYNCED_FILE_NAME } else { NEW_FILE_NAME });
        let fail = |e: io::Error| Error::system(format_args!("write {}", path.display()), e);
        let mut text = serde_json::to_vec_pretty(&self.record).unwrap_or_default();
        text.push(b'\n');
        let write = || -> io::Result<File> {
            let _ = fs::remove_file(&new);
            let mut options = File::options();
            options.write(true).create_new(true).mode(0o600).custom_flags(libc::O_CLOEXEC);
            let mut file = options.open(&new)?;
            file.write_all(&text)?;
            Ok(file)
        };
        let file = write().map_err(fail)?;
        let exchanged = match has_kept {
            true => Err(Errno::EEXIST),
            false => renameat2(AT_FDCWD, &new, AT_FDCWD, &path, RenameFlags::RENAME_EXCHANGE),
        };
        if let Err(errno) = exchanged {
            // The first record has no version before it, and some file systems cannot exchange names.
            if !has_kept && errno != Errno::ENOENT {
                file.sync_all().map_err(fail)?;
            }
            fs::rename(&new, &path).map_err(fail)?;
        }
        self.unsynced = Some(file);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
