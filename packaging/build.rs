//! Compiles the seccomp profiles (`seccomp/*.json`) to programs of the kernel's packet filter machine, and
//! the table of calls to one that is fast to search, as Rust that `src/sys/seccomp/tables.rs` and
//! `src/plan/container/seccomp/names.rs` include. A profile that makes no sense fails the build. Also compiles the trampoline, and
//! says how the binary is linked, and which commit it is of.

// Cargo reads a build script's instructions from its standard output.
#![allow(clippy::print_stdout)]

mod static_link;
#[path = "../trampoline/build.rs"]
mod trampoline;

use saggar_seccomp::policy::Policy;
use saggar_seccomp::profile::Profile;
use saggar_seccomp::table::{self, Table};
use saggar_seccomp::{Result, emit, tree};
use std::path::Path;
use std::{env, fs};

/// The profiles; each is a file there and a variant of `saggar::sys::seccomp::Profile`.
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
    println!("cargo::rerun-if-changed=seccomp");
    // `saggar --version` names the commit, where whoever builds it knows it (packaging/build).
    println!("cargo::rerun-if-env-changed=SAGGAR_COMMIT");
    let commit = env::var("SAGGAR_COMMIT").unwrap_or_else(|_| "unknown".into());
    println!("cargo::rustc-env=SAGGAR_COMMIT={commit}");
    static_link::arrange();
    if let Err(error) = build() {
        println!("cargo::error={error}");
    }
}

fn build() -> Result<()> {
    let arch = table::from_cargo(&variable("CARGO_CFG_TARGET_ARCH")?)?;
    let width = variable("CARGO_CFG_TARGET_POINTER_WIDTH")?;
    let endian = variable("CARGO_CFG_TARGET_ENDIAN")?;
    if (width.as_str(), endian.as_str()) != ("64", "little") {
        return Err(format!(
            "saggar builds for 64-bit little-endian targets, not {width}-bit {endian}-endian"
        ));
    }
    let calls = read("syscalls.tbl")?;
    let table = Table::parse(&calls, arch)?;
    let mut text = String::new();
    for name in PROFILES {
        let profile = Profile::load(name, &|name| read(&format!("{name}.json")))?;
        let in_file = |error| format!("seccomp/{name}.json: {error}");
        let policy = Policy::resolve(&profile, &table, arch).map_err(in_file)?;
        let program = tree::compile(&policy).map_err(in_file)?;
        text.push_str(&emit::profile(name, &profile, &policy, &program));
    }
    write("seccomp_tables.rs", &text)?;
    write("seccomp_names.rs", &emit::names(&table::rows(&calls)?))?;
    trampoline::compile(Path::new(&variable("OUT_DIR")?))
}

fn write(file: &str, text: &str) -> Result<()> {
    let path = Path::new(&variable("OUT_DIR")?).join(file);
    fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn read(file: &str) -> Result<String> {
    let path = Path::new(&variable("CARGO_MANIFEST_DIR")?).join("seccomp").join(file);
    fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
}

fn variable(name: &str) -> Result<String> {
    env::var(name).map_err(|error| format!("{name}: {error}"))
}
