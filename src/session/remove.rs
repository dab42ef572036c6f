//! The removal of a session. An agent may have made its tree of any depth and any modes.

use super::beneath;
use crate::error::{Error, Result};
use std::os::fd::AsFd;
use std::path::Path;

/// Removes `directory` and all below it, following no link.
///
/// # Errors
/// [`crate::error::Code::System`].
pub fn directory(directory: &Path) -> Result<()> {
    let fail = |e: std::io::Error| Error::system(format_args!("remove {}", directory.display()), e);
    let (Some(parent), Some(name)) = (directory.parent(), directory.file_name()) else {
        return Err(fail(std::io::ErrorKind::InvalidInput.into()));
    };
    let parent = beneath::root(parent).map_err(fail)?;
    beneath::remove(parent.as_fd(), name).map_err(fail)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn any_tree_goes_and_what_links_name_stays() {
        let place = tempfile::tempdir().unwrap();
        let (session, other) = (place.path().join("s"), place.path().join("other"));
        fs::create_dir(&other).unwrap();
        fs::write(other.join("kept"), "").unwrap();
        fs::create_dir_all(session.join("home/closed/inner")).unwrap();
        symlink(&other, session.join("home/closed/link")).unwrap();
        symlink(&other, session.join("link")).unwrap();
        for closed in ["home/closed/inner", "home/closed"] {
            fs::set_permissions(session.join(closed), fs::Permissions::from_mode(0o0)).unwrap();
        }
        // Deeper than a path is long, and than a process has descriptors.
        let here = nix::fcntl::open(&session, nix::fcntl::OFlag::O_DIRECTORY, nix::sys::stat::Mode::empty());
        let mut here = here.unwrap();
        for _ in 0..3000 {
            nix::sys::stat::mkdirat(&here, "deep-deep-deep", nix::sys::stat::Mode::S_IRWXU).unwrap();
            let flags = nix::fcntl::OFlag::O_DIRECTORY;
            here = nix::fcntl::openat(&here, "deep-deep-deep", flags, nix::sys::stat::Mode::empty()).unwrap();
        }
        super::directory(&session).unwrap();
        assert!(!session.exists() && other.join("kept").exists());
    }
}
