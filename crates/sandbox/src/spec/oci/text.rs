//! Strings of the document. An empty string means an absent one, as in documents that Go programs write.

use super::field_path::FieldPath;
use saggar_sys::error::Result;
use std::path::{Path, PathBuf};

/// The text, or `None` if it is empty.
pub(super) fn non_empty(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

/// Requires an absolute path.
pub(super) fn require_absolute(path: String, field: FieldPath<'_>) -> Result<PathBuf> {
    if path.starts_with('/') {
        Ok(path.into())
    } else {
        Err(field.invalid(format_args!("must be an absolute path, is {path:?}")))
    }
}

/// Requires all paths to be absolute.
pub(super) fn require_absolute_paths(
    paths: Option<Vec<String>>,
    field: FieldPath<'_>,
) -> Result<Vec<PathBuf>> {
    let paths = paths.unwrap_or_default().into_iter().enumerate();
    paths.map(|(index, path)| require_absolute(path, field.index(index))).collect()
}

/// A path in the container; a relative one is resolved against `/`.
pub(super) fn join_root(path: &str) -> PathBuf {
    Path::new("/").join(path)
}
