//! Changes of a workspace, as `saggar session diff --json` prints them (saggar-session(1)).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The output of the command, of which the other fields are left out.
#[derive(Debug, Deserialize)]
pub(super) struct ChangeListing {
    pub(super) changes: Vec<WorkspaceChange>,
}

/// A name that differs between the workspace and its folder.
#[derive(Debug, Clone, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceChange {
    path: String,
    /// The path in hexadecimal, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    path_bytes: Option<String>,
    /// `added`, `modified` or `deleted`.
    change: String,
    #[schema(required)]
    before: Option<ChangedEntry>,
    #[schema(required)]
    after: Option<ChangedEntry>,
    /// Why the change cannot be applied.
    #[schema(required)]
    refused: Option<String>,
    /// Why the name is protected.
    #[schema(required)]
    protected: Option<String>,
    /// Why the link leads out of the folder.
    #[schema(required)]
    leads_out: Option<String>,
    /// How the folder has changed meanwhile.
    #[schema(required)]
    conflict: Option<String>,
}

/// One side of a change.
#[derive(Debug, Clone, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ChangedEntry {
    /// The type of the file, such as `file`, `directory` or `symlink`.
    kind: String,
    /// The mode, in octal.
    mode: String,
    /// In bytes, of a regular file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    size: Option<u64>,
    /// The target of a symbolic link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    target: Option<String>,
    /// The target in hexadecimal, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    target_bytes: Option<String>,
}
