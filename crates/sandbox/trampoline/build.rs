//! Compiles `main.rs` beside this file to `OUT_DIR/trampoline`, which `src/stage/agent/trampoline.rs` includes.

use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

const SOURCE: &str = "trampoline/main.rs";

/// A static file of one segment, without relocations, tables or symbols.
const HOW: [&str; 13] = [
    "--edition=2024",
    "--crate-type=bin",
    "--crate-name=trampoline",
    "-Copt-level=s",
    "-Coverflow-checks=no",
    "-Cdebuginfo=0",
    "-Cpanic=abort",
    "-Cstrip=symbols",
    "-Crelocation-model=static",
    "-Clink-arg=-nostdlib",
    "-Clink-arg=-nostartfiles",
    "-Clink-arg=-static",
    "-Clink-arg=-Wl,--build-id=none,-z,noseparate-code,-z,norelro,-z,max-page-size=65536",
];

/// Compiles it for the target.
///
/// # Errors
/// What the compiler answers, in words.
pub(crate) fn compile(out: &Path) -> Result<(), String> {
    println!("cargo::rerun-if-changed=trampoline");
    println!("cargo::rerun-if-env-changed=RUSTC_LINKER");
    let variable = |name: &str| env::var_os(name).ok_or_else(|| format!("cargo gives no {name}"));
    let mut compiler = Command::new(variable("RUSTC")?);
    compiler
        .args(HOW)
        .arg("--target")
        .arg(variable("TARGET")?)
        .arg("-o")
        .arg(out.join("trampoline"))
        .arg(SOURCE);
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        let mut option = OsString::from("-Clinker=");
        option.push(linker);
        compiler.arg(option);
    }
    let said = compiler.output().map_err(|error| format!("run the compiler for {SOURCE}: {error}"))?;
    if said.status.success() {
        return Ok(());
    }
    Err(format!("compile {SOURCE}: {}", String::from_utf8_lossy(&said.stderr).replace('\n', "; ")))
}
