//! Reads and writes files of the workspace for a server, as the user of the sandbox's programs, with access to the same
//! files and no others (KC-31).

use super::FILE_CALL;
use super::request::{read_request, start_worker, write_response};
use super::session::SessionContext;
use crate::control::files::FileRequest;
use crate::error::Result;
use crate::session::files::Workspace;
use crate::stage::agent::launcher::Launcher;
use crate::sys::file_worker::{Confinement, FileAccess, WorkerLimits, confine_worker};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Processor time limit of a call, in seconds.
const CPU_SECONDS: u64 = 30;

/// Starts a call; returns the pipe for the result, a [`serde_json::Value`].
///
/// # Errors
/// As [`start_worker`].
pub(in crate::supervise) fn start_call(
    launcher: &Launcher,
    call: &FileRequest,
    workspace: BorrowedFd<'_>,
) -> Result<File> {
    start_worker(launcher, FILE_CALL, call, Some(workspace))
}

impl SessionContext<'_> {
    pub(super) fn serve_files(
        &self,
        owner: Option<(u32, u32)>,
        to: OwnedFd,
        request: OwnedFd,
        root: OwnedFd,
    ) {
        let directories = [(root.as_fd(), FileAccess::Write)];
        let confinement = Confinement {
            task: "files of the workspace",
            owner,
            capabilities: 0,
            directories: &directories,
            files: &[],
            limits: WorkerLimits { cpu_seconds: CPU_SECONDS, ..WorkerLimits::default() },
        };
        let done = confine_worker(&confinement, nix::unistd::getppid().as_raw())
            .and_then(|()| read_request::<FileRequest>(request))
            .and_then(|call| Workspace::new(root, self.protected.clone()).perform(&call));
        write_response(to, &done);
    }
}
