//! Compiles system call filters to programs of the kernel's packet filter machine (seccomp(2)).
//!
//! ```text
//! agent.json ─profile─> groups of names ─policy─> number → verdict ─tree─> graph ─assemble─> program ─emit─> Rust
//!              names: S_ISUID → 04000 ┘  table: read → 0 ┘           └ rules: argument checks, by seccompiler
//! ```
//! The build script compiles the profiles beside this crate (the feature `profiles`); the filters of containers are
//! compiled at run time, from [`graph`] on. Nothing here makes a system call, loads a filter, or knows a sandbox.

pub mod arch;
mod assemble;
pub mod bpf;
pub mod graph;
pub mod hash;
pub mod search;

#[cfg(feature = "profiles")]
pub mod emit;
#[cfg(feature = "profiles")]
pub mod names;
#[cfg(feature = "profiles")]
pub mod policy;
#[cfg(feature = "profiles")]
pub mod profile;
#[cfg(feature = "profiles")]
pub mod rules;
#[cfg(feature = "profiles")]
pub mod table;
#[cfg(feature = "profiles")]
pub mod tree;

pub use assemble::assemble;

/// The error is a message for whoever edits a profile, with file, group and name; or one to which the caller adds the
/// location.
pub type Result<T> = std::result::Result<T, String>;
