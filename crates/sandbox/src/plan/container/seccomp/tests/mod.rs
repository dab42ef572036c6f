//! Tests filters against the semantics of profiles, against libseccomp, and against the kernel.

use super::{Arch, CompiledFilter, compile};
use oci_spec::runtime::LinuxSeccomp;
use saggar_sys::testing::machine::{self, SeccompData};
use serde_json::Value;

mod cases;
mod docker;
mod example;
mod kernel;
mod meaning;
mod oracle;
mod properties;
mod table;

/// Compiles the filter of a profile in JSON, on 64-bit x86.
fn filter(profile: &Value) -> CompiledFilter {
    compile(&parse(profile), Arch::X86_64).unwrap()
}

fn parse(profile: &Value) -> LinuxSeccomp {
    serde_json::from_value(profile.clone()).unwrap()
}

/// Returns the result of the filter.
fn run(filter: &CompiledFilter, arch: u32, number: u32, args: &[u64]) -> u32 {
    let mut all = [0; 6];
    all[..args.len()].copy_from_slice(args);
    machine::run(&filter.instructions, &SeccompData { arch, number, args: all }).0
}
