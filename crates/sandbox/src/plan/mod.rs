//! Turns the spec of a sandbox and the facts of the host into an ordered list of steps. Pure: no I/O.
//!
//! There are two planners, two lists of steps and, in [`crate::stage`], two children that run them:
//!
//! | | [`agent`] (`wrap`, `agent`, sessions) | [`container`] (OCI) |
//! |---|---|---|
//! | described by | a policy: [`crate::spec::SandboxSpec`] | a bundle: [`crate::spec::container::ContainerSpec`] |
//! | root | new and empty, filled mount by mount, then read-only | a tree that the bundle brings |
//! | namespaces | always all, in one clone | any subset, made or joined |
//! | rights at the end | none: the order check refuses a plan without the steps that drop them | those of the bundle |
//! | order | fixed by phase, checked | that of the OCI runtime specification, hooks between |
//!
//! One list for both would have to allow everything that a bundle may request, and so could no longer reject a sandbox
//! that lacks a protection. Both share [`ids`] and `path`.

pub mod agent;
pub mod container;
pub mod ids;
pub(crate) mod path;
