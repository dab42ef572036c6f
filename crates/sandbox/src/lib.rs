//! Sandboxes of agents and OCI containers: what one is to be, the steps that make it, its start, its limits.
//!
//! There are two kinds, an agent's and a container's. Each has a spec, a step list and a child of its own:
//! [`spec::SandboxSpec`] and [`spec::container::ContainerSpec`], and `agent` and `container` below [`plan`],
//! [`launch`] and [`stage`].
//!
//! The program and the sessions use it. It has no event loop and serves no client. It makes the network namespace and its
//! listeners, and knows neither what relays them nor bridge nor session.
//!
//! | layer | module | what it is |
//! |---|---|---|
//! | 1 | [`spec`] | what a sandbox and a container are to be, and the bundle that is lowered to it |
//! | 1 | [`host`] | what this kernel and this user support |
//! | 2 | [`plan`] | from spec and host to a list of steps, as data |
//! | 3 | [`launch`] [`stage`] | the parent's and the child's side of a start |
//! | 3 | [`cgroup`] [`resctrl`] | limits, devices, statistics and freezing; shares of caches and memory bandwidth |
//! | 3 | [`state`] | records of running sandboxes and containers; what the last search for group-only files found |

pub mod cgroup;
pub mod host;
pub mod launch;
pub mod plan;
pub mod resctrl;
pub mod spec;
pub mod stage;
pub mod state;
