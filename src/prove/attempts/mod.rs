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

use super::{Attempt, Class, No};
use crate::sys::throwaway::Throwaway;
use crate::sys::{Errno, SysResult};
use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub use git::left as git_left;
pub(super) use inherited::variables;

/// All of them, in the order in which they are made.
pub const ALL: &[(Class, &[Attempt])] = &[
    (Class::Inherited, inherited::ATTEMPTS),
    (Class::Files, files::ATTEMPTS),
    (Class::Mounts, mounts::ATTEMPTS),
    (Class::Namespaces, namespaces::ATTEMPTS),
    (Class::Calls, calls::ATTEMPTS),
    (Class::Processes, processes::ATTEMPTS),
    (Class::Privileges, privileges::ATTEMPTS),
    (Class::Sockets, sockets::ATTEMPTS),
    (Class::Devices, devices::ATTEMPTS),
    (Class::Terminal, terminal::ATTEMPTS),
    (Class::Git, git::ATTEMPTS),
    (Class::Limits, limits::ATTEMPTS),
];

/// The attempt of this name, and its class.
pub fn find(name: &str) -> Option<(Class, &'static Attempt)> {
    ALL.iter()
        .flat_map(|(class, attempts)| attempts.iter().map(|attempt| (*class, attempt)))
        .find(|(_, attempt)| attempt.name == name)
}

/// The address of a value, as an argument of a system call.
fn at<T: ?Sized>(value: &T) -> u64 {
    std::ptr::from_ref(value).cast::<u8>().addr() as u64
}

/// The same of one that the kernel writes to. A constant will not do: it lies in memory that is read-only.
fn to<T: ?Sized>(value: &mut T) -> u64 {
    std::ptr::from_mut(value).cast::<u8>().addr() as u64
}

/// A path as an argument of a system call.
fn path(path: &Path) -> Result<CString, No> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| No::Error(Errno::EINVAL))
}

/// AT_FDCWD as an argument of a system call.
const HERE: u64 = (libc::AT_FDCWD as i64).cast_unsigned();

/// Success of a call whose value does not matter.
fn done(answer: SysResult<i64>) -> super::Tried {
    answer.map(drop).map_err(No::from)
}

/// Opens `path` with these flags; the descriptor goes with the process.
fn open(child: &Throwaway, path: &CStr, flags: i32) -> SysResult<i64> {
    child.call(libc::SYS_openat, &[HERE, at(path), u64::from(flags.cast_unsigned()), 0o600])
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
