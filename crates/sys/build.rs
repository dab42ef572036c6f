//! Compiles the seccomp profiles (`seccomp/*.json`) to programs of the kernel's packet filter machine, as Rust that
//! `src/seccomp/tables.rs` includes. A profile that makes no sense fails the build.

// Cargo reads a build script's instructions from its standard output.
#![allow(clippy::print_stdout)]

use saggar_seccomp::policy::Policy;
use saggar_seccomp::profile::Profile;
use saggar_seccomp::table::{self, Table};
use saggar_seccomp::{Result, emit, tree};
use std::path::{Path, PathBuf};
use std::{env, fs};

/// The profiles; each is a file there and a variant of `saggar_sys::seccomp::Profile`.
const PROFILES: [&str; 17] = [
    "agent",
    "nesting",
    "init",
    "asking",
    "told",
    "telling",
    "tcp",
    "offline",
    "pairs",
    "supervisor",
    "launcher",
    "keeper",
    "files",
    "relay",
    "attribution",
    "mcp",
    "mailbox",
];

fn main() {
    match build() {
        Ok(directory) => println!("cargo::rerun-if-changed={}", directory.display()),
        Err(error) => println!("cargo::error={error}"),
    }
}

/// Returns the directory of the profiles.
fn build() -> Result<PathBuf> {
    let directory = Path::new(&variable("CARGO_MANIFEST_DIR")?).join("../../seccomp");
    let read = |name: &str| {
        let path = directory.join(name);
        fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let arch = table::from_cargo(&variable("CARGO_CFG_TARGET_ARCH")?)?;
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
    let path = Path::new(&variable("OUT_DIR")?).join("seccomp_tables.rs");
    fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(directory)
}

fn variable(name: &str) -> Result<String> {
    env::var(name).map_err(|error| format!("{name}: {error}"))
}
