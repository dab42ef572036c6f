//! Strings of the document: an empty one is an absent one, as in the documents that Go programs write.

use super::field::Field;
use crate::error::Result;
use std::path::{Path, PathBuf};

/// The text, unless it is empty.
pub(super) fn some_text(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

/// A path that must be absolute.
pub(super) fn absolute(path: String, field: Field<'_>) -> Result<PathBuf> {
    if path.starts_with('/') {
        Ok(path.into())
    } else {
        Err(field.invalid(format_args!("must be an absolute path, is {path:?}")))
    }
}

/// All of these paths, each absolute.
pub(super) fn absolute_paths(paths: Option<Vec<String>>, field: Field<'_>) -> Result<Vec<PathBuf>> {
    let paths = paths.unwrap_or_default().into_iter().enumerate();
    paths.map(|(index, path)| absolute(path, field.at(index))).collect()
}

/// A path inside; a relative one starts from `/`.
pub(super) fn absolute_from_root(path: &str) -> PathBuf {
    Path::new("/").join(path)
}
