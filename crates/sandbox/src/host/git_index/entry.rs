//! The entries of an index.
//!
//! ```text
//! 40 bytes of lstat(2)  object id  flags  [more flags]  name  1 to 8 NULs, to a multiple of 8   versions 2 and 3
//! 40 bytes of lstat(2)  object id  flags  [more flags]  number  end of the name  NUL            version 4
//! ```
//! In version 4 the number says how many bytes of the path before are removed at its end.

use super::error::{IndexError, IndexPart};
use super::{SkipWorktree, without_end};

/// Bytes before the object id.
const STAT_LENGTH: usize = 40;
/// Where the mode is among them.
const MODE_OFFSET: usize = 24;

/// There are more flags.
const EXTENDED: u16 = 0x4000;
/// The side of a merge conflict; 0 for an entry without a conflict.
const STAGE: u16 = 0x3000;
/// The length of the path, or all ones for a path that is at least as long.
const NAME_LENGTH: u16 = 0x0fff;

/// In the further flags.
const SKIP_WORKTREE: u16 = 0x4000;
/// In the further flags: of `git add --intent-to-add`.
const INTENT_TO_ADD: u16 = 0x2000;

/// One entry.
pub(super) struct Entry<'a> {
    stat_and_id: &'a [u8],
    is_file: bool,
    flags: u16,
    more_flags: u16,
    /// The name as it was read: without padding in versions 2 and 3, with number and NUL in version 4.
    name: &'a [u8],
}

/// Reads entries in order.
pub(super) struct EntryReader<'a> {
    version: u32,
    id_length: usize,
    /// Number of the last entry, counted from 1.
    number: u32,
    /// The path of the last entry. Each read changes its end only: in version 4 all paths together can be larger than the
    /// index by any factor.
    path: Vec<u8>,
    /// What follows the last entry.
    rest: &'a [u8],
}

impl<'a> EntryReader<'a> {
    /// A reader of the entries that begin at `bytes`.
    pub(super) fn new(bytes: &'a [u8], version: u32, id_length: usize) -> Self {
        EntryReader { version, id_length, number: 0, path: Vec::new(), rest: bytes }
    }

    /// The path of the last entry.
    pub(super) fn path(&self) -> &[u8] {
        &self.path
    }

    /// What follows the last entry.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Reads the next entry.
    pub(super) fn next(&mut self) -> Result<Entry<'a>, IndexError> {
        const ENDS: IndexError = IndexError::Ends(IndexPart::Entry);
        self.number = self.number.saturating_add(1);
        let bytes = self.rest;
        let (stat_and_id, rest) = bytes.split_at_checked(STAT_LENGTH + self.id_length).ok_or(ENDS)?;
        let (flags, rest) = split_u16(rest).ok_or(ENDS)?;
        let (more_flags, name) = match flags & EXTENDED {
            0 => (0, rest),
            _ => split_u16(rest).ok_or(ENDS)?,
        };
        let is_known = more_flags & !(SKIP_WORKTREE | INTENT_TO_ADD) == 0;
        if !is_known || (self.version == 2 && flags & EXTENDED != 0) {
            return Err(IndexError::Flags(self.number));
        }

        let malformed = IndexError::Name(self.number);
        let suffix = if self.version == 4 {
            let (removed, suffix) = split_number(name).ok_or(malformed)?;
            self.path.truncate(self.path.len().checked_sub(removed).ok_or(malformed)?);
            suffix
        } else {
            self.path.clear();
            name
        };
        let end = suffix.iter().position(|byte| *byte == 0).ok_or(ENDS)?;
        let (suffix, rest) = suffix.split_at_checked(end).ok_or(ENDS)?;
        self.path.extend_from_slice(suffix);
        // git goes by the length, unless it is all ones.
        if u16::try_from(self.path.len()).unwrap_or(NAME_LENGTH).min(NAME_LENGTH) != flags & NAME_LENGTH {
            return Err(malformed);
        }

        let nuls = if self.version == 4 { 1 } else { padding(bytes.len().saturating_sub(rest.len())) };
        let (nuls, after) = rest.split_at_checked(nuls).ok_or(ENDS)?;
        if nuls.iter().any(|byte| *byte != 0) {
            return Err(malformed);
        }
        let name_end = if self.version == 4 { after } else { rest };
        self.rest = after;
        Ok(Entry {
            stat_and_id,
            is_file: is_file(stat_and_id),
            flags,
            more_flags,
            name: without_end(name, name_end),
        })
    }
}

impl Entry<'_> {
    /// Whether the entry has more than 16 flags.
    pub(super) fn is_extended(&self) -> bool {
        self.flags & EXTENDED != 0
    }

    /// Whether the change is possible and makes a difference.
    pub(super) fn accepts(&self, change: SkipWorktree) -> bool {
        let more_flags = match change {
            SkipWorktree::Set => self.more_flags & (SKIP_WORKTREE | INTENT_TO_ADD) == 0,
            SkipWorktree::Clear => self.more_flags & SKIP_WORKTREE != 0,
        };
        more_flags && self.is_file && self.flags & STAGE == 0
    }

    /// The side of a merge conflict, 1 to 3; 0 for an entry without a conflict.
    pub(super) fn stage(&self) -> u16 {
        (self.flags & STAGE) >> 12
    }

    /// Sets or clears the bit. As in an index that git writes, there are more flags only if one of them is set.
    pub(super) fn change(&mut self, change: SkipWorktree) {
        match change {
            SkipWorktree::Set => self.more_flags |= SKIP_WORKTREE,
            SkipWorktree::Clear => self.more_flags &= !SKIP_WORKTREE,
        }
        match self.more_flags {
            0 => self.flags &= !EXTENDED,
            _ => self.flags |= EXTENDED,
        }
    }

    /// Appends the entry.
    pub(super) fn write(&self, version: u32, bytes: &mut Vec<u8>) {
        let start = bytes.len();
        self.write_before_name(self.flags, bytes);
        bytes.extend_from_slice(self.name);
        if version != 4 {
            pad(start, bytes);
        }
    }

    /// Appends the entry with this path, for version 2 or 3.
    pub(super) fn write_with_path(&self, path: &[u8], bytes: &mut Vec<u8>) {
        let start = bytes.len();
        let length = u16::try_from(path.len()).unwrap_or(NAME_LENGTH).min(NAME_LENGTH);
        self.write_before_name(self.flags & !NAME_LENGTH | length, bytes);
        bytes.extend_from_slice(path);
        pad(start, bytes);
    }

    fn write_before_name(&self, flags: u16, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(self.stat_and_id);
        bytes.extend_from_slice(&flags.to_be_bytes());
        if self.is_extended() {
            bytes.extend_from_slice(&self.more_flags.to_be_bytes());
        }
    }
}

/// Whether the entry is a regular file or a symbolic link, and not a submodule or a directory of a sparse index.
fn is_file(stat: &[u8]) -> bool {
    let mode = stat.get(MODE_OFFSET..).and_then(|fields| fields.first_chunk()).copied();
    matches!(u32::from_be_bytes(mode.unwrap_or_default()) >> 12, 0o10 | 0o12)
}

/// Appends the NULs that end an entry, which begins at `start`, in versions 2 and 3.
fn pad(start: usize, bytes: &mut Vec<u8>) {
    let end = bytes.len().saturating_add(padding(bytes.len().saturating_sub(start)));
    bytes.resize(end, 0);
}

/// How many NULs follow that many bytes of an entry, in versions 2 and 3.
fn padding(length: usize) -> usize {
    8 - length % 8
}

fn split_u16(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u16::from_be_bytes(*number), rest))
}

/// A number of 7 bits for each byte, the highest first; each byte but the last has its highest bit set, and adds one, so
/// that no number can be written in two ways (`decode_varint` of git).
fn split_number(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (first, mut rest) = bytes.split_first()?;
    let mut number = usize::from(first & 0x7f);
    let mut last = *first;
    while last & 0x80 != 0 {
        (last, rest) = rest.split_first().map(|(byte, rest)| (*byte, rest))?;
        number = number.checked_add(1)?.checked_mul(0x80)?.checked_add(usize::from(last & 0x7f))?;
    }
    Some((number, rest))
}
