//! The attempts, one file for each class.

mod calls;
mod devices;
mod files;
mod git;
mod inherited;
mod limits;
mod mounts;
mod namespaces;
mod privileges;
mod processes;
mod sockets;
mod terminal;

use super::{Attempt, AttemptClass, AttemptFailure};
use crate::sys::SysResult;
use crate::sys::disposable_child::DisposableChild;
use crate::sys::file;
use std::ffi::{CStr, CString};
use std::path::Path;

pub use git::is_planted as git_left;
pub(super) use inherited::variables;

/// All attempts, in the order in which they are made.
pub const ALL: &[(AttemptClass, &[Attempt])] = &[
    (AttemptClass::Inherited, inherited::ATTEMPTS),
    (AttemptClass::Files, files::ATTEMPTS),
    (AttemptClass::Mounts, mounts::ATTEMPTS),
    (AttemptClass::Namespaces, namespaces::ATTEMPTS),
    (AttemptClass::Calls, calls::ATTEMPTS),
    (AttemptClass::Processes, processes::ATTEMPTS),
    (AttemptClass::Privileges, privileges::ATTEMPTS),
    (AttemptClass::Sockets, sockets::ATTEMPTS),
    (AttemptClass::Devices, devices::ATTEMPTS),
    (AttemptClass::Terminal, terminal::ATTEMPTS),
    (AttemptClass::Git, git::ATTEMPTS),
    (AttemptClass::Limits, limits::ATTEMPTS),
];

/// The attempt of this name, and its class.
pub fn find(name: &str) -> Option<(AttemptClass, &'static Attempt)> {
    ALL.iter()
        .flat_map(|(class, attempts)| attempts.iter().map(|attempt| (*class, attempt)))
        .find(|(_, attempt)| attempt.name == name)
}

/// The address of a value, as an argument of a system call.
fn address_of<T: ?Sized>(value: &T) -> u64 {
    std::ptr::from_ref(value).cast::<u8>().addr() as u64
}

/// The address of a value that the kernel writes. It must not be a constant, which is in read-only memory.
fn address_of_mut<T: ?Sized>(value: &mut T) -> u64 {
    std::ptr::from_mut(value).cast::<u8>().addr() as u64
}

/// A path as an argument of a system call.
fn path(path: &Path) -> Result<CString, AttemptFailure> {
    file::c_path(path).map_err(AttemptFailure::Error)
}

/// AT_FDCWD as an argument of a system call.
const AT_FDCWD: u64 = (libc::AT_FDCWD as i64).cast_unsigned();

/// Turns the return value of a call into the result of an attempt.
fn discard_value(answer: SysResult<i64>) -> super::AttemptResult {
    answer.map(drop).map_err(AttemptFailure::from)
}

/// Opens `path` with these flags; the descriptor is closed when the process exits.
fn open(child: &DisposableChild, path: &CStr, flags: i32) -> SysResult<i64> {
    child.call(libc::SYS_openat, &[AT_FDCWD, address_of(path), u64::from(flags.cast_unsigned()), 0o600])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn there_are_more_than_a_hundred_and_each_has_a_name_of_its_own() {
        let names: Vec<&str> =
            ALL.iter().flat_map(|(_, attempts)| attempts.iter().map(|attempt| attempt.name)).collect();
        let unique: BTreeSet<&&str> = names.iter().collect();
        assert_eq!(unique.len(), names.len(), "{names:?}");
        assert!(names.len() > 100, "{}", names.len());
    }
}
