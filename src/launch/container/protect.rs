//! CVE-2019-5736: what runs in a container must not be able to write to saggar's own binary through
//! /proc/PID/exe, of the process that becomes its program as little as of one that `exec` sends in.

use crate::error::{Error, Result};
use crate::sys::{Errno, caps, exe, process};
use std::ffi::{CString, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// What the execution before this one tried, so that there is never a third.
const TRIED: &str = "_SAGGAR_READ_ONLY";

/// Goes on from a read-only view of saggar's binary, where it does not already: executes saggar once more, with
/// the same arguments. Called first thing by every command that puts a process into a container, a startContainer hook
/// among them. Afterwards
/// /proc/self/exe names no path of the host.
///
/// Nothing is done where nobody inside could write it anyway: for an ordinary user whose binary is another's.
///
/// # Errors
/// [`crate::error::Code::System`] when neither a read-only mount nor a sealed copy can be had.
pub fn protect_self() -> Result<()> {
    let fail = |errno: Errno| Error::system("protect saggar's own binary (CVE-2019-5736)", errno.desc());
    let tried = std::env::var_os(TRIED);
    if exe::is_read_only().map_err(fail)? {
        if tried.is_some() {
            // The kernel names a process that is executed by a descriptor after its number.
            let _ = process::set_name(c"saggar");
        }
        return Ok(());
    }
    if !caps::has(caps::SYS_ADMIN) && !exe::is_ours().map_err(fail)? {
        return Ok(());
    }
    // A view that does not show as read-only was no view: then a copy, and then nothing more.
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
        .filter(|(name, _)| name != TRIED)
        .chain([(TRIED.into(), now.into())])
        .map(variable)
        .map(string);
    Err(fail(exe::execute(&file, &argv, &env.collect::<Result<Vec<_>>>()?)))
}
