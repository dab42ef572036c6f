//! Maximum sizes of request bodies.

use serde::Deserialize;

/// Maximum sizes of request bodies, in bytes. The defaults are those of Ash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BodyLimits {
    /// A message: content blocks can contain images.
    pub message: usize,
    /// Files of an agent or a workspace.
    pub files: usize,
    /// A whole workspace: 100 MiB in base64.
    pub workspace: usize,
    /// All other requests, except for attachments.
    pub other: usize,
}

impl Default for BodyLimits {
    fn default() -> Self {
        BodyLimits { message: 50 << 20, files: 200 << 20, workspace: 134 << 20, other: 1 << 20 }
    }
}
