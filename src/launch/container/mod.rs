//! The parent's side of a container: [`create`], [`start`], [`exec`], hooks, and the protection of saggar's own
//! binary.
//!
//! ```text
//! create:  clone ─ maps, cgroup ─ Record::born ─ the child mounts ─ hooks ─ the child changes its root and its
//!          rights ─ "created" ─ Record::created ─ the child is let go: it outlives us and waits at start.sock
//! start:   connect to start.sock ─ startContainer hooks ─ go ─ filter, execve ─ end of the stream
//! exec:    a process joins the namespaces of the container's init, and becomes the program at once
//! ```
//!
//! Who runs here: a runtime command with one thread (asserted), with its caller's rights, in the caller's
//! namespaces. Until a container is created it dies with us, and a failure leaves nothing behind.

mod birth;
mod console;
mod create;
mod door;
mod exec;
mod facts;
mod hint;
pub mod hooks;
mod maps;
mod net_devices;
mod notify;
mod protect;
mod settle;
mod start;
mod talk;
mod time;
mod trees;

pub use create::create;
pub use exec::{Starting, begin_exec, exec};
pub use maps::{of_ours as maps_of_ours, read as read_map};
pub use protect::protect_self;
pub use start::start;

use crate::error::{Error, Result};
pub use crate::plan::container::Options;
use crate::plan::container::{Filter, Hierarchy, Listener};
use crate::spec::container::{Container, Process};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

/// The cgroup of a container, as a start needs it. It exists, with its limits, before the start.
pub trait Cgroup {
    /// The directory for CLONE_INTO_CGROUP, where there is one hierarchy and it is cgroup2.
    fn birthplace(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Puts a process that waits into every hierarchy; also called when it was born in [`Cgroup::birthplace`].
    ///
    /// # Errors
    /// Whatever keeps the process out: the start then fails.
    fn enter(&self, pid: i32) -> Result<()>;

    /// The directories of the container's cgroups on the host, for mounts of the type `cgroup`.
    fn hierarchies(&self) -> Vec<Hierarchy> {
        Vec::new()
    }
}

/// A container without a cgroup of its own: it stays in the runtime's.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoCgroup;

impl Cgroup for NoCgroup {
    fn enter(&self, _pid: i32) -> Result<()> {
        Ok(())
    }
}

/// What the caller writes down while a container is made.
pub trait Record {
    /// The init exists and waits: from here on it is to be found after a crash of ours.
    ///
    /// # Errors
    /// The create then fails, and the init is killed.
    fn born(&mut self, init: &Init) -> Result<()>;

    /// Everything is applied. When this has returned, the init is let go and outlives us.
    ///
    /// # Errors
    /// As [`Record::born`].
    fn created(&mut self, init: &Init) -> Result<()>;

    /// The OCI state as JSON, with this status (`creating`, `created`, …) and this pid, for hooks and for the
    /// listener of a filter.
    fn state(&self, status: &str, pid: i32) -> String;
}

/// A process of a container, our child: the init, or one that `exec` added.
#[derive(Debug)]
pub struct Init {
    /// Its pid in our pid namespace.
    pub pid: i32,
    /// Field 22 of /proc/PID/stat: with the boot id, what tells it from a later process of the same number.
    pub start_time: u64,
    /// A pidfd of it.
    pub pidfd: OwnedFd,
    /// The master of its terminal, with [`Console::Keep`].
    pub terminal: Option<OwnedFd>,
}

/// Where the master of a terminal goes.
#[derive(Debug, Clone, Copy, Default)]
pub enum Console<'a> {
    /// There is no terminal.
    #[default]
    None,
    /// To the unix socket at this path (`--console-socket`), by SCM_RIGHTS, with the terminal's name.
    Socket(&'a Path),
    /// To the caller, who relays it: [`Init::terminal`].
    Keep,
}

/// What [`create`] makes.
#[derive(Debug, Clone, Copy)]
pub struct Create<'a> {
    /// The container.
    pub container: &'a Container,
    /// Its id.
    pub id: &'a str,
    /// The directory of its config.json.
    pub bundle: &'a Path,
    /// Its directory below `--root`, which only we can enter: start.sock is made there.
    pub state_dir: &'a Path,
    /// The filter, compiled of [`Container::seccomp`].
    pub filter: Option<&'a Filter>,
    /// Where its terminal goes.
    pub console: Console<'a>,
    /// Its standard streams, where they are not the runtime's. Without a terminal only.
    pub streams: Option<[BorrowedFd<'a>; 3]>,
    /// Options of the command line.
    pub options: Options,
}

/// What [`start`] starts.
#[derive(Debug, Clone, Copy)]
pub struct Start<'a> {
    /// The container as it was created.
    pub container: &'a Container,
    /// Its directory below `--root`.
    pub state_dir: &'a Path,
    /// A pidfd of its init, verified by the caller to be that process.
    pub init: BorrowedFd<'a>,
    /// Its pid.
    pub pid: i32,
    /// Who answers for its filter, which it has from `create`.
    pub listener: Option<&'a Listener>,
    /// The OCI state, status `created`, for startContainer hooks and the listener of its filter.
    pub state: &'a str,
}

/// What [`exec`] runs.
#[derive(Debug, Clone, Copy)]
pub struct Exec<'a> {
    /// The container that it runs in.
    pub container: &'a Container,
    /// Its process.
    pub process: &'a Process,
    /// A pidfd of the container's init, verified by the caller to be that process.
    pub init: BorrowedFd<'a>,
    /// The pid of the init.
    pub pid: i32,
    /// The filter, as for [`Create::filter`].
    pub filter: Option<&'a Filter>,
    /// Where its terminal goes.
    pub console: Console<'a>,
    /// As [`Create::streams`].
    pub streams: Option<[BorrowedFd<'a>; 3]>,
    /// Options of the command line.
    pub options: Options,
    /// The OCI state, for the listener of its filter.
    pub state: &'a str,
}

/// Field 22 of /proc/PID/stat, after the name, which may hold anything (proc(5)).
fn start_time(pid: i32) -> Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .map_err(|e| Error::system(format_args!("read /proc/{pid}/stat"), e))?;
    let after = text.rsplit_once(')').map(|(_, after)| after);
    let field = after.and_then(|after| after.split_ascii_whitespace().nth(19)?.parse().ok());
    field.ok_or_else(|| Error::system(format_args!("read /proc/{pid}/stat"), "it has no start time"))
}
