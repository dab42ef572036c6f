//! Modules shared with the compiler of the built-in profiles (`seccomp/compiler`, in the build script).

#![allow(clippy::duplicate_mod, reason = "the tests of the build script's compiler have it whole")]

#[path = "../../../../seccomp/compiler/arch.rs"]
pub(super) mod arch;
#[path = "../../../../seccomp/compiler/assemble.rs"]
pub(super) mod assemble;
#[path = "../../../../seccomp/compiler/bpf.rs"]
pub(super) mod bpf;
#[path = "../../../../seccomp/compiler/graph.rs"]
pub(super) mod graph;
#[path = "../../../../seccomp/compiler/hash.rs"]
pub(super) mod hash;
#[path = "../../../../seccomp/compiler/search.rs"]
pub(super) mod search;

/// The error is a message; [`super::compile`] adds its location.
pub(super) type Result<T> = std::result::Result<T, String>;
