//! session.json: what a session is, where it runs, and what a later start needs to go on with it.
//!
//! It is written whole under a temporary name and renamed, so that a reader never sees half of it. It is synced a moment
//! later, by [`Keeper::settle`], so that nobody who waits for an answer waits for the disk; until then the version
//! before it stands under the temporary name. Were the machine to stop between, the session has failed whatever its
//! file says.
//!
//! Who writes holds the session's lock; anybody of its owner reads. What a file says of a supervisor that is gone is
//! not believed ([`Record::as_seen`]).

#![expect(
    clippy::disallowed_methods,
    reason = "the session's own directory, where no program of a sandbox can write"
)]

use super::states::{Move, State};
use crate::error::{Code, Error, Result};
use crate::id::SandboxId;
use crate::state;
use crate::state::process::{ProcessId, boot_id};
use crate::sys::read;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, Flock, FlockArg, RenameFlags, renameat2};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The version of the file.
const VERSION: u32 = 1;
/// The largest that is read.
const LIMIT: u64 = 1 << 20;
/// How many characters a cause has.
const CAUSE: usize = 4096;
/// The name, and the one under which it is written.
const NAME: &str = "session.json";
const NEW: &str = "session.json.new";
/// The same, while the version before is not synced yet.
const NEXT: &str = "session.json.next";
/// How long what a killed supervisor has left is given to end.
const PATIENCE: Duration = Duration::from_secs(10);
/// A directory without a record may be one that is just being made.
const MAKING: Duration = Duration::from_secs(10);

/// Why a session is where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Why {
    /// Somebody asked for it.
    Request,
    /// A server shut the bridge down.
    Shutdown,
    /// A signal asked the supervisor to end.
    Signal,
    /// The only turn of a `saggar agent` is over.
    Done,
    /// A limit of time.
    Timeout,
    /// The limit of time without a command.
    Idle,
    /// The agent ended by itself.
    Crash,
    /// It did not start.
    Start,
    /// A protection was undone.
    Policy,
    /// saggar itself failed, or the sandbox was killed from outside.
    Runtime,
    /// The supervisor is gone and has left no word.
    Lost,
}

/// What was asked for when the session was created, for later starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// The words after `saggar session create`.
    pub words: Vec<String>,
    /// Where relative paths among them begin.
    pub directory: PathBuf,
}

/// The file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// 1.
    pub version: u32,
    /// The session's name.
    pub id: String,
    /// The agent's folder.
    pub folder: String,
    /// Where the session stands, as its supervisor saw it last.
    pub state: State,
    /// Why, where that is known.
    pub reason: Option<Why>,
    /// The same for people.
    pub cause: Option<String>,
    /// Its sandbox, now or last.
    pub sandbox: Option<String>,
    /// The supervisor, as long as it has not said goodbye.
    pub supervisor: Option<ProcessId>,
    /// What cleans up after it.
    pub watcher: Option<ProcessId>,
    /// pid 1 of the sandbox.
    pub init: Option<ProcessId>,
    /// The work tree.
    pub workspace: Option<String>,
    /// The sockets, while a supervisor has them.
    pub bridge_socket: Option<String>,
    /// The same.
    pub control_socket: Option<String>,
    /// When it was created, as RFC 3339 has it.
    pub created: String,
    /// When its state changed last.
    pub changed: String,
    /// Without, it was not made by `saggar session create`.
    pub options: Option<Options>,
    /// The hosts that somebody has said yes to for the session, each as HOST:PORT.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub consented: Vec<String>,
}

impl Record {
    /// The record of a new session.
    pub fn new(id: &SandboxId, folder: &Path, options: Option<Options>) -> Self {
        let now = now();
        Record {
            version: VERSION,
            id: id.to_string(),
            folder: folder.to_string_lossy().into_owned(),
            state: State::Starting,
            reason: None,
            cause: None,
            sandbox: None,
            supervisor: None,
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

    /// The record of the session in `directory`, as it was written last; `None` when there is none that can be read.
    pub fn read(directory: &Path) -> Option<Self> {
        let parse = |name: &str| {
            let text = read::small_file(&directory.join(name), LIMIT)?;
            serde_json::from_slice::<Record>(&text).ok().filter(|record| record.version == VERSION)
        };
        parse(NAME).or_else(|| parse(NEW))
    }

    /// The session as it is: one whose supervisor is gone without a word has failed.
    #[must_use]
    pub fn as_seen(mut self) -> Self {
        let Some(supervisor) = self.supervisor.take_if(|supervisor| !supervisor.is_alive()) else {
            return self;
        };
        (self.bridge_socket, self.control_socket) = (None, None);
        // What the agent itself died of says more.
        if matches!(self.state, State::Starting | State::Active | State::Paused) {
            let how = if supervisor.boot_id == boot_id() { "was killed" } else { "ended with the machine" };
            self.cause = Some(format!("its supervisor, process {}, {how}", supervisor.pid));
            (self.state, self.reason) = (State::Error, Some(Why::Lost));
        }
        self
    }

    /// Whether a supervisor serves it. To be asked of a record [as it is seen](Record::as_seen).
    pub fn is_served(&self) -> bool {
        self.supervisor.is_some()
    }

    /// Waits until nothing of its last sandbox is left that could still write or remove: a supervisor that was
    /// killed leaves two processes, which are about to end.
    pub fn await_end(&self, patience: Duration) {
        for process in [&self.init, &self.watcher].into_iter().flatten() {
            if let Ok(pidfd) = process.open() {
                state::process::wait(&pidfd, patience);
            }
        }
    }

    /// The session `id` as it is.
    ///
    /// # Errors
    /// [`Code::Invalid`] when there is none.
    pub fn find(id: &str) -> Result<(SandboxId, PathBuf, Self)> {
        let id = SandboxId::parse(id)?;
        let sessions = state::sessions_path()?;
        let directory = sessions.join(id.as_str());
        if directory.join("lock").symlink_metadata().is_err() {
            return Err(Error::new(Code::Invalid, format!("session {id} does not exist"))
                .hint(format!("saggar session list names those in {}", sessions.display())));
        }
        state::check_own(&directory)?;
        let record = Record::read(&directory).unwrap_or_else(|| unreadable(&id, &directory));
        Ok((id, directory, record.as_seen()))
    }

    /// All sessions of this user as they are, in the order of their names.
    ///
    /// # Errors
    /// As [`state::sessions_path`] and [`state::check_own`].
    pub fn all() -> Result<Vec<Self>> {
        let sessions = state::sessions_path()?;
        if sessions.symlink_metadata().is_err() {
            return Ok(Vec::new());
        }
        state::check_own(&sessions)?;
        let entries = fs::read_dir(&sessions)
            .map_err(|e| Error::system(format_args!("read {}", sessions.display()), e))?;
        let mut all: Vec<Record> = entries
            .flatten()
            .filter_map(|entry| {
                let id = SandboxId::parse(entry.file_name().to_str()?).ok()?;
                let made = entry.path().join("lock").symlink_metadata().ok()?;
                let record = Record::read(&entry.path()).or_else(|| {
                    let age = SystemTime::now().duration_since(made.modified().ok()?).unwrap_or_default();
                    (age > MAKING).then(|| unreadable(&id, &entry.path()))
                });
                Some(record?.as_seen())
            })
            .collect();
        all.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(all)
    }
}

/// A session whose making was cut short, or whose record is damaged.
fn unreadable(id: &SandboxId, directory: &Path) -> Record {
    let mut record = Record::new(id, Path::new(""), None);
    (record.state, record.reason) = (State::Error, Some(Why::Lost));
    record.cause = Some(format!("{} is missing or cannot be read", directory.join(NAME).display()));
    record
}

fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}

/// Writes a record for a keeper that has no right to; see [`Keeper::write_by`].
pub type Scribe = Box<dyn FnMut(&Record) -> Result<()>>;

/// The record of a session whose lock is ours.
pub struct Keeper {
    directory: PathBuf,
    record: Record,
    /// Who writes, where this process does not.
    scribe: Option<Scribe>,
    /// What was put in place and is not synced yet.
    unsynced: Option<File>,
    /// Its agent has run.
    has_run: bool,
    /// The session was removed.
    is_gone: bool,
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper").field("record", &self.record).finish_non_exhaustive()
    }
}

impl Keeper {
    /// Keeps the record of the session in `directory`; the first one is written, and one that was there moves to
    /// `starting` when `restart` says so.
    ///
    /// # Errors
    /// [`Code::Ended`], [`Code::State`] when it cannot be started again; [`Code::System`].
    pub fn start(directory: &Path, fresh: Record) -> Result<Self> {
        let record = match Record::read(directory) {
            Some(old) => {
                let old = old.as_seen();
                old.await_end(PATIENCE);
                // A supervisor that is gone while it was starting has failed; one that was seen has our lock.
                let state = old.state.after(Move::Restart).map_err(|illegal| illegal.error(&fresh.id))?;
                let options = fresh.options.or(old.options);
                Record { state, created: old.created, options, consented: old.consented, ..fresh }
            }
            None => fresh,
        };
        let record = Record { supervisor: ProcessId::own(), ..record };
        let mut keeper = Keeper::of_dead(directory, record);
        keeper.put()?;
        Ok(keeper)
    }

    /// Keeps the record of a session that nobody serves, to end it.
    pub fn of_dead(directory: &Path, record: Record) -> Self {
        Keeper {
            directory: directory.to_owned(),
            record,
            scribe: None,
            unsynced: None,
            has_run: false,
            is_gone: false,
        }
    }

    /// What it says.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// The directory of its session.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether its agent has run since it was started.
    pub fn has_run(&self) -> bool {
        self.has_run
    }

    /// Writes down the facts of the start, and has `scribe` write from now on: this process is about to give up the
    /// right to.
    ///
    /// # Errors
    /// [`Code::System`].
    pub fn write_by(&mut self, scribe: Scribe) -> Result<()> {
        self.put()?;
        self.unsynced = None;
        self.scribe = Some(scribe);
        Ok(())
    }

    /// Writes what a keeper has said to its scribe, as far as it is a keeper's to say: where the session stands, why, its
    /// consents, and that nobody serves it any more. `written` hears when it is in its place, before it is synced; of
    /// the last word, after which others write, when all is done.
    ///
    /// # Errors
    /// [`Code::System`], when it is not known to be on the disk.
    pub fn amend(directory: &Path, said: Record, written: impl FnOnce(Result<()>)) -> Result<()> {
        let fails = |e| Error::system(format_args!("lock {}", directory.display()), e);
        // What was said before may be being synced.
        let place = File::open(directory).map_err(fails)?;
        let _one = Flock::lock(place, FlockArg::LockExclusive).map_err(|(_, e)| fails(e.into()))?;
        let lost = || Error::new(Code::State, format!("{} is gone", directory.join(NAME).display()));
        let mut record = Record::read(directory).ok_or_else(lost)?;
        let is_last = said.supervisor.is_none();
        let cause = said.cause.map(|cause| cause.chars().take(CAUSE).collect());
        (record.state, record.reason, record.cause) = (said.state, said.reason, cause);
        (record.changed, record.consented) = (said.changed, said.consented);
        if is_last {
            record.supervisor = None;
            (record.bridge_socket, record.control_socket) = (None, None);
        }
        let mut keeper = Keeper::of_dead(directory, record);
        if is_last {
            written(keeper.put().and_then(|()| keeper.settle()));
            return Ok(());
        }
        keeper.put()?;
        written(Ok(()));
        keeper.settle()
    }

    /// Whether the session was removed.
    pub fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// The session was removed.
    pub fn is_now_gone(&mut self) {
        self.is_gone = true;
    }

    /// Changes facts that are no moves; they are written with the next move.
    pub fn set(&mut self, change: impl FnOnce(&mut Record)) {
        change(&mut self.record);
    }

    /// Writes down the hosts that somebody has said yes to for the session.
    ///
    /// # Errors
    /// [`Code::System`].
    pub fn keep_consents(&mut self, hosts: Vec<String>) -> Result<()> {
        self.record.consented = hosts;
        self.put()
    }

    /// Makes a move; false when nothing changed by it.
    ///
    /// # Errors
    /// As [`super::states::Illegal::error`]; [`Code::System`].
    pub fn go(&mut self, step: Move, why: Option<Why>, cause: Option<String>) -> Result<bool> {
        let state = self.record.state.after(step).map_err(|illegal| illegal.error(&self.record.id))?;
        self.has_run |= step == Move::Run;
        if (state, why, &cause) == (self.record.state, self.record.reason, &self.record.cause) {
            return Ok(false);
        }
        (self.record.state, self.record.reason, self.record.cause) = (state, why, cause);
        self.record.changed = now();
        self.put()?;
        Ok(true)
    }

    /// The last word of this supervisor: a move, and that nobody serves the session any more.
    ///
    /// # Errors
    /// As [`Keeper::go`] and [`Keeper::settle`].
    pub fn leave(&mut self, step: Move, why: Option<Why>, cause: Option<String>) -> Result<()> {
        let record = &mut self.record;
        record.supervisor = None;
        (record.bridge_socket, record.control_socket) = (None, None);
        record.changed = now();
        if let Ok(state) = record.state.after(step) {
            (record.state, record.reason, record.cause) = (state, why, cause);
        }
        self.put()?;
        self.settle()
    }

    /// Whether something is not synced yet.
    pub fn is_settled(&self) -> bool {
        self.unsynced.is_none()
    }

    /// Syncs what was written.
    ///
    /// # Errors
    /// [`Code::System`].
    pub fn settle(&mut self) -> Result<()> {
        let Some(file) = self.unsynced.take() else { return Ok(()) };
        let fail = |e| Error::system(format_args!("sync {}", self.directory.join(NAME).display()), e);
        file.sync_all().map_err(fail)?;
        File::open(&self.directory).and_then(|directory| directory.sync_all()).map_err(fail)?;
        // The version before is needed no more.
        let _ = fs::remove_file(self.directory.join(NEW));
        Ok(())
    }

    /// Puts the record in its place. The version before stands under [`NEW`] until this one is synced; when that was
    /// not synced itself, the one before it stays there.
    fn put(&mut self) -> Result<()> {
        if let Some(scribe) = &mut self.scribe {
            return scribe(&self.record);
        }
        let path = self.directory.join(NAME);
        let has_kept = self.unsynced.is_some();
        let new = self.directory.join(if has_kept { NEXT } else { NEW });
        let fail = |e: std::io::Error| Error::system(format_args!("write {}", path.display()), e);
        let mut text = serde_json::to_vec_pretty(&self.record).unwrap_or_default();
        text.push(b'\n');
        let write = || -> std::io::Result<File> {
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
            // The first one has none before it; and some file systems cannot exchange names.
            if !has_kept && errno != Errno::ENOENT {
                file.sync_all().map_err(fail)?;
            }
            fs::rename(&new, &path).map_err(fail)?;
        }
        self.unsynced = Some(file);
        Ok(())
    }
}
