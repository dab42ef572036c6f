//! The event loop of one sandbox: one thread and one [`mio::Poll`] for all of its descriptors.
//!
//! [`sandbox`] turns the messages of pid 1 and of the exec barriers into [`sandbox::SandboxEvent`]s. [`wrap`] and
//! [`agent`] are the two loops that handle them. [`sidecar`] is the loop of a container's bridge, whose sandbox another
//! process supervises. [`channel`] is shared by the loops of agents and containers.

pub mod agent;
mod channel;
mod confine;
mod directory_modes;
mod limit_reports;
mod memory;
mod missing_rules;
mod network;
pub mod parent_watch;
mod pin_watch;
mod privileged_operations;
mod process_tree;
#[cfg_attr(not(test), deny(clippy::disallowed_methods))]
pub mod quarantine_monitor;
mod registration;
mod relay_process;
pub mod sandbox;
pub mod service_process;
pub mod sidecar;
pub mod signals;
pub mod status;
pub mod terminal;
pub mod time_limits;
#[cfg_attr(not(test), deny(clippy::disallowed_methods))]
mod worker;
pub mod wrap;

pub use confine::SUPERVISOR_RIGHTS;
