//! Sessions on disk (DECISIONS 23, 24, 27): a directory for each, with the agent's home, its workspace, and
//! its own name of the conversation. The agent itself has no lock, so the session has one.
//!
//! ```text
//! <sessions>/<id>/{lock, session.json, agent.json, audit.jsonl, installed, mcp.json, logs/, home/, workspace/, upper/,
//!                  spool/, quarantine/, snapshots/, workspace.json, workspace.manifest}
//! <sessions>/<id>/{..., disk.img, disk/{home/, workspace/, upper/}} where a file system of its own bounds them
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | [`states`] | the states of a session and the moves between them (pure) |
//! | [`record`] | session.json: who serves it, where, and what a later start needs |
//! | [`logs`] | the log entries, a ring on disk |
//! | [`files`] | files of a workspace for a server (KC-31) |
//! | [`remove`] | the way out of a directory that an agent has filled |
//! | [`trees`] | compare, apply and discard, in workers |
//! | [`worker`] | file work in a process that has nothing but the directories at hand |

#![expect(
    clippy::disallowed_methods,
    reason = "the session's own directory, where no program of a sandbox can write"
)]

pub mod apply;
mod beneath;
pub mod changes;
pub mod choose;
pub mod copy;
pub mod diff;
pub mod discard;
pub mod files;
pub mod image;
pub mod logs;
mod make;
pub mod manifest;
pub mod meter;
pub mod project;
pub mod quarantine;
pub mod record;
pub mod remove;
pub mod snapshot;
pub mod spool;
pub mod states;
pub mod trees;
pub mod unfinished;
pub mod worker;
pub mod workspace;

use crate::error::{Code, Error, Result};
use crate::id::SandboxId;
use crate::state;
use crate::sys::read;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The largest agent.json that is read.
const RECORD_LIMIT: u64 = 1 << 20;

/// How long what a killed supervisor has left is waited for, and how often it is looked at.
const LEFT_BEHIND: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// An open, locked session.
#[derive(Debug)]
pub struct Session {
    directory: PathBuf,
    /// Where home and workspace are: the directory, or its image.
    place: PathBuf,
    _lock: Flock<File>,
}

/// agent.json: what the agent calls the conversation that the server calls so.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Record {
    version: u32,
    session: String,
    agent_session: String,
}

/// Whether a session is begun or gone on with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// It must not be there yet.
    New,
    /// It must be there.
    Resume,
}

/// The lock of a session that nobody serves, and nobody can as long as this is there.
#[derive(Debug)]
pub struct Held {
    _lock: Flock<File>,
}

/// The directory of the session `id`.
///
/// # Errors
/// [`Code::Invalid`] when there is none.
pub fn directory(id: &SandboxId) -> Result<PathBuf> {
    let sessions = state::sessions_path()?;
    let directory = sessions.join(id.as_str());
    if directory.join("lock").symlink_metadata().is_err() {
        return Err(Error::new(Code::Invalid, format!("session {id} does not exist"))
            .hint(format!("sessions are in {}", sessions.display())));
    }
    state::check_own(&directory)?;
    Ok(directory)
}

/// Takes the lock of the session `id`.
///
/// # Errors
/// [`Code::Exists`] while somebody serves it; as [`directory`].
pub fn hold(id: &SandboxId) -> Result<Held> {
    let path = directory(id)?.join("lock");
    let file = state::lock_options()
        .open(&path)
        .map_err(|e| Error::system(format_args!("open {}", path.display()), e))?;
    let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|_| {
        Error::new(
            Code::Exists,
            format!("session {id} is being served: its agent may be at work on these files"),
        )
        .hint("end its sandbox first (shutdown); only diff shows what a session is at")
    })?;
    Ok(Held { _lock: lock })
}

/// The agent's own name of the conversation of the session in `directory`, when it is known.
pub fn agent_session(directory: &Path) -> Option<String> {
    let text = read::small_file(&directory.join("agent.json"), RECORD_LIMIT)?;
    let record: Record = serde_json::from_slice(&text).ok()?;
    (record.version == 1).then_some(record.agent_session)
}

/// Takes the lock of a session; `None` while somebody serves it. What a supervisor that was killed has left, its watcher and
/// its pid 1, may have a copy of it for a moment longer than the supervisor itself was there.
fn take_lock(mut file: File, directory: &Path) -> Option<Flock<File>> {
    let until = Instant::now() + LEFT_BEHIND;
    loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Some(lock),
            Err((back, _)) => file = back,
        }
        let record = record::Record::read(directory).filter(|record| record.supervisor.is_some());
        if record.is_none_or(|record| record.as_seen().is_served()) || Instant::now() >= until {
            return None;
        }
        sleep(LOOK_EVERY);
    }
}

impl Session {
    /// Makes or opens the session `id` and takes its lock.
    ///
    /// # Errors
    /// [`Code::Exists`] when it is there and was to be new, or when somebody serves it; [`Code::Invalid`] when
    /// it is not there and was to be resumed; [`Code::System`].
    pub fn open(id: &SandboxId, begin: Begin) -> Result<Self> {
        let directory = state::sessions_dir()?.join(id.as_str());
        match (begin, directory.join("lock").exists()) {
            (Begin::New, true) => {
                return Err(Error::new(Code::Exists, format!("session {id} exists"))
                    .hint("say --resume to go on with it, or choose another name"));
            }
            (Begin::Resume, false) => {
                return Err(Error::new(Code::Invalid, format!("session {id} does not exist"))
                    .hint(format!("sessions are in {}", state::sessions_dir()?.display())));
            }
            _ => state::own_directory(&directory)?,
        }
        let path = directory.join("lock");
        let fail = |e| Error::system(format_args!("open {}", path.display()), e);
        let file = state::lock_options().create(true).open(&path).map_err(fail)?;
        let lock = take_lock(file, &directory).ok_or_else(|| {
            Error::new(Code::Exists, format!("session {id} is being served by another saggar"))
                .hint("one agent at a time has a conversation: end the other one first")
        })?;
        snapshot::finish(&directory)?;
        Ok(Session { place: directory.clone(), directory, _lock: lock })
    }

    /// Its directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Where home, workspace and the changes of an overlay are.
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// From now on they are in the session's image, which is mounted for this process and what it starts.
    ///
    /// # Errors
    /// As [`image::Image::mount`].
    pub fn mount_image(&mut self, bytes: u64, inodes: u64) -> Result<()> {
        let image = image::Image::of(&self.directory);
        image.mount(bytes, inodes)?;
        self.place = image.place();
        Ok(())
    }

    /// Removes it, with all that is in it.
    ///
    /// # Errors
    /// As [`remove::directory`].
    pub fn remove(&self) -> Result<()> {
        if self.place != self.directory {
            image::Image::of(&self.directory).unmount();
        }
        remove::directory(&self.directory)
    }

    /// Where what appears under protected names is moved to.
    pub fn quarantine(&self) -> PathBuf {
        self.directory.join(quarantine::NAME)
    }

    /// Where decisions about the agent's questions are written down: one JSON object a line, added at the end and
    /// never changed, readable by the owner alone (DECISIONS 27).
    ///
    /// # Errors
    /// [`Code::System`].
    pub fn audit(&self) -> Result<File> {
        let path = self.directory.join("audit.jsonl");
        let mut options = File::options();
        options.append(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC);
        options.open(&path).map_err(|e| Error::system(format_args!("open {}", path.display()), e))
    }

    /// A file that is there once install.sh has done its work in this session.
    pub fn installed(&self) -> PathBuf {
        self.directory.join("installed")
    }

    /// Keeps the MCP servers of a start; where. The directory is ours alone: the file can be read by all who see it.
    ///
    /// # Errors
    /// [`Code::System`].
    pub fn keep_servers(&self, json: &[u8]) -> Result<PathBuf> {
        let (new, path) = (self.directory.join("mcp.json.new"), self.directory.join("mcp.json"));
        let write = || -> std::io::Result<()> {
            let mut file = File::create(&new)?;
            file.write_all(json)?;
            file.set_permissions(fs::Permissions::from_mode(0o644))?;
            fs::rename(&new, &path)
        };
        write().map_err(|e| Error::system(format_args!("write {}", path.display()), e))?;
        Ok(path)
    }

    /// The agent's home, made when it is missing.
    ///
    /// # Errors
    /// As [`state::own_directory`].
    pub fn home(&self) -> Result<PathBuf> {
        let home = self.place.join("home");
        state::own_directory(&home)?;
        Ok(home)
    }

    /// The workspace: a fresh copy of `source`, or the one of an earlier run.
    ///
    /// # Errors
    /// As [`copy::tree`].
    pub fn workspace(&self, source: &Path) -> Result<PathBuf> {
        let workspace = self.place.join("workspace");
        if !workspace.is_dir() {
            // Copied beside its place and renamed: half a copy is never taken for a workspace.
            let unfinished = self.place.join("workspace.new");
            remove::directory(&unfinished)?;
            let opened = beneath::root(source)
                .map_err(|e| Error::system(format_args!("copy {}", source.display()), e))?;
            let manifest = copy::tree(source, opened.as_fd(), &unfinished)?;
            manifest.store(&self.directory)?;
            fs::rename(&unfinished, &workspace)
                .map_err(|e| Error::system(format_args!("put {} in its place", workspace.display()), e))?;
        }
        Ok(workspace)
    }

    /// The agent's own name of the conversation, from an earlier run. A record that cannot be read is as none:
    /// the conversation begins anew, and says so.
    pub fn agent_session(&self) -> Option<String> {
        agent_session(&self.directory)
    }

    /// Keeps the agent's own name of the conversation.
    ///
    /// # Errors
    /// [`Code::System`].
    pub fn remember(&self, session: &str, agent_session: &str) -> Result<()> {
        let record = Record { version: 1, session: session.into(), agent_session: agent_session.into() };
        let text = serde_json::to_vec(&record).unwrap_or_default();
        let (new, path) = (self.directory.join("agent.json.new"), self.directory.join("agent.json"));
        let write = || -> std::io::Result<()> {
            let mut file = File::create(&new)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&new, &path)
        };
        write().map_err(|e| Error::system(format_args!("write {}", path.display()), e))
    }
}
