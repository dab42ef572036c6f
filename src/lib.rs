//! saggar starts an AI agent, or any program, in a sandbox, runs OCI containers, and carries the conversation of an
//! agent to its clients.
//!
//! There are two kinds of sandbox, an agent's and a container's. Each has a spec, a step list and a child of its own:
//! [`spec::SandboxSpec`] and [`spec::container::ContainerSpec`], and `agent` and `container` below [`plan`],
//! [`launch`] and [`stage`].
//!
//! The map, lowest layer first; a module uses its own layer and lower layers only (`tests/layers.rs` checks it).
//! `ARCHITECTURE.md` has more: the processes and their rights, walks through the code, the invariants.
//!
//! | layer | module | what it is |
//! |---|---|---|
//! | 0 | [`error`] [`log`] [`id`] [`text`] [`exact_name`] [`signal_name`] | errors with exit code and hint, the log back end, validated ids, escaping of untrusted text, names of any bytes in JSON, names of signals |
//! | 0 | [`sys`] | raw system calls as thin safe wrappers (crate `saggar-sys`, which has the modules above too) |
//! | 1 | [`spec`] | what a sandbox and a container are to be, the policy (crate `saggar-policy`) and the bundle that are lowered to it |
//! | 1 | [`host`] | what this kernel and this user support, and what a workspace contains |
//! | 1 | [`bridge`] [`control`] | the bridge between an agent and its clients, and the control socket (crate `saggar-bridge`) |
//! | 1 | [`egress`] [`relay`] [`api`] [`service`] | a network by policy, the processes that relay it and that serve the model API (crate `saggar-egress`) |
//! | 2 | [`plan`] | from spec and host to a list of steps, as data |
//! | 3 | [`launch`] [`stage`] | the parent's and the child's side of a start |
//! | 3 | [`cgroup`] [`resctrl`] | limits, devices, statistics and freezing; shares of caches and memory bandwidth |
//! | 3 | [`state`] [`session`] | records of running sandboxes and containers; sessions on disk and what can be done with them |
//! | 3 | [`prove`] | harmless attempts from inside a sandbox, and their results |
//! | 4 | [`mcp`] | MCP servers of mailboxes and of sessions, and the process that serves a mailbox in a sandbox |
//! | 4 | [`supervise`] | the event loops, of one sandbox each |
//! | 5 | [`app`] | the use cases: what the library and the commands do after arguments are read |
//! | 5 | [`demo`] | the built-in demo agent |
//! | 6 | [`cli`] [`cmd`] | argument types, one file for each command |

pub mod app;
pub mod cli;
pub mod cmd;
pub mod demo;
pub mod mcp;
pub mod prove;
#[cfg_attr(not(test), deny(clippy::disallowed_methods))]
pub mod session;
pub mod supervise;

pub use saggar_bridge as bridge;
pub use saggar_bridge::control;
pub use saggar_egress as egress;
pub use saggar_egress::{api, relay, service};
pub use saggar_sandbox::{cgroup, host, launch, plan, resctrl, spec, stage, state};
pub use saggar_sys as sys;
pub use saggar_sys::{error, exact_name, id, log, signal_name, text};
