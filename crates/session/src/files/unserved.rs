//! Files of a workspace that no sandbox has mounted, in a file worker ([`saggar_sys::file_worker`]): programs of the
//! session created them.

use super::Workspace;
use crate::image::DiskImage;
use crate::workspace_origin::WorkspaceOrigin;
use saggar_bridge::control::files::FileRequest;
use saggar_sys::beneath;
use saggar_sys::error::{Code, Error, Result};
use saggar_sys::file_worker::{self, Confinement, FileAccess, WorkerLimits};
use serde_json::Value;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

/// Processor time limit of a request, in seconds.
const CPU_SECONDS: u64 = 30;

/// Performs a request on the workspace of the session in this directory. For a request that changes files the caller
/// holds the session's lock.
///
/// # Errors
/// As [`Workspace::perform`]; [`Code::Unsupported`] for a workspace that only its sandbox shows.
pub fn perform_unserved(session: &Path, request: &FileRequest) -> Result<Value> {
    DiskImage::for_session(session).reject_if_present()?;
    let (path, protected) = WorkspaceOrigin::find_plain_tree(session)?.ok_or_else(|| {
        let id = session.file_name().unwrap_or_default().display();
        Error::new(
            Code::Unsupported,
            format!("the workspace of session {id} is an overlay, which only its sandbox shows"),
        )
        .hint(format!("saggar session resume {id}"))
    })?;
    let fail = |e: io::Error| Error::system(format_args!("open {}", path.display()), e);
    let root = beneath::open_root(&path).map_err(fail)?;
    let access = if request.changes_files() { FileAccess::Write } else { FileAccess::Read };
    let directories = [(root.as_fd(), access)];
    let confinement = Confinement {
        task: "access files of the workspace",
        owner: file_worker::worker_owner(root.as_fd()).map_err(fail)?,
        capabilities: 0,
        directories: &directories,
        files: &[],
        limits: WorkerLimits { cpu_seconds: CPU_SECONDS, ..WorkerLimits::default() },
    };
    file_worker::run_worker(&confinement, || {
        Workspace::new(root.try_clone().map_err(fail)?, protected.clone()).perform(request)
    })
}
