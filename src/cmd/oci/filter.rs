//! `linux.seccomp`, compiled for the kernel that runs.

use crate::error::{Code, Error, Result};
use crate::plan::container::{Filter, Listener};
use crate::plan::seccomp::{self, Arch};
use crate::spec::container::Container;
use crate::sys::seccomp::knows_flag;

/// The filter of a container's programs, if it has one; what it leaves out is logged.
///
/// # Errors
/// As [`seccomp::compile`] and [`seccomp::Filter::check`].
pub(super) fn of(container: &Container) -> Result<Option<Filter>> {
    let Some(wanted) = &container.seccomp else { return Ok(None) };
    let compiled = seccomp::compile(wanted, Arch::NATIVE)?;
    for warning in &compiled.warnings {
        log::warn!("{warning}");
    }
    compiled.check(knows_flag)?;
    let path = wanted.listener_path().as_ref().filter(|_| compiled.notify);
    let metadata = wanted.listener_metadata();
    let listener = path.map(|path| Listener { path: path.clone(), metadata: metadata.clone() });
    let flags = compiled.flags & !libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    let flags = u32::try_from(flags)
        .map_err(|_| Error::new(Code::Invalid, "linux.seccomp.flags: a flag that no kernel knows"))?;
    Ok(Some(Filter { program: compiled.instructions, flags, listener }))
}
