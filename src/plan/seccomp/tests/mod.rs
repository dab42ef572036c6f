//! Filters against what profiles mean, against libseccomp, and against the kernel.

use super::{Arch, Filter, compile};
use crate::sys::seccomp::tests::machine::{self, Call};
use oci_spec::runtime::LinuxSeccomp;
use serde_json::Value;

mod cases;
mod docker;
mod kernel;
mod meaning;
mod oracle;
mod properties;
mod table;

/// The filter of a profile in JSON, on 64-bit x86.
fn filter(profile: &Value) -> Filter {
    compile(&parse(profile), Arch::X86_64).unwrap()
}

fn parse(profile: &Value) -> LinuxSeccomp {
    serde_json::from_value(profile.clone()).unwrap()
}

/// What the filter answers.
fn run(filter: &Filter, arch: u32, number: u32, args: &[u64]) -> u32 {
    let mut all = [0; 6];
    all[..args.len()].copy_from_slice(args);
    machine::run(&filter.instructions, &Call { arch, number, args: all }).0
}
