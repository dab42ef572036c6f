//! Finds a program on the host, and what of the host it needs in the sandbox (DECISIONS 25).

use crate::error::{Code, Error, Result};
use crate::spec::policy::{FolderValue, PolicyLayer, Provenance, SYSTEM_TREES, Setting, TrustedValue};
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

/// How many links a path may lead over, as in the kernel (path_resolution(7)).
const MAX_LINKS: usize = 40;

/// A program of the host that lies outside the private root.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ProgramBind {
    /// The real file, to be executed.
    pub(crate) file: PathBuf,
    /// What is bound read-only for it: its package, or its directory, or the file alone.
    pub(crate) bind: PathBuf,
    /// Who named it.
    pub(crate) named_by: PolicyLayer,
}

/// What of the host stands inside whatever the program is.
#[derive(Debug, Default)]
pub(crate) struct VisibleTrees {
    /// Beside the system's own: the workspace, and what was named to be bound.
    pub(crate) visible: Vec<PathBuf>,
    /// Those that somebody else may write, without links: a link in them never chooses what is bound.
    pub(crate) untrusted: Vec<PathBuf>,
    /// Where programs are started.
    pub(crate) workspace: PathBuf,
}

/// The real place of a path.
struct ResolvedPath {
    file: PathBuf,
    /// The first link in an untrusted tree that led there.
    link: Option<PathBuf>,
}

/// Looks a program up as a shell would, and tells what it needs; `None` when it is inside anyway, or when it is not on
/// the host, so that the sandbox itself says "not found". A folder that names one gets nothing bound but what the
/// caller's PATH finds.
///
/// # Errors
/// [`Code::Refused`] when a folder or a link in an untrusted tree leads to what does not stand inside.
pub(crate) fn find_program_bind(
    program: &Setting<OsString>,
    path: Option<&OsStr>,
    trees: &VisibleTrees,
) -> Result<Option<ProgramBind>> {
    let trusted = match program.provenance() {
        Provenance::Trusted(name) => name,
        Provenance::FromFolder(name) => match name.bare_name() {
            Ok(name) => name,
            Err(path) => return trees.check_folder_path(path, &program.layer).map(|()| None),
        },
    };
    trees.program_bind(trusted, path, &program.layer)
}

impl VisibleTrees {
    fn program_bind(
        &self,
        name: TrustedValue<&OsString>,
        path: Option<&OsStr>,
        by: &PolicyLayer,
    ) -> Result<Option<ProgramBind>> {
        let Some(found) = lookup(name.get(), path) else { return Ok(None) };
        let Some(ResolvedPath { file, link }) = self.resolve(&found) else { return Ok(None) };
        if self.is_visible(&file) && self.is_visible(&found) {
            return Ok(None);
        }
        if self.is_visible(&file) {
            return Ok(Some(ProgramBind { bind: file.clone(), file, named_by: by.clone() }));
        }
        if let Some(link) = link {
            let (shown, link, file) = (name.get().display(), link.display(), file.display());
            let message =
                format!("run {shown}: the link {link} leads to {file}, which is not available inside");
            return Err(Error::new(Code::Refused, message)
                .hint("what lies in the workspace shows nothing of the host: name that file itself, or show it with --ro"));
        }
        Ok(Some(ProgramBind { bind: package_root(&file), file, named_by: by.clone() }))
    }

    /// Refuses a path that a folder names and that leads to what does not stand inside.
    fn check_folder_path(&self, path: FolderValue<&OsString>, by: &PolicyLayer) -> Result<()> {
        let path = path.path();
        match self.resolve(&self.workspace.join(path)) {
            Some(ResolvedPath { file, .. }) if !self.is_visible(&file) => {
                let (shown, file) = (path.display(), file.display());
                let message = format!(
                    "{by} asks for agent_cmd = {shown}, which leads to {file}, which is not available inside"
                );
                Err(Error::new(Code::Refused, message).hint(
                    "a file of the folder is named as ./FILE; to show more, use --agent-cmd, --ro or --policy FILE",
                ))
            }
            _ => Ok(()),
        }
    }

    fn is_visible(&self, path: &Path) -> bool {
        SYSTEM_TREES.iter().any(|root| path.starts_with(root))
            || self.visible.iter().any(|v| path.starts_with(v))
    }

    /// Where a path leads, link by link, as the kernel goes; `None` when that is nowhere.
    fn resolve(&self, path: &Path) -> Option<ResolvedPath> {
        let (mut real, mut link, mut links) = (PathBuf::from("/"), None, 0);
        let mut rest: Vec<OsString> = Vec::new();
        let push = |rest: &mut Vec<OsString>, path: &Path| {
            let named = |part: &Component<'_>| matches!(part, Component::Normal(_) | Component::ParentDir);
            rest.extend(path.components().rev().filter(named).map(|part| part.as_os_str().to_owned()));
        };
        push(&mut rest, path);
        while let Some(next) = rest.pop() {
            if next == ".." {
                real.pop();
                continue;
            }
            let at = real.join(next);
            if !at.symlink_metadata().ok()?.file_type().is_symlink() {
                real = at;
                continue;
            }
            links += 1;
            if links > MAX_LINKS {
                return None;
            }
            let target = at.read_link().ok()?;
            if link.is_none() && self.untrusted.iter().any(|tree| real.starts_with(tree)) {
                link = Some(at);
            }
            if target.is_absolute() {
                real = PathBuf::from("/");
            }
            push(&mut rest, &target);
        }
        Some(ResolvedPath { file: real, link })
    }
}

/// Whether a program of this name is on the caller's PATH.
pub(crate) fn on_path(name: &str) -> bool {
    lookup(OsStr::new(name), std::env::var_os("PATH").as_deref()).is_some()
}

/// Looks `name` up on the host as a shell would.
pub(crate) fn lookup(name: &OsStr, path: Option<&OsStr>) -> Option<PathBuf> {
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
fn package_root(file: &Path) -> PathBuf {
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
pub(crate) fn is_home_or_above(directory: &Path) -> bool {
    homes().iter().any(|home| home.starts_with(directory))
}

/// Whether `directory` is, or is in, a directory of a home whose name begins with a dot: what is in it is configuration and
/// state of programs.
pub(crate) fn is_in_hidden_directory_of_home(directory: &Path) -> bool {
    let begins_with_dot = |path: &Path| {
        path.components().next().is_some_and(|first| first.as_os_str().as_encoded_bytes().starts_with(b"."))
    };
    homes().iter().any(|home| directory.strip_prefix(home).is_ok_and(begins_with_dot))
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
            assert_eq!(package_root(file.as_ref()), Path::new(bind), "{file}");
        }
    }

    #[test]
    fn a_link_in_an_untrusted_tree_never_chooses_what_is_bound() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        let path = |name: &str| root.join(name);
        for directory in ["work/sub", "host", "links"] {
            std::fs::create_dir_all(path(directory)).unwrap();
        }
        let tool = |name: &str| {
            std::fs::write(path(name), "").unwrap();
            std::fs::set_permissions(path(name), std::fs::Permissions::from_mode(0o755)).unwrap();
        };
        tool("host/tool");
        tool("work/own");
        let link = |target: PathBuf, name: &str| std::os::unix::fs::symlink(target, path(name)).unwrap();
        link(path("host/tool"), "work/out");
        link(path("host"), "work/sub/directory");
        link("../../host/tool".into(), "work/sub/up");
        link(path("work/out"), "links/over");
        link(path("host/tool"), "links/straight");
        link("own".into(), "work/inside");
        link("/bin/sh".into(), "work/system");
        let trees = VisibleTrees {
            visible: vec![path("work")],
            untrusted: vec![path("work")],
            workspace: path("work"),
        };
        let ask = |name: &str, layer: PolicyLayer| {
            let result = find_program_bind(&Setting { value: path(name).into(), layer }, None, &trees);
            result.map(|found| found.map(|outside| outside.bind)).map_err(|e| e.code())
        };
        let folder = || PolicyLayer::AgentFolder("saggar.toml");
        for name in ["work/out", "work/sub/directory/tool", "work/sub/up", "links/over"] {
            assert_eq!(ask(name, PolicyLayer::CommandLine), Err(Code::Refused), "{name}");
            assert_eq!(ask(name, folder()), Err(Code::Refused), "{name}");
        }
        for name in ["work/own", "work/inside", "work/system", "work/nothing"] {
            assert_eq!(ask(name, PolicyLayer::CommandLine), Ok(None), "{name}");
            assert_eq!(ask(name, folder()), Ok(None), "{name}");
        }
        // The caller's own words: `..` of theirs leaves the tree too.
        for name in ["host/tool", "links/straight", "work/../host/tool"] {
            assert_eq!(ask(name, PolicyLayer::CommandLine), Ok(Some(path("host"))), "{name}");
            assert_eq!(ask(name, folder()), Err(Code::Refused), "{name}");
        }
    }

    #[test]
    fn a_home_is_never_bound_for_a_program_in_it() {
        assert_eq!(package_root("/root/tool".as_ref()), Path::new("/root/tool"));
        assert_eq!(package_root("/tool".as_ref()), Path::new("/tool"));
    }

    #[test]
    fn a_directory_for_all_is_never_bound_for_a_program_in_it() {
        assert_eq!(package_root("/tmp/tool".as_ref()), Path::new("/tmp/tool"));
        assert_eq!(package_root("/opt/tool".as_ref()), Path::new("/opt/tool"));
    }
}
