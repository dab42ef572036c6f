//! The OCI verbs, driven as orchestrators drive them: each MUST of runtime.md, and what callers count on.

pub(crate) mod bridge;
mod bridge_named;
pub(crate) mod bundle;

mod console;
mod create;
mod cve;
mod damage;
mod delete;
mod environment;
mod errors;
mod exec;
mod hooks;
mod ids;
mod kill;
mod killed;
mod limits;
mod listing;
mod many;
mod mounts;
mod options;
mod peers;
mod process;
mod run;
mod sealed;
mod seccomp;
mod service_notification;
mod start;
mod state;
pub(crate) mod traced;
