//! Links the binary statically where the C compiler can, on the ordinary target: loading and relocating three
//! shared libraries is a third of a millisecond, which every start of a sandbox would pay.
//!
//! `-C target-feature=+crt-static` would do it, but without `--target` it reaches procedural macros too, which
//! cannot be static; and with `--target` the binary is not where everybody looks for it. So the compiler gets
//! `-static-pie`, and, since rustc believes the program to be dynamic and names shared libraries, a directory that
//! comes first in the search and in which those names are linker scripts that lead to the archives.
//!
//! Only the binary is linked so; tests and build scripts are as ever. `SAGGAR_LINK=dynamic` switches it off, and
//! `SAGGAR_LINK=libc-start` only the start of our own that stands in for glibc's (`src/libc_start.rs`).

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The versions of glibc whose start `src/libc_start.rs` was tried in the place of.
const STARTED: [&str; 1] = ["2.36"];

/// The libraries that rustc names for this target.
const LIBRARIES: [&str; 7] = ["c", "m", "util", "rt", "pthread", "dl", "gcc_s"];

/// Tells cargo how to link the binary; where there are no archives, it is linked as usual.
pub(crate) fn arrange() {
    println!("cargo::rerun-if-env-changed=SAGGAR_LINK");
    println!("cargo::rerun-if-changed=packaging/static_link.rs");
    println!("cargo::rustc-check-cfg=cfg(saggar_libc_start)");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    let features = env::var("CARGO_CFG_TARGET_FEATURE").unwrap_or_default();
    let native = env::var("HOST") == env::var("TARGET") && is("CARGO_CFG_TARGET_ENV", "gnu");
    if !native || is("SAGGAR_LINK", "dynamic") || features.split(',').any(|f| f == "crt-static") {
        return;
    }
    let Some(out) = env::var_os("OUT_DIR").map(|out| Path::new(&out).join("archives")) else { return };
    if scripts(&out).is_none() {
        return;
    }
    let Some(version) = works(&out) else { return };
    println!("cargo::rustc-link-arg-bins=-static-pie");
    println!("cargo::rustc-link-arg-bins=-L{}", out.display());
    // It runs before the program is relocated, and only optimised code reaches no address by way of memory.
    let is_optimised = !is("OPT_LEVEL", "0");
    let own_start = is_optimised && !is("SAGGAR_LINK", "libc-start") && is("CARGO_CFG_TARGET_ARCH", "x86_64");
    if own_start && STARTED.contains(&version.as_str()) {
        println!("cargo::rustc-cfg=saggar_libc_start");
    }
}

fn compiler() -> Command {
    Command::new(env::var_os("RUSTC_LINKER").unwrap_or_else(|| "cc".into()))
}

/// Where the compiler has an archive.
fn archive(name: &str) -> Option<PathBuf> {
    let said = compiler().arg(format!("-print-file-name=lib{name}.a")).output().ok()?;
    let path = PathBuf::from(String::from_utf8(said.stdout).ok()?.trim());
    path.is_absolute().then_some(path)?.canonicalize().ok()
}

/// Writes a script for each library. What is not there in an archive of its own is in libc's.
fn scripts(directory: &Path) -> Option<()> {
    fs::create_dir_all(directory).ok()?;
    let (libc, unwind, base) = (archive("c")?, archive("gcc_eh")?, archive("gcc")?);
    for name in LIBRARIES {
        let own = archive(name).unwrap_or_else(|| libc.clone());
        // glibc's libm.a can be a script itself, and those do not nest.
        let is_script = fs::read(&own).ok()?.starts_with(b"/*");
        let inside = if is_script { parts(&own)? } else { own.display().to_string() };
        let script = format!("GROUP ( {inside} {} {} )\n", unwind.display(), base.display());
        for suffix in ["so", "a"] {
            fs::write(directory.join(format!("lib{name}.{suffix}")), &script).ok()?;
        }
    }
    Some(())
}

/// What a linker script of libc groups.
fn parts(script: &Path) -> Option<String> {
    let text = fs::read_to_string(script).ok()?;
    let (_, group) = text.split_once("GROUP (")?;
    Some(group.split_once(')')?.0.trim().to_owned())
}

/// The version of libc that a program which is linked so says it has, when one can be made and runs.
fn works(directory: &Path) -> Option<String> {
    const PROBE: &str = "#include <gnu/libc-version.h>\n#include <stdio.h>\n\
        int main(void) { return puts(gnu_get_libc_version()) < 0; }\n";
    let (source, program) = (directory.join("probe.c"), directory.join("probe"));
    fs::write(&source, PROBE).ok()?;
    let mut link = compiler();
    link.args([&source, Path::new("-o"), &program])
        .arg("-static-pie")
        .arg(format!("-L{}", directory.display()));
    let linked = link.stdout(Stdio::null()).stderr(Stdio::null()).status().ok()?;
    let said = linked.success().then(|| Command::new(&program).stderr(Stdio::null()).output().ok())??;
    said.status.success().then(|| String::from_utf8_lossy(&said.stdout).trim().to_owned())
}
