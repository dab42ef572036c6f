//! Sets and clears the skip-worktree bit of entries of a git index (gitformat-index(5)), without git. With the bit, git
//! does not compare a tracked file with the work tree, and does not write it there.
//!
//! ```text
//! "DIRC"  version  count  entry...  extension...  hash of all before, or zeros
//! ```
//! Only the changed entries, the version, the extensions that hold offsets and the hash differ in the result. The index
//! is untrusted: what git could read in another way than this module is an error.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod bitmap;
mod entry;
mod error;
mod extensions;
mod split;
#[cfg(test)]
mod tests;

use entry::EntryReader;
pub use error::{IndexError, IndexPart};
use ring::digest::{Algorithm, SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};
pub use split::{join, shared_file_name};
use std::ops::Range;

const SIGNATURE: &[u8; 4] = b"DIRC";
/// Where the version is.
const VERSION: Range<usize> = 4..8;
/// Most bytes of all changed paths, as a multiple of the index. In version 4 each path can be as long as the whole
/// index; 16 allows paths of 1000 bytes, more than any project has.
const MAX_PATHS: usize = 16;

/// The hash function of a repository (`extensions.objectFormat` of git-config(1)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectFormat {
    /// Ids of 20 bytes, the default.
    Sha1,
    /// Ids of 32 bytes.
    Sha256,
}

/// What becomes of the skip-worktree bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SkipWorktree {
    /// Entries that do not have the bit get it, except those of `git add --intent-to-add`.
    Set,
    /// Entries that have the bit lose it.
    Clear,
}

/// A changed index.
///
/// Two duties of the caller: hold `index.lock` from before the index is read until it is replaced, and give the new file
/// the modification time of the old one. git compares the content of files that are not older than the index, because
/// their times alone do not show a later change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EditedIndex {
    /// The content of the whole file.
    pub bytes: Vec<u8>,
    /// The paths of the changed entries, relative to the top of the work tree, in their order in the index.
    pub changed: Vec<Vec<u8>>,
}

/// Sets or clears the skip-worktree bit of the entries whose path is `wanted`; `None` if there is nothing to change.
///
/// Submodules, directories of a sparse index and the sides of a merge conflict are left alone.
///
/// # Errors
///
/// A file that is no index, is damaged, or has a feature that this module does not know. A split index is
/// [`IndexError::Split`]: [`join`] makes a whole one of it. The hash is checked only if there is something to change.
pub fn edit(
    index: &[u8],
    format: ObjectFormat,
    change: SkipWorktree,
    mut wanted: impl FnMut(&[u8]) -> bool,
) -> Result<Option<EditedIndex>, IndexError> {
    let (content, hash) = split_hash(index, format)?;
    let (version, count, rest) = split_header(content)?;
    let mut reader = EntryReader::new(rest, version, format.id_length());
    let mut bytes = Vec::new();
    let mut uncopied = content;
    let mut changed = Vec::new();
    let mut path_bytes = index.len().saturating_mul(MAX_PATHS);
    let mut is_extended = false;
    for _ in 0..count {
        let before = reader.rest();
        let mut entry = reader.next()?;
        if entry.accepts(change) && wanted(reader.path()) {
            path_bytes = path_bytes.checked_sub(reader.path().len()).ok_or(IndexError::PathsTooLong)?;
            changed.push(reader.path().to_vec());
            bytes.reserve(uncopied.len());
            bytes.extend_from_slice(without_end(uncopied, before));
            entry.change(change);
            entry.write(version, &mut bytes);
            uncopied = reader.rest();
        }
        is_extended |= entry.is_extended();
    }
    let extensions = extensions::read(reader.rest())?;
    if let Some(link) = extensions.link
        && split::shared_id(link, format)?.is_some()
    {
        return Err(IndexError::Split);
    }
    if changed.is_empty() {
        return Ok(None);
    }
    bytes.extend_from_slice(without_end(uncopied, reader.rest()));
    extensions.kept.iter().for_each(|extension| bytes.extend_from_slice(extension));
    if let Some(field) = bytes.get_mut(VERSION) {
        // As git does: version 3 only if an entry needs it.
        let version = if version == 4 { 4 } else { 2 + u32::from(is_extended) };
        field.copy_from_slice(&version.to_be_bytes());
    }
    // Not before: git itself does not check it when it reads, and it takes more time than all the rest.
    if has_hash(content, hash, format)? {
        bytes.extend_from_slice(digest(format.algorithm(), &bytes).as_ref());
    } else {
        bytes.extend_from_slice(hash);
    }
    Ok(Some(EditedIndex { bytes, changed }))
}

/// The content of an index, and the hash at its end. It is zeros with `index.skipHash` (git-config(1)).
fn split_hash(index: &[u8], format: ObjectFormat) -> Result<(&[u8], &[u8]), IndexError> {
    if !index.starts_with(SIGNATURE) {
        return Err(IndexError::NotAnIndex);
    }
    let length = index.len().checked_sub(format.id_length());
    length.and_then(|length| index.split_at_checked(length)).ok_or(IndexError::Ends(IndexPart::Header))
}

/// Whether an index has a hash.
///
/// # Errors
/// [`IndexError::Hash`] if it is not that of the content.
fn has_hash(content: &[u8], hash: &[u8], format: ObjectFormat) -> Result<bool, IndexError> {
    let is_there = hash.iter().any(|byte| *byte != 0);
    match is_there && digest(format.algorithm(), content).as_ref() != hash {
        true => Err(IndexError::Hash),
        false => Ok(is_there),
    }
}

/// The version, the number of entries, and what follows the header.
fn split_header(content: &[u8]) -> Result<(u32, u32, &[u8]), IndexError> {
    let (header, rest) = content.split_first_chunk::<12>().ok_or(IndexError::Ends(IndexPart::Header))?;
    let [.., v1, v2, v3, v4, c1, c2, c3, c4] = *header;
    match u32::from_be_bytes([v1, v2, v3, v4]) {
        version @ 2..=4 => Ok((version, u32::from_be_bytes([c1, c2, c3, c4]), rest)),
        version => Err(IndexError::Version(version)),
    }
}

/// The bytes of `whole` before `end`, which is the end of it.
fn without_end<'a>(whole: &'a [u8], end: &[u8]) -> &'a [u8] {
    whole.len().checked_sub(end.len()).and_then(|length| whole.get(..length)).unwrap_or_default()
}

impl ObjectFormat {
    fn id_length(self) -> usize {
        self.algorithm().output_len()
    }

    fn algorithm(self) -> &'static Algorithm {
        match self {
            ObjectFormat::Sha1 => &SHA1_FOR_LEGACY_USE_ONLY,
            ObjectFormat::Sha256 => &SHA256,
        }
    }
}

/// Whether a path is `hidden`, or is below it if it is a directory.
#[must_use]
pub(crate) fn is_at_or_below(path: &[u8], hidden: &[u8]) -> bool {
    path.strip_prefix(hidden).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}
