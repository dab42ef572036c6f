//! From a profile in JSON to a program of the kernel's packet filter machine.
//!
//! ```text
//! agent.json ─profile─> groups of names ─policy─> number → verdict ─tree─> graph ─assemble─> program ─emit─> Rust
//!              names: S_ISUID → 04000 ┘  table: read → 0 ┘           └ rules: argument checks, by seccompiler
//! ```

pub(crate) mod arch;
pub(crate) mod assemble;
pub(crate) mod bpf;
pub(crate) mod emit;
pub(crate) mod graph;
pub(crate) mod hash;
pub(crate) mod names;
pub(crate) mod policy;
pub(crate) mod profile;
pub(crate) mod rules;
pub(crate) mod search;
pub(crate) mod table;
pub(crate) mod tree;

/// What goes wrong is told to whoever edits a profile: file, group and name are in the text.
pub(crate) type Result<T> = std::result::Result<T, String>;
