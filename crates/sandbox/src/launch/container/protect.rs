//! CVE-2019-5736: prevents processes in a container from writing to saggar's own binary through /proc/PID/exe, both of
//! the container's init and of a process that `exec` adds.

use saggar_sys::error::{Error, Result};
use saggar_sys::{Errno, caps, exe, process};
use std::ffi::{CString, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// What the previous execution tried, so that there is never a third.
const REEXEC_VARIABLE: &str = "_SAGGAR_READ_ONLY";

/// Executes saggar again from a read-only view of its binary, with the same arguments, unless it already runs from one.
/// Every command that puts a process into a container calls it first, including for a startContainer hook. Afterwards
/// /proc/self/exe names no path of the host.
///
/// Does nothing if no process inside could write the binary anyway: for an ordinary user who may not write it.
///
/// # Errors
/// [`saggar_sys::error::Code::System`] when neither a read-only mount nor a sealed copy is possible.
pub fn protect_self() -> Result<()> {
    let fail = |errno: Errno| Error::system("protect saggar's own binary (CVE-2019-5736)", errno.desc());
    let tried = std::env::var_os(REEXEC_VARIABLE);
    if exe::is_read_only().map_err(fail)? {
        if tried.is_some() {
            // The kernel names a process that is executed by descriptor after the descriptor's number.
            let _ = process::set_name(c"saggar");
        }
        return Ok(());
    }
    if !caps::has(caps::SYS_ADMIN) && !exe::is_writable_by_us().map_err(fail)? {
        return Ok(());
    }
    // A view that is not read-only had no effect: try a copy next, and then fail.
    let (file, now) = match tried.as_ref().and_then(|tried| tried.to_str()) {
        None => match exe::read_only_view() {
            Ok(view) => (view, "view"),
            Err(_) => (exe::sealed_copy().map_err(fail)?, "copy"),
        },
        Some("view") => (exe::sealed_copy().map_err(fail)?, "copy"),
        Some(_) => return Err(fail(Errno::ELOOP)),
    };
    let string = |bytes: Vec<u8>| CString::new(bytes).map_err(|_| fail(Errno::EINVAL));
    let argv = std::env::args_os().map(OsString::into_vec).map(string).collect::<Result<Vec<_>>>()?;
    let variable = |(name, value): (OsString, OsString)| [name.as_bytes(), b"=", value.as_bytes()].concat();
    let env = std::env::vars_os()
        .filter(|(name, _)| name != REEXEC_VARIABLE)
        .chain([(REEXEC_VARIABLE.into(), now.into())])
        .map(variable)
        .map(string);
    Err(fail(exe::execute(&file, &argv, &env.collect::<Result<Vec<_>>>()?)))
}
