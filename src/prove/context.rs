//! The environment of a sandbox under test: built by [`super::harness`], passed to the probe as one argument.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// An environment variable of the sandbox's caller that the probe must not see.
pub const SECRET_VARIABLE: &str = "SAGGAR_PROBE_SECRET";
/// The configuration of the repository in the workspace.
pub const GIT_CONFIG: &str = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n";

/// The data that the probe gets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeContext {
    /// A random name for the abstract socket, the bystander process, and temporary files.
    pub nonce: String,
    /// The workspace, which is a git repository.
    pub work: PathBuf,
    /// A file next to the workspace that the sandbox must not see.
    pub secret: PathBuf,
    /// The port of a server on the host's IPv4 loopback; `None` if there is none.
    pub tcp: Option<u16>,
    /// The port of a server on the host's IPv6 loopback; `None` if there is none.
    pub tcp6: Option<u16>,
    /// Whether the sandbox's caller has a controlling terminal.
    pub terminal: bool,
    /// The host's namespaces, as in /proc/self/ns.
    pub namespaces: BTreeMap<String, String>,
    /// Paths of the host, with device and inode.
    pub probed_paths: Vec<ProbedPath>,
    /// The process limit of the sandbox.
    pub pids: u32,
    /// The disk limit of the sandbox in bytes.
    pub disk: u64,
}

/// A path of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbedPath {
    /// Its name in the attempts.
    pub name: String,
    /// The path itself.
    pub path: PathBuf,
    /// Its device number (st_dev).
    pub device: u64,
    /// Its inode number (st_ino).
    pub inode: u64,
}

impl ProbeContext {
    /// A path in the probe's own directory in the workspace.
    pub fn probe_path(&self, name: &str) -> PathBuf {
        self.work.join("own").join(name)
    }

    /// The end of the bystander's command line, as in /proc/PID/cmdline.
    pub fn bystander_words(&self) -> String {
        format!("\0{}\0{}\0", super::harness::BYSTANDER, self.nonce)
    }
}
