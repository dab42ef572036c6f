//! The queries, bodies and responses of `/api/sessions/:id/files`.

use super::objects::FileEntry;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(rename_all = "camelCase")]
pub(super) struct FilesQuery {
    /// Whether names that begin with a dot are listed.
    #[param(default = true)]
    pub(super) include_hidden: Option<bool>,
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct FileQuery {
    /// `json` for the text of the file as JSON; any other value for its bytes.
    pub(super) format: Option<String>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = WriteFilesRequest)]
#[serde(rename_all = "camelCase")]
pub(super) struct UploadBody {
    #[schema(min_items = 1, max_items = 500)]
    pub(super) files: Vec<UploadedFile>,
    /// The directory of the files in the workspace.
    pub(super) target_path: Option<String>,
}

#[derive(Debug, Deserialize, ToSchema)]
pub(super) struct UploadedFile {
    pub(super) path: String,
    /// In base64; at most 50 MiB of content.
    #[schema(format = Byte)]
    pub(super) content: String,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SessionFileList {
    pub(super) files: Vec<FileEntry>,
    /// `sandbox` if a sandbox is running, else `snapshot`.
    pub(super) source: &'static str,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SessionFile {
    pub(super) path: String,
    pub(super) content: String,
    /// In bytes.
    pub(super) size: usize,
    /// `sandbox` if a sandbox is running, else `snapshot`.
    pub(super) source: &'static str,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct WriteResults {
    pub(super) files: Vec<WriteResult>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct WriteResult {
    pub(super) path: String,
    pub(super) written: bool,
    /// In bytes, of a file that was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) size: Option<usize>,
    /// The reason why the file was not written.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) error: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct DeletedSessionFile {
    pub(super) path: String,
    pub(super) deleted: bool,
}
