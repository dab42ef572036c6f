//! Finds a program on the host, and what of the host it needs in the sandbox (DECISIONS 25).

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Directories of the host that every sandbox has.
const IN_THE_ROOT: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// A program of the host that lies outside the private root.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Outside {
    /// The real file, to be executed.
    pub(super) file: PathBuf,
    /// What is bound read-only for it: its package, or its directory, or the file alone.
    pub(super) bind: PathBuf,
}

/// Looks `name` up as a shell would, and tells what it needs; `None` when it is inside anyway, or when it is
/// not on the host, so that the sandbox itself says "not found".
pub(super) fn outside(name: &OsStr, path: Option<&OsStr>, visible: &[PathBuf]) -> Option<Outside> {
    let found = lookup(name, path)?;
    let file = found.canonicalize().ok()?;
    let inside = |path: &Path| {
        IN_THE_ROOT.iter().any(|root| path.starts_with(root)) || visible.iter().any(|v| path.starts_with(v))
    };
    if inside(&file) && inside(&found) {
        return None;
    }
    let bind = if inside(&file) { file.clone() } else { package(&file) };
    Some(Outside { file, bind })
}

/// Whether a program of this name is on the caller's PATH.
pub(super) fn on_path(name: &str) -> bool {
    lookup(OsStr::new(name), std::env::var_os("PATH").as_deref()).is_some()
}

/// Looks `name` up on the host as a shell would.
pub(super) fn lookup(name: &OsStr, path: Option<&OsStr>) -> Option<PathBuf> {
    if name.as_encoded_bytes().contains(&b'/') {
        return std::path::absolute(name).ok().filter(|path| is_program(path));
    }
    let path: OsString = path.map_or_else(|| "/usr/local/bin:/usr/bin:/bin".into(), OsStr::to_owned);
    std::env::split_paths(&path)
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(name))
        .find(|candidate| is_program(candidate))
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// The nearest `node_modules/<package>` (with its scope), else the directory of the file; never a home, the
/// root or a directory that many share: then the file alone.
fn package(file: &Path) -> PathBuf {
    for ancestor in file.ancestors().skip(1) {
        let Some(parent) = ancestor.parent() else { break };
        let parent_name = parent.file_name().unwrap_or_default();
        let scoped = parent_name.as_encoded_bytes().starts_with(b"@")
            && parent.parent().and_then(Path::file_name) == Some(OsStr::new("node_modules"));
        // `@scope` holds packages, `.bin` holds programs of many.
        let plain = parent_name == "node_modules"
            && !ancestor
                .file_name()
                .unwrap_or_default()
                .as_encoded_bytes()
                .first()
                .is_some_and(|first| b"@.".contains(first));
        if scoped || plain {
            return ancestor.to_owned();
        }
    }
    match file.parent() {
        Some(directory)
            if !is_home_or_above(directory)
                && !is_shared(directory)
                && !directory.ends_with("node_modules/.bin") =>
        {
            directory.to_owned()
        }
        _ => file.to_owned(),
    }
}

/// Whether a directory holds what has nothing to do with a program in it: the host's files for all, and the
/// sockets of other programs, as /tmp does.
fn is_shared(directory: &Path) -> bool {
    const SHARED: [&str; 8] = ["/etc", "/run", "/var", "/var/lib", "/opt", "/srv", "/mnt", "/media"];
    let anybody_writes = || directory.metadata().is_ok_and(|meta| meta.permissions().mode() & 0o002 != 0);
    SHARED.iter().any(|shared| directory == Path::new(shared)) || anybody_writes()
}

/// Whether `directory` is a home of somebody, or holds homes, or is the root.
pub(super) fn is_home_or_above(directory: &Path) -> bool {
    homes().iter().any(|home| home.starts_with(directory))
}

/// The homes that are known: the caller's, and those of /etc/passwd.
fn homes() -> Vec<PathBuf> {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    // System users have homes such as / and /bin, which say nothing.
    let listed = passwd.lines().filter_map(|line| line.split(':').nth(5)).map(PathBuf::from);
    let mut homes: Vec<PathBuf> =
        listed.filter(|home| home.starts_with("/home") || home.starts_with("/root")).collect();
    homes.extend(std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute()));
    homes.extend(["/home/x".into(), "/root".into()]);
    let real: Vec<PathBuf> = homes.iter().filter_map(|home| home.canonicalize().ok()).collect();
    homes.extend(real);
    homes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_of_node_is_bound_whole() {
        let cases = [
            ("/opt/n/lib/node_modules/@a/b/bin/c.js", "/opt/n/lib/node_modules/@a/b"),
            ("/opt/n/node_modules/b/c.js", "/opt/n/node_modules/b"),
            ("/opt/n/node_modules/@a/b/node_modules/c/d", "/opt/n/node_modules/@a/b/node_modules/c"),
            ("/opt/tool/bin/x", "/opt/tool/bin"),
            ("/opt/n/node_modules/.bin/c", "/opt/n/node_modules/.bin/c"),
        ];
        for (file, bind) in cases {
            assert_eq!(package(file.as_ref()), Path::new(bind), "{file}");
        }
    }

    #[test]
    fn a_home_is_never_bound_for_a_program_in_it() {
        assert_eq!(package("/root/tool".as_ref()), Path::new("/root/tool"));
        assert_eq!(package("/tool".as_ref()), Path::new("/tool"));
    }

    #[test]
    fn a_directory_for_all_is_never_bound_for_a_program_in_it() {
        assert_eq!(package("/tmp/tool".as_ref()), Path::new("/tmp/tool"));
        assert_eq!(package("/opt/tool".as_ref()), Path::new("/opt/tool"));
    }
}
