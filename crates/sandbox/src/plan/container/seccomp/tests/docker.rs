//! Tests Docker's default profile, the most common one, as its engine writes it for a container with the default
//! capabilities on x86_64 (github.com/moby/profiles, June 2026).

use super::SeccompData;
use super::meaning::{self, numbers};
use super::{filter, machine, run};
use crate::plan::container::seccomp::Arch;
use libc::SECCOMP_RET_ALLOW as ALLOW;
use serde_json::Value;

const EPERM: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned();
const ENOSYS: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned();

pub(super) fn profile() -> Value {
    serde_json::from_str(include_str!("docker.json")).unwrap()
}

#[test]
fn every_call_gets_what_the_profile_says() {
    let (profile, filter) = (profile(), filter(&profile()));
    for arch in [Arch::X86_64, Arch::X86, Arch::X32] {
        let numbers: Vec<u32> = numbers(arch).into_values().collect();
        for number in
            numbers.iter().flat_map(|number| [*number, number + 1]).chain([500, 0x3fff_ffff, u32::MAX])
        {
            for first in [0, 8, 17, 38, 39, 40, 0x2_0008, 0xffff_ffff, 0x1000_0011, 1 << 32] {
                let call = SeccompData { arch: arch.audit(), number, args: [first, 0, 0, 0, 0, 0] };
                let answers = meaning::answers(&profile, Arch::X86_64, &call);
                let answer = machine::run(&filter.instructions, &call).0;
                assert!(answers.contains(&answer), "{call:x?}: {answer:#x}, not {answers:x?}");
            }
        }
    }
}

#[test]
fn what_users_of_containers_rely_on() {
    let filter = filter(&profile());
    let numbers = numbers(Arch::X86_64);
    let ask = |name: &str, args: &[u64]| run(&filter, Arch::X86_64.audit(), numbers[name], args);
    assert_eq!(ask("clone", &[17]), ALLOW);
    assert_eq!(ask("clone", &[u64::try_from(libc::CLONE_NEWUSER).unwrap() | 17]), EPERM);
    // So that the C library falls back to clone.
    assert_eq!(ask("clone3", &[]), ENOSYS);
    assert_eq!(ask("socket", &[2]), ALLOW);
    assert_eq!(ask("socket", &[u64::try_from(libc::AF_VSOCK).unwrap()]), EPERM);
    assert_eq!(ask("personality", &[0xffff_ffff]), ALLOW);
    assert_eq!(ask("mount", &[]), EPERM);
    // A call newer than the profile.
    assert_eq!(run(&filter, Arch::X86_64.audit(), 479, &[]), ENOSYS);
    assert_eq!(run(&filter, Arch::X86.audit(), 479, &[]), ENOSYS);
    assert_eq!(run(&filter, Arch::Aarch64.audit(), 0, &[]), libc::SECCOMP_RET_KILL_THREAD);
    // Warnings would be logged at each start of a container.
    assert_eq!(filter.warnings, [""; 0]);
    assert_eq!(filter.flags, libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW);
    assert!(!filter.notify);
}

#[test]
fn it_is_short_and_shallow() {
    // The kernel translates each instruction once and runs the filter for each number: see search.rs.
    let filter = filter(&profile());
    let length = filter.instructions.len();
    // libseccomp generates 1001 instructions for it.
    assert!(length <= 280, "{length} instructions");
    for arch in [Arch::X86_64, Arch::X86, Arch::X32] {
        let checked = ["clone", "personality", "socket"];
        for (name, number) in numbers(arch) {
            let call = SeccompData { arch: arch.audit(), number, args: [0; 6] };
            let steps = machine::run(&filter.instructions, &call).1;
            assert!(steps <= if checked.contains(&name) { 32 } else { 18 }, "{arch:?} {name}: {steps} steps");
        }
    }
}
