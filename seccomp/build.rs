//! Compiles the seccomp profiles beside this file to programs of the kernel's packet filter machine, as
//! Rust that `src/sys/seccomp/tables.rs` includes. A profile that makes no sense fails the build. Also says how the
//! binary is linked.

// Cargo reads a build script's instructions from its standard output.
#![allow(clippy::print_stdout)]

mod compiler;
#[path = "../packaging/static_link.rs"]
mod static_link;

use compiler::policy::Policy;
use compiler::profile::Profile;
use compiler::table::{Arch, Table};
use compiler::{Result, emit, tree};
use std::path::Path;
use std::{env, fs};

/// The profiles; each is a file here and a variant of `saggar::sys::seccomp::Profile`.
const PROFILES: [&str; 3] = ["agent", "nesting", "init"];

fn main() {
    println!("cargo::rerun-if-changed=seccomp");
    static_link::arrange();
    if let Err(error) = build() {
        println!("cargo::error={error}");
    }
}

fn build() -> Result<()> {
    let arch = Arch::from_cargo(&variable("CARGO_CFG_TARGET_ARCH")?)?;
    let width = variable("CARGO_CFG_TARGET_POINTER_WIDTH")?;
    let endian = variable("CARGO_CFG_TARGET_ENDIAN")?;
    if (width.as_str(), endian.as_str()) != ("64", "little") {
        return Err(format!(
            "saggar builds for 64-bit little-endian targets, not {width}-bit {endian}-endian"
        ));
    }
    let table = Table::parse(&read("syscalls.tbl")?, arch)?;
    let mut text = String::new();
    for name in PROFILES {
        let profile = Profile::load(name, &|name| read(&format!("{name}.json")))?;
        let in_file = |error| format!("seccomp/{name}.json: {error}");
        let policy = Policy::resolve(&profile, &table, arch).map_err(in_file)?;
        let program = tree::compile(&policy).map_err(in_file)?;
        text.push_str(&emit::profile(name, &profile, &policy, &program));
    }
    let out = Path::new(&variable("OUT_DIR")?).join("seccomp_tables.rs");
    fs::write(&out, text).map_err(|error| format!("{}: {error}", out.display()))
}

fn read(file: &str) -> Result<String> {
    let path = Path::new(&variable("CARGO_MANIFEST_DIR")?).join("seccomp").join(file);
    fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
}

fn variable(name: &str) -> Result<String> {
    env::var(name).map_err(|error| format!("{name}: {error}"))
}
