//! One more process in a running container.

use super::{Cgroup, Exec, Init};
use crate::error::{Code, Error, Result};

/// Starts a process in the container; it has become the program when this returns, and is our child.
///
/// # Errors
/// [`Code::NotFound`], [`Code::NotExecutable`] for the program; what failed, and the process is gone.
pub fn exec(_request: &Exec<'_>, _cgroup: &dyn Cgroup) -> Result<Init> {
    Err(Error::new(Code::Unsupported, "add a process to a container: not built yet"))
}
