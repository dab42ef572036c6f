//! The extensions of an index, after its entries: a name of 4 bytes, a length of 4 bytes, and the content.

use super::error::{IndexError, IndexPart};

/// The extensions of an index.
#[derive(Debug, Default)]
pub(super) struct Extensions<'a> {
    /// All but the link and those with offsets of entries, which are not valid after a change and which git writes again.
    ///
    /// The others stay valid: they describe directories or ids (`TREE`, `REUC`, `UNTR`), or number the entries (`FSMN`),
    /// and a change of a bit adds, removes and moves no entry. git itself ignores an unknown one if its name begins with a
    /// capital letter.
    pub(super) kept: Vec<&'a [u8]>,
    /// The content of `link`, which leads to the shared file of a split index.
    pub(super) link: Option<&'a [u8]>,
}

/// Reads what follows the entries.
pub(super) fn read(mut rest: &[u8]) -> Result<Extensions<'_>, IndexError> {
    let mut extensions = Extensions::default();
    while !rest.is_empty() {
        let (name, extension, after) = split_first(rest).ok_or(IndexError::Ends(IndexPart::Extension))?;
        match name {
            b"EOIE" | b"IEOT" => {}
            b"link" => extensions.link = extension.get(8..),
            // Has no content: the index may have entries of directories.
            b"sdir" => extensions.kept.push(extension),
            [b'A'..=b'Z', ..] => extensions.kept.push(extension),
            _ => return Err(IndexError::Extension(*name)),
        }
        rest = after;
    }
    Ok(extensions)
}

/// The name of the first extension, the whole of it, and what follows.
fn split_first(bytes: &[u8]) -> Option<(&[u8; 4], &[u8], &[u8])> {
    let (name, rest) = bytes.split_first_chunk::<4>()?;
    let (length, _) = rest.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?.checked_add(8)?;
    let (extension, after) = bytes.split_at_checked(length)?;
    Some((name, extension, after))
}
