//! saggar starts an AI agent, or any program, in a sandbox, runs OCI containers, and carries the conversation of an
//! agent to its clients.
//!
//! The map, lowest layer first; a module uses its own layer and lower layers only (Cargo checks it between crates,
//! `tests/layers.rs` within one). `ARCHITECTURE.md` has more: the processes and their rights, walks through the code, the
//! invariants.
//!
//! | layer | module | what it is |
//! |---|---|---|
//! | 0 | [`sys`] [`error`] [`log`] [`id`] [`text`] [`exact_name`] [`signal_name`] | crate `saggar-sys`: raw system calls as thin safe wrappers; errors with exit code and hint, the log back end, validated ids, escaping of untrusted text, names of any bytes in JSON, names of signals |
//! | 1 | [`bridge`] [`control`] | crate `saggar-bridge`: the bridge between an agent and its clients, and the control socket |
//! | 1 | [`egress`] [`relay`] [`api`] [`service`] | crate `saggar-egress`: a network by policy, the processes that relay it and that serve the model API |
//! | 1 | [`remote`] | crate `saggar-remote`: a client of the HTTP API of `saggar-server` |
//! | 1 to 3 | [`spec`] [`host`] [`plan`] [`launch`] [`stage`] [`cgroup`] [`resctrl`] [`state`] | crate `saggar-sandbox`: what a sandbox and a container are to be, their steps, their start, their limits, and records of what runs |
//! | 3 | [`session`] | crate `saggar-session`: sessions on disk and what can be done with them |
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
pub mod supervise;

pub use saggar_bridge as bridge;
pub use saggar_bridge::control;
pub use saggar_egress as egress;
pub use saggar_egress::{api, relay, service};
pub use saggar_remote as remote;
pub use saggar_sandbox::{cgroup, host, launch, plan, resctrl, spec, stage, state};
pub use saggar_session as session;
pub use saggar_sys as sys;
pub use saggar_sys::{error, exact_name, id, log, signal_name, text};
