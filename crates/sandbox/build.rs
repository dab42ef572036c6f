//! Compiles the table of system calls to one that is fast to search, as Rust that
//! `src/plan/container/seccomp/names.rs` includes; and the trampoline.

// Cargo reads a build script's instructions from its standard output.
#![allow(clippy::print_stdout)]

#[path = "trampoline/build.rs"]
mod trampoline;

use saggar_seccomp::{Result, emit, table};
use std::path::Path;
use std::{env, fs};

/// The calls of each architecture.
const CALLS: &str = "../../seccomp/syscalls.tbl";

fn main() {
    println!("cargo::rerun-if-changed={CALLS}");
    if let Err(error) = build() {
        println!("cargo::error={error}");
    }
}

fn build() -> Result<()> {
    let calls = Path::new(&variable("CARGO_MANIFEST_DIR")?).join(CALLS);
    let calls = fs::read_to_string(&calls).map_err(|error| format!("{}: {error}", calls.display()))?;
    let out = variable("OUT_DIR")?;
    let names = Path::new(&out).join("seccomp_names.rs");
    fs::write(&names, emit::names(&table::rows(&calls)?))
        .map_err(|error| format!("{}: {error}", names.display()))?;
    trampoline::compile(Path::new(&out))
}

fn variable(name: &str) -> Result<String> {
    env::var(name).map_err(|error| format!("{name}: {error}"))
}
