//! Opens what the plan names before the clone, each path once, without following a link; and, as root of the
//! host, makes detached trees of it whose owners are mapped, after the clone: the child does not need them
//! at once.

use crate::error::{Code, Error, Result};
use crate::plan::ids::{self, Maps};
use crate::plan::{Block, Plan, Slot, Tree};
use crate::sys::file::{self, Resolve};
use crate::sys::seccomp::Profile;
use crate::sys::{Errno, clone, mount};
use crate::text::Show;
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Opens every slot of the plan, in order.
///
/// # Errors
/// [`Code::Invalid`] for a path that is gone or has become a link.
pub fn open_all(plan: &Plan) -> Result<Vec<OwnedFd>> {
    plan.slots.iter().map(|slot| open_without_links(&slot.path)).collect()
}

/// A tree with mapped owners for every opened `file` of a plan with a block of ids; none without.
///
/// # Errors
/// [`Code::Unsupported`] for a file system that cannot be idmapped.
pub fn idmapped(plan: &Plan, files: &[OwnedFd]) -> Result<Vec<OwnedFd>> {
    let Some(block) = plan.block else { return Ok(Vec::new()) };
    let mut holders = Holders::default();
    let nests = plan.program_filter == Profile::Nesting;
    for (slot, file) in plan.slots.iter().zip(files).filter(|(slot, _)| nests && slot.writable) {
        refuse_roots(slot, file)?;
    }
    let slots = plan.slots.iter().zip(files);
    slots.map(|(slot, file)| tree(slot, file, block, &mut holders)).collect()
}

fn open_without_links(path: &Path) -> Result<OwnedFd> {
    let shown = path.shown();
    let relative = path
        .strip_prefix("/")
        .map_err(|_| Error::new(Code::Invalid, format!("open {shown}: the path is not absolute")))?;
    let relative = CString::new(relative.as_os_str().as_encoded_bytes())
        .map_err(|_| Error::new(Code::Invalid, format!("open {shown}: the path has a NUL byte")))?;
    let fail = |errno: Errno| {
        let error = Error::new(Code::Invalid, format!("open {shown}: {}", errno.desc()));
        match errno {
            Errno::ELOOP | Errno::EXDEV => error.hint("it became a symbolic link while saggar started"),
            Errno::ENOENT => error.hint("it was there a moment ago, and is gone"),
            _ => error,
        }
    };
    let root = file::open(file::cwd(), c"/", libc::O_PATH, 0, Resolve::Ordinary).map_err(fail)?;
    let relative = if relative.is_empty() { c".".to_owned() } else { relative };
    file::open(root.as_fd(), &relative, libc::O_PATH, 0, Resolve::BeneathNoLinks).map_err(fail)
}

/// Refuses a tree of root's that other users of the host can reach. A program that makes user namespaces can give files
/// there capabilities, and the kernel writes down whose: the owner of the tree, since that is who the inner user is on
/// disk (capabilities(7), "Namespaced file capabilities"). Where that is uid 0 they hold on the host, for everybody.
fn refuse_roots(slot: &Slot, file: &OwnedFd) -> Result<()> {
    let shown = slot.path.shown();
    let stat = nix::sys::stat::fstat(file).map_err(|e| Error::system(format_args!("stat {shown}"), e))?;
    // Sockets and devices hold no capabilities.
    let holds = matches!(stat.st_mode & libc::S_IFMT, libc::S_IFDIR | libc::S_IFREG);
    if stat.st_uid != 0 || !holds || is_closed(file) {
        return Ok(());
    }
    let message = format!(
        "let programs of the profile nesting write {shown}: it is uid 0's, and a file capability that they set there \
         would be one on the host"
    );
    let hint = "use --workspace-overlay, give the tree to an ordinary user with chown, close a directory above it to \
                others (mode 0700), or use the profile strict";
    Err(Error::new(Code::Refused, message).hint(hint))
}

/// Whether the directory, or one above it, is root's and lets no other user through. From the descriptor upwards: no
/// name is looked up that somebody could exchange.
fn is_closed(directory: &OwnedFd) -> bool {
    use nix::fcntl::{OFlag, openat};
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let open = |at: &OwnedFd, name: &str| openat(at, name, flags, nix::sys::stat::Mode::empty()).ok();
    let Some(mut at) = open(directory, ".") else { return false };
    let mut below = None;
    while let Ok(stat) = nix::sys::stat::fstat(&at) {
        let is = Some((stat.st_dev, stat.st_ino));
        if is == below {
            return false;
        }
        if stat.st_uid == 0 && stat.st_mode & 0o011 == 0 {
            return true;
        }
        below = is;
        match open(&at, "..") {
            Some(above) => at = above,
            None => return false,
        }
    }
    false
}

/// A detached copy of the tree in which the owner of its root is the inner user (DECISIONS 2).
fn tree(slot: &Slot, file: &OwnedFd, block: Block, holders: &mut Holders) -> Result<OwnedFd> {
    let shown = slot.path.shown();
    let stat = nix::sys::stat::fstat(file).map_err(|e| Error::system(format_args!("stat {shown}"), e))?;
    let tree = mount::clone_tree(file.as_fd(), true)
        .map_err(|e| Error::system(format_args!("clone the mount tree of {shown}"), e))?;
    if let Tree::Plain { owner } = slot.tree {
        if owner.is_some_and(|owner| owner != (stat.st_uid, stat.st_gid)) {
            let message = format!("open {shown}: it changed its owner while saggar started");
            return Err(Error::new(Code::Refused, message).hint("something else works on this directory"));
        }
        return Ok(tree);
    }
    let maps = Maps {
        uid: ids::swap(stat.st_uid, block.uid, block.host_uid, block.base),
        gid: ids::swap(stat.st_gid, block.gid, block.host_gid, block.base),
        deny_setgroups: false,
    };
    let userns = holders.userns(maps)?;
    mount::idmap_tree(tree.as_fd(), userns).map_err(|errno| {
        let message = format!("map the owners of {shown}: {}", errno.desc());
        let kind = nix::sys::statfs::fstatfs(file).map(|s| format!("{:#x}", s.filesystem_type().0));
        let kind = kind.unwrap_or_else(|_| "unknown".to_owned());
        Error::new(Code::Unsupported, message).hint(format!(
            "its file system (type {kind}), or one mounted below it, cannot be idmapped: work on a copy of it on \
             another file system"
        ))
    })?;
    Ok(tree)
}

/// User namespaces that stand only for their maps; one for each pair of owners.
#[derive(Default)]
pub(crate) struct Holders(Vec<(Maps, OwnedFd)>);

impl Holders {
    pub(crate) fn userns(&mut self, maps: Maps) -> Result<std::os::fd::BorrowedFd<'_>> {
        let index = match self.0.iter().position(|(known, _)| *known == maps) {
            Some(index) => index,
            None => {
                let userns = make_userns(&maps)?;
                self.0.push((maps, userns));
                self.0.len() - 1
            }
        };
        Ok(self.0[index].1.as_fd())
    }
}

/// A user namespace with these maps. Its only process waits until it is dropped here; the descriptor keeps the
/// namespace.
fn make_userns(maps: &Maps) -> Result<OwnedFd> {
    let holder = clone::Holder::new().map_err(super::hint::clone_failed)?;
    super::write_maps(holder.pid(), maps)?;
    let path = format!("/proc/{}/ns/user", holder.pid());
    let flags = nix::fcntl::OFlag::O_RDONLY | nix::fcntl::OFlag::O_CLOEXEC;
    nix::fcntl::open(path.as_str(), flags, nix::sys::stat::Mode::empty())
        .map_err(|e| Error::system("open the user namespace that maps owners", e))
}
