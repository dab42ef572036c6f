//! The root file system of a container, and everything that is mounted in it: by descriptors alone, before the
//! root changes.

use super::device;
use super::rooted_path::{self, is_proc};
use crate::plan::container::device::{DeviceSource, PlannedDevice};
use crate::plan::container::filesystem::LegacyMount;
use crate::plan::container::mount::{MAX_KEPT, MountAttributes, MountOperation, PlannedMount, SourceLink};
use nix::sys::statfs::fstatfs;
use saggar_sys::file::{self, Resolve};
use saggar_sys::{Errno, SysResult, mount, pty};
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// linux/magic.h
const DEVPTS_SUPER_MAGIC: i64 = 0x1cd1;

const PATH_MAX: usize = libc::PATH_MAX as usize;

/// What earlier steps left for later ones.
pub(super) struct ContainerFiles {
    /// The root of the container.
    root: Option<OwnedFd>,
    /// What the runtime opened.
    pub(super) trees: [Option<OwnedFd>; MAX_KEPT],
    /// Mounts that become read-only in the end.
    kept: [Option<OwnedFd>; MAX_KEPT],
    /// An empty read-only directory, mounted over the first masked one.
    empty: Option<OwnedFd>,
}

impl ContainerFiles {
    pub(super) fn new() -> Self {
        const NONE: Option<OwnedFd> = None;
        ContainerFiles { root: None, trees: [NONE; MAX_KEPT], kept: [NONE; MAX_KEPT], empty: None }
    }

    pub(super) fn root(&self) -> SysResult<BorrowedFd<'_>> {
        self.root.as_ref().map(AsFd::as_fd).ok_or(Errno::EBADF)
    }

    /// The tree of the root, attached over the directory that it is a tree of: hooks look for it by its path.
    pub(super) fn attach_root(&mut self, path: &CStr, received: bool, parent_private: bool) -> SysResult<()> {
        let [received_at, received_tree, ..] = &mut self.trees;
        let at = if received {
            received_at.take().ok_or(Errno::EBADF)?
        } else {
            file::open(file::cwd(), path, libc::O_PATH | libc::O_DIRECTORY, 0, Resolve::Ordinary)?
        };
        if parent_private {
            let below = mount_root_of(at.as_fd())?;
            mount::change(below.as_fd(), 0, 0, libc::MS_PRIVATE, false)?;
        }
        let tree = if received {
            received_tree.take().ok_or(Errno::EBADF)?
        } else {
            mount::clone_tree(at.as_fd(), true)?
        };
        if parent_private {
            // The same for itself: pivot_root(2) takes no shared mount.
            mount::change(tree.as_fd(), 0, 0, libc::MS_PRIVATE, false)?;
        }
        mount::attach(tree.as_fd(), at.as_fd())?;
        self.root = Some(tree);
        Ok(())
    }

    pub(super) fn open_root(&mut self, path: &CStr) -> SysResult<()> {
        let flags = libc::O_PATH | libc::O_DIRECTORY;
        self.root = Some(file::open(file::cwd(), path, flags, 0, Resolve::Ordinary)?);
        Ok(())
    }

    pub(super) fn mount(&mut self, mount: &PlannedMount) -> SysResult<()> {
        let root = file::duplicate(self.root()?.as_raw_fd())?;
        let root = root.as_fd();
        match &mount.operation {
            MountOperation::Change { fallback: otherwise } => {
                let at = rooted_path::find(root, &mount.at)?;
                return match (apply_attributes(at.as_fd(), mount, mount.attributes), otherwise) {
                    (Err(Errno::EPERM), Some(otherwise)) => apply_attributes(at.as_fd(), mount, *otherwise),
                    (done, _) => done,
                };
            }
            MountOperation::Reconfigure { flags, data } => {
                let at = rooted_path::find(root, &mount.at)?;
                nix::unistd::fchdir(&at)?;
                let done = mount::remount_here(*flags, data);
                nix::unistd::chdir("/")?;
                done?;
                return apply_attributes(at.as_fd(), mount, mount.attributes);
            }
            MountOperation::Bind { .. } | MountOperation::New { .. } => {}
        }
        let tree = match (self.detached_tree(root, mount, &mount.operation), &mount.fallback) {
            (Err(Errno::EPERM), Some(otherwise)) => self.detached_tree(root, mount, otherwise)?,
            (made, _) => made?,
        };
        if mount.source_link == SourceLink::Copy && file_type(tree.as_fd())? == libc::S_IFLNK {
            return copy_link(root, &mount.at, tree.as_fd());
        }
        let directory = is_directory(tree.as_fd())?;
        let at = if mount.no_links {
            match rooted_path::find_without_links(root, &mount.at) {
                Err(Errno::ENOENT) => drop(rooted_path::create(root, &mount.at, directory)?),
                other => drop(other?),
            }
            rooted_path::find_without_links(root, &mount.at)?
        } else if mount.covers_link {
            rooted_path::create_unfollowed(root, &mount.at, directory)?
        } else {
            rooted_path::create(root, &mount.at, directory)?
        };
        if !mount.may_cover_proc && is_proc(at.as_fd())? {
            // CVE-2019-16884: a file of ours over /proc/self/attr/exec would swallow the label.
            return Err(Errno::ELOOP);
        }
        if let Some(label) = &mount.label {
            set_label(tree.as_fd(), label)?;
        }
        mount::attach(tree.as_fd(), at.as_fd())?;
        apply_attributes(tree.as_fd(), mount, mount.attributes)?;
        if let Some(slot) = mount.kept_slot {
            *self.kept.get_mut(slot).ok_or(Errno::E2BIG)? = Some(tree);
        }
        Ok(())
    }

    /// The detached tree that is to be mounted.
    fn detached_tree(
        &mut self,
        root: BorrowedFd<'_>,
        mount: &PlannedMount,
        what: &MountOperation,
    ) -> SysResult<OwnedFd> {
        match what {
            MountOperation::Bind { received: Some(slot), .. } => {
                self.trees.get_mut(*slot).and_then(Option::take).ok_or(Errno::EBADF)
            }
            MountOperation::Bind { source, recursive, received: None } => {
                let unfollowed = mount.source_link != SourceLink::Target;
                let flags = libc::O_PATH | if unfollowed { libc::O_NOFOLLOW } else { 0 };
                let from = file::open(file::cwd(), source, flags, 0, Resolve::Ordinary)?;
                mount::clone_tree(from.as_fd(), *recursive)
            }
            MountOperation::New { fstype, options, legacy: classic, copy_up, take_mode } => {
                let tree = match classic {
                    Some(classic) => mount_and_detach(root, fstype, classic)?,
                    None => {
                        let options = options.iter().map(|(name, value)| (name.as_c_str(), value.as_deref()));
                        mount::new_filesystem_from(fstype, options, 0)?
                    }
                };
                if *copy_up || *take_mode {
                    fill_from_covered(root, &mount.at, tree.as_fd(), *copy_up)?;
                }
                Ok(tree)
            }
            MountOperation::Change { .. } | MountOperation::Reconfigure { .. } => Err(Errno::EINVAL),
        }
    }

    pub(super) fn seal(&self, slot: usize) -> SysResult<()> {
        let kept = self.kept.get(slot).and_then(Option::as_ref).ok_or(Errno::EBADF)?;
        mount::change(kept.as_fd(), libc::MOUNT_ATTR_RDONLY, 0, 0, false)
    }

    pub(super) fn seal_root(&self) -> SysResult<()> {
        mount::change(self.root()?, libc::MOUNT_ATTR_RDONLY, 0, 0, false)
    }

    pub(super) fn read_only(&self, path: &CStr, proc: bool) -> SysResult<()> {
        let Some(at) = self.covered(path, proc)? else { return Ok(()) };
        let tree = mount::clone_tree(at.as_fd(), true)?;
        mount::change(tree.as_fd(), libc::MOUNT_ATTR_RDONLY, 0, 0, true)?;
        mount::attach(tree.as_fd(), at.as_fd())
    }

    pub(super) fn mask(&mut self, path: &CStr, proc: bool) -> SysResult<()> {
        let Some(at) = self.covered(path, proc)? else { return Ok(()) };
        if !is_directory(at.as_fd())? {
            return mount::attach(host_null()?.as_fd(), at.as_fd());
        }
        if let Some(empty) = &self.empty {
            let again = mount::clone_tree(empty.as_fd(), false)?;
            return mount::attach(again.as_fd(), at.as_fd());
        }
        let options = [(c"size", Some(c"0")), (c"nr_inodes", Some(c"1")), (c"mode", Some(c"0555"))];
        let closed = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
        let tree = mount::new_filesystem(c"tmpfs", &options, closed | libc::MOUNT_ATTR_NOEXEC)?;
        mount::attach(tree.as_fd(), at.as_fd())?;
        self.empty = Some(tree);
        Ok(())
    }

    /// What is at a path that is to be covered, if it is there. What is said of procfs is taken from procfs, on
    /// whatever way the image might lead to something else (CVE-2023-27561).
    fn covered(&self, path: &CStr, proc: bool) -> SysResult<Option<OwnedFd>> {
        let root = self.root()?;
        let found = match path.to_bytes_with_nul().strip_prefix(b"proc/").filter(|_| proc) {
            Some(rest) => {
                let rest = CStr::from_bytes_with_nul(rest).map_err(|_| Errno::EINVAL)?;
                let proc = rooted_path::find_without_links(root, c"proc")?;
                if !is_proc(proc.as_fd())? {
                    return Err(Errno::ELOOP);
                }
                rooted_path::find_without_links(proc.as_fd(), rest)
            }
            None => rooted_path::find(root, path),
        };
        match found {
            Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(None),
            other => other.map(Some),
        }
    }

    pub(super) fn make_directory(&self, path: &CStr) -> SysResult<()> {
        // The working directory is entered later: then it is told what is wrong with it.
        let _ = rooted_path::create(self.root()?, path, true);
        Ok(())
    }

    pub(super) fn symlink(&self, path: &CStr, target: &CStr, replace: bool) -> SysResult<()> {
        let (parent, name) = rooted_path::create_parent(self.root()?, path)?;
        match file::symlink(target, parent.as_fd(), name) {
            Err(Errno::EEXIST) if replace => {
                let mut existing = [0; 64];
                let len = file::read_link(parent.as_fd(), name, &mut existing).unwrap_or(0);
                if existing.get(..len) == Some(target.to_bytes()) {
                    return Ok(());
                }
                // Another container of this root file system may be doing the same.
                match file::unlink(parent.as_fd(), name) {
                    Ok(()) | Err(Errno::ENOENT) => {}
                    Err(errno) => return Err(errno),
                }
                match file::symlink(target, parent.as_fd(), name) {
                    Err(Errno::EEXIST) => Ok(()),
                    other => other,
                }
            }
            Err(Errno::EEXIST) => Ok(()),
            other => other,
        }
    }

    pub(super) fn device(&mut self, device: &PlannedDevice) -> SysResult<()> {
        let tree = match &device.source {
            DeviceSource::New => return device::make(self.root()?, &device.path, &device.node),
            DeviceSource::Host(path) => device::open_host(&device.node, path)?,
            DeviceSource::Received(slot) => {
                self.trees.get_mut(*slot).and_then(Option::take).ok_or(Errno::EBADF)?
            }
        };
        device::attach(self.root()?, &device.path, &device.node, tree.as_fd())
    }

    /// A terminal of the container's own devpts: its number, its master, and its slave, which the container finds
    /// at /dev/console.
    pub(super) fn terminal(&self, console: bool) -> SysResult<(u32, OwnedFd, OwnedFd)> {
        let root = self.root()?;
        let flags = libc::O_RDWR | libc::O_NOCTTY;
        let master = file::open(root, c"dev/pts/ptmx", flags, 0, Resolve::BeneathNoLinks)?;
        // CVE-2025-52565: the image or another container may have put something else there.
        let stat = nix::sys::stat::fstat(&master)?;
        let is_ptmx = stat.st_rdev == libc::makedev(5, 2) && stat.st_mode & libc::S_IFMT == libc::S_IFCHR;
        if fstatfs(&master)?.filesystem_type().0 as i64 != DEVPTS_SUPER_MAGIC || !is_ptmx {
            return Err(Errno::ENOTTY);
        }
        let slave = pty::open_slave(master.as_fd())?;
        if console {
            let (parent, name) = rooted_path::create_parent(root, c"dev/console")?;
            // A link would put it elsewhere.
            let at = match rooted_path::find_without_links(parent.as_fd(), name) {
                Err(Errno::ENOENT) => rooted_path::create(parent.as_fd(), name, false)?,
                other => other?,
            };
            let tree = mount::clone_tree(slave.as_fd(), false)?;
            mount::attach(tree.as_fd(), at.as_fd())?;
        }
        Ok((pty::number(master.as_fd())?, master, slave))
    }

    pub(super) fn pivot(&self) -> SysResult<()> {
        let old = file::open(file::cwd(), c"/", libc::O_PATH | libc::O_DIRECTORY, 0, Resolve::Ordinary)?;
        nix::unistd::fchdir(self.root()?)?;
        mount::pivot_without_propagation(old.as_fd())
    }

    pub(super) fn enter_root(&self, moved: bool) -> SysResult<()> {
        nix::unistd::fchdir(self.root()?)?;
        if moved {
            mount::move_working_directory_to_root()?;
        } else {
            mount::change_root_to_working_directory()?;
        }
        nix::unistd::chdir(c"/")
    }
}

/// The host's /dev/null, and nothing that only has its name (CVE-2025-31133).
fn host_null() -> SysResult<OwnedFd> {
    let null = file::open(file::cwd(), c"/dev/null", libc::O_PATH | libc::O_NOFOLLOW, 0, Resolve::Ordinary)?;
    let stat = nix::sys::stat::fstat(&null)?;
    if stat.st_mode & libc::S_IFMT != libc::S_IFCHR || stat.st_rdev != libc::makedev(1, 3) {
        return Err(Errno::ENODEV);
    }
    mount::clone_tree(null.as_fd(), true)
}

/// A file system that mount(2) made, detached again, as fsmount(2) gives it. It is made on a tmpfs that nobody else
/// reaches and that lies over the root meanwhile: no path of the container is walked twice.
fn mount_and_detach(root: BorrowedFd<'_>, fstype: &CStr, classic: &LegacyMount) -> SysResult<OwnedFd> {
    let scratch = mount::new_filesystem(c"tmpfs", &[(c"nr_inodes", Some(c"2")), (c"size", Some(c"4k"))], 0)?;
    file::mkdir(scratch.as_fd(), c"here", 0o700)?;
    let here = file::open(scratch.as_fd(), c"here", libc::O_PATH, 0, Resolve::BeneathNoLinks)?;
    mount::attach(scratch.as_fd(), root)?;
    let mount_scratch = || {
        nix::unistd::fchdir(&here)?;
        mount::mount_here(&classic.source, fstype, classic.flags, &classic.data)?;
        let made = file::open(scratch.as_fd(), c"here", libc::O_PATH, 0, Resolve::BeneathNoLinks)?;
        mount::clone_tree(made.as_fd(), false)
    };
    let tree = mount_scratch();
    nix::unistd::fchdir(&scratch)?;
    mount::unmount_here()?;
    nix::unistd::chdir("/")?;
    tree
}

/// The label of a file system's root.
fn set_label(tree: BorrowedFd<'_>, label: &CStr) -> SysResult<()> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY;
    let directory = file::open(tree, c".", flags, 0, Resolve::BeneathNoLinks)?;
    file::set_xattr(directory.as_fd(), c"security.selinux", label.to_bytes())
}

/// The attributes of a mount, and then its propagation.
fn apply_attributes(
    tree: BorrowedFd<'_>,
    mount: &PlannedMount,
    attributes: MountAttributes,
) -> SysResult<()> {
    let change = |MountAttributes { set, clear }, recursive| {
        if set | clear == 0 { Ok(()) } else { mount::change(tree, set, clear, 0, recursive) }
    };
    change(attributes, false)?;
    change(mount.recursive, true)?;
    for flags in &mount.propagation {
        mount::change(tree, 0, 0, flags & !libc::MS_REC, flags & libc::MS_REC != 0)?;
    }
    Ok(())
}

/// A tmpfs takes the mode of what it covers, and with `copy` its content.
fn fill_from_covered(root: BorrowedFd<'_>, at: &CStr, tmpfs: BorrowedFd<'_>, copy: bool) -> SysResult<()> {
    let covered = match rooted_path::find(root, at) {
        Err(Errno::ENOENT | Errno::ENOTDIR) => return Ok(()),
        other => other?,
    };
    let stat = nix::sys::stat::fstat(&covered)?;
    if stat.st_mode & libc::S_IFMT != libc::S_IFDIR {
        return Ok(());
    }
    let flags = libc::O_RDONLY | libc::O_DIRECTORY;
    let filled = file::open(tmpfs, c".", flags, 0, Resolve::BeneathNoLinks)?;
    if copy {
        super::copy::copy_tree(covered.as_fd(), filled.as_fd())?;
    }
    nix::sys::stat::fchmod(&filled, nix::sys::stat::Mode::from_bits_truncate(stat.st_mode & 0o7777))
}

/// The root of the mount that an open directory is on.
fn mount_root_of(directory: BorrowedFd<'_>) -> SysResult<OwnedFd> {
    let mut at = file::duplicate(directory.as_raw_fd())?;
    while !mount::is_mount_root(at.as_fd())? {
        at = file::open(at.as_fd(), c"..", libc::O_PATH | libc::O_DIRECTORY, 0, Resolve::Ordinary)?;
    }
    Ok(at)
}

/// Creates a link with the target of `link` at `path`; what is there already must be the same link.
fn copy_link(root: BorrowedFd<'_>, path: &CStr, link: BorrowedFd<'_>) -> SysResult<()> {
    let (mut target, mut existing) = ([0; PATH_MAX], [0; PATH_MAX]);
    let len = file::read_link(link, c"", &mut target[..PATH_MAX - 1])?;
    let (parent, name) = rooted_path::create_parent(root, path)?;
    let target = CStr::from_bytes_with_nul(&target[..=len]).map_err(|_| Errno::EINVAL)?;
    match file::symlink(target, parent.as_fd(), name) {
        Err(Errno::EEXIST) => {
            let len = file::read_link(parent.as_fd(), name, &mut existing).unwrap_or(0);
            if existing[..len] == *target.to_bytes() { Ok(()) } else { Err(Errno::EEXIST) }
        }
        other => other,
    }
}

fn file_type(file: BorrowedFd<'_>) -> SysResult<u32> {
    Ok(nix::sys::stat::fstat(file)?.st_mode & libc::S_IFMT)
}

fn is_directory(file: BorrowedFd<'_>) -> SysResult<bool> {
    Ok(file_type(file)? == libc::S_IFDIR)
}
