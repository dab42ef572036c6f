//! The runs of a repository: `{root}/runs/{repo-id}/{run-id}/` (AM-09).

mod byte_path;
mod record;

pub use record::{NewRun, RunRecord};

use crate::directory::Directory;
use crate::error::{Error, ErrorKind, Result};
use crate::file_store::{FileStore, LOCK_NAME, Limits};
use crate::hash::hex_digest;
use crate::lock::LockFile;
use crate::mailbox::Mailbox;
use crate::member::{Member, Roles, is_open};
use crate::message::check_agent_name;
use crate::pair::{Answered, Outcome};
use jiff::Timestamp;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

const RUNS_NAME: &str = "runs";
const RUNS_LOCK_NAME: &str = "runs.lock";
const AGENTS_LOCK_NAME: &str = "agents.lock";
/// How long a process that asks whether a run is running may have its lock, how long one that was just forked, and how often
/// the lock is tried.
const LOOK_TIMEOUT: Duration = Duration::from_millis(100);
const FORK_TIMEOUT: Duration = Duration::from_secs(10);
const LOCK_INTERVAL: Duration = Duration::from_millis(20);
/// A run that is being created. It gets its number when it is complete, so that a crash leaves no run without a record.
const STAGING_NAME: &str = ".creating";

/// The first 16 lowercase hexadecimal digits of the SHA-256 of the path's bytes. The caller resolves the path first: two
/// names of one repository have two ids.
pub fn repo_id(path: &Path) -> String {
    hex_digest(&[path.as_os_str().as_bytes()]).chars().take(16).collect()
}

/// The runs of one repository.
#[derive(Debug)]
pub struct Runs {
    repo: PathBuf,
    directory: Directory,
}

impl Runs {
    /// Opens the runs of the repository at `repo`, and creates missing directories, `root` included. The parent of
    /// `root` must exist.
    ///
    /// # Errors
    /// A directory cannot be created, is read-only, or is not a private directory of this user.
    pub fn open(root: &Path, repo: &Path) -> Result<Self> {
        let directory = Directory::open_or_create_root(root)?
            .open_or_create_directory(RUNS_NAME)?
            .open_or_create_directory(&repo_id(repo))?;
        Ok(Runs { repo: repo.to_owned(), directory })
    }

    /// Opens the runs of the repository at `repo`, and creates nothing; `None` if the repository has none.
    ///
    /// # Errors
    /// A directory is not a private directory of this user.
    pub fn find(root: &Path, repo: &Path) -> Result<Option<Self>> {
        let Some(root) = Directory::find_root(root)? else { return Ok(None) };
        let Some(runs) = root.open_directory(RUNS_NAME)? else { return Ok(None) };
        let directory = runs.open_directory(&repo_id(repo))?;
        Ok(directory.map(|directory| Runs { repo: repo.to_owned(), directory }))
    }

    /// Opens an existing run, and creates nothing.
    ///
    /// # Errors
    /// As [`Runs::find`] and [`Runs::open_run`].
    pub fn find_run(root: &Path, repo: &Path, run_id: u64) -> Result<Run> {
        match Runs::find(root, repo)? {
            Some(runs) => runs.open_run(run_id),
            None => Err(missing_run(repo, run_id, None)),
        }
    }

    /// The numbers of all runs, ascending.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn list(&self) -> Result<Vec<u64>> {
        let names = self.directory.names()?;
        let mut ids: Vec<u64> = names.iter().filter_map(|name| parse_run_id(name)).collect();
        ids.sort_unstable();
        Ok(ids)
    }

    /// Creates a run with the number after the highest one, from 1. Other processes get other numbers.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for a member's name that is not valid or not unique; a file cannot be written.
    pub fn create(&self, new: NewRun, created: Timestamp) -> Result<Run> {
        check_members(&new)?;
        let mut lock = LockFile::open(&self.directory, RUNS_LOCK_NAME)?;
        let _guard = lock.acquire(&self.directory)?;
        let mut run_id = self.next_id()?;
        let mut record = RunRecord::new(run_id, &self.repo, new, created);
        loop {
            self.remove_staging()?;
            let staging = self.directory.open_or_create_directory(STAGING_NAME)?;
            staging.write_atomically(record::FILE_NAME, &record.to_json()?)?;
            if self.directory.rename_to_new(STAGING_NAME, &run_id.to_string())? {
                self.directory.sync()?;
                return self.open_run(run_id);
            }
            // A program that does not know the lock has taken the number.
            run_id = self.next_id()?;
            record.run_id = run_id;
        }
    }

    /// Opens an existing run.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if the run or its record does not exist; the record is not valid.
    pub fn open_run(&self, run_id: u64) -> Result<Run> {
        let Some(directory) = self.directory.open_directory(&run_id.to_string())? else {
            return Err(missing_run(&self.repo, run_id, self.list()?.last().copied()));
        };
        let record = read_record(&directory)?;
        Ok(Run { directory, record })
    }

    /// Opens a run for the agent `name`. In an open run ([`is_open`]) the agent becomes a member; a run that does not exist
    /// is created with this number and no roles, so that agents can share a mailbox without a pair run.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] if the members of the run have roles and `name` is none of them; as [`Runs::open_run`].
    pub fn join(&self, run_id: u64, name: &str, now: Timestamp) -> Result<Run> {
        check_agent_name(name)?;
        if run_id == 0 {
            return Err(Error::new(ErrorKind::Invalid, "run 0 does not exist")
                .with_hint("use the number of a run; the first one is 1"));
        }
        let member = Member::new(name, Roles::default());
        let mut lock = LockFile::open(&self.directory, RUNS_LOCK_NAME)?;
        let _guard = lock.acquire(&self.directory)?;
        let directory = self.directory.open_or_create_directory(&run_id.to_string())?;
        let record = match directory.stat(record::FILE_NAME)? {
            Some(_) => read_record(&directory)?,
            None => {
                let new = NewRun { members: vec![member.clone()], ..NewRun::default() };
                let record = RunRecord::new(run_id, &self.repo, new, now);
                directory.write_atomically(record::FILE_NAME, &record.to_json()?)?;
                record
            }
        };
        let mut run = Run { directory, record };
        if is_open(&run.record.members) && !run.record.members.iter().any(|known| known.name == name) {
            run.change(|record| record.members.push(member))?;
        }
        Ok(run)
    }

    fn next_id(&self) -> Result<u64> {
        let highest = self.list()?.last().copied().unwrap_or(0);
        highest.checked_add(1).ok_or_else(|| {
            let path = self.directory.path().display();
            Error::new(
                ErrorKind::Unsafe,
                format!("cannot number a run in {path}: run {highest} is the last possible one"),
            )
            .with_hint("remove the directory with this number")
        })
    }

    /// Removes what a crash during the creation of a run left. The caller holds the lock.
    fn remove_staging(&self) -> Result<()> {
        let Some(staging) = self.directory.open_directory(STAGING_NAME)? else { return Ok(()) };
        for name in staging.names()?.iter().filter(|name| !matches!(name.as_str(), "." | "..")) {
            staging.remove_file(name)?;
        }
        self.directory.remove_directory(STAGING_NAME)
    }
}

fn missing_run(repo: &Path, run_id: u64, newest: Option<u64>) -> Error {
    let hint = match newest {
        None => "begin a run first; the repository has none".to_owned(),
        Some(newest) => format!("use the number of an existing run; the newest is {newest}"),
    };
    let message = format!("run {run_id} of {} does not exist", repo.display());
    Error::new(ErrorKind::NotFound, message).with_hint(hint)
}

/// Keeps other processes from running the agents of a run; the kernel releases it when this process dies.
#[derive(Debug)]
pub struct AgentsLock(#[expect(dead_code, reason = "the open file holds the lock")] LockFile);

/// An existing run.
#[derive(Debug)]
pub struct Run {
    directory: Directory,
    record: RunRecord,
}

impl Run {
    /// Number of the run.
    pub fn id(&self) -> u64 {
        self.record.run_id
    }

    /// The directory of the run.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The record as it was read or written last.
    pub fn record(&self) -> &RunRecord {
        &self.record
    }

    /// Records how the run ended, or `None` when it is resumed.
    ///
    /// # Errors
    /// The record cannot be read or written; it is then as it was before.
    pub fn set_outcome(&mut self, outcome: Option<Outcome>) -> Result<()> {
        self.change(|record| record.outcome = outcome)
    }

    /// Records the agent whose turn begins.
    ///
    /// # Errors
    /// As [`Run::set_outcome`].
    pub fn begin_turn(&mut self, agent: &str) -> Result<()> {
        self.change(|record| record.active = Some(agent.to_owned()))
    }

    /// Records that the turn has ended, and what the agents have answered now.
    ///
    /// # Errors
    /// As [`Run::set_outcome`].
    pub fn end_turn(&mut self, answered: Answered) -> Result<()> {
        self.change(|record| {
            record.active = None;
            record.answered = answered;
        })
    }

    /// Keeps other processes from running the agents of this run, until the result is dropped. It waits for a process that
    /// asks about the run, and for one that was being forked when its parent, the holder, died: that has the lock until it
    /// closes what it does not need.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`]: another process runs them; the file cannot be locked.
    pub fn lock_agents(&self) -> Result<AgentsLock> {
        let lock = LockFile::open(&self.directory, AGENTS_LOCK_NAME)?;
        let start = Instant::now();
        while !lock.try_hold()? {
            let patience = if lock.is_holder_alive() { LOOK_TIMEOUT } else { FORK_TIMEOUT };
            if start.elapsed() > patience {
                let message = format!("run {} is being run by another process", self.id());
                return Err(
                    Error::new(ErrorKind::Refused, message).with_hint("wait for its end, or watch it")
                );
            }
            thread::sleep(LOCK_INTERVAL);
        }
        lock.record_holder()?;
        Ok(AgentsLock(lock))
    }

    /// Whether another process runs the agents of this run.
    ///
    /// # Errors
    /// The lock cannot be opened.
    pub fn is_running(&self) -> Result<bool> {
        match self.directory.stat(AGENTS_LOCK_NAME)? {
            None => Ok(false),
            Some(_) => LockFile::open(&self.directory, AGENTS_LOCK_NAME)?.is_held(),
        }
    }

    /// Changes the most iterations of the run, for a run that continues.
    ///
    /// # Errors
    /// As [`Run::set_outcome`].
    pub fn set_max_iterations(&mut self, max_iterations: u32) -> Result<()> {
        self.change(|record| record.max_iterations = max_iterations)
    }

    /// Changes the record that is on disk now.
    fn change(&mut self, change: impl FnOnce(&mut RunRecord)) -> Result<()> {
        let mut lock = LockFile::open(&self.directory, LOCK_NAME)?;
        let _guard = lock.acquire(&self.directory)?;
        let mut record = read_record(&self.directory)?;
        change(&mut record);
        self.directory.write_atomically(record::FILE_NAME, &record.to_json()?)?;
        self.record = record;
        Ok(())
    }

    /// Opens the mailbox of the run, with its members.
    ///
    /// # Errors
    /// As [`FileStore::open`].
    pub fn mailbox(&self, limits: Limits) -> Result<Mailbox<FileStore>> {
        let store = FileStore::open_in(self.directory.reopen()?, self.id(), limits)?;
        Ok(Mailbox::new(self.id(), self.record.members.clone(), store))
    }
}

fn read_record(directory: &Directory) -> Result<RunRecord> {
    let path = directory.path_of(record::FILE_NAME);
    let json = directory.read_file(record::FILE_NAME, record::MAX_SIZE)?.ok_or_else(|| {
        Error::new(
            ErrorKind::NotFound,
            format!("run {} has no record {}", directory.path().display(), path.display()),
        )
        .with_hint("another program began this run; begin a new one to use it with saggar")
    })?;
    RunRecord::parse(&json, &path)
}

fn check_members(new: &NewRun) -> Result<()> {
    for (at, member) in new.members.iter().enumerate() {
        check_agent_name(&member.name)?;
        if new.members.iter().take(at).any(|other| other.name == member.name) {
            return Err(Error::new(ErrorKind::Invalid, format!("two members have the name {}", member.name))
                .with_hint("give each member a name of its own"));
        }
    }
    Ok(())
}

/// The number in the name of a run's directory; names with leading zeros are not those of runs.
fn parse_run_id(name: &str) -> Option<u64> {
    let id: u64 = name.parse().ok()?;
    (id > 0 && id.to_string() == name).then_some(id)
}

#[cfg(test)]
mod tests;
