//! Says how the binary is linked, and which commit it is of.

// Cargo reads a build script's instructions from its standard output.
#![allow(clippy::print_stdout)]

mod static_link;

use std::env;

fn main() {
    // `saggar --version` names the commit, where whoever builds it knows it (packaging/build).
    println!("cargo::rerun-if-env-changed=SAGGAR_COMMIT");
    let commit = env::var("SAGGAR_COMMIT").unwrap_or_else(|_| "unknown".into());
    println!("cargo::rustc-env=SAGGAR_COMMIT={commit}");
    static_link::arrange();
}
