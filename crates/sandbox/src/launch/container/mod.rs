//! The parent's side of a container: [`mod@create`], [`mod@start`], [`mod@exec`], hooks, and the protection of saggar's own
//! binary.
//!
//! ```text
//! create:  clone ─ id maps, cgroup ─ ContainerRecorder::init_spawned ─ the child mounts ─ hooks ─ the child changes its
//!          root and its rights ─ "created" ─ ContainerRecorder::init_created ─ the child is released: it outlives the
//!          runtime and waits at start.sock
//! start:   connect to start.sock ─ startContainer hooks ─ go ─ filter, execve ─ end of the stream
//! exec:    a process joins the namespaces of the container's init, and executes the program at once
//! ```
//!
//! Runs in a runtime command with one thread (asserted), with its caller's rights, in the caller's namespaces. Until a
//! container is created, its init dies with the runtime, and a failure leaves nothing behind.

mod channel;
mod console;
mod create;
mod exec;
mod facts;
mod hint;
pub mod hooks;
mod maps;
mod net_devices;
mod process_setup;
mod protect;
mod seccomp_listener;
mod spawn;
mod start;
mod start_socket;
mod time_offsets;
mod trees;

pub use console::connect_to as connect_to_socket;
pub use create::create;
pub use exec::{PendingExec, begin_exec, exec};
pub use maps::{own_id_maps as maps_of_ours, read_id_map as read_map};
pub use protect::protect_self;
pub use start::start;

pub use crate::plan::container::ContainerOptions;
use crate::plan::container::{ContainerFilter, ContainerHierarchy, SeccompListener};
use crate::spec::container::{ContainerSpec, ProcessSpec};
use saggar_sys::error::Result;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

/// The cgroup of a container, for its start. It exists, with its limits, before the start.
pub trait ContainerCgroup {
    /// The directory for CLONE_INTO_CGROUP, if there is one hierarchy and it is cgroup v2.
    fn clone_target(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Moves a waiting process into every hierarchy; also called if it was spawned in
    /// [`ContainerCgroup::clone_target`].
    ///
    /// # Errors
    /// Any failure to move the process: the start then fails.
    fn enter(&self, pid: i32) -> Result<()>;

    /// The directories of the container's cgroups on the host, for mounts of the type `cgroup`.
    fn hierarchies(&self) -> Vec<ContainerHierarchy> {
        Vec::new()
    }
}

/// A container without a cgroup of its own: it stays in the runtime's.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoCgroup;

impl ContainerCgroup for NoCgroup {
    fn enter(&self, _pid: i32) -> Result<()> {
        Ok(())
    }
}

/// Writes the record of a container while it is created.
pub trait ContainerRecorder {
    /// The init exists and waits: from here on the record must make it discoverable after a crash of the runtime.
    ///
    /// # Errors
    /// `create` then fails, and the init is killed.
    fn init_spawned(&mut self, init: &LaunchedProcess) -> Result<()>;

    /// All settings are applied. After this returns, the init is released and outlives the runtime.
    ///
    /// # Errors
    /// As [`ContainerRecorder::init_spawned`].
    fn init_created(&mut self, init: &LaunchedProcess) -> Result<()>;

    /// Returns the OCI state as JSON, with this status (`creating`, `created`, …) and this pid, for hooks and for the
    /// listener of a filter.
    fn oci_state(&self, status: &str, pid: i32) -> String;
}

/// A process of a container, a child of this process: the init, or one of `exec`.
#[derive(Debug)]
pub struct LaunchedProcess {
    /// Its pid in this process's pid namespace.
    pub pid: i32,
    /// Field 22 of /proc/PID/stat: with the boot id, it distinguishes the process from a later one with the same pid.
    pub start_time: u64,
    /// A pidfd of it.
    pub pidfd: OwnedFd,
    /// The master of its terminal, with [`ConsoleTarget::Keep`].
    pub terminal: Option<OwnedFd>,
}

/// Where the master of a terminal is sent.
#[derive(Debug, Clone, Copy, Default)]
pub enum ConsoleTarget<'a> {
    /// There is no terminal.
    #[default]
    None,
    /// To the unix socket at this path (`--console-socket`), by SCM_RIGHTS, with the terminal's name.
    Socket(&'a Path),
    /// To the caller, which relays the terminal: [`LaunchedProcess::terminal`].
    Keep,
}

/// The arguments of [`mod@create`].
#[derive(Debug, Clone, Copy)]
pub struct ContainerCreateRequest<'a> {
    /// The container.
    pub container: &'a ContainerSpec,
    /// Its id.
    pub id: &'a str,
    /// The directory of its config.json.
    pub bundle: &'a Path,
    /// Its directory below `--root`, which only its owner can enter, for start.sock.
    pub state_dir: &'a Path,
    /// The compiled filter of [`ContainerSpec::seccomp`].
    pub filter: Option<&'a ContainerFilter>,
    /// Where its terminal's master is sent.
    pub console: ConsoleTarget<'a>,
    /// Its standard streams, if they differ from the runtime's. Only without a terminal.
    pub streams: Option<[BorrowedFd<'a>; 3]>,
    /// Options of the command line.
    pub options: ContainerOptions,
}

/// The arguments of [`start()`].
#[derive(Debug, Clone, Copy)]
pub struct ContainerStartRequest<'a> {
    /// The container's spec as of `create`.
    pub container: &'a ContainerSpec,
    /// Its directory below `--root`.
    pub state_dir: &'a Path,
    /// A pidfd of its init, verified by the caller to be that process.
    pub init: BorrowedFd<'a>,
    /// Its pid.
    pub pid: i32,
    /// The listener of its filter, which `create` passed to the init.
    pub listener: Option<&'a SeccompListener>,
    /// The OCI state, status `created`, for startContainer hooks and the listener of its filter.
    pub state: &'a str,
}

/// The arguments of [`exec()`].
#[derive(Debug, Clone, Copy)]
pub struct ContainerExecRequest<'a> {
    /// The container that it runs in.
    pub container: &'a ContainerSpec,
    /// The process to run.
    pub process: &'a ProcessSpec,
    /// A pidfd of the container's init, verified by the caller to be that process.
    pub init: BorrowedFd<'a>,
    /// The pid of the init.
    pub pid: i32,
    /// The filter, as for [`ContainerCreateRequest::filter`].
    pub filter: Option<&'a ContainerFilter>,
    /// Where its terminal's master is sent.
    pub console: ConsoleTarget<'a>,
    /// As [`ContainerCreateRequest::streams`].
    pub streams: Option<[BorrowedFd<'a>; 3]>,
    /// Options of the command line.
    pub options: ContainerOptions,
    /// The OCI state, for the listener of its filter.
    pub state: &'a str,
}
