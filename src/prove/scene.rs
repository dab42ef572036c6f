//! What stands around a sandbox while it is tried: made by [`super::outside`], told to the probe as one argument.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A variable of who starts the sandbox, which the probe must not see.
pub const SECRET_VARIABLE: &str = "SAGGAR_PROBE_SECRET";
/// The configuration of the repository in the workspace.
pub const GIT_CONFIG: &str = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n";

/// What the probe is told.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scene {
    /// A random name: of the abstract socket, of the bystander, of files that are made and removed.
    pub nonce: String,
    /// The workspace: a git repository.
    pub work: PathBuf,
    /// A file beside the workspace that the sandbox must not see.
    pub secret: PathBuf,
    /// The port of a server on the host's loopback, for each family that it has.
    pub tcp: Option<u16>,
    /// The same over IPv6.
    pub tcp6: Option<u16>,
    /// Whether who starts the sandbox has a controlling terminal.
    pub terminal: bool,
    /// The host's namespaces, as /proc/self/ns has them.
    pub namespaces: BTreeMap<String, String>,
    /// Places of the host, as device and inode.
    pub places: Vec<Place>,
    /// How many processes there may be.
    pub pids: u32,
    /// How many bytes of disk there may be.
    pub disk: u64,
}

/// A place of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Its name in the attempts.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// The number of its device.
    pub device: u64,
    /// The number of its inode.
    pub inode: u64,
}

impl Scene {
    /// A name in the probe's own directory in the workspace.
    pub fn own(&self, name: &str) -> PathBuf {
        self.work.join("own").join(name)
    }

    /// The end of the bystander's command line, as /proc has it.
    pub fn bystander_words(&self) -> String {
        format!("\0{}\0{}\0", super::outside::BYSTANDER, self.nonce)
    }
}
