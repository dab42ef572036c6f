//! The files of an agent's folder, as a deployment has them: `files` of `POST /api/agents` (saggar-server(8)).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use saggar_sys::error::{Code, Error, Result};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

/// Names that are left out, with everything below them: repositories, caches and installed packages.
const SKIPPED: [&str; 9] =
    [".git", "node_modules", "__pycache__", ".cache", ".npm", ".pnpm-store", ".yarn", ".venv", "venv"];
/// How names with secrets begin; they are left out.
const SECRETS: &str = ".env";
/// The file that makes a folder an agent's.
const PROMPT_FILE: &str = "CLAUDE.md";
/// Maximum size of all files, in bytes: with base64 it is within the limit of a request.
const MAX_SIZE: u64 = 128 << 20;

/// What is deployed of a folder.
#[derive(Debug, Default)]
pub struct FolderFiles {
    /// Objects with `path` and `content` in base64.
    pub files: Vec<Value>,
    /// Paths that are not deployed, with the reason.
    pub skipped: Vec<String>,
    size: u64,
}

/// Reads a folder. Symbolic links and special files are left out and listed in [`FolderFiles::skipped`], as are files
/// with secrets; [`SKIPPED`] names are left out without a word.
///
/// # Errors
/// [`Code::Usage`] for a folder without `CLAUDE.md`, [`Code::Invalid`] for a name that is not UTF-8 and for too many
/// bytes, [`Code::System`].
pub fn read_folder(folder: &Path) -> Result<FolderFiles> {
    match folder.join(PROMPT_FILE).symlink_metadata() {
        Ok(metadata) if metadata.is_file() => {}
        // Without it, the agent would get the default prompt of the server.
        Ok(_) => {
            let message = format!("{PROMPT_FILE} in {} is not a regular file", folder.display());
            return Err(Error::new(Code::Usage, message)
                .hint("links are not sent: replace it by a file with the same content"));
        }
        Err(_) => {
            return Err(Error::new(Code::Usage, format!("{} has no {PROMPT_FILE}", folder.display()))
                .hint("name the folder of an agent, such as examples/hello"));
        }
    }
    let mut found = FolderFiles::default();
    found.add_directory(folder, "")?;
    Ok(found)
}

impl FolderFiles {
    /// Adds what is below a directory, whose path in the folder is `prefix`, with a slash at its end unless it is empty.
    fn add_directory(&mut self, directory: &Path, prefix: &str) -> Result<()> {
        let fail = |error| Error::system(format_args!("read {}", directory.display()), error);
        let mut entries: Vec<_> =
            fs::read_dir(directory).and_then(|entries| entries.collect()).map_err(fail)?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            let Ok(name) = entry.file_name().into_string() else {
                return Err(Error::new(Code::Invalid, format!("the name of {path:?} is not UTF-8")));
            };
            let kind = entry.file_type().map_err(fail)?;
            let inside = format!("{prefix}{name}");
            if SKIPPED.contains(&name.as_str()) {
                continue;
            }
            if name.starts_with(SECRETS) {
                self.skipped.push(format!("{inside} (may have secrets)"));
            } else if kind.is_dir() {
                self.add_directory(&path, &format!("{inside}/"))?;
            } else if !kind.is_file() {
                self.skipped.push(format!("{inside} (not a regular file)"));
            } else {
                self.add_file(&path, &inside)?;
            }
        }
        Ok(())
    }

    fn add_file(&mut self, path: &Path, inside: &str) -> Result<()> {
        let fail = |error| Error::system(format_args!("read {}", path.display()), error);
        let mut content = Vec::new();
        let left = MAX_SIZE - self.size;
        let read = File::open(path).and_then(|file| file.take(left + 1).read_to_end(&mut content));
        let size = u64::try_from(read.map_err(fail)?).unwrap_or(u64::MAX);
        if size > left {
            return Err(Error::new(Code::Invalid, "the files of the folder have more than 128 MiB")
                .hint("leave large files out, or write them to the workspace of a session"));
        }
        self.size += size;
        self.files.push(json!({ "path": inside, "content": STANDARD.encode(content) }));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_deployed_without_links_secrets_and_packages() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        for directory in [".claude/skills", "node_modules/a", ".git", ".env"] {
            fs::create_dir_all(at(directory)).unwrap();
        }
        for file in [
            "CLAUDE.md",
            ".claude/skills/a.md",
            "node_modules/a/index.js",
            ".git/config",
            ".env/bin",
            ".env.local",
        ] {
            fs::write(at(file), file).unwrap();
        }
        std::os::unix::fs::symlink("/etc/passwd", at("link")).unwrap();
        let found = read_folder(folder.path()).unwrap();
        let paths: Vec<_> = found.files.iter().map(|file| file["path"].as_str().unwrap()).collect();
        assert_eq!(paths, [".claude/skills/a.md", "CLAUDE.md"]);
        assert_eq!(found.files[1]["content"], STANDARD.encode("CLAUDE.md"));
        assert_eq!(
            found.skipped,
            [".env (may have secrets)", ".env.local (may have secrets)", "link (not a regular file)"]
        );
    }

    #[test]
    fn a_folder_of_no_agent_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read_folder(folder.path()).unwrap_err().code(), Code::Usage);
        std::os::unix::fs::symlink("AGENTS.md", folder.path().join("CLAUDE.md")).unwrap();
        let error = read_folder(folder.path()).unwrap_err();
        assert!(error.to_string().contains("not a regular file"), "{error}");
    }
}
