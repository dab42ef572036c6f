//! The OCI verbs, driven as orchestrators drive them: each MUST of runtime.md, and what callers count on.

pub(crate) mod bundle;

mod bridge;
mod create;
mod cve;
mod damage;
mod delete;
mod errors;
mod exec;
mod hooks;
mod kill;
mod killed;
mod listing;
mod many;
mod run;
mod seccomp;
mod start;
mod state;
