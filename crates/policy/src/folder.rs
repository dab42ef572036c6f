//! The text of a folder's policy, which the author of the folder wrote. For a start it is parsed by the
//! [`FolderParser`] that the caller supplies, which has fewer privileges than the caller of `saggar`
//! (`session::policy`). The parser validates the text and converts it to plain JSON. This process accepts
//! only that JSON, of a limited length.

use super::document::PolicyDocument;
use super::parse::{self, PolicyFormat};
use saggar_sys::error::Result;
use std::fmt::Debug;
use std::path::Path;

/// The text of one folder's policy.
#[derive(Debug, Clone, Copy)]
pub struct FolderText<'a> {
    /// The path of the file, for messages.
    pub path: &'a Path,
    /// The content of the file: at most one byte more than `parse::MAX_BYTES`.
    pub bytes: &'a [u8],
    /// The uid and gid that own the file.
    pub owner: (u32, u32),
}

impl FolderText<'_> {
    /// Validates the policy on its own and converts it to JSON. Does no I/O.
    ///
    /// # Errors
    /// [`saggar_sys::error::Code::Invalid`], naming the file, the line and the key.
    pub fn to_json(&self) -> Result<String> {
        parse::parse_validated(self.path, self.bytes)?;
        parse::to_json(
            &self.path.display().to_string(),
            PolicyFormat::detect(self.path, self.bytes),
            self.bytes,
        )
    }

    /// The line of a key, counted from 1. Does no I/O.
    pub fn line_of(&self, key: &str) -> Option<usize> {
        std::str::from_utf8(self.bytes).ok().and_then(|text| parse::line_of(text, key))
    }
}

/// Runs the methods of [`FolderText`], usually in another process.
pub trait FolderParser: Debug {
    /// As [`FolderText::to_json`].
    ///
    /// # Errors
    /// As [`FolderText::to_json`], and those of the process that parses.
    fn to_json(&self, text: &FolderText<'_>) -> Result<String>;

    /// As [`FolderText::line_of`].
    ///
    /// # Errors
    /// Those of the process that parses.
    fn line_of(&self, text: &FolderText<'_>, key: &str) -> Result<Option<usize>>;
}

/// The document that `parser` makes of this text.
///
/// # Errors
/// As [`FolderParser::to_json`]; [`saggar_sys::error::Code::Invalid`] for a result that is not a policy.
pub(super) fn parse_document(text: &FolderText<'_>, parser: &dyn FolderParser) -> Result<PolicyDocument> {
    let json = parser.to_json(text)?;
    parse::parse_validated_json(&text.path.display().to_string(), &json)
}
