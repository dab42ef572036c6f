//! The mounts of a container, as the child makes them.

use super::filesystem::{self, Classic, Words};
use super::{Facts, Hierarchy, c_path, c_text, inside};
use crate::error::{Code, Error, Result};
use crate::spec::container::{Container, ContainerMount, ContainerMountKind, IdMaps, Namespace};
use std::ffi::CString;
use std::fmt;
use std::path::Path;

/// Files of procfs that tools like lxcfs cover.
const MAY_COVER: [&str; 10] = [
    "cpuinfo",
    "diskstats",
    "loadavg",
    "meminfo",
    "slabinfo",
    "stat",
    "swaps",
    "uptime",
    "sys/kernel/ns_last_pid",
    "sys/crypto/fips_enabled",
];

/// Bits of mount_setattr(2) that belong together: who changes one clears them all.
const ATIME: u64 = libc::MOUNT_ATTR__ATIME;

/// One mount. Its place is made where it is missing, as a directory or a file, as the source is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Where, below the root; empty for the root itself.
    pub at: CString,
    /// What.
    pub what: What,
    /// What is taken when the kernel refuses `what` to a user namespace (EPERM).
    pub otherwise: Option<What>,
    /// The attributes of the mount itself.
    pub attributes: Attributes,
    /// Those of the whole tree.
    pub recursive: Attributes,
    /// MS_* propagation flags, in order.
    pub propagation: Vec<u64>,
    /// The SELinux label of its root, for a file system that takes none by an option.
    pub label: Option<CString>,
    /// Whether the path may not be a link, nor lie behind one: procfs and sysfs (CVE-2019-19921).
    pub plain: bool,
    /// Whether it may lie over a file of procfs: only few may (CVE-2019-16884).
    pub may_cover_proc: bool,
    /// Where the mount is kept for a later [`super::Step::Seal`].
    pub keep: Option<usize>,
}

/// What is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A tree of the host.
    Bind {
        /// Absolute path on the host.
        source: CString,
        /// With what is mounted below it.
        recursive: bool,
        /// Which of the received trees it is; else the child opens it.
        received: Option<usize>,
    },
    /// A file system.
    New {
        /// Its type.
        fstype: CString,
        /// Options of fsconfig(2), the source among them.
        options: Vec<Words>,
        /// The same for mount(2), where that is not enough.
        classic: Option<Classic>,
        /// Whether it gets what the root has at its path.
        copy_up: bool,
        /// Whether it gets the mode of what the root has at its path: a tmpfs that is given none.
        take_mode: bool,
    },
    /// Only the attributes of what is there change.
    Change {
        /// Those that change when the kernel refuses a user namespace to clear the others (EPERM).
        otherwise: Option<Attributes>,
    },
    /// The file system that is there is reconfigured, and its mount with it.
    Reconfigure {
        /// MS_* flags.
        flags: u64,
        /// Its options in one line.
        data: CString,
    },
}

/// Attributes of mount_setattr(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attributes {
    /// Set.
    pub set: u64,
    /// Cleared.
    pub clear: u64,
}

impl Attributes {
    pub(super) fn new(set: u64, clear: u64) -> Self {
        let atime = if (set | clear) & ATIME != 0 { ATIME } else { 0 };
        Attributes { set, clear: (clear & !set) | atime }
    }

    /// Whether nothing changes.
    pub fn is_empty(self) -> bool {
        self == Attributes::default()
    }
}

/// A tree that the parent opens in the child's mount namespace, with its own rights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    /// Absolute path on the host.
    pub path: CString,
    /// The directory or file itself, not a copy of its tree.
    pub place: bool,
    /// With what is mounted below it.
    pub recursive: bool,
    /// The maps of its owners: `Some(None)` are those of the container's user namespace.
    pub idmap: Option<Option<IdMaps>>,
    /// Whether the map holds for what is mounted below it, too.
    pub idmap_recursive: bool,
}

/// Turns the mounts of a container into steps.
#[derive(Debug)]
pub(super) struct Mounts<'a> {
    container: &'a Container,
    facts: &'a Facts,
    /// What the parent opens.
    pub(super) trees: Vec<Tree>,
    /// The mounts.
    pub(super) mounts: Vec<Mount>,
    /// Mounts that become read-only in the end; none where a remount has taken that back.
    pub(super) sealed: Vec<Option<CString>>,
    /// Links from the names of controllers to their hierarchy: path and target.
    pub(super) links: Vec<(CString, CString)>,
}

/// The most trees that the parent hands over, and mounts that are kept: the child has no heap for more.
pub const MAX_KEPT: usize = 256;

impl<'a> Mounts<'a> {
    pub(super) fn new(container: &'a Container, facts: &'a Facts) -> Self {
        Mounts {
            container,
            facts,
            trees: Vec::new(),
            mounts: Vec::new(),
            sealed: Vec::new(),
            links: Vec::new(),
        }
    }

    /// Whether the parent opens sources: with a new user namespace its rights reach further than the child's.
    pub(super) fn parent_opens(&self) -> bool {
        self.facts.privileged && self.container.namespaces.has(Namespace::User)
    }

    pub(super) fn add(&mut self, mount: &ContainerMount) -> Result<()> {
        let at = inside(&mount.at)?;
        let attributes = Attributes::new(mount.set, mount.clear);
        let recursive = Attributes::new(mount.set_recursive, mount.clear_recursive);
        let propagation = mount.propagation.clone();
        let mut made = Mount {
            at,
            what: What::Change { otherwise: None },
            otherwise: None,
            attributes,
            recursive,
            propagation,
            label: None,
            plain: false,
            may_cover_proc: MAY_COVER.iter().any(|path| mount.at == Path::new("/proc").join(path)),
            keep: None,
        };
        match &mount.kind {
            ContainerMountKind::Bind { source, recursive } => {
                let received = self.received(source, *recursive, mount)?;
                made.what = What::Bind { source: c_path(source)?, recursive: *recursive, received };
            }
            ContainerMountKind::New { fstype, source, options, superblock, copy_up } => {
                Self::check_new(mount, fstype)?;
                made.plain = matches!(fstype.as_str(), "proc" | "sysfs");
                made.otherwise = self.otherwise(fstype)?;
                made.what =
                    self.new_filesystem(&mut made, (fstype, source), options, *superblock, *copy_up)?;
            }
            ContainerMountKind::Cgroup => return self.cgroup(made),
            ContainerMountKind::Change => {}
            ContainerMountKind::Remount => {
                made.what = What::Change { otherwise: Some(made.attributes) };
                made.attributes = filesystem::exactly(mount);
                self.reopen(&made.at, mount);
            }
            ContainerMountKind::Reconfigure { options, superblock } => {
                let flags = *superblock | filesystem::flags(mount);
                made.what = What::Reconfigure { flags, data: filesystem::line(options)? };
                made.attributes = Attributes::default();
                self.reopen(&made.at, mount);
            }
        }
        self.mounts.push(made);
        Ok(())
    }

    /// A remount has the last word on whether a mount is writable.
    fn reopen(&mut self, at: &CString, mount: &ContainerMount) {
        if mount.set & libc::MOUNT_ATTR_RDONLY == 0 {
            self.sealed
                .iter_mut()
                .filter(|sealed| sealed.as_ref() == Some(at))
                .for_each(|sealed| *sealed = None);
        }
    }

    fn received(&mut self, source: &Path, recursive: bool, mount: &ContainerMount) -> Result<Option<usize>> {
        if mount.idmap.is_some() && !self.facts.privileged {
            let message =
                format!("mount {}: the owners of a tree can be mapped by root only", mount.at.display());
            return Err(Error::new(Code::Unsupported, message));
        }
        if !self.parent_opens() && mount.idmap.is_none() {
            return Ok(None);
        }
        self.trees.push(Tree {
            path: c_path(source)?,
            place: false,
            recursive,
            idmap: mount.idmap.as_ref().map(|idmap| idmap.maps.clone()),
            idmap_recursive: mount.idmap.as_ref().is_some_and(|idmap| idmap.recursive),
        });
        if self.trees.len() > MAX_KEPT {
            return Err(Error::new(Code::Invalid, format!("more than {MAX_KEPT} bind mounts")));
        }
        Ok(Some(self.trees.len() - 1))
    }

    fn check_new(mount: &ContainerMount, fstype: &str) -> Result<()> {
        if mount.idmap.is_some() {
            let message =
                format!("mount {fstype} on {}: only a bind can have its owners mapped", mount.at.display());
            return Err(Error::new(Code::Invalid, message));
        }
        Ok(())
    }

    /// sysfs, procfs and mqueue need a network, pid or ipc namespace of the user namespace's own: without it the
    /// host's are bound.
    fn otherwise(&self, fstype: &str) -> Result<Option<What>> {
        let own = |namespace| self.container.namespaces.has(namespace);
        let path = match fstype {
            "sysfs" => "/sys",
            "proc" if !own(Namespace::Pid) => "/proc",
            "mqueue" if !own(Namespace::Ipc) => "/dev/mqueue",
            _ => return Ok(None),
        };
        Ok(Some(What::Bind { source: c_text(path)?, recursive: true, received: None }))
    }

    fn new_filesystem(
        &mut self,
        made: &mut Mount,
        (fstype, source): (&str, &str),
        given: &[(String, Option<String>)],
        superblock: u64,
        copy_up: bool,
    ) -> Result<What> {
        let mut superblock = superblock;
        // A tmpfs is filled first: with what lay below it, with the places of later mounts, with devices.
        let read_only = made.attributes.set & libc::MOUNT_ATTR_RDONLY != 0;
        if fstype == "tmpfs" && read_only {
            superblock &= !libc::MS_RDONLY;
            made.attributes.set &= !libc::MOUNT_ATTR_RDONLY;
            made.keep = Some(self.sealed.len());
            self.sealed.push(Some(made.at.clone()));
            if self.sealed.len() > MAX_KEPT {
                return Err(Error::new(Code::Invalid, format!("more than {MAX_KEPT} read-only tmpfs")));
            }
        }
        let mut options = Vec::new();
        if source != "none" && !source.is_empty() {
            options.push((c_text("source")?, Some(c_text(source)?)));
        } else {
            options.push((c_text("source")?, Some(c_text(fstype)?)));
        }
        let given = &self.labelled(made, fstype, given)?;
        options.extend(filesystem::options(given, superblock)?);
        let take_mode = fstype == "tmpfs" && !given.iter().any(|(name, _)| name == "mode");
        let classic = filesystem::classic(source, given, superblock)?;
        Ok(What::New { fstype: c_text(fstype)?, options, classic, copy_up, take_mode })
    }

    /// The options with `linux.mountLabel`. The kernel gives procfs and sysfs labels of their own and takes none; a
    /// message queue file system takes it at its root alone.
    fn labelled(
        &self,
        made: &mut Mount,
        fstype: &str,
        given: &[(String, Option<String>)],
    ) -> Result<Vec<(String, Option<String>)>> {
        let mut given = given.to_vec();
        match (&self.container.mount_label, fstype) {
            (None, _) | (Some(_), "proc" | "sysfs") => {}
            (Some(_), _) if !self.facts.selinux => {
                let message = "linux.mountLabel is given, and SELinux is not enabled on this host";
                return Err(
                    Error::new(Code::Unsupported, message).hint("remove linux.mountLabel from config.json")
                );
            }
            (Some(label), "mqueue") => made.label = Some(c_text(label)?),
            (Some(label), _) => given.push(("context".to_owned(), Some(label.clone()))),
        }
        Ok(given)
    }

    /// The container's cgroups: of one hierarchy its own file system or a bind; of several, a tmpfs with a bind for
    /// each.
    fn cgroup(&mut self, made: Mount) -> Result<()> {
        let bind = |hierarchy: &Hierarchy| -> Result<What> {
            Ok(What::Bind { source: c_path(&hierarchy.own)?, recursive: true, received: None })
        };
        let own_namespace = self.container.namespaces.new.contains(&Namespace::Cgroup);
        match self.facts.hierarchies.as_slice() {
            // Without cgroups of its own it sees the host's, and changes none.
            [] => {
                let source = c_text("/sys/fs/cgroup")?;
                let what = What::Bind { source, recursive: true, received: None };
                let recursive = Attributes::new(made.recursive.set | libc::MOUNT_ATTR_RDONLY, 0);
                self.mounts.push(Mount { what, recursive, ..made });
                Ok(())
            }
            [only] if only.name.is_empty() => {
                let fresh = What::New {
                    fstype: c_text("cgroup2")?,
                    options: vec![(c_text("source")?, Some(c_text("cgroup")?))],
                    classic: None,
                    copy_up: false,
                    take_mode: false,
                };
                let (what, otherwise) =
                    if own_namespace { (fresh, Some(bind(only)?)) } else { (bind(only)?, None) };
                self.mounts.push(Mount { what, otherwise, ..made });
                Ok(())
            }
            several => {
                let read_only = made.attributes.set & libc::MOUNT_ATTR_RDONLY != 0;
                let kept = self.sealed.len();
                let options = [("source", "tmpfs"), ("mode", "755"), ("size", "64k")];
                let options = options.map(|(name, value)| Ok((c_text(name)?, Some(c_text(value)?))));
                let tmpfs = What::New {
                    fstype: c_text("tmpfs")?,
                    options: options.into_iter().collect::<Result<_>>()?,
                    classic: None,
                    copy_up: false,
                    take_mode: false,
                };
                let writable =
                    Attributes { set: made.attributes.set & !libc::MOUNT_ATTR_RDONLY, ..made.attributes };
                let keep = read_only.then_some(kept);
                if read_only {
                    self.sealed.push(Some(made.at.clone()));
                }
                self.mounts.push(Mount { what: tmpfs, attributes: writable, keep, ..made.clone() });
                for hierarchy in several {
                    let at = [made.at.as_bytes(), b"/", hierarchy.name.as_bytes()].concat();
                    let at = CString::new(at)
                        .map_err(|_| Error::new(Code::Invalid, "a cgroup with a NUL byte"))?;
                    self.mounts.push(Mount { at, what: bind(hierarchy)?, keep: None, ..made.clone() });
                }
                Ok(())
            }
        }
    }
}

fn shown(at: &CString) -> String {
    format!("/{}", at.to_string_lossy())
}

impl fmt::Display for Mount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            What::Bind { source, .. } => {
                write!(f, "mount {} on {}", source.to_string_lossy(), shown(&self.at))
            }
            What::New { fstype, .. } => {
                write!(f, "mount {} on {}", fstype.to_string_lossy(), shown(&self.at))
            }
            What::Change { .. } => write!(f, "change the mount at {}", shown(&self.at)),
            What::Reconfigure { .. } => write!(f, "reconfigure the mount at {}", shown(&self.at)),
        }?;
        let Attributes { set, clear } = self.attributes;
        if set | clear != 0 { write!(f, " with {set:#x}, without {clear:#x}") } else { Ok(()) }
    }
}
