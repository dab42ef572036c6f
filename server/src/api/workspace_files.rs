//! `/api/sessions/:id/files`: files of the workspace of a session, also after the session has ended. saggar accesses
//! them and follows no link (saggar-session(1)).

use super::App;
use super::auth::Caller;
use super::download::{SEND_TIMEOUT, download};
use super::error::ApiError;
use super::extract::{JsonBody, QueryParams, SessionId, SessionPath};
use super::objects::{BinaryFile, FileEntry};
use super::sessions::find_session_here;
use super::workspace_file_objects::{
    DeletedSessionFile, FileQuery, FilesQuery, SessionFile, SessionFileList, UploadBody, UploadedFile,
    WriteResult, WriteResults,
};
use crate::agent_folder::safe_path;
use crate::clock;
use crate::saggar::CommandError;
use crate::skipped_names::{SKIPPED_NAMES, has_skipped_suffix};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::path::Path;
use std::sync::Arc;
use tokio::time::timeout;
use uuid::Uuid;

/// Maximum size of a file in a JSON response, in bytes.
const MAX_JSON_SIZE: u64 = 1 << 20;
/// Maximum size of a file that is downloaded, in bytes.
pub(super) const MAX_DOWNLOAD_SIZE: u64 = 100 << 20;
/// Maximum size of an uploaded file, in bytes.
const MAX_UPLOAD_SIZE: usize = 50 << 20;
/// Maximum size of all files of an upload, in bytes.
const MAX_BATCH_SIZE: usize = 100 << 20;
/// Maximum length of a path, in bytes (saggar-control(7)).
const MAX_PATH_LENGTH: usize = 4096;
/// Maximum number of files of an upload.
const MAX_BATCH_FILES: usize = 500;

/// Lists the files of the workspace of a session.
#[utoipa::path(
    get,
    path = "/api/sessions/{id}/files",
    operation_id = "getSessionFiles",
    tag = "Files",
    params(SessionId, FilesQuery),
    responses(
        (status = 200, description = "The files", body = SessionFileList),
        (status = 404, description = "No such session"),
    ),
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    SessionId(id): SessionId,
    QueryParams(query): QueryParams<FilesQuery>,
) -> Result<Json<SessionFileList>, ApiError> {
    let session = find_session_here(&app, &caller, id).await?;
    let files =
        app.program.list_files(session.id, &SKIPPED_NAMES).await.map_err(|error| no_workspace(&error))?;
    let with_hidden = query.include_hidden.unwrap_or(true);
    let is_listed = |name: &str| {
        !has_skipped_suffix(name) && (with_hidden || !name.split('/').any(|part| part.starts_with('.')))
    };
    let files = files.into_iter().filter(|file| file.kind == "file" && is_listed(&file.name));
    let files = files.map(|file| FileEntry {
        path: file.name,
        size: file.size,
        modified_at: clock::at_millisecond(file.mtime),
    });
    Ok(Json(SessionFileList { files: files.collect(), source: source(&app, id) }))
}

/// Returns a file of the workspace.
#[utoipa::path(
    get,
    path = "/api/sessions/{id}/files/{*path}",
    operation_id = "getSessionFile",
    tag = "Files",
    params(
        ("id" = Uuid, Path, description = "The id of the session"),
        ("path" = String, Path, description = "The path of the file in the workspace; it can contain slashes"),
        FileQuery,
    ),
    responses(
        (
            status = 200,
            description = "The bytes of the file, or with `format=json` its text",
            content((SessionFile = "application/json"), (BinaryFile = "*/*")),
        ),
        (status = 403, description = "The key or the sandbox does not permit access to the file"),
        (status = 404, description = "No such session, or no such file"),
    ),
)]
pub(super) async fn read(
    State(app): State<Arc<App>>,
    caller: Caller,
    SessionPath { id, rest: path }: SessionPath,
    QueryParams(query): QueryParams<FileQuery>,
) -> Result<Response, ApiError> {
    let session = find_session_here(&app, &caller, id).await?;
    let path = normal_path(&path)?;
    let size = app.program.file_size(session.id, &path).await.map_err(|error| file_error(&error))?.size;
    let is_json = query.format.as_deref() == Some("json");
    let most = if is_json { MAX_JSON_SIZE } else { MAX_DOWNLOAD_SIZE };
    if size > most {
        return Err(ApiError::bad_request(format!("File too large: {size} bytes, at most {most} are sent")));
    }
    let permit = app.downloads.begin()?;
    let mut content = app.program.read_file(session.id, &path).map_err(|error| file_error(&error))?;
    let source = source(&app, id);
    if is_json {
        let content = content.read_to_end(most).await.map_err(|error| file_error(&error))?;
        let (content, size) = (String::from_utf8_lossy(&content).into_owned(), content.len());
        return Ok(Json(SessionFile { path, content, size, source }).into_response());
    }
    let (sender, receiver) = tokio::sync::mpsc::channel::<Result<Vec<u8>, CommandError>>(4);
    tokio::spawn(async move {
        let _permit = permit;
        loop {
            let chunk = match content.next_chunk().await {
                Ok(Some(chunk)) => Ok(chunk),
                Ok(None) => return,
                // The client finds that the response is incomplete.
                Err(error) => Err(error),
            };
            let is_last = chunk.is_err();
            let sent = timeout(SEND_TIMEOUT, sender.send(chunk)).await;
            if !matches!(sent, Ok(Ok(()))) || is_last {
                return;
            }
        }
    });
    let body = Body::from_stream(tokio_stream::wrappers::ReceiverStream::new(receiver));
    let name = Path::new(&path).file_name().unwrap_or_default().to_string_lossy();
    let media_type = mime_guess::from_path(&path).first_or_octet_stream();
    let mut response = download(&name, media_type.essence_str(), body);
    let headers = response.headers_mut();
    headers.insert(HeaderName::from_static("x-ash-source"), HeaderValue::from_static(source));
    // If the file changes meanwhile, the client finds that the response is not complete.
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(size));
    Ok(response)
}

/// Writes files into the workspace, each with a result of its own.
#[utoipa::path(
    post,
    path = "/api/sessions/{id}/files",
    operation_id = "writeSessionFiles",
    tag = "Files",
    params(SessionId),
    request_body = UploadBody,
    responses(
        (status = 200, description = "The results", body = WriteResults),
        (status = 404, description = "No such session"),
    ),
)]
pub(super) async fn write(
    State(app): State<Arc<App>>,
    caller: Caller,
    SessionId(id): SessionId,
    JsonBody(body): JsonBody<UploadBody>,
) -> Result<Json<WriteResults>, ApiError> {
    if body.files.is_empty() || body.files.len() > MAX_BATCH_FILES {
        return Err(ApiError::Body(format!("body/files must contain 1 to {MAX_BATCH_FILES} files")));
    }
    let session = find_session_here(&app, &caller, id).await?;
    let tasks = app.tasks.clone();
    let written = tasks.run(async move {
        app.running.mark_changed(&session.tenant_id, session.id).await?;
        let target = body.target_path.unwrap_or_default();
        let (mut results, mut total) = (Vec::new(), 0);
        for file in body.files {
            let written = match checked_upload(&target, &file, &mut total) {
                Ok((path, content)) => write_one(&app, session.id, &path, &content).await,
                Err(text) => Err(text),
            };
            let path = file.path;
            results.push(match written {
                Ok(size) => WriteResult { path, written: true, size: Some(size), error: None },
                Err(text) => WriteResult { path, written: false, size: None, error: Some(text) },
            });
        }
        app.running.finish_change(&session.tenant_id, session.id).await;
        Ok::<_, ApiError>(results)
    });
    let results = written.await.ok_or_else(|| ApiError::internal("Cannot write files: internal error"))??;
    Ok(Json(WriteResults { files: results }))
}

async fn write_one(app: &App, id: Uuid, path: &str, content: &[u8]) -> Result<usize, String> {
    app.program.write_file(id, path, content).await.map(|()| content.len()).map_err(|error| error.to_string())
}

/// The path and the content of an uploaded file, or why it is not written.
fn checked_upload(target: &str, file: &UploadedFile, total: &mut usize) -> Result<(String, Vec<u8>), String> {
    let path = match safe_path(&file.path) {
        Some(path) if target.is_empty() || target == "." => Some(path),
        Some(path) => safe_path(target).map(|target| target.join(path)),
        None => None,
    };
    let path = path.and_then(|path| path.to_str().map(str::to_owned)).ok_or("Invalid file path")?;
    if path.len() > MAX_PATH_LENGTH {
        return Err("Invalid file path".into());
    }
    if path.rsplit('/').next() == Some(".DS_Store") {
        return Err("Skipped: .DS_Store".into());
    }
    let content = STANDARD.decode(&file.content).map_err(|_| "The content is not base64")?;
    if content.len() > MAX_UPLOAD_SIZE {
        return Err(format!("File too large: at most {MAX_UPLOAD_SIZE} bytes are written"));
    }
    *total += content.len();
    if *total > MAX_BATCH_SIZE {
        return Err("Batch size limit exceeded".into());
    }
    Ok((path, content))
}

/// Deletes a file of the workspace.
#[utoipa::path(
    delete,
    path = "/api/sessions/{id}/files/{*path}",
    operation_id = "deleteSessionFile",
    tag = "Files",
    params(
        ("id" = Uuid, Path, description = "The id of the session"),
        ("path" = String, Path, description = "The path of the file in the workspace; it can contain slashes"),
    ),
    responses(
        (status = 200, description = "The file is deleted", body = DeletedSessionFile),
        (status = 403, description = "The key or the sandbox does not permit access to the file"),
        (status = 404, description = "No such session, or no such file"),
    ),
)]
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    caller: Caller,
    SessionPath { id, rest: path }: SessionPath,
) -> Result<Json<DeletedSessionFile>, ApiError> {
    let session = find_session_here(&app, &caller, id).await?;
    let path = normal_path(&path)?;
    app.running.mark_changed(&session.tenant_id, session.id).await?;
    app.program.remove_file(session.id, &path).await.map_err(|error| file_error(&error))?;
    app.running.finish_change(&session.tenant_id, session.id).await;
    Ok(Json(DeletedSessionFile { path, deleted: true }))
}

fn normal_path(path: &str) -> Result<String, ApiError> {
    let invalid = || ApiError::bad_request("Invalid file path");
    let path = safe_path(path).and_then(|path| path.to_str().map(str::to_owned));
    path.filter(|path| path.len() <= MAX_PATH_LENGTH).ok_or_else(invalid)
}

/// Where the files are: in a running sandbox, or only on disk.
fn source(app: &App, id: Uuid) -> &'static str {
    if app.running.get(id).is_some() { "sandbox" } else { "snapshot" }
}

/// The response to a request on a file that saggar refuses.
fn file_error(error: &CommandError) -> ApiError {
    let text = error.to_string();
    if text.contains("No such file or directory") || text.contains("Not a directory") {
        return ApiError::not_found("File not found");
    }
    if text.contains("File name too long") || text.contains("is too long") {
        return ApiError::bad_request("Invalid file path");
    }
    if text.contains("Permission denied") {
        return ApiError::with_status(StatusCode::FORBIDDEN, "The agent itself may not access the file");
    }
    let is_other_kind =
        ["it is a ", "Is a directory", "Directory not empty", "a link is on the way", "No such device"];
    if is_other_kind.iter().any(|part| text.contains(part)) {
        return ApiError::bad_request("Path is not a file");
    }
    if text.contains("it is protected") {
        return ApiError::with_status(StatusCode::FORBIDDEN, text);
    }
    no_workspace(error)
}

pub(super) fn no_workspace(error: &CommandError) -> ApiError {
    let text = error.to_string();
    if text.contains("does not exist") || text.contains("has no workspace") {
        return ApiError::not_found("No workspace available for this session");
    }
    ApiError::internal(format!("Cannot access the workspace: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uploads_are_checked_one_by_one() {
        let check = |target: &str, path: &str, content: &str| {
            let file = UploadedFile { path: path.into(), content: content.into() };
            checked_upload(target, &file, &mut 0).map(|(path, _)| path)
        };
        assert_eq!(check("", "a/./b", "eA==").unwrap(), "a/b");
        assert_eq!(check("t/u", "a", "").unwrap(), "t/u/a");
        assert_eq!(check(".", "a", "").unwrap(), "a");
        for (target, path) in [("", "../x"), ("t", "../x"), ("", "/x"), ("/t", "x"), ("t/..", "x"), ("", "")]
        {
            assert_eq!(check(target, path, "").unwrap_err(), "Invalid file path", "{target} {path}");
        }
        assert_eq!(check("", "a/.DS_Store", "").unwrap_err(), "Skipped: .DS_Store");
        assert!(check("", "a", "!").unwrap_err().contains("base64"));
        let mut total = MAX_BATCH_SIZE;
        let file = UploadedFile { path: "a".into(), content: "eA==".into() };
        assert_eq!(checked_upload("", &file, &mut total).unwrap_err(), "Batch size limit exceeded");
    }
}
