//! Plans the mounts of a container.

use super::device::ParentDevice;
use super::filesystem::{self, FsOption, LegacyMount};
use super::{ContainerFacts, ContainerHierarchy};
use crate::plan::path::{absolute, c_path, c_string, relative_to_root};
use crate::spec::container::{ContainerMount, ContainerMountKind, ContainerSpec, IdMaps, Namespace};
use saggar_sys::error::{Code, Error, Result};
use std::ffi::CString;
use std::fmt;
use std::path::Path;

pub use crate::spec::container::SourceLink;

/// Files of procfs that tools like lxcfs bind mount over.
const PROC_OVERLAYS: [&str; 10] = [
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

/// Bits of mount_setattr(2) that form one field: a change must clear all of them.
const ATIME: u64 = libc::MOUNT_ATTR__ATIME;

/// One mount. A missing mount point is created, as a directory or a file to match the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedMount {
    /// Mount point below the root; empty for the root itself.
    pub at: CString,
    /// What is mounted or changed.
    pub operation: MountOperation,
    /// Replaces `operation` when the kernel denies it to a user namespace (EPERM).
    pub fallback: Option<MountOperation>,
    /// The attributes of the mount itself.
    pub attributes: MountAttributes,
    /// The attributes of the whole tree, as of mount_setattr(2) with AT_RECURSIVE.
    pub recursive: MountAttributes,
    /// MS_* propagation flags, in order.
    pub propagation: Vec<u64>,
    /// The SELinux label of its root, for a file system without a mount option for labels.
    pub label: Option<CString>,
    /// Whether symbolic links are rejected anywhere in the path: procfs and sysfs (CVE-2019-19921).
    pub no_links: bool,
    /// What is mounted if the source of a bind mount is a symbolic link.
    pub source_link: SourceLink,
    /// Whether a symbolic link at the mount point is covered itself, and not followed.
    pub covers_link: bool,
    /// Whether it may cover a file of procfs: only few may be covered (CVE-2019-16884).
    pub may_cover_proc: bool,
    /// Slot in which the mount is kept for a later `ContainerStep::Seal`.
    pub kept_slot: Option<usize>,
}

/// The operation of a mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MountOperation {
    /// A bind mount of a host tree.
    Bind {
        /// Absolute path on the host.
        source: CString,
        /// Whether mounts below it are included.
        recursive: bool,
        /// Index of the received tree; without one the child opens the source.
        received: Option<usize>,
    },
    /// A new file system.
    New {
        /// Its type.
        fstype: CString,
        /// Options of fsconfig(2), the source among them.
        options: Vec<FsOption>,
        /// Arguments of mount(2), where fsconfig(2) is not enough.
        legacy: Option<LegacyMount>,
        /// Whether it starts with a copy of what the root has at the mount point.
        copy_up: bool,
        /// Whether it takes the mode of the root's directory at the mount point: a tmpfs without a `mode` option.
        take_mode: bool,
    },
    /// Changes only the attributes of an existing mount.
    Change {
        /// Attributes to change instead, when the kernel denies a user namespace to clear the others (EPERM).
        fallback: Option<MountAttributes>,
    },
    /// Reconfigures an existing file system, and its mount.
    Reconfigure {
        /// MS_* flags.
        flags: u64,
        /// Its options in one line.
        data: CString,
    },
}

/// Attributes of mount_setattr(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MountAttributes {
    /// Bits to set.
    pub set: u64,
    /// Bits to clear.
    pub clear: u64,
}

impl MountAttributes {
    pub(super) fn new(set: u64, clear: u64) -> Self {
        let atime = if (set | clear) & ATIME != 0 { ATIME } else { 0 };
        MountAttributes { set, clear: (clear & !set) | atime }
    }

    /// Whether no attribute changes.
    pub fn is_empty(self) -> bool {
        self == MountAttributes::default()
    }
}

/// A tree that the parent opens in the child's mount namespace, with its own rights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpenedTree {
    /// A tree of the host.
    Host(SourceTree),
    /// A new device node.
    Device(ParentDevice),
}

/// A tree of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceTree {
    /// Absolute path on the host.
    pub path: CString,
    /// Whether only the directory or file itself is opened, and its tree is not cloned.
    pub path_only: bool,
    /// Whether a symbolic link at the end of the path is followed.
    pub follow_link: bool,
    /// Whether mounts below it are included.
    pub recursive: bool,
    /// Its id maps as an idmapped mount: `Some(None)` are those of the container's user namespace.
    pub idmap: Option<Option<IdMaps>>,
    /// Whether the id map applies to the mounts below it, too.
    pub idmap_recursive: bool,
}

/// Turns the mounts of a container into steps.
#[derive(Debug)]
pub(super) struct MountPlanner<'a> {
    container: &'a ContainerSpec,
    facts: &'a ContainerFacts,
    /// Whether flags that the host has locked stay set in a remount that would clear them.
    keeps_locked_flags: bool,
    /// The trees that the parent opens.
    pub(super) trees: Vec<OpenedTree>,
    /// The mounts.
    pub(super) mounts: Vec<PlannedMount>,
    /// Mounts that become read-only in the end; `None` after a remount that makes one writable.
    pub(super) sealed: Vec<Option<CString>>,
    /// Links from controller names to their hierarchy: path and target.
    pub(super) links: Vec<(CString, CString)>,
}

/// The maximum number of trees that the parent sends, and of mounts that are kept: the child has no heap for more.
pub(crate) const MAX_KEPT: usize = 256;

impl<'a> MountPlanner<'a> {
    pub(super) fn new(
        container: &'a ContainerSpec,
        facts: &'a ContainerFacts,
        keeps_locked_flags: bool,
    ) -> Self {
        MountPlanner {
            container,
            facts,
            keeps_locked_flags,
            trees: Vec::new(),
            mounts: Vec::new(),
            sealed: Vec::new(),
            links: Vec::new(),
        }
    }

    /// Whether the parent opens sources: with a new user namespace it has more rights than the child.
    pub(super) fn parent_opens(&self) -> bool {
        self.facts.privileged && self.container.namespaces.has(Namespace::User)
    }

    pub(super) fn add(&mut self, mount: &ContainerMount) -> Result<()> {
        let at = relative_to_root(&mount.destination)?;
        let attributes = MountAttributes::new(mount.set, mount.clear);
        let recursive = MountAttributes::new(mount.set_recursive, mount.clear_recursive);
        let propagation = mount.propagation.clone();
        let mut made = PlannedMount {
            at,
            operation: MountOperation::Change { fallback: None },
            fallback: None,
            attributes,
            recursive,
            propagation,
            label: None,
            no_links: false,
            source_link: mount.source_link,
            covers_link: mount.covers_link,
            may_cover_proc: PROC_OVERLAYS
                .iter()
                .any(|path| mount.destination == Path::new("/proc").join(path)),
            kept_slot: None,
        };
        match &mount.kind {
            ContainerMountKind::Bind { source, recursive } => {
                let received = self.received(source, *recursive, mount)?;
                made.operation =
                    MountOperation::Bind { source: c_path(source)?, recursive: *recursive, received };
            }
            ContainerMountKind::Filesystem { fstype, source, options, superblock, copy_up } => {
                Self::check_new(mount, fstype)?;
                made.no_links = matches!(fstype.as_str(), "proc" | "sysfs");
                made.fallback = self.fallback(fstype)?;
                made.operation =
                    self.new_filesystem(&mut made, (fstype, source), options, *superblock, *copy_up)?;
            }
            ContainerMountKind::Cgroup => return self.cgroup(made),
            ContainerMountKind::ChangeAttributes => {}
            ContainerMountKind::Remount => {
                made.operation =
                    MountOperation::Change { fallback: self.keeps_locked_flags.then_some(made.attributes) };
                made.attributes = filesystem::exact_attributes(mount);
                self.unseal(&made.at, mount);
            }
            ContainerMountKind::Reconfigure { options, superblock } => {
                let flags = *superblock | filesystem::flags(mount);
                made.operation = MountOperation::Reconfigure { flags, data: filesystem::line(options)? };
                made.attributes = MountAttributes::default();
                self.unseal(&made.at, mount);
            }
        }
        self.mounts.push(made);
        Ok(())
    }

    /// The last remount decides whether a mount is writable.
    fn unseal(&mut self, at: &CString, mount: &ContainerMount) {
        if mount.set & libc::MOUNT_ATTR_RDONLY == 0 {
            self.sealed
                .iter_mut()
                .filter(|sealed| sealed.as_ref() == Some(at))
                .for_each(|sealed| *sealed = None);
        }
    }

    fn received(&mut self, source: &Path, recursive: bool, mount: &ContainerMount) -> Result<Option<usize>> {
        if mount.idmap.is_some() && !self.facts.privileged {
            let message = format!(
                "mount {}: the owners of a tree can be mapped by root only",
                mount.destination.display()
            );
            return Err(Error::new(Code::Unsupported, message));
        }
        if !self.parent_opens() && mount.idmap.is_none() {
            return Ok(None);
        }
        let tree = OpenedTree::Host(SourceTree {
            path: c_path(source)?,
            path_only: false,
            follow_link: mount.source_link == SourceLink::Target,
            recursive,
            idmap: mount.idmap.as_ref().map(|idmap| idmap.maps.clone()),
            idmap_recursive: mount.idmap.as_ref().is_some_and(|idmap| idmap.recursive),
        });
        let room = MAX_KEPT - self.trees.len();
        self.add_tree_if_room(tree).map(Some).ok_or_else(|| {
            let message =
                format!("mounts: there are more bind mounts than can be opened: {}", MAX_KEPT - room);
            Error::new(Code::Invalid, message).hint("bind one directory with all of them")
        })
    }

    /// Adds a tree for the parent to open; returns its index, or `None` if there are too many.
    pub(super) fn add_tree_if_room(&mut self, tree: OpenedTree) -> Option<usize> {
        (self.trees.len() < MAX_KEPT).then(|| {
            self.trees.push(tree);
            self.trees.len() - 1
        })
    }

    fn check_new(mount: &ContainerMount, fstype: &str) -> Result<()> {
        if mount.idmap.is_some() {
            let message = format!(
                "mount {fstype} on {}: only a bind can have its owners mapped",
                mount.destination.display()
            );
            return Err(Error::new(Code::Invalid, message));
        }
        Ok(())
    }

    /// sysfs, procfs and mqueue need a network, pid or ipc namespace that the user namespace owns: otherwise the host's
    /// file system is bind mounted.
    fn fallback(&self, fstype: &str) -> Result<Option<MountOperation>> {
        let own = |namespace| self.container.namespaces.has(namespace);
        let path = match fstype {
            "sysfs" => "/sys",
            "proc" if !own(Namespace::Pid) => "/proc",
            "mqueue" if !own(Namespace::Ipc) => "/dev/mqueue",
            _ => return Ok(None),
        };
        Ok(Some(MountOperation::Bind { source: c_string(path)?, recursive: true, received: None }))
    }

    fn new_filesystem(
        &mut self,
        made: &mut PlannedMount,
        (fstype, source): (&str, &str),
        given: &[(String, Option<String>)],
        superblock: u64,
        copy_up: bool,
    ) -> Result<MountOperation> {
        let mut superblock = superblock;
        // A tmpfs is filled before it becomes read-only: with copied files, later mount points and devices.
        let read_only = made.attributes.set & libc::MOUNT_ATTR_RDONLY != 0;
        if fstype == "tmpfs" && read_only {
            superblock &= !libc::MS_RDONLY;
            made.attributes.set &= !libc::MOUNT_ATTR_RDONLY;
            made.kept_slot = Some(self.sealed.len());
            self.sealed.push(Some(made.at.clone()));
            if self.sealed.len() > MAX_KEPT {
                return Err(Error::new(Code::Invalid, format!("more than {MAX_KEPT} read-only tmpfs")));
            }
        }
        let mut options = Vec::new();
        if source != "none" && !source.is_empty() {
            options.push((c_string("source")?, Some(c_string(source)?)));
        } else {
            options.push((c_string("source")?, Some(c_string(fstype)?)));
        }
        let given = &self.with_label(made, fstype, given)?;
        options.extend(filesystem::options(given, superblock)?);
        let take_mode = fstype == "tmpfs" && !given.iter().any(|(name, _)| name == "mode");
        let classic = filesystem::legacy_mount(source, given, superblock)?;
        Ok(MountOperation::New { fstype: c_string(fstype)?, options, legacy: classic, copy_up, take_mode })
    }

    /// Returns the options with `linux.mountLabel`. procfs and sysfs have labels of the kernel and accept no label;
    /// mqueue accepts one on its root only.
    fn with_label(
        &self,
        made: &mut PlannedMount,
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
            (Some(label), "mqueue") => made.label = Some(c_string(label)?),
            (Some(label), _) => given.push(("context".to_owned(), Some(label.clone()))),
        }
        Ok(given)
    }

    /// Mounts the container's cgroups: for one hierarchy its file system or a bind mount; for several, a tmpfs with a
    /// bind mount for each.
    fn cgroup(&mut self, made: PlannedMount) -> Result<()> {
        let bind = |hierarchy: &ContainerHierarchy| -> Result<MountOperation> {
            Ok(MountOperation::Bind {
                source: c_path(&hierarchy.directory)?,
                recursive: true,
                received: None,
            })
        };
        let own_namespace = self.container.namespaces.new.contains(&Namespace::Cgroup);
        match self.facts.hierarchies.as_slice() {
            // Without cgroups of its own, the container gets a read-only view of the host's.
            [] => {
                let source = c_string("/sys/fs/cgroup")?;
                let what = MountOperation::Bind { source, recursive: true, received: None };
                let recursive = MountAttributes::new(made.recursive.set | libc::MOUNT_ATTR_RDONLY, 0);
                self.mounts.push(PlannedMount { operation: what, recursive, ..made });
                Ok(())
            }
            [only] if only.name.is_empty() => {
                let fresh = MountOperation::New {
                    fstype: c_string("cgroup2")?,
                    options: vec![(c_string("source")?, Some(c_string("cgroup")?))],
                    legacy: None,
                    copy_up: false,
                    take_mode: false,
                };
                let (what, otherwise) =
                    if own_namespace { (fresh, Some(bind(only)?)) } else { (bind(only)?, None) };
                self.mounts.push(PlannedMount { operation: what, fallback: otherwise, ..made });
                Ok(())
            }
            several => {
                let read_only = made.attributes.set & libc::MOUNT_ATTR_RDONLY != 0;
                let kept = self.sealed.len();
                let options = [("source", "tmpfs"), ("mode", "755"), ("size", "64k")];
                let options = options.map(|(name, value)| Ok((c_string(name)?, Some(c_string(value)?))));
                let tmpfs = MountOperation::New {
                    fstype: c_string("tmpfs")?,
                    options: options.into_iter().collect::<Result<_>>()?,
                    legacy: None,
                    copy_up: false,
                    take_mode: false,
                };
                let writable = MountAttributes {
                    set: made.attributes.set & !libc::MOUNT_ATTR_RDONLY,
                    ..made.attributes
                };
                let keep = read_only.then_some(kept);
                if read_only {
                    self.sealed.push(Some(made.at.clone()));
                }
                self.mounts.push(PlannedMount {
                    operation: tmpfs,
                    attributes: writable,
                    kept_slot: keep,
                    ..made.clone()
                });
                for hierarchy in several {
                    let at = [made.at.as_bytes(), b"/", hierarchy.name.as_bytes()].concat();
                    let at = CString::new(at)
                        .map_err(|_| Error::new(Code::Invalid, "a cgroup with a NUL byte"))?;
                    self.mounts.push(PlannedMount {
                        at,
                        operation: bind(hierarchy)?,
                        kept_slot: None,
                        ..made.clone()
                    });
                }
                Ok(())
            }
        }
    }
}

impl fmt::Display for PlannedMount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.operation {
            MountOperation::Bind { source, .. } => {
                write!(f, "mount {} on {}", source.to_string_lossy(), absolute(&self.at))
            }
            MountOperation::New { fstype, .. } => {
                write!(f, "mount {} on {}", fstype.to_string_lossy(), absolute(&self.at))
            }
            MountOperation::Change { .. } => write!(f, "change the mount at {}", absolute(&self.at)),
            MountOperation::Reconfigure { .. } => {
                write!(f, "reconfigure the mount at {}", absolute(&self.at))
            }
        }?;
        let MountAttributes { set, clear } = self.attributes;
        if set | clear != 0 { write!(f, " with {set:#x}, without {clear:#x}") } else { Ok(()) }
    }
}
