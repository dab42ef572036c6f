//! `/api/sessions/:id/workspace`: the files of a workspace as one gzip-compressed tar archive.

use super::App;
use super::auth::Caller;
use super::download::SEND_TIMEOUT;
use super::error::ApiError;
use super::extract::{JsonBody, SessionId};
use super::objects::BinaryFile;
use super::sessions::find_session_here;
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
use std::cell::Cell;
use std::io::{self, Read, Write};
use std::rc::Rc;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use utoipa::ToSchema;
use uuid::Uuid;

/// Limits of an uploaded archive.
#[derive(Debug, Clone, Copy)]
struct ArchiveLimits {
    entries: usize,
    /// Of all files, in bytes.
    unpacked_size: u64,
    /// Of one file, in bytes; a larger one is skipped.
    file_size: u64,
    /// Of what precedes a member, in bytes: its header and those with long names, and the padding of the previous member.
    headers_size: u64,
}

const LIMITS: ArchiveLimits = ArchiveLimits {
    entries: 20_000,
    unpacked_size: 512 << 20,
    file_size: MAX_DOWNLOAD_SIZE,
    headers_size: 64 << 10,
};
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
    find_session_here(&app, &caller, id).await?;
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
    find_session_here(&app, &caller, id).await?;
    let invalid = |text: &str| ApiError::bad_request(format!("Invalid bundle: {text}"));
    let bundle = STANDARD.decode(body.bundle.trim()).map_err(|_| invalid("it is not base64"))?;
    if bundle.is_empty() {
        return Err(ApiError::bad_request("Empty bundle"));
    }
    let tasks = app.tasks.clone();
    let written = tasks.run(async move {
        // All of it is checked before the first file is written.
        let checked =
            spawn_blocking(move || check_archive(&bundle, &LIMITS).map(|skipped| (bundle, skipped))).await;
        let checked = checked.map_err(|_| ApiError::internal("Cannot read the bundle: internal error"))?;
        let (bundle, mut skipped) = checked.map_err(|error| invalid(&error.to_string()))?;
        let (sender, mut files) = mpsc::channel(1);
        let reader = spawn_blocking(move || send_files(&bundle, &LIMITS, &sender));
        app.running.mark_changed(&caller.tenant, id).await?;
        let mut count = 0;
        while let Some((path, content)) = files.recv().await {
            match app.program.write_file(id, &path, &content).await {
                Ok(()) => count += 1,
                Err(error) => skipped.push(SkippedFile { path, error: error.to_string() }),
            }
        }
        let read = reader.await.map_err(|_| ApiError::internal("Cannot read the bundle: internal error"))?;
        app.running.finish_change(&caller.tenant, id).await;
        read.map_err(|error| invalid(&error.to_string()))?;
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

/// Reads an archive to its end without keeping its files. Returns the members that are not written: no link is ever
/// created.
fn check_archive(bundle: &[u8], limits: &ArchiveLimits) -> io::Result<Vec<SkippedFile>> {
    let mut skipped = Vec::new();
    read_archive(bundle, limits, |member| {
        match member {
            ArchiveMember::Skipped { path, reason } => {
                skipped.push(SkippedFile { path, error: reason.into() })
            }
            ArchiveMember::File { content, size, .. } => {
                if io::copy(content, &mut io::sink())? != size {
                    return Err(io::Error::other("it ends too early"));
                }
            }
        }
        Ok(())
    })?;
    Ok(skipped)
}

/// Sends the files of an archive one by one, so that they are not all in memory.
fn send_files(
    bundle: &[u8],
    limits: &ArchiveLimits,
    files: &mpsc::Sender<(String, Vec<u8>)>,
) -> io::Result<()> {
    read_archive(bundle, limits, |member| {
        if let ArchiveMember::File { path, content, .. } = member {
            let mut bytes = Vec::new();
            content.read_to_end(&mut bytes)?;
            files.blocking_send((path, bytes)).map_err(|_| io::ErrorKind::BrokenPipe)?;
        }
        Ok(())
    })
}

/// A member of an uploaded archive.
enum ArchiveMember<'a> {
    File { path: String, size: u64, content: &'a mut dyn Read },
    Skipped { path: String, reason: &'static str },
}

/// Calls `visit` for each member of an archive that is no directory.
fn read_archive(
    bundle: &[u8],
    limits: &ArchiveLimits,
    mut visit: impl FnMut(ArchiveMember<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let budget = Rc::new(Cell::new(0));
    // One byte more than the files may have, so that a longer archive is found.
    let unpacked = GzDecoder::new(bundle).take(limits.unpacked_size + 1);
    let mut archive = tar::Archive::new(BudgetReader { reader: unpacked, budget: Rc::clone(&budget) });
    let (mut entries, mut number, mut total) = (archive.entries()?, 0, 0);
    loop {
        // What precedes the next member is read into memory: its header, and a long name.
        budget.set(budget.get().saturating_add(limits.headers_size));
        let Some(entry) = entries.next() else { return Ok(()) };
        let mut entry = entry?;
        if number == limits.entries {
            return Err(io::Error::other(format!("it has more than {} entries", limits.entries)));
        }
        number += 1;
        total = entry.size().saturating_add(total);
        if total > limits.unpacked_size {
            return Err(io::Error::other(format!("its files have more than {} bytes", limits.unpacked_size)));
        }
        if entry.header().entry_type().is_gnu_sparse() {
            // Its size is not the number of bytes in the archive.
            return Err(io::Error::other("it contains a sparse file"));
        }
        budget.set(entry.size());
        let (name, kind) =
            (String::from_utf8_lossy(&entry.path_bytes()).into_owned(), entry.header().entry_type());
        if kind.is_dir() {
            continue;
        }
        let path = safe_path(&name).and_then(|path| path.to_str().map(str::to_owned));
        let size = entry.size();
        visit(match path {
            _ if !kind.is_file() => ArchiveMember::Skipped { path: name, reason: "it is no regular file" },
            None => ArchiveMember::Skipped { path: name, reason: "Invalid file path" },
            Some(_) if size > limits.file_size => {
                ArchiveMember::Skipped { path: name, reason: "File too large" }
            }
            Some(path) => ArchiveMember::File { path, size, content: &mut entry },
        })?;
    }
}

/// Fails when more bytes are read than the budget has.
struct BudgetReader<R> {
    reader: R,
    budget: Rc<Cell<u64>>,
}

impl<R: Read> Read for BudgetReader<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(bytes)?;
        match self.budget.get().checked_sub(count as u64) {
            Some(rest) => self.budget.set(rest),
            None => return Err(io::Error::other("the name of a file is too long")),
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: ArchiveLimits =
        ArchiveLimits { entries: 100, unpacked_size: 1 << 20, file_size: 100 << 10, headers_size: 64 << 10 };

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
        let (sender, mut receiver) = mpsc::channel(9);
        send_files(&archive, &SMALL, &sender).unwrap();
        let files: Vec<_> = std::iter::from_fn(|| receiver.try_recv().ok()).collect();
        assert_eq!(files, [("a/b".to_owned(), b"1".to_vec()), ("c".to_owned(), Vec::new())]);
        let skipped = check_archive(&archive, &SMALL).unwrap();
        let skipped: Vec<_> = skipped.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(skipped, ["../x", "/etc/x", "link"]);
    }

    #[test]
    fn broken_archives_are_refused() {
        let archive = bundle(&[(tar::EntryType::Regular, "a", &[b'x'; 5000])]);
        assert!(check_archive(&archive[..archive.len() / 2], &SMALL).is_err());
        assert!(check_archive(b"no gzip", &SMALL).is_err());
        let many = vec![(tar::EntryType::Regular, "a", &b""[..]); SMALL.entries + 1];
        assert!(check_archive(&bundle(&many), &SMALL).unwrap_err().to_string().contains("entries"));
        let zeros = vec![0; 100 << 10];
        let large = vec![(tar::EntryType::Regular, "a", zeros.as_slice()); 11];
        assert!(check_archive(&bundle(&large), &SMALL).unwrap_err().to_string().contains("bytes"));
    }

    /// A long name, of which a program would otherwise read all into memory.
    #[test]
    fn long_names_are_read_up_to_a_limit() {
        for (kind, is_read) in [(tar::EntryType::GNULongName, true), (tar::EntryType::XHeader, false)] {
            let name = b"a/".repeat(1000);
            let archive = bundle(&[(kind, "name", &name), (tar::EntryType::Regular, "short", b"1")]);
            assert!(check_archive(&archive, &SMALL).is_ok(), "{kind:?}");
            let (sender, mut receiver) = mpsc::channel(9);
            send_files(&archive, &SMALL, &sender).unwrap();
            let (path, content) = receiver.try_recv().unwrap();
            assert_eq!((path.len() > 1000, content), (is_read, b"1".to_vec()));
            let long = vec![b'a'; 100 << 10];
            let archive = bundle(&[(kind, "name", &long), (tar::EntryType::Regular, "short", b"1")]);
            let error = check_archive(&archive, &SMALL).unwrap_err().to_string();
            assert!(error.contains("name of a file is too long"), "{error}");
        }
    }

    /// A large file whose content is skipped does not count as a name.
    #[test]
    fn too_large_file_is_skipped_and_the_next_one_read() {
        let zeros = vec![0; (100 << 10) + 1];
        let members =
            [(tar::EntryType::Regular, "large", zeros.as_slice()), (tar::EntryType::Regular, "a", b"1")];
        let archive = bundle(&members);
        assert_eq!(check_archive(&archive, &SMALL).unwrap()[0].error, "File too large");
        let (sender, mut receiver) = mpsc::channel(9);
        send_files(&archive, &SMALL, &sender).unwrap();
        assert_eq!(receiver.try_recv().unwrap(), ("a".to_owned(), b"1".to_vec()));
    }
}
