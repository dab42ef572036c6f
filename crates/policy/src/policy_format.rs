//! The syntaxes of a policy file.

use std::path::Path;

/// The syntax of a policy file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyFormat {
    /// TOML 1.0
    Toml,
    /// JSON
    Json,
}

impl PolicyFormat {
    /// Detects the format: JSON if the file name ends in `.json` or the first visible byte is `{`, with
    /// which no TOML document begins; else TOML.
    pub fn detect(path: &Path, bytes: &[u8]) -> PolicyFormat {
        let named = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
        if named || bytes.trim_ascii_start().first() == Some(&b'{') {
            PolicyFormat::Json
        } else {
            PolicyFormat::Toml
        }
    }
}
