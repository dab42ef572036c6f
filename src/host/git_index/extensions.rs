//! The extensions of an index, after its entries: a name of 4 bytes, a length of 4 bytes, and the content.

use super::error::{IndexError, IndexPart};

/// All extensions except those with offsets of entries, which are not valid after a change and which git writes again.
///
/// The others stay valid: they describe directories or ids (`TREE`, `REUC`, `UNTR`), or number the entries (`FSMN`), and
/// a change of a bit adds, removes and moves no entry. git itself ignores an unknown one if its name begins with a
/// capital letter.
pub(super) fn without_offsets(mut rest: &[u8]) -> Result<Vec<&[u8]>, IndexError> {
    let mut kept = Vec::new();
    while !rest.is_empty() {
        let (name, extension, after) = split_first(rest).ok_or(IndexError::Ends(IndexPart::Extension))?;
        match name {
            b"EOIE" | b"IEOT" => {}
            b"link" => return Err(IndexError::Split),
            // Has no content: the index may have entries of directories.
            b"sdir" => kept.push(extension),
            [b'A'..=b'Z', ..] => kept.push(extension),
            _ => return Err(IndexError::Extension(*name)),
        }
        rest = after;
    }
    Ok(kept)
}

/// The name of the first extension, the whole of it, and what follows.
fn split_first(bytes: &[u8]) -> Option<(&[u8; 4], &[u8], &[u8])> {
    let (name, rest) = bytes.split_first_chunk::<4>()?;
    let (length, _) = rest.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?.checked_add(8)?;
    let (extension, after) = bytes.split_at_checked(length)?;
    Some((name, extension, after))
}
