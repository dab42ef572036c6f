//! Why an index cannot be edited.

use std::fmt;

/// Why an index cannot be edited. It is left as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexError {
    /// It does not begin as an index does.
    NotAnIndex,
    /// It has a version other than 2, 3 and 4.
    Version(u32),
    /// It ends too early.
    Ends(IndexPart),
    /// The hash at its end is not that of its content.
    Hash,
    /// The entry with this number, counted from 1, has flags that its version does not have.
    Flags(u32),
    /// The name of the entry with this number, counted from 1, contradicts the length or the name before it.
    Name(u32),
    /// The paths of the entries to change would take much more memory than the index.
    PathsTooLong,
    /// It has an extension that a program must understand to use the index, and that this module does not.
    Extension([u8; 4]),
    /// It is split (`core.splitIndex` of git-config(1)): some of its entries are in another file.
    Split,
    /// It is split, and the file with its other entries is not the one it was split from.
    Shared,
}

/// A part of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexPart {
    /// The signature, the version and the number of entries, or the hash at the end.
    Header,
    /// An entry.
    Entry,
    /// An extension.
    Extension,
}

impl fmt::Display for IndexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAnIndex => write!(f, "the file is not a git index"),
            Self::Version(version) => write!(f, "the index has version {version}, which is not supported"),
            Self::Ends(IndexPart::Header) => write!(f, "the index is too short"),
            Self::Ends(IndexPart::Entry) => write!(f, "the index ends within an entry"),
            Self::Ends(IndexPart::Extension) => write!(f, "the index ends within an extension"),
            Self::Hash => write!(f, "the index is damaged: its hash is not that of its content"),
            Self::Flags(entry) => write!(f, "entry {entry} of the index has flags that are not supported"),
            Self::Name(entry) => write!(f, "entry {entry} of the index has an invalid name"),
            Self::PathsTooLong => write!(f, "the paths in the index are too long"),
            Self::Extension(name) => {
                write!(f, "the index has the extension \"{}\", which is not supported", name.escape_ascii())
            }
            Self::Split => write!(f, "the index is split, and some of its entries are in another file"),
            Self::Shared => write!(f, "the index is split, and its shared file does not belong to it"),
        }
    }
}

impl std::error::Error for IndexError {}
