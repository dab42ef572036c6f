//! Where the cgroup of a sandbox can be made so that limits hold in it. This module only looks;
//! [`crate::cgroup::agent`] makes the cgroup.
//!
//! | parent | for whom limits hold there |
//! |---|---|
//! | our own cgroup | everyone who is alone in one that was delegated |
//! | a cgroup at the root of the mount, saggar.slice by default | root |
//! | a scope of systemd, in that slice | root, if the policy says so: saggar asks for the scope and enters it |
//! | a scope of the user's systemd | an ordinary user, in any session, in the same way |
//! | the cgroup above our own | a user to whom that was delegated, without systemd |
//!
//! A cgroup with processes cannot give controllers to its children (cgroups(7), "no internal processes"). So our own cgroup
//! will do only if every process in it can be moved to a leaf, and no process of others is moved.

use super::bus_address::{self, BusAddress};
use super::cgroups::{controllers_for_children, has_processes, is_hierarchy_root, own_processes, read_words};
use crate::spec::RootCgroupSpec;
use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};
use nix::unistd::{AccessFlags, access, geteuid};
use saggar_sys::read::kernel_text;
use std::fmt;
use std::path::{Path, PathBuf};

/// The slice of systemd for scopes of programs that a user starts (systemd.special(7)).
pub(crate) const SCOPE_SLICE: &str = "app.slice";
/// Prefix of the names of cgroups of sandboxes.
pub(crate) const NAME_PREFIX: &str = "saggar-";
/// Prefix of the names of scopes of sandboxes; those of containers have `saggar-`.
pub(crate) const SCOPE_PREFIX: &str = "saggar-sandbox-";

/// The parent of a sandbox's cgroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CgroupParent {
    /// Our own cgroup.
    Own(PathBuf),
    /// The cgroup for the sandboxes that root starts, which may be missing. It stays when they end.
    Slice(PathBuf),
    /// A scope of systemd that is still to be made.
    Scope {
        /// The cgroup of the manager.
        manager: PathBuf,
        /// The name of the slice for the scope.
        slice: String,
    },
    /// The cgroup above our own.
    Above(PathBuf),
}

/// What decides.
#[derive(Debug)]
struct CgroupSite {
    /// The mount point of the unified hierarchy.
    mount: PathBuf,
    own: PathBuf,
    is_root: bool,
    /// The cgroup of the user's systemd, if it runs.
    manager: Option<PathBuf>,
    root: RootCgroupSpec,
}

impl CgroupParent {
    /// The first parent that gives the most of these controllers; our own cgroup if none gives any. `None` without a
    /// unified hierarchy.
    pub fn choose(needed: &[&str], root: &RootCgroupSpec) -> Option<Self> {
        CgroupSite::of_this_process(root).map(|site| site.choose(needed))
    }

    /// As [`CgroupParent::choose`], without a scope of an ordinary user's systemd.
    pub(crate) fn choose_without_scope(needed: &[&str], root: &RootCgroupSpec) -> Option<Self> {
        CgroupSite::of_this_process(root).map(|site| CgroupSite { manager: None, ..site }.choose(needed))
    }

    /// Our own cgroup.
    pub fn own() -> Option<Self> {
        own_cgroup(unified_mount()?).map(CgroupParent::Own)
    }

    /// The path of the cgroup of the sandbox `id`.
    pub fn child(&self, id: &str) -> PathBuf {
        let name = format!("{NAME_PREFIX}{id}");
        match self {
            CgroupParent::Own(path) | CgroupParent::Slice(path) | CgroupParent::Above(path) => {
                path.join(name)
            }
            CgroupParent::Scope { manager, slice } => {
                let slice = slice_path(slice).unwrap_or_default();
                manager.join(slice).join(format!("{SCOPE_PREFIX}{id}.scope")).join(&name)
            }
        }
    }

    /// The cgroup that says which controllers there are.
    pub fn source(&self) -> &Path {
        match self {
            CgroupParent::Slice(path) => path.parent().unwrap_or(path),
            CgroupParent::Own(path)
            | CgroupParent::Above(path)
            | CgroupParent::Scope { manager: path, .. } => path,
        }
    }

    /// The controllers that a sandbox has there.
    pub fn controllers(&self) -> Vec<String> {
        let source = self.source();
        match self {
            CgroupParent::Own(_) => controllers_for_children(source),
            // The cgroup of a container, with processes in it.
            CgroupParent::Slice(_) if !is_hierarchy_root(source) && has_processes(source) => {
                read_words(source, "cgroup.subtree_control")
            }
            CgroupParent::Slice(_) | CgroupParent::Scope { .. } => read_words(source, "cgroup.controllers"),
            CgroupParent::Above(_) => read_words(source, "cgroup.subtree_control"),
        }
    }

    /// Why no cgroup can be made there.
    ///
    /// # Errors
    /// The error number of access(2).
    pub fn check_writable(&self) -> nix::Result<()> {
        match self {
            CgroupParent::Scope { .. } => Ok(()),
            CgroupParent::Slice(path) if path.exists() => access(path, AccessFlags::W_OK),
            parent => access(parent.source(), AccessFlags::W_OK),
        }
    }
}

impl fmt::Display for CgroupParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CgroupParent::Own(path) | CgroupParent::Slice(path) | CgroupParent::Above(path) => {
                write!(f, "{}", path.display())
            }
            CgroupParent::Scope { manager, slice } => {
                let slice = slice_path(slice).unwrap_or_default();
                write!(f, "a scope of systemd, {}", manager.join(slice).display())
            }
        }
    }
}

impl CgroupSite {
    fn of_this_process(root: &RootCgroupSpec) -> Option<Self> {
        let mount = unified_mount()?;
        let uid = geteuid();
        let manager = Path::new(mount).join(format!("user.slice/user-{uid}.slice/user@{uid}.service"));
        // Its cgroup may be there without it, as in a container.
        let runs = || bus_address::addresses(true).iter().any(BusAddress::exists);
        Some(CgroupSite {
            own: own_cgroup(mount)?,
            mount: mount.into(),
            is_root: uid.is_root(),
            manager: (manager.exists() && runs()).then_some(manager),
            root: root.clone(),
        })
    }

    fn choose(&self, needed: &[&str]) -> CgroupParent {
        let own = || CgroupParent::Own(self.own.clone());
        let RootCgroupSpec { parent, uses_systemd } = &self.root;
        if self.is_root && *uses_systemd {
            // Asked for: nothing else will do.
            return CgroupParent::Scope { manager: self.mount.clone(), slice: parent.as_str().to_owned() };
        }
        let is_alone = own_processes(&self.own).is_some();
        let candidates = [
            is_alone.then(own),
            self.is_root.then(|| CgroupParent::Slice(self.mount.join(parent.as_str()))),
            self.manager
                .clone()
                .filter(|_| !self.is_root)
                .map(|manager| CgroupParent::Scope { manager, slice: SCOPE_SLICE.to_owned() }),
            self.above().map(CgroupParent::Above),
            Some(own()),
        ];
        let controllers = |parent: &CgroupParent| match parent {
            CgroupParent::Own(own) if is_alone => read_words(own, "cgroup.controllers"),
            parent => parent.controllers(),
        };
        let given = |parent: &CgroupParent| match parent.check_writable() {
            Ok(()) => controllers(parent).iter().filter(|name| needed.contains(&name.as_str())).count(),
            Err(_) => 0,
        };
        // Our own cgroup can be frozen and killed even where it gives no controller.
        let (mut best, mut most) = (own(), 0);
        for parent in candidates.into_iter().flatten() {
            let count = given(&parent);
            if count > most {
                (best, most) = (parent, count);
            }
            if most == needed.len() {
                break;
            }
        }
        best
    }

    /// The cgroup above our own, if processes can be moved from here to a cgroup in it ("Delegation containment").
    fn above(&self) -> Option<PathBuf> {
        let above = self.own.parent().filter(|above| above.starts_with(&self.mount))?;
        access(&above.join("cgroup.procs"), AccessFlags::W_OK).is_ok().then(|| above.to_owned())
    }
}

/// The directory of a slice below the cgroup of its manager: `a-b.slice` is in `a.slice` (systemd.slice(5)). `None` if this
/// cannot be the name of a slice.
pub(crate) fn slice_path(slice: &str) -> Option<PathBuf> {
    let name = slice.strip_suffix(".slice").filter(|name| !name.is_empty() && !name.contains('/'))?;
    if name == "-" {
        return Some(PathBuf::new());
    }
    if name.split('-').any(str::is_empty) {
        return None;
    }
    let ends = name.match_indices('-').map(|(end, _)| end).chain([name.len()]);
    Some(ends.filter_map(|end| name.get(..end)).map(|part| format!("{part}.slice")).collect())
}

/// The mount point of the unified hierarchy.
pub(crate) fn unified_mount() -> Option<&'static str> {
    ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
        .into_iter()
        .find(|path| statfs(*path).is_ok_and(|fs| fs.filesystem_type() == CGROUP2_SUPER_MAGIC))
}

/// Our own cgroup in the unified hierarchy.
pub fn own_cgroup(mount: &str) -> Option<PathBuf> {
    process_cgroup(mount, "self")
}

/// The cgroup of a process, by its directory in /proc, in the unified hierarchy.
pub(crate) fn process_cgroup(mount: &str, process: &str) -> Option<PathBuf> {
    let own = kernel_text(&Path::new("/proc").join(process).join("cgroup")).ok()?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    // No slash at its end where it is the mount itself.
    Some(Path::new(mount).join(own).components().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const NEEDED: [&str; 3] = ["cpu", "memory", "pids"];

    /// A directory that plays the mount of a hierarchy, with our own cgroup at `a/own`.
    struct Host {
        scratch: tempfile::TempDir,
        root: RootCgroupSpec,
    }

    impl Host {
        fn new() -> Self {
            let host = Host { scratch: tempfile::tempdir().unwrap(), root: RootCgroupSpec::default() };
            host.cgroup("", "cpu memory pids", "cpu memory pids", "");
            host.cgroup("a", "cpu memory pids", "", "");
            host.cgroup("a/own", "cpu memory pids", "", "1");
            host
        }

        fn path(&self, path: &str) -> PathBuf {
            self.scratch.path().join(path)
        }

        /// A cgroup with these controllers, those that it gives, and its processes.
        fn cgroup(&self, path: &str, has: &str, gives: &str, processes: &str) {
            let path = self.path(path);
            fs::create_dir_all(&path).unwrap();
            let is_root = path == self.scratch.path();
            let kind = (!is_root).then_some(("cgroup.type", "domain"));
            for (file, text) in
                [("cgroup.controllers", has), ("cgroup.subtree_control", gives), ("cgroup.procs", processes)]
                    .into_iter()
                    .chain(kind)
            {
                fs::write(path.join(file), text).unwrap();
            }
        }

        fn choose(&self, is_root: bool, manager: Option<&str>) -> CgroupParent {
            let (mount, own) = (self.scratch.path().to_owned(), self.path("a/own"));
            let manager = manager.map(|path| self.path(path));
            CgroupSite { mount, own, is_root, manager, root: self.root.clone() }.choose(&NEEDED)
        }
    }

    #[test]
    fn who_is_alone_stays() {
        let host = Host::new();
        host.cgroup("a/own", "cpu memory pids", "", &std::process::id().to_string());
        for (is_root, manager) in [(true, None), (false, Some("a"))] {
            assert_eq!(host.choose(is_root, manager), CgroupParent::Own(host.path("a/own")));
        }
        // But not where others give more.
        host.cgroup("a/own", "memory pids", "", &std::process::id().to_string());
        assert_eq!(host.choose(true, None), CgroupParent::Slice(host.path("saggar.slice")));
    }

    #[test]
    fn root_has_a_slice() {
        let host = Host::new();
        let slice = CgroupParent::Slice(host.path("saggar.slice"));
        assert_eq!(host.choose(true, Some("a")), slice);
        assert_eq!(slice.child("x"), host.path("saggar.slice/saggar-x"));
        assert_eq!(slice.controllers(), NEEDED);
        // The root of a cgroup namespace gives its enabled controllers if it has processes, and otherwise all.
        fs::write(host.path("cgroup.type"), "domain").unwrap();
        fs::write(host.path("cgroup.subtree_control"), "pids").unwrap();
        assert_eq!((host.choose(true, None), slice.controllers().len()), (slice.clone(), 3));
        fs::write(host.path("cgroup.procs"), "1").unwrap();
        assert_eq!((host.choose(true, None), slice.controllers()), (slice, vec!["pids".to_owned()]));
        fs::write(host.path("cgroup.subtree_control"), "").unwrap();
        assert_eq!(host.choose(true, None), CgroupParent::Own(host.path("a/own")));
    }

    #[test]
    fn the_slice_of_root_has_another_name_or_is_of_systemd() {
        let mut host = Host::new();
        host.root.parent = "agents-ci.slice".parse().unwrap();
        assert_eq!(host.choose(true, None), CgroupParent::Slice(host.path("agents-ci.slice")));
        host.root.uses_systemd = true;
        let scope = host.choose(true, None);
        assert_eq!(
            scope.child("x"),
            host.path("agents.slice/agents-ci.slice/saggar-sandbox-x.scope/saggar-x")
        );
        assert_eq!(
            (scope.source(), scope.controllers()),
            (host.scratch.path(), NEEDED.map(str::to_owned).into())
        );
        // That is of no concern to ordinary users.
        assert_eq!(host.choose(false, None), CgroupParent::Own(host.path("a/own")));
    }

    #[test]
    fn a_user_asks_systemd_or_takes_what_lies_above() {
        let host = Host::new();
        let own = CgroupParent::Own(host.path("a/own"));
        assert_eq!(host.choose(false, None), own);
        host.cgroup("a", "cpu memory pids", "memory pids", "");
        assert_eq!(host.choose(false, None), CgroupParent::Above(host.path("a")));
        host.cgroup("manager", "memory pids", "", "");
        let scope = host.choose(false, Some("manager"));
        assert_eq!(scope, CgroupParent::Scope { manager: host.path("manager"), slice: SCOPE_SLICE.into() });
        assert_eq!(scope.child("x"), host.path("manager/app.slice/saggar-sandbox-x.scope/saggar-x"));
        host.cgroup("manager", "", "", "");
        assert_eq!(host.choose(false, Some("manager")), CgroupParent::Above(host.path("a")));
        host.cgroup("a", "", "", "");
        assert_eq!(host.choose(false, Some("manager")), own);
    }
}
