//! `linux.seccomp`, compiled for the kernel that runs.

use crate::error::{Code, Error, Result};
use crate::plan::container::{Filter, Listener};
use crate::plan::seccomp::{self, Arch};
use crate::spec::container::Container;
use crate::sys::seccomp::knows_flag;

/// The filter of a container that is made, if it has one; what it leaves out is logged.
///
/// # Errors
/// As [`again`].
pub(super) fn of(container: &Container) -> Result<Option<Filter>> {
    compiled(container, |warning| log::warn!("{warning}"))
}

/// The same for one more program of a container that was made: what the filter leaves out was told then.
///
/// # Errors
/// As [`seccomp::compile`] and [`seccomp::Filter::check`].
pub(super) fn again(container: &Container) -> Result<Option<Filter>> {
    compiled(container, |warning| log::debug!("{warning}"))
}

/// Who answers for the calls that wait for a listener. The init of a created container has its filter, and this is
/// all that its start needs to know.
pub(super) fn listener(container: &Container) -> Option<Listener> {
    let wanted = container.seccomp.as_ref().filter(|wanted| seccomp::wants_listener(wanted))?;
    let path = wanted.listener_path().clone()?;
    Some(Listener { path, metadata: wanted.listener_metadata().clone() })
}

fn compiled(container: &Container, tell: impl Fn(&str)) -> Result<Option<Filter>> {
    let Some(wanted) = &container.seccomp else { return Ok(None) };
    let compiled = seccomp::compile(wanted, Arch::NATIVE)?;
    compiled.warnings.iter().for_each(|warning| tell(warning));
    compiled.check(knows_flag)?;
    let flags = compiled.flags & !libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    let flags = u32::try_from(flags)
        .map_err(|_| Error::new(Code::Invalid, "linux.seccomp.flags: a flag that no kernel knows"))?;
    Ok(Some(Filter { program: compiled.instructions, flags, listener: listener(container) }))
}
