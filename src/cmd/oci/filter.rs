//! `linux.seccomp`, compiled for the kernel that runs.

use crate::error::{Code, Error, Result};
use crate::plan::container::{Filter, Listener};
use crate::plan::seccomp::{self, Arch};
use crate::spec::container::Container;

/// The filter of a container's programs, if it has one; what it leaves out is logged.
///
/// # Errors
/// As [`seccomp::compile`]; [`Code::Invalid`] for calls that wait for a listener when none is named.
pub(super) fn of(container: &Container) -> Result<Option<Filter>> {
    let Some(wanted) = &container.seccomp else { return Ok(None) };
    let compiled = seccomp::compile(wanted, Arch::NATIVE)?;
    for warning in &compiled.warnings {
        log::warn!("{warning}");
    }
    let listener = wanted.listener_path().as_ref().filter(|path| !path.as_os_str().is_empty());
    let listener = match (compiled.notify, listener) {
        (false, _) => None,
        (true, Some(path)) => {
            Some(Listener { path: path.clone(), metadata: wanted.listener_metadata().clone() })
        }
        (true, None) => {
            return Err(Error::new(
                Code::Invalid,
                "linux.seccomp: SCMP_ACT_NOTIFY is used and listenerPath is not given",
            )
            .hint("name the socket of the program that answers in linux.seccomp.listenerPath"));
        }
    };
    let flags = u32::try_from(compiled.flags)
        .map_err(|_| Error::new(Code::Invalid, "linux.seccomp.flags: a flag that no kernel knows"))?;
    Ok(Some(Filter { program: compiled.instructions, flags, listener }))
}
