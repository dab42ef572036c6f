//! Tests that need more than one file of the policy; the others are in the file that they test.

mod child;
mod golden;
mod hostile;
mod keys;
mod layers;
mod random;

use super::*;
use saggar_sys::error::{Error, Result};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Parses like the parser process, but in this process: every folder's policy in a test is converted to
/// JSON.
#[derive(Debug)]
struct InProcess;

impl FolderParser for InProcess {
    fn to_json(&self, text: &FolderText<'_>) -> Result<String> {
        text.to_json()
    }

    fn line_of(&self, text: &FolderText<'_>, key: &str) -> Result<Option<usize>> {
        Ok(text.line_of(key))
    }
}

/// A scratch host: the directories of all layers, in a temporary directory.
struct Scratch {
    directory: tempfile::TempDir,
    places: PolicySources,
}

impl Scratch {
    fn new() -> Scratch {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        for place in ["usr", "etc/conf.d", "user", "agent", "work"] {
            std::fs::create_dir_all(root.join(place)).unwrap();
        }
        let places = PolicySources {
            vendor_directory: root.join("usr"),
            system_directory: root.join("etc"),
            user_directory: Some(root.join("user")),
            agent_folder: Some(root.join("agent")),
            workspace: Some(root.join("work")),
            policy_files: Vec::new(),
            current_directory: root.join("work"),
            operator_uid: nix::unistd::geteuid().as_raw(),
            parser: &InProcess,
        };
        Scratch { directory, places }
    }

    /// A scratch host with these files, such as `("etc/config.toml", "…")`.
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

    fn load(&self) -> Result<LoadedPolicy> {
        self.load_with(PolicyOptions::default())
    }

    fn load_with(&self, command_line: PolicyOptions) -> Result<LoadedPolicy> {
        load_policy(&self.places, HomeSource::Session, command_line)
    }

    fn effective(&self) -> EffectivePolicy {
        self.load().unwrap().effective
    }

    fn refusal(&self) -> Error {
        self.load().map(|policy| policy.effective.to_string()).expect_err("is taken")
    }

    /// The error as text, without the random name of the directory.
    fn complaint(&self) -> String {
        self.refusal().to_string().replace(self.directory.path().to_str().unwrap(), "")
    }
}

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}
