//! Files of the workspace for a server, by the user that the programs are, who sees and changes what they can and
//! nothing else (KC-31).

use super::FILES;
use super::call::{answer, asked, start};
use super::session::OfSession;
use crate::control::files::FileCall;
use crate::error::Result;
use crate::session::files::Workspace;
use crate::session::worker::{Access, Confinement, Limits, confine};
use crate::stage::launcher::Launcher;
use serde_json::{Value, json};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// How much processor time a call may take, in seconds.
const SECONDS: u64 = 30;

/// Begins it; where the answer comes, a [`Value`].
///
/// # Errors
/// As [`start`].
pub(in crate::supervise) fn begin(
    launcher: &Launcher,
    call: &FileCall,
    workspace: BorrowedFd<'_>,
) -> Result<File> {
    start(launcher, FILES, call, Some(workspace))
}

impl OfSession<'_> {
    pub(super) fn files(&self, to: OwnedFd, request: OwnedFd, root: OwnedFd) {
        let directories = [(root.as_fd(), Access::Write)];
        let confinement = Confinement {
            task: "files of the workspace",
            owner: self.owner,
            capabilities: 0,
            directories: &directories,
            files: &[],
            limits: Limits { cpu: SECONDS, ..Limits::default() },
        };
        let done = confine(&confinement, nix::unistd::getppid().as_raw())
            .and_then(|()| asked::<FileCall>(request))
            .and_then(|call| perform(&Workspace::new(root, self.protected.clone()), &call));
        answer(to, &done);
    }
}

fn perform(workspace: &Workspace, call: &FileCall) -> Result<Value> {
    match call {
        FileCall::List { path, after, limit } => {
            workspace.list(path, *after, *limit).map(|listing| json!(listing))
        }
        FileCall::Read { path, offset, limit, encoding } => {
            workspace.read(path, *offset, *limit, *encoding).map(|piece| json!(piece))
        }
        FileCall::Write { path, content } => workspace.write(path, content).map(|()| json!({})),
    }
}
