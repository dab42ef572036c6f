//! What a caller asks of one sandbox.

use crate::spec::policy::PolicyOptions;
use std::os::fd::RawFd;
use std::path::PathBuf;

/// What one sandbox is asked for, beside the policy files of the host, of the user and of the folder. The default is
/// the sandbox that those files describe.
#[derive(Debug, Clone, Default)]
pub struct SandboxOptions {
    /// Its name, as [`crate::id::SandboxId::parse`] accepts it; a random one without. A sandbox that is named has a
    /// runtime directory.
    pub id: Option<String>,
    /// The last layer of the policy. A layer that locks a part of the policy refuses what is set here.
    pub policy: PolicyOptions,
    /// One more policy file, between those of the host and [`SandboxOptions::policy`].
    pub policy_file: Option<PathBuf>,
    /// The work tree, read-write. Without one: for a command the work tree of the repository that contains the current
    /// directory, or that directory; for an agent a copy of its folder.
    pub workspace: Option<PathBuf>,
    /// Where programs start: for a command from the caller's current directory, if that is in the work tree, else from the
    /// work tree. Without one: there.
    pub start_directory: Option<PathBuf>,
    /// Whether an overlay lies over the work tree, so that changes do not reach it.
    pub workspace_overlay: bool,
    /// An open descriptor from which the key of the model API is read; it needs
    /// [`PolicyOptions::api`] or `api.upstream` of a file.
    pub api_key_fd: Option<RawFd>,
}
