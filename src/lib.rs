//! saggar puts an AI agent, or any process, in a sandbox, and carries the agent's conversation across
//! the wall.
//!
//! The map, lowest layer first; a module uses lower layers only (`tests/layers.rs` checks it):
//!
//! | layer | module | what it is |
//! |---|---|---|
//! | 0 | [`error`] [`log`] [`id`] [`text`] | errors with exit code and hint, the log back end, validated ids, how text of others is shown |
//! | 0 | [`sys`] | the only raw system calls |
//! | 1 | [`spec`] | [`spec::SandboxSpec`], the one model, and the policy that lowers to it |
//! | 1 | [`host`] | what this kernel and this user can do |
//! | 1 | [`bridge::proto`] | the wire protocol, without any I/O |
//! | 2 | [`plan`] | spec and host to a list of steps, as data |
//! | 3 | [`launch`] [`stage`] | the parent's and the child's side of a start |
//! | 3 | [`prove`] | harmless attempts from inside a sandbox, and what held |
//! | 4 | [`api`] | the process that adds the key of the model API |
//! | 4 | [`relay`] | the processes that relay the network of one sandbox |
//! | 4 | [`supervise`] [`bridge::io`] [`control`] [`egress`] | the event loop of one sandbox, its bridge, its control socket and its network |
//! | 5 | [`cli`] [`cmd`] | argument types, and one file per family of commands |

pub mod api;
pub mod bridge;
pub mod cgroup;
pub mod cli;
pub mod cmd;
pub mod control;
pub mod demo;
pub mod egress;
pub mod error;
pub mod host;
pub mod id;
pub mod launch;
pub mod log;
pub mod plan;
pub mod prove;
pub mod relay;
pub mod resctrl;
#[cfg_attr(not(test), deny(clippy::disallowed_methods))]
pub mod session;
pub mod spec;
pub mod stage;
pub mod state;
pub mod supervise;
pub mod sys;
pub mod text;
