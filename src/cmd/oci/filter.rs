//! Compiles `linux.seccomp` for the running kernel.

use crate::error::{Code, Error, Result};
use crate::log::USUAL;
use crate::plan::container::seccomp::{self, Arch, CompiledFilter};
use crate::plan::container::{ContainerFilter, SeccompListener};
use crate::spec::container::ContainerSpec;
use crate::sys::seccomp::knows_flag;

/// Compiles the filter of a new container, if it has one, and logs what the filter leaves out as warnings.
///
/// # Errors
/// As [`recompile`].
pub(super) fn compile(container: &ContainerSpec) -> Result<Option<ContainerFilter>> {
    compile_with(container, |warning| match CompiledFilter::is_usual(warning) {
        true => log::warn!(target: USUAL, "{warning}"),
        false => log::warn!("{warning}"),
    })
}

/// Compiles the filter again for another program of the container. Warnings were logged at create.
///
/// # Errors
/// As [`seccomp::compile`] and [`seccomp::CompiledFilter::check`].
pub(super) fn recompile(container: &ContainerSpec) -> Result<Option<ContainerFilter>> {
    compile_with(container, |warning| log::debug!("{warning}"))
}

/// Returns the listener that answers notifications of the filter. The init of a created container has its filter
/// already, so that its start needs only this.
pub(super) fn listener(container: &ContainerSpec) -> Option<SeccompListener> {
    let seccomp_config = container.seccomp.as_ref().filter(|wanted| seccomp::wants_listener(wanted))?;
    let path = seccomp_config.listener_path().clone()?;
    Some(SeccompListener { path, metadata: seccomp_config.listener_metadata().clone() })
}

fn compile_with(container: &ContainerSpec, report: impl Fn(&str)) -> Result<Option<ContainerFilter>> {
    let Some(seccomp_config) = &container.seccomp else { return Ok(None) };
    let compiled = seccomp::compile(seccomp_config, Arch::NATIVE)?;
    compiled.warnings.iter().for_each(|warning| report(warning));
    compiled.check(knows_flag)?;
    let flags = compiled.flags & !libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    let flags = u32::try_from(flags)
        .map_err(|_| Error::new(Code::Invalid, "linux.seccomp.flags: a flag that no kernel knows"))?;
    Ok(Some(ContainerFilter { program: compiled.instructions, flags, listener: listener(container) }))
}
