//! The specification of a sandbox, independent of the command that requests it.
//!
//! [`SandboxSpec`] is the model of an agent's sandbox ([`agent`] lowers a [`policy`] to it). [`container`]
//! is the model of an OCI container ([`oci`] lowers a bundle's `config.json` to it). Both become the steps
//! of a plan. This module does no I/O, except in [`policy::load`] and [`oci::load`].

pub mod agent;
pub mod container;
pub mod hidden_in_git;
mod limits;
pub mod mount_order;
pub mod oci;
mod sandbox;

pub use saggar_policy as policy;
pub use saggar_policy::protect;

pub use limits::{CPU_PERIOD_US, lower as limits_of};
pub use sandbox::*;
