//! The names of system calls and their numbers (`seccomp/syscalls.tbl`, by the build script).

use saggar_seccomp::arch::Arch;
use saggar_seccomp::hash;

/// A system call.
#[derive(Debug)]
pub(super) struct Call {
    name: &'static str,
    /// Numbers by [`Arch::column`]; [`NONE`] where the architecture lacks the call.
    numbers: [u32; Arch::ALL.len()],
}

/// No call has this number: a tracer sets it to skip one (ptrace(2)).
const NONE: u32 = u32::MAX;

include!(concat!(env!("OUT_DIR"), "/seccomp_names.rs"));

impl Call {
    /// Finds the call with this name, of any architecture that libseccomp knows.
    pub(super) fn find(name: &str) -> Option<&'static Call> {
        let mut at = hash::place(name);
        while let Some(index) = PLACES[at].checked_sub(1) {
            let call = &CALLS[usize::from(index)];
            if call.name == name {
                return Some(call);
            }
            at = (at + 1) % hash::PLACES;
        }
        None
    }

    /// Its name.
    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// Returns its number as in `seccomp_data.nr`, if the architecture has the call.
    pub(super) fn number(&self, arch: Arch) -> Option<u32> {
        Some(self.numbers[arch.column()]).filter(|number| *number != NONE)
    }
}
