//! Attachments of sessions. The server keeps each in a file of its own, and writes a copy into the workspace.

use super::App;
use super::auth::Caller;
use super::download::download;
use super::error::ApiError;
use super::extract::{JsonBody, PathId, SessionId, body_uuid};
use super::objects::{BinaryFile, Confirmation};
use super::sessions::{find_session, find_session_here};
use crate::attachment_files;
use crate::store::{AttachmentRow, NewAttachment};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use std::io;
use std::sync::Arc;
use tokio::task::spawn_blocking;
use tracing::warn;
use utoipa::ToSchema;
use uuid::Uuid;

/// The directory of the workspace that contains the copies.
const WORKSPACE_DIRECTORY: &str = "attachments";
/// Maximum length of a media type, in bytes.
const MAX_MEDIA_TYPE: usize = 255;
/// Bytes of a request body besides the content: the other fields.
const OTHER_FIELDS: usize = 64 << 10;

#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = UploadAttachmentRequest)]
#[serde(rename_all = "camelCase")]
pub(super) struct AttachBody {
    /// A name without slashes and control characters.
    #[schema(min_length = 1, max_length = 255)]
    filename: String,
    /// In base64.
    #[schema(min_length = 1, format = Byte)]
    content: String,
    /// By default that of the extension of the name.
    #[schema(max_length = 255)]
    mime_type: Option<String>,
    #[schema(format = Uuid)]
    message_id: Option<String>,
}

/// An attachment in a response.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Attachment {
    id: String,
    tenant_id: String,
    /// `unlinked` without a message.
    message_id: String,
    session_id: String,
    filename: String,
    mime_type: String,
    /// In bytes.
    size: i64,
    #[schema(format = DateTime)]
    created_at: String,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct NewAttachmentResponse {
    attachment: Attachment,
    /// Why the attachment could not be copied into the workspace.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    workspace_error: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AttachmentList {
    attachments: Vec<Attachment>,
}

impl From<AttachmentRow> for Attachment {
    fn from(row: AttachmentRow) -> Self {
        Attachment {
            message_id: row.message_id.unwrap_or_else(|| "unlinked".into()),
            id: row.id,
            tenant_id: row.tenant_id,
            session_id: row.session_id,
            filename: row.filename,
            mime_type: row.mime_type,
            size: row.size,
            created_at: row.created_at,
        }
    }
}

/// Returns the maximum size of the body that creates an attachment with at most this number of bytes.
pub(super) fn body_limit(max_size: usize) -> usize {
    max_size.div_ceil(3).saturating_mul(4).saturating_add(OTHER_FIELDS)
}

/// Adds a file to a session, and copies it into the workspace.
#[utoipa::path(
    post,
    path = "/api/sessions/{id}/attachments",
    operation_id = "uploadAttachment",
    tag = "Attachments",
    params(SessionId),
    request_body = AttachBody,
    responses(
        (status = 201, description = "The attachment is stored", body = NewAttachmentResponse),
        (status = 404, description = "No such session"),
    ),
)]
pub(super) async fn create(
    State(app): State<Arc<App>>,
    caller: Caller,
    SessionId(session): SessionId,
    JsonBody(body): JsonBody<AttachBody>,
) -> Result<(StatusCode, Json<NewAttachmentResponse>), ApiError> {
    let content = checked_content(&body, app.max_attachment_size)?;
    let message = body_uuid("messageId", body.message_id.as_deref())?;
    let agent = find_session(&app, &caller, session).await?.agent_name;
    let tasks = app.tasks.clone();
    let stored = tasks.run(async move {
        // Meanwhile the agent is not deleted with its sessions: a file written after that would remain.
        let agent_lock = app.agent_locks.read((caller.tenant.clone(), agent)).await;
        let (row, content) = store_attachment(&app, &caller, (session, message), &body, content).await?;
        drop(agent_lock);
        let path = format!("{WORKSPACE_DIRECTORY}/{}", body.filename);
        let copied = copy_to_workspace(&app, &caller, session, &path, &content).await;
        // The attachment exists, and the client can write the file itself.
        let failed = |error: ApiError| format!("Cannot write {path} in the workspace: {}", error.into_text());
        let error = copied.err().map(failed);
        Ok(Json(NewAttachmentResponse { attachment: row.into(), workspace_error: error }))
    });
    let response = stored
        .await
        .unwrap_or_else(|| Err(ApiError::internal("Cannot store the attachment: internal error")))?;
    Ok((StatusCode::CREATED, response))
}

/// Writes an attachment into the workspace of its session.
async fn copy_to_workspace(
    app: &App,
    caller: &Caller,
    session: Uuid,
    path: &str,
    content: &[u8],
) -> Result<(), ApiError> {
    find_session_here(app, caller, session).await?;
    app.running.mark_changed(&caller.tenant, session).await?;
    let written = app.program.write_file(session, path, content).await;
    app.running.finish_change(&caller.tenant, session).await;
    written.map_err(|error| ApiError::internal(error.to_string()))
}

fn checked_content(body: &AttachBody, max_size: usize) -> Result<Vec<u8>, ApiError> {
    if !attachment_files::is_safe_name(&body.filename) {
        let text = format!("Invalid filename {:?}: use a name of 1 to 255 bytes without /", body.filename);
        return Err(ApiError::bad_request(text));
    }
    if body.mime_type.as_ref().is_some_and(|media_type| media_type.len() > MAX_MEDIA_TYPE) {
        return Err(ApiError::Body(format!("body/mimeType must have at most {MAX_MEDIA_TYPE} bytes")));
    }
    let content = STANDARD.decode(&body.content).map_err(|error| {
        ApiError::bad_request(format!("Invalid base64 content of {}: {error}", body.filename))
    })?;
    if content.is_empty() {
        return Err(ApiError::bad_request("Empty attachment content"));
    }
    if content.len() > max_size {
        let text = format!("Attachment too large: {} bytes, at most {max_size} are stored", content.len());
        return Err(ApiError::with_status(StatusCode::PAYLOAD_TOO_LARGE, text));
    }
    Ok(content)
}

/// Writes the file and the row of an attachment. The caller holds the lock of the agent.
async fn store_attachment(
    app: &App,
    caller: &Caller,
    (session, message): (Uuid, Option<Uuid>),
    body: &AttachBody,
    content: Vec<u8>,
) -> Result<(AttachmentRow, Vec<u8>), ApiError> {
    find_session(app, caller, session).await?;
    let (id, data_dir) = (Uuid::new_v4(), app.data_dir.clone());
    let guessed = || mime_guess::from_path(&body.filename).first_or_octet_stream().to_string();
    let new = NewAttachment {
        id,
        tenant: &caller.tenant,
        session,
        message,
        filename: &body.filename,
        mime_type: &body.mime_type.clone().unwrap_or_else(guessed),
        size: content.len(),
    };
    let write = move || attachment_files::write(&data_dir, session, id, &content).map(|()| content);
    let failed = |error: &dyn std::fmt::Display| {
        ApiError::internal(format!("Cannot write the file of the attachment: {error}"))
    };
    let content = match spawn_blocking(write).await {
        Ok(written) => written.map_err(|error| failed(&error))?,
        Err(error) => return Err(failed(&error)),
    };
    match app.store.insert_attachment(&new).await {
        Ok(row) => Ok((row, content)),
        Err(error) => {
            remove_file(app, session, id).await;
            Err(error.into())
        }
    }
}

async fn remove_file(app: &App, session: Uuid, id: Uuid) {
    let removed = tokio::fs::remove_file(attachment_files::attachment_file(&app.data_dir, session, id)).await;
    if let Err(error) = removed
        && error.kind() != io::ErrorKind::NotFound
    {
        warn!("cannot remove the file of attachment {id} of session {session}: {error}");
    }
}

/// Removes the files of all attachments of a session. The rows are deleted with the session.
pub(super) async fn remove_files(app: &App, session: Uuid) {
    let data_dir = app.data_dir.clone();
    let removed = spawn_blocking(move || attachment_files::remove_all(&data_dir, session)).await;
    if let Ok(Err(error)) = removed {
        warn!("cannot remove the attachments of session {session}: {error}");
    }
}

/// Lists the attachments of a session, the oldest first.
#[utoipa::path(
    get,
    path = "/api/sessions/{id}/attachments",
    operation_id = "listAttachments",
    tag = "Attachments",
    params(SessionId),
    responses(
        (status = 200, description = "The attachments", body = AttachmentList),
        (status = 404, description = "No such session"),
    ),
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    SessionId(session): SessionId,
) -> Result<Json<AttachmentList>, ApiError> {
    find_session(&app, &caller, session).await?;
    let rows = app.store.attachments(&caller.tenant, session).await?;
    let attachments = rows.into_iter().map(Attachment::from).collect();
    Ok(Json(AttachmentList { attachments }))
}

/// Returns the bytes of an attachment.
#[utoipa::path(
    get,
    path = "/api/attachments/{id}",
    operation_id = "downloadAttachment",
    tag = "Attachments",
    params(PathId),
    responses(
        (status = 200, description = "The bytes", body = BinaryFile, content_type = "*/*"),
        (status = 404, description = "No such attachment"),
    ),
)]
pub(super) async fn read(
    State(app): State<Arc<App>>,
    caller: Caller,
    PathId(id): PathId,
) -> Result<Response, ApiError> {
    let (row, session) = find_attachment(&app, &caller, id).await?;
    let content = tokio::fs::read(attachment_files::attachment_file(&app.data_dir, session, id)).await;
    let content = content.map_err(|error| match error.kind() {
        // It was deleted after the row was read.
        io::ErrorKind::NotFound => not_found(),
        _ => ApiError::internal(format!("Cannot read the file of the attachment: {error}")),
    })?;
    Ok(download(&row.filename, &row.mime_type, Body::from(content)))
}

/// Deletes an attachment.
///
/// The copy in the workspace remains.
#[utoipa::path(
    delete,
    path = "/api/attachments/{id}",
    operation_id = "deleteAttachment",
    tag = "Attachments",
    params(PathId),
    responses(
        (status = 200, description = "The attachment is deleted", body = Confirmation),
        (status = 404, description = "No such attachment"),
    ),
)]
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    caller: Caller,
    PathId(id): PathId,
) -> Result<Json<Confirmation>, ApiError> {
    let (_, session) = find_attachment(&app, &caller, id).await?;
    if !app.store.delete_attachment(&caller.tenant, id).await? {
        return Err(not_found());
    }
    remove_file(&app, session, id).await;
    Ok(Json(Confirmation::new()))
}

async fn find_attachment(app: &App, caller: &Caller, id: Uuid) -> Result<(AttachmentRow, Uuid), ApiError> {
    let row = app.store.attachment(&caller.tenant, id).await?.ok_or_else(not_found)?;
    let session = row.session_id.parse();
    let session =
        session.map_err(|_| ApiError::internal("Cannot read the attachment: invalid session id"))?;
    Ok((row, session))
}

fn not_found() -> ApiError {
    ApiError::not_found("Attachment not found")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attachment_of_maximum_size_fits_into_the_body() {
        for size in [1, 2, 3, 10 << 20] {
            assert!(STANDARD.encode(vec![0; size]).len() < body_limit(size), "{size}");
        }
        assert_eq!(body_limit(usize::MAX), usize::MAX);
    }

    #[test]
    fn content_is_checked() {
        let check = |filename: &str, content: &str| {
            let body = AttachBody {
                filename: filename.into(),
                content: content.into(),
                mime_type: None,
                message_id: None,
            };
            checked_content(&body, 2)
        };
        assert_eq!(check("a", "eHg=").unwrap(), b"xx");
        for (filename, content, status) in
            [("../a", "eHg=", 400), ("a", "", 400), ("a", "!", 400), ("a", "eHh4", 413)]
        {
            let Err(ApiError::Status(found, text)) = check(filename, content) else {
                panic!("{filename} {content}");
            };
            assert_eq!(found.as_u16(), status, "{text}");
        }
    }
}
