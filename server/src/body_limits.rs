//! Maximum sizes of request bodies.

use crate::error::{Error, Result};
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

/// A bridge accepts no longer command (saggar-bridge(7)), which has a message and its options.
const MAX_MESSAGE: usize = 60 << 20;

impl BodyLimits {
    /// Refuses limits that make the server useless, or that the sandboxes do not have.
    ///
    /// # Errors
    /// Fails with the name of the limit.
    pub fn check(self) -> Result<Self> {
        let limits = [
            ("message", self.message),
            ("files", self.files),
            ("workspace", self.workspace),
            ("other", self.other),
        ];
        if let Some((name, _)) = limits.into_iter().find(|(_, limit)| *limit == 0) {
            return Err(Error::new(format!("invalid body_limit.{name}: use a number of bytes from 1")));
        }
        if self.message > MAX_MESSAGE {
            return Err(Error::new(format!("invalid body_limit.message: use at most {MAX_MESSAGE} bytes")));
        }
        Ok(self)
    }
}

impl Default for BodyLimits {
    fn default() -> Self {
        BodyLimits { message: 50 << 20, files: 200 << 20, workspace: 134 << 20, other: 1 << 20 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_cannot_hold_are_named() {
        let default = BodyLimits::default();
        assert_eq!(default.check().unwrap(), default);
        let error = |limits: BodyLimits| limits.check().unwrap_err().to_string();
        assert!(error(BodyLimits { files: 0, ..default }).contains("body_limit.files"));
        assert!(error(BodyLimits { message: 100 << 20, ..default }).contains("body_limit.message"));
    }
}
