//! What a sandbox is to be, whoever asked for it.
//!
//! [`SandboxSpec`] is the model of an agent's sandbox ([`agent`] lowers a [`policy`] to it), [`container`] that of
//! an OCI container ([`oci`] lowers a bundle's `config.json` to it); both become steps of one plan. Nothing here
//! does I/O, but for [`policy::load`] and [`oci::load`].

pub mod agent;
pub mod container;
mod limits;
pub mod oci;
pub mod policy;
pub mod protect;
mod sandbox;
#[cfg(test)]
pub(crate) mod tests;

pub use limits::{PERIOD, lower as limits_of};
pub use sandbox::*;
