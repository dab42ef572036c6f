//! Files of attachments: `attachments/SESSION/ID` in the data directory. The file name of the client is only in the
//! database.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// Returns the file of an attachment.
pub fn attachment_file(data_dir: &Path, session: Uuid, id: Uuid) -> PathBuf {
    session_directory(data_dir, session).join(id.to_string())
}

fn session_directory(data_dir: &Path, session: Uuid) -> PathBuf {
    data_dir.join("attachments").join(session.to_string())
}

/// Creates the file of an attachment with mode 0600, in directories with mode 0700.
///
/// # Errors
/// Fails if the file cannot be written; then it does not exist.
pub fn write(data_dir: &Path, session: Uuid, id: Uuid, content: &[u8]) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(session_directory(data_dir, session))?;
    let path = attachment_file(data_dir, session, id);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    file.write_all(content).inspect_err(|_| {
        // The error of the write is the one to report.
        let _ = fs::remove_file(&path);
    })
}

/// Removes the files of all attachments of a session. It is not an error if there are none.
///
/// # Errors
/// Fails if a file cannot be removed.
pub fn remove_all(data_dir: &Path, session: Uuid) -> io::Result<()> {
    match fs::remove_dir_all(session_directory(data_dir, session)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Returns whether a file name is one component that can be created below a directory of a workspace.
pub fn is_safe_name(name: &str) -> bool {
    (1..=255).contains(&name.len())
        && name != "."
        && name != ".."
        && !name.contains(|character: char| character == '/' || character.is_control())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn files_are_private_and_removed_together() {
        let data = tempfile::tempdir().unwrap();
        let (session, id) = (Uuid::new_v4(), Uuid::new_v4());
        write(data.path(), session, id, b"x").unwrap();
        assert!(write(data.path(), session, id, b"y").is_err());
        let file = attachment_file(data.path(), session, id);
        assert_eq!(fs::read(&file).unwrap(), b"x");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
        assert_eq!(mode(&data.path().join("attachments")), 0o700);
        remove_all(data.path(), session).unwrap();
        assert!(!file.exists());
        remove_all(data.path(), session).unwrap();
    }

    #[test]
    fn names_are_one_component() {
        for name in ["a", "a b.txt", ".hidden", "ä", "..a"] {
            assert!(is_safe_name(name), "{name}");
        }
        for name in ["", ".", "..", "a/b", "/", "a/", "a\0", "a\nb", &"x".repeat(256)] {
            assert!(!is_safe_name(name), "{name}");
        }
    }
}
