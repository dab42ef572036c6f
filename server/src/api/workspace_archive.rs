//! `/api/sessions/:id/workspace`: the files of a workspace as one gzip-compressed tar archive.

use super::App;
use super::auth::Caller;
use super::download::SEND_TIMEOUT;
use super::error::ApiError;
use super::extract::{JsonBody, SessionId};
use super::objects::BinaryFile;
use super::sessions::find_session;
use super::workspace_files::{MAX_DOWNLOAD_SIZE, no_workspace};
use crate::agent_folder::safe_path;
use crate::saggar::{Program, WorkspaceFile};
use crate::skipped_names::{SKIPPED_NAMES, has_skipped_suffix};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use utoipa::ToSchema;
use uuid::Uuid;

/// Maximum number of entries in an uploaded archive.
const MAX_ENTRIES: usize = 20_000;
/// Maximum size of all files in an uploaded archive, in bytes.
const MAX_UNPACKED_SIZE: u64 = 512 << 20;
/// Parts of a download that wait for the client.
const BUFFERED_CHUNKS: usize = 4;

#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = UploadWorkspaceRequest)]
pub(super) struct BundleBody {
    /// A gzip-compressed tar archive in base64.
    #[serde(default)]
    #[schema(required, format = Byte)]
    bundle: String,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RestoredWorkspace {
    message: &'static str,
    /// The number of files.
    written: usize,
    skipped: Vec<SkippedFile>,
}

/// A member of an archive that was not written.
#[derive(Debug, Serialize, ToSchema)]
struct SkippedFile {
    path: String,
    error: String,
}

/// Returns the files of the workspace as an archive.
///
/// Files that are not listed, files of variables (`.env`), and files of more than 100 MiB are left out.
#[utoipa::path(
    get,
    path = "/api/sessions/{id}/workspace",
    operation_id = "downloadWorkspace",
    tag = "Files",
    params(SessionId),
    responses(
        (status = 200, description = "A tar archive with gzip", body = BinaryFile, content_type = "application/gzip"),
        (status = 404, description = "No such session"),
    ),
)]
pub(super) async fn download(
    State(app): State<Arc<App>>,
    caller: Caller,
    SessionId(id): SessionId,
) -> Result<Response, ApiError> {
    find_session(&app, &caller, id).await?;
    let permit = app.downloads.begin()?;
    let files = app.program.list_files(id, &SKIPPED_NAMES).await.map_err(|error| no_workspace(&error))?;
    let is_sent = |file: &WorkspaceFile| {
        file.kind == "file" && file.size <= MAX_DOWNLOAD_SIZE && is_in_archive(&file.name)
    };
    let files: Vec<WorkspaceFile> = files.into_iter().filter(is_sent).collect();
    let (sender, receiver) = mpsc::channel(BUFFERED_CHUNKS);
    let (program, handle) = (app.program.clone(), Handle::current());
    spawn_blocking(move || {
        let _permit = permit;
        let output = ChunkWriter { handle: handle.clone(), sender: sender.clone() };
        let written = write_archive(&handle, &program, id, &files, output);
        if let Err(error) = written {
            tracing::warn!("cannot send the workspace of session {id}: {error}");
            // The client finds that the archive is incomplete; one that reads nothing is not waited for.
            let _ = sender.try_send(Err(error));
        }
    });
    let disposition = format!("attachment; filename=\"{id}.tar.gz\"");
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/gzip")),
        (
            header::CONTENT_DISPOSITION,
            HeaderValue::try_from(disposition).unwrap_or(HeaderValue::from_static("attachment")),
        ),
    ];
    Ok((headers, Body::from_stream(ReceiverStream::new(receiver))).into_response())
}

fn is_in_archive(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    !has_skipped_suffix(path) && !name.starts_with(".env")
}

/// Reads the files one after the other: the archive is never in memory as a whole.
fn write_archive(
    handle: &Handle,
    program: &Program,
    id: Uuid,
    files: &[WorkspaceFile],
    output: ChunkWriter,
) -> io::Result<()> {
    let mut archive = tar::Builder::new(GzEncoder::new(output, Compression::fast()));
    for file in files {
        let content = program.read_file(id, &file.name).map_err(io::Error::other)?;
        let content = match handle.block_on(content.read_to_end(MAX_DOWNLOAD_SIZE)) {
            Ok(content) => content,
            // It was removed, closed or replaced since it was listed, or the agent itself cannot read it.
            Err(_) => continue,
        };
        let mut header = tar::Header::new_gnu();
        header.set_mode(file.mode & 0o777);
        header.set_mtime(u64::try_from(file.mtime / 1000).unwrap_or(0));
        header.set_size(content.len() as u64);
        archive.append_data(&mut header, &file.name, content.as_slice())?;
    }
    archive.into_inner()?.finish()?.flush()
}

/// Passes what is written on to the response.
struct ChunkWriter {
    handle: Handle,
    sender: mpsc::Sender<io::Result<Vec<u8>>>,
}

impl Write for ChunkWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.handle.block_on(timeout(SEND_TIMEOUT, self.sender.send(Ok(bytes.to_vec())))) {
            Ok(Ok(())) => Ok(bytes.len()),
            Ok(Err(_)) => Err(io::ErrorKind::BrokenPipe.into()),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes the files of an archive into the workspace.
///
/// Other files stay.
#[utoipa::path(
    post,
    path = "/api/sessions/{id}/workspace",
    operation_id = "uploadWorkspace",
    tag = "Files",
    params(SessionId),
    request_body = BundleBody,
    responses(
        (status = 200, description = "The files are written", body = RestoredWorkspace),
        (status = 404, description = "No such session"),
    ),
)]
pub(super) async fn upload(
    State(app): State<Arc<App>>,
    caller: Caller,
    SessionId(id): SessionId,
    JsonBody(body): JsonBody<BundleBody>,
) -> Result<Json<RestoredWorkspace>, ApiError> {
    find_session(&app, &caller, id).await?;
    let invalid = |text: &str| ApiError::bad_request(format!("Invalid bundle: {text}"));
    let bundle = STANDARD.decode(body.bundle.trim()).map_err(|_| invalid("it is not base64"))?;
    if bundle.is_empty() {
        return Err(ApiError::bad_request("Empty bundle"));
    }
    let tasks = app.tasks.clone();
    let written = tasks.run(async move {
        // All of it is read before the first file is written.
        let read = spawn_blocking(move || read_archive(&bundle)).await;
        let files = read.map_err(|_| ApiError::internal("Cannot read the bundle: internal error"))?;
        let (files, mut skipped) = files.map_err(|error| invalid(&error.to_string()))?;
        let mut count = 0;
        for (path, content) in files {
            match app.program.write_file(id, &path, &content).await {
                Ok(()) => count += 1,
                Err(error) => skipped.push(SkippedFile { path, error: error.to_string() }),
            }
        }
        let is_running = app.running.get(id).is_some();
        let message =
            if is_running { "Workspace restored to live sandbox" } else { "Workspace saved as snapshot" };
        Ok(RestoredWorkspace { message, written: count, skipped })
    });
    let result = written
        .await
        .unwrap_or_else(|| Err(ApiError::internal("Cannot write the workspace: internal error")))?;
    Ok(Json(result))
}

type ArchiveFiles = (Vec<(String, Vec<u8>)>, Vec<SkippedFile>);

/// Reads the regular files of an archive. Members of other types are returned as skipped: no link is ever created.
fn read_archive(bundle: &[u8]) -> io::Result<ArchiveFiles> {
    // One byte more than a file may have, so that a longer archive is found.
    let mut archive = tar::Archive::new(GzDecoder::new(bundle).take(MAX_UNPACKED_SIZE + 1));
    let (mut files, mut skipped, mut total) = (Vec::new(), Vec::new(), 0);
    for (number, entry) in archive.entries()?.enumerate() {
        let mut entry = entry?;
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        if number == MAX_ENTRIES {
            return Err(io::Error::other(format!("it has more than {MAX_ENTRIES} entries")));
        }
        let kind = entry.header().entry_type();
        if kind.is_dir() {
            continue;
        }
        let path = safe_path(&name).and_then(|path| path.to_str().map(str::to_owned));
        let Some(path) = path.filter(|_| kind.is_file()) else {
            let error = if kind.is_file() { "Invalid file path" } else { "it is no regular file" };
            skipped.push(SkippedFile { path: name, error: error.into() });
            continue;
        };
        total += entry.size();
        if total > MAX_UNPACKED_SIZE {
            return Err(io::Error::other(format!("its files have more than {MAX_UNPACKED_SIZE} bytes")));
        }
        let mut content = Vec::new();
        entry.read_to_end(&mut content)?;
        if content.len() as u64 != entry.size() {
            return Err(io::Error::other("it ends too early"));
        }
        files.push((path, content));
    }
    Ok((files, skipped))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bundle with members of these types, names and contents.
    fn bundle(members: &[(tar::EntryType, &str, &[u8])]) -> Vec<u8> {
        let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
        for (kind, name, content) in members {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(*kind);
            header.set_size(content.len() as u64);
            // The builder refuses `..`, as no hostile program would.
            let field = &mut header.as_gnu_mut().unwrap().name;
            field[..name.len()].copy_from_slice(name.as_bytes());
            header.set_cksum();
            archive.append(&header, *content).unwrap();
        }
        archive.into_inner().unwrap().finish().unwrap()
    }

    #[test]
    fn only_regular_files_with_plain_names_are_read() {
        use tar::EntryType::{Directory, Regular, Symlink};
        let archive = bundle(&[
            (Directory, "a", b""),
            (Regular, "./a/b", b"1"),
            (Regular, "../x", b"2"),
            (Regular, "/etc/x", b"3"),
            (Symlink, "link", b""),
            (Regular, "c", b""),
        ]);
        let (files, skipped) = read_archive(&archive).unwrap();
        assert_eq!(files, [("a/b".to_owned(), b"1".to_vec()), ("c".to_owned(), Vec::new())]);
        let skipped: Vec<_> = skipped.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(skipped, ["../x", "/etc/x", "link"]);
    }

    #[test]
    fn broken_archives_are_refused() {
        let archive = bundle(&[(tar::EntryType::Regular, "a", &[b'x'; 5000])]);
        assert!(read_archive(&archive[..archive.len() / 2]).is_err());
        assert!(read_archive(b"no gzip").is_err());
        let many = vec![(tar::EntryType::Regular, "a", &b""[..]); MAX_ENTRIES + 1];
        assert!(read_archive(&bundle(&many)).unwrap_err().to_string().contains("entries"));
        let zeros = vec![0; 40 << 20];
        let large = vec![(tar::EntryType::Regular, "a", zeros.as_slice()); 13];
        assert!(read_archive(&bundle(&large)).unwrap_err().to_string().contains("bytes"));
    }
}
