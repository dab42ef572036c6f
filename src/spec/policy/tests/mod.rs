//! Tests that need more than one file of the policy; the others stand beside what they test.

mod child;
mod golden;
mod hostile;
mod keys;
mod layers;
mod lowered;
mod random;

use super::*;
use crate::error::{Error, Result};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A host of our own: every place of the layers, in a directory that goes away.
struct Scratch {
    directory: tempfile::TempDir,
    places: Places,
}

impl Scratch {
    fn new() -> Scratch {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        for place in ["usr", "etc/conf.d", "user", "agent", "work"] {
            std::fs::create_dir_all(root.join(place)).unwrap();
        }
        let places = Places {
            vendor: root.join("usr"),
            system: root.join("etc"),
            user: Some(root.join("user")),
            agent_folder: Some(root.join("agent")),
            workspace: Some(root.join("work")),
            policies: Vec::new(),
            current: root.join("work"),
            owner: nix::unistd::geteuid().as_raw(),
        };
        Scratch { directory, places }
    }

    /// A scratch host with these files, as `("etc/config.toml", "…")`.
    fn with(files: &[(&str, &str)]) -> Scratch {
        let scratch = Scratch::new();
        for (name, text) in files {
            scratch.write(name, text);
        }
        scratch
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        mode(&path, 0o644);
    }

    fn load(&self) -> Result<Policy> {
        self.load_with(CommandLine::default())
    }

    fn load_with(&self, command_line: CommandLine) -> Result<Policy> {
        load(&self.places, Home::Session, command_line)
    }

    fn effective(&self) -> Effective {
        self.load().unwrap().effective
    }

    fn refusal(&self) -> Error {
        self.load().map(|policy| policy.effective.to_string()).expect_err("is taken")
    }

    /// The refusal as text, with the directory's random name cut out.
    fn complaint(&self) -> String {
        self.refusal().to_string().replace(self.directory.path().to_str().unwrap(), "")
    }
}

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}
