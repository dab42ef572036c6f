//! Cgroups (cgroups(7), Documentation/admin-guide/cgroup-v2.rst) of agents' sandboxes and of containers, on every kind
//! of host.
//!
//! A host has a cgroup v2 hierarchy, or v1 hierarchies with one or a few controllers each, or both (hybrid). The code
//! has no mode for that: [`CgroupLayout`] lists the hierarchy of each controller,
//! and every limit is written to the file that its controller has there.
//!
//! ```text
//! CgroupLayout ──> CgroupLocation ──> CgroupHandle ──────> apply, freeze, kill, stats, …
//! (host)           (state)            create | open        │
//!                                     clone into, or enter └─> remove
//! ```
//! A [`CgroupLocation`] is chosen, and written to the container's state, before anything is created. So any process
//! that reads the state can remove the cgroups of a dead runtime. Of the parent directories only those are removed that
//! did not exist before.
//!
//! Every limit is written through a directory descriptor and read back. A limit that does not hold is an error that
//! names the file, the value and a hint.
//!
//! | module | purpose |
//! |---|---|
//! | [`agent`] | the cgroup of an agent's sandbox: few system calls, for a fast start |
//! | [`crate::host::cgroups`] | the hierarchy of each controller on this host |
//! | [`location`] | the location of a container's cgroups |
//! | [`handle`] | all operations on them: the interface for other modules |
//! | [`control_files`] | control files through directory descriptors |
//! | [`directories`] | creates directories with the settings that a process needs, and removes them |
//! | [`processes`] | lists, moves and signals processes |
//! | [`freeze`] | freezes all processes |
//! | [`limits`] | `linux.resources` as writes that are read back |
//! | [`device`] | `linux.resources.devices`, as a list (v1) or a program in the kernel (v2) |
//! | [`owner`] | delegation to a user |
//! | [`stats`] | usage, in the format of runc's `events --stats` |
//! | [`oom`] | out-of-memory notification |
//! | [`systemd`] | requests a scope from systemd |

pub mod agent;
mod control_files;
mod device;
mod directories;
pub mod freeze;
pub mod handle;
mod limits;
pub mod location;
pub mod oom;
mod owner;
mod processes;
pub mod stats;
pub mod systemd;

pub use crate::host::cgroups::CgroupLayout;
pub use agent::{
    CgroupCreation, CgroupPlace, SandboxCgroup, SandboxCgroups, create, diagnose, find_missing, remove_stale,
};
pub use handle::{CgroupHandle, CgroupMount};
pub use location::{CgroupDriver, CgroupLocation, CgroupRequest};
pub use oom::OomWatch;
pub use stats::ContainerStats;
