//! Making a container, up to the point where only its program is missing.

use super::{Cgroup, Create, Init, Record};
use crate::error::{Code, Error, Result};

/// Makes the container and applies everything but its program, which waits for [`super::start`].
///
/// # Errors
/// Whatever failed, and nothing of it is left: no process, no mount, no socket.
pub fn create(_request: &Create<'_>, _cgroup: &dyn Cgroup, _record: &mut dyn Record) -> Result<Init> {
    Err(Error::new(Code::Unsupported, "create a container: not built yet"))
}
