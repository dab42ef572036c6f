//! Names of units, and the paths of their cgroups (systemd.slice(5), systemd.unit(5)).

use crate::host::cgroup_parent;
use saggar_sys::error::{Code, Error, Result};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Name and slice of a container's unit, from a `cgroupsPath` in the form `slice:prefix:name`.
///
/// # Errors
/// [`Code::Invalid`] for any other form.
pub(crate) fn unit_name(id: &str, cgroups_path: Option<&Path>, rootless: bool) -> Result<(String, String)> {
    let default = if rootless { "user.slice" } else { "system.slice" };
    let path = cgroups_path.filter(|path| !path.as_os_str().is_empty());
    let Some(path) = path else {
        return Ok((format!("saggar-{}.scope", escape(id)), default.to_owned()));
    };
    let refuse = |why: &str| {
        Error::new(Code::Invalid, format!("linux.cgroupsPath: {} {why}", path.display())).hint(
            "the systemd driver takes slice:prefix:name, such as system.slice:saggar:web; for a path use the \
             cgroupfs driver (--cgroup-manager cgroupfs)",
        )
    };
    let parts: Vec<&str> = path.to_str().unwrap_or_default().split(':').collect();
    let [slice, prefix, name] = parts[..] else {
        return Err(refuse("is not of the form slice:prefix:name"));
    };
    let slice = if slice.is_empty() { default } else { slice };
    let is_slice = Path::new(name).extension().is_some_and(|extension| extension == "slice");
    let unit = match (is_slice, prefix.is_empty()) {
        (true, _) => name.to_owned(),
        (false, true) => format!("{name}.scope"),
        (false, false) => format!("{prefix}-{name}.scope"),
    };
    let is_valid = |name: &str| {
        name.len() < 256
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b":-_.\\@".contains(&byte))
    };
    if name.is_empty() || !is_valid(&unit) || !is_valid(slice) {
        return Err(refuse("does not make a name of a unit"));
    }
    slice_path(slice).map_err(|_| refuse("names a slice that cannot be"))?;
    Ok((unit, slice.to_owned()))
}

/// The directory of a slice, relative to the manager's cgroup: `a-b.slice` is in `a.slice`.
///
/// # Errors
/// [`Code::Invalid`] for an invalid slice name.
pub(crate) fn slice_path(slice: &str) -> Result<PathBuf> {
    cgroup_parent::slice_path(slice)
        .ok_or_else(|| Error::new(Code::Invalid, format!("{slice:?} is no name of a systemd slice")))
}

/// Escapes characters of a container id that are not allowed in unit names as `\xHH` (systemd-escape(1)).
pub(super) fn escape(id: &str) -> String {
    let mut escaped = String::with_capacity(id.len());
    for byte in id.bytes() {
        if byte.is_ascii_alphanumeric() || b":-_.".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(escaped, "\\x{byte:02x}");
        }
    }
    escaped
}
