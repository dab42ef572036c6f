//! Sessions on disk (DECISIONS 23, 24, 27): a directory for each, with the agent's home, its workspace, and
//! its own name of the conversation. The agent itself has no lock, so the session has one.
//!
//! ```text
//! <sessions>/<id>/{lock, agent.json, home/, workspace/, quarantine/}
//! ```

pub mod copy;
pub mod quarantine;

use crate::error::{Code, Error, Result};
use crate::id::SandboxId;
use crate::state;
use crate::sys::read;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The largest agent.json that is read.
const RECORD_LIMIT: u64 = 1 << 20;

/// An open, locked session.
#[derive(Debug)]
pub struct Session {
    directory: PathBuf,
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
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|_| {
            Error::new(Code::Exists, format!("session {id} is being served by another saggar"))
                .hint("one agent at a time has a conversation: end the other one first")
        })?;
        Ok(Session { directory, _lock: lock })
    }

    /// Where what appears under protected names is moved to.
    pub fn quarantine(&self) -> PathBuf {
        self.directory.join(quarantine::NAME)
    }

    /// The agent's home, made when it is missing.
    ///
    /// # Errors
    /// As [`state::own_directory`].
    pub fn home(&self) -> Result<PathBuf> {
        let home = self.directory.join("home");
        state::own_directory(&home)?;
        Ok(home)
    }

    /// The workspace: a fresh copy of `source`, or the one of an earlier run.
    ///
    /// # Errors
    /// As [`copy::tree`].
    pub fn workspace(&self, source: &Path) -> Result<PathBuf> {
        let workspace = self.directory.join("workspace");
        if !workspace.is_dir() {
            // Copied beside its place and renamed: half a copy is never taken for a workspace.
            let unfinished = self.directory.join("workspace.new");
            if unfinished.exists() {
                fs::remove_dir_all(&unfinished)
                    .map_err(|e| Error::system(format_args!("remove {}", unfinished.display()), e))?;
            }
            copy::tree(source, &unfinished)?;
            fs::rename(&unfinished, &workspace)
                .map_err(|e| Error::system(format_args!("put {} in its place", workspace.display()), e))?;
        }
        Ok(workspace)
    }

    /// The agent's own name of the conversation, from an earlier run. A record that cannot be read is as none:
    /// the conversation begins anew, and says so.
    pub fn agent_session(&self) -> Option<String> {
        let text = read::small_file(&self.directory.join("agent.json"), RECORD_LIMIT)?;
        let record: Record = serde_json::from_slice(&text).ok()?;
        (record.version == 1).then_some(record.agent_session)
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
