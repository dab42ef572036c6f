//! Cgroups (cgroups(7), Documentation/admin-guide/cgroup-v2.rst): of agents' sandboxes, and of containers on
//! every kind of host.
//!
//! A host has a cgroup v2 hierarchy, or v1 hierarchies with one or a few controllers each, or both at once
//! (hybrid). Nothing here has a mode for that: [`Layout`] says where each controller lives, and every limit
//! goes to the file that its controller has there.
//!
//! ```text
//! Layout ──> Place ──> Group ──────────────> apply, freeze, kill, stats, …
//! (host)    (state)   create | open          │
//!                     clone into, or enter   └─> remove
//! ```
//! A [`Place`] is chosen, and written to the container's state, before anything is made: so whoever finds the
//! state can remove what a dead runtime left. Of the directories on the way only those are removed that were
//! not there before.
//!
//! Every limit is written through a directory's descriptor and read back. One that does not hold is an error
//! that names the file, the value and the cure.
//!
//! | file | its one job |
//! |---|---|
//! | [`agent`] | the cgroup of an agent's sandbox: few calls, for the fast start |
//! | [`crate::host::cgroups`] | which controller lives where on this host |
//! | [`place`] | where a container's cgroups are |
//! | [`group`] | all that is done with them: what others call |
//! | [`tree`] | control files through directory descriptors |
//! | [`make`] | directories, made with what they need to take a process, and removed |
//! | [`processes`] | processes: listed, put in, signalled |
//! | [`freeze`] | stopping them all |
//! | [`limits`] | `linux.resources` as writes that are read back |
//! | [`device`] | `linux.resources.devices`, as a list (v1) or a program in the kernel (v2) |
//! | [`owner`] | whose it is |
//! | [`stats`] | what was used, as runc's `events --stats` |
//! | [`oom`] | being told of the end of memory |
//! | [`systemd`] | asking systemd for a scope |

pub mod agent;
mod device;
mod freeze;
pub mod group;
mod limits;
mod make;
pub mod oom;
mod owner;
pub mod place;
mod processes;
pub mod stats;
pub mod systemd;
mod tree;

pub use crate::host::cgroups::Layout;
pub use agent::{Cgroup, Outcome, create, foresee, may_make, place, sweep};
pub use group::{Group, Mount};
pub use oom::OomWatch;
pub use place::{Driver, Place, Wanted};
pub use stats::Stats;
