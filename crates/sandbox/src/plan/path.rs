//! Converts paths and texts for the steps of a plan to NUL-terminated strings, since the child has no heap to add the
//! NUL.

use saggar_sys::error::{Code, Error, Result};
use saggar_sys::file;
use std::ffi::{CStr, CString};
use std::path::{Component, Path, PathBuf};

/// Converts a host path unchanged.
///
/// # Errors
/// [`Code::Invalid`] for a path with a NUL byte.
pub(crate) fn c_path(path: &Path) -> Result<CString> {
    file::c_path(path)
        .map_err(|_| Error::new(Code::Invalid, format!("the path {} has a NUL byte", path.display())))
}

/// Converts a text unchanged.
///
/// # Errors
/// [`Code::Invalid`] for a text with a NUL byte.
pub(super) fn c_string(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::new(Code::Invalid, format!("the text {text:?} has a NUL byte")))
}

/// Converts an absolute path inside an agent's sandbox to one below the new root, without the leading slash.
///
/// # Errors
/// [`Code::Invalid`] for a path that is not absolute, is the root, or has `..`, `.` or a NUL byte in it.
pub(super) fn below_root(path: &Path) -> Result<CString> {
    let mut parts = path.components();
    let absolute = parts.next() == Some(Component::RootDir);
    let plain = parts.all(|part| matches!(part, Component::Normal(_)));
    let text = path.to_string_lossy();
    if !absolute || !plain || path == Path::new("/") {
        let message = format!("the path {text:?} inside the sandbox is not absolute and plain");
        return Err(Error::new(Code::Invalid, message).hint("write it from / on, without . and .."));
    }
    let relative = path.strip_prefix("/").unwrap_or(path);
    file::c_path(relative).map_err(|_| Error::new(Code::Invalid, format!("the path {text:?} has a NUL byte")))
}

/// Converts a path inside a container to one without its leading slash; the child resolves links and `..` in it. A
/// relative path starts at the root.
///
/// # Errors
/// [`Code::Invalid`] for a path with a NUL byte.
pub(super) fn relative_to_root(path: &Path) -> Result<CString> {
    let parts = path.components().filter(|part| !matches!(part, Component::RootDir | Component::CurDir));
    c_path(&parts.collect::<PathBuf>())
}

/// Formats a path of the new root as programs see it.
pub(crate) fn absolute(path: &CStr) -> String {
    format!("/{}", path.to_string_lossy())
}
