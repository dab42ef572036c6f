//! `linux.seccomp` of a bundle to one program of the kernel's packet filter machine. Pure.

pub use arch::Arch;

mod arch;

use crate::error::{Code, Error, Result};
use crate::sys::seccomp::SockFilter;
use oci_spec::runtime::LinuxSeccomp;

/// A system call filter, ready for [`crate::sys::seccomp::load_with`].
#[derive(Debug, Clone)]
pub struct Filter {
    /// The program: at least one instruction, at most 4096.
    pub instructions: Vec<SockFilter>,
    /// SECCOMP_FILTER_FLAG_* of seccomp(2), SECCOMP_FILTER_FLAG_NEW_LISTENER among them when `notify` is set.
    pub flags: u64,
    /// Whether some call waits for a listener: `linux.seccomp.listenerPath` must then be given, and the load
    /// returns the listener's descriptor.
    pub notify: bool,
    /// What the profile names and the filter leaves out, one sentence each, for the log.
    pub warnings: Vec<String>,
}

/// Compiles `seccomp` for a kernel of the architecture `native`.
///
/// # Errors
/// [`Code::Invalid`] naming the JSON path of what makes no sense or does not fit in 4096 instructions.
pub fn compile(seccomp: &LinuxSeccomp, native: Arch) -> Result<Filter> {
    let _ = (seccomp, native);
    Err(Error::new(Code::Unsupported, "linux.seccomp: filters are not compiled yet"))
}
