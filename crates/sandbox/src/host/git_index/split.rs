//! Split indices (`core.splitIndex` of git-config(1)): most entries are in a shared file, `sharedindex.ID`, and the index
//! has what has changed since. Its extension `link` says which entries of the shared file it deletes and replaces.
//!
//! ```text
//! ID of the shared file, which is its hash  [deleted entries: bitmap  replaced entries: bitmap]
//! ```
//! The first entries of the index replace, in their order, and have no name; the others are new.

use super::bitmap;
use super::entry::{Entry, EntryReader};
use super::error::{IndexError, IndexPart};
use super::extensions::{self, Extensions};
use super::{MAX_PATHS, ObjectFormat, SIGNATURE, has_hash, split_hash, split_header};
use ring::digest::digest;
use std::collections::{BTreeMap, BTreeSet};

/// The entries of an index, and what follows them.
struct IndexContent<'a> {
    version: u32,
    count: u32,
    entries: &'a [u8],
    extensions: Extensions<'a>,
}

/// The id of the shared file, of the content of an extension `link`; `None` if it is zeros: there is no such file.
pub(super) fn shared_id(link: &[u8], format: ObjectFormat) -> Result<Option<&[u8]>, IndexError> {
    let id = link.get(..format.id_length()).ok_or(IndexError::Ends(IndexPart::Extension))?;
    Ok(id.iter().any(|byte| *byte != 0).then_some(id))
}

/// The name of the shared file of an index, in the same directory; `None` if the index is not split.
///
/// # Errors
/// As [`super::edit`].
pub fn shared_file_name(index: &[u8], format: ObjectFormat) -> Result<Option<String>, IndexError> {
    let (content, _) = split_hash(index, format)?;
    let Some(link) = IndexContent::read(content, format)?.extensions.link else { return Ok(None) };
    Ok(shared_id(link, format)?.map(|id| format!("sharedindex.{}", saggar_sys::text::hex(id))))
}

/// One index, of version 2 or 3, with the entries of a split index and of its shared file.
///
/// # Errors
/// As [`super::edit`], for both files; [`IndexError::Shared`] if they do not belong together.
pub fn join(index: &[u8], shared: &[u8], format: ObjectFormat) -> Result<Vec<u8>, IndexError> {
    let own = IndexContent::read(checked_content(index, format)?, format)?;
    let link = own.extensions.link.unwrap_or_default();
    let (id, bitmaps) =
        link.split_at_checked(format.id_length()).ok_or(IndexError::Ends(IndexPart::Extension))?;
    let shared_content = checked_content(shared, format)?;
    if shared.get(shared_content.len()..) != Some(id) {
        return Err(IndexError::Shared);
    }
    let base = IndexContent::read(shared_content, format)?;
    let (deleted, replaced) = read_bitmaps(bitmaps, base.count)?;
    if usize::try_from(own.count).is_ok_and(|count| count < replaced.len()) {
        return Err(IndexError::Shared);
    }

    let mut joined = JoinedEntries::new(index.len().saturating_add(shared.len()));
    let mut own_entries = EntryReader::new(own.entries, own.version, format.id_length());
    let mut base_entries = EntryReader::new(base.entries, base.version, format.id_length());
    for number in 0..base.count {
        let entry = base_entries.next()?;
        match (deleted.contains(&number), replaced.contains(&number)) {
            (true, true) => return Err(IndexError::Shared),
            (true, false) => {}
            (false, true) => {
                let entry = own_entries.next()?;
                if !own_entries.path().is_empty() {
                    return Err(IndexError::Shared);
                }
                joined.add(base_entries.path(), &entry)?;
            }
            (false, false) => joined.add(base_entries.path(), &entry)?,
        }
    }
    for _ in replaced.len()..usize::try_from(own.count).unwrap_or(usize::MAX) {
        let entry = own_entries.next()?;
        if own_entries.path().is_empty() {
            return Err(IndexError::Shared);
        }
        joined.add(own_entries.path(), &entry)?;
    }
    joined.into_index(&own.extensions, format)
}

fn read_bitmaps(bytes: &[u8], count: u32) -> Result<(BTreeSet<u32>, BTreeSet<u32>), IndexError> {
    if bytes.is_empty() {
        return Ok(Default::default());
    }
    let (deleted, rest) = bitmap::read(bytes, count)?;
    let (replaced, _) = bitmap::read(rest, count)?;
    Ok((deleted, replaced))
}

/// The content of an index whose hash is right, or zeros.
fn checked_content(index: &[u8], format: ObjectFormat) -> Result<&[u8], IndexError> {
    let (content, hash) = split_hash(index, format)?;
    has_hash(content, hash, format).map(|_| content)
}

impl<'a> IndexContent<'a> {
    fn read(content: &'a [u8], format: ObjectFormat) -> Result<Self, IndexError> {
        let (version, count, entries) = split_header(content)?;
        let mut reader = EntryReader::new(entries, version, format.id_length());
        for _ in 0..count {
            reader.next()?;
        }
        Ok(IndexContent { version, count, entries, extensions: extensions::read(reader.rest())? })
    }
}

/// The bytes of entries, by path and stage: the order of an index.
struct JoinedEntries {
    entries: BTreeMap<(Vec<u8>, u16), Vec<u8>>,
    is_extended: bool,
    /// Bytes of paths that may still be added.
    path_bytes: usize,
}

impl JoinedEntries {
    fn new(length: usize) -> Self {
        let path_bytes = length.saturating_mul(MAX_PATHS);
        JoinedEntries { entries: BTreeMap::new(), is_extended: false, path_bytes }
    }

    fn add(&mut self, path: &[u8], entry: &Entry<'_>) -> Result<(), IndexError> {
        self.path_bytes = self.path_bytes.checked_sub(path.len()).ok_or(IndexError::PathsTooLong)?;
        if entry.stage() == 0 {
            // A merged entry replaces the sides of its conflict.
            (1..=3).for_each(|side| drop(self.entries.remove(&(path.to_vec(), side))));
        }
        let mut bytes = Vec::new();
        entry.write_with_path(path, &mut bytes);
        self.is_extended |= entry.is_extended();
        self.entries.insert((path.to_vec(), entry.stage()), bytes);
        Ok(())
    }

    fn into_index(self, extensions: &Extensions<'_>, format: ObjectFormat) -> Result<Vec<u8>, IndexError> {
        let mut bytes = SIGNATURE.to_vec();
        bytes.extend((2 + u32::from(self.is_extended)).to_be_bytes());
        bytes.extend(u32::try_from(self.entries.len()).map_err(|_| IndexError::Shared)?.to_be_bytes());
        self.entries.values().for_each(|entry| bytes.extend_from_slice(entry));
        extensions.kept.iter().for_each(|extension| bytes.extend_from_slice(extension));
        bytes.extend_from_slice(digest(format.algorithm(), &bytes).as_ref());
        Ok(bytes)
    }
}
