//! Opens the source paths of a plan before the clone, each once, without following a link; and, for root of the host,
//! makes detached, idmapped trees of them after the clone, because the child does not need them at first.

use crate::launch::idmap::IdmapNamespaces;
use crate::plan::agent::{AgentPlan, BlockIds, SourceSlot, TreeMode, ids};
use saggar_sys::error::{Code, Error, Result};
use saggar_sys::file::{self, Resolve};
use saggar_sys::seccomp::FilterProfile;
use saggar_sys::{Errno, mount};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Opens every source slot of the plan, in order.
///
/// # Errors
/// [`Code::Invalid`] for a path that no longer exists or has become a link.
pub(crate) fn open_slots(plan: &AgentPlan) -> Result<Vec<OwnedFd>> {
    plan.slots.iter().map(|slot| open_without_links(&slot.path)).collect()
}

/// Returns an idmapped tree for every opened `file` of a plan with a block of ids; none for other plans.
///
/// # Errors
/// [`Code::Unsupported`] for a file system that cannot be idmapped.
pub(crate) fn idmapped_trees(plan: &AgentPlan, files: &[OwnedFd]) -> Result<Vec<OwnedFd>> {
    let Some(block) = plan.block else { return Ok(Vec::new()) };
    let mut holders = IdmapNamespaces::default();
    let nests = plan.program_filter == FilterProfile::Nesting;
    for (slot, file) in plan.slots.iter().zip(files).filter(|(slot, _)| nests && slot.writable) {
        refuse_root_owned(slot, file)?;
    }
    let slots = plan.slots.iter().zip(files);
    slots.map(|(slot, file)| detached_tree(slot, file, block, &mut holders)).collect()
}

fn open_without_links(path: &Path) -> Result<OwnedFd> {
    let shown = path.display();
    let relative = path
        .strip_prefix("/")
        .map_err(|_| Error::new(Code::Invalid, format!("open {shown}: the path is not absolute")))?;
    let relative = file::c_path(relative)
        .map_err(|_| Error::new(Code::Invalid, format!("open {shown}: the path has a NUL byte")))?;
    let fail = |errno: Errno| {
        let error = Error::new(Code::Invalid, format!("open {shown}: {}", errno.desc()));
        match errno {
            Errno::ELOOP if ["/proc/self", "/proc/thread-self"].iter().any(|own| path.starts_with(own)) => {
                error.hint("this means another process to each that looks: name it by its number")
            }
            Errno::ELOOP | Errno::EXDEV => {
                error.hint("a part of the path is a symbolic link: name what it leads to")
            }
            Errno::ENOENT => error.hint("it was there a moment ago, and is gone"),
            _ => error,
        }
    };
    let root = file::open(file::cwd(), c"/", libc::O_PATH, 0, Resolve::Ordinary).map_err(fail)?;
    let relative = if relative.is_empty() { c".".to_owned() } else { relative };
    file::open(root.as_fd(), &relative, libc::O_PATH, 0, Resolve::BeneathNoLinks).map_err(fail)
}

/// Rejects a tree of root that other users of the host can reach. A program that makes user namespaces can give files
/// there capabilities, and the kernel records the owner of the tree as their root, since the inner user has that id on
/// disk (capabilities(7), "Namespaced file capabilities"). If it is uid 0, the capabilities are valid on the host, for
/// every user.
fn refuse_root_owned(slot: &SourceSlot, file: &OwnedFd) -> Result<()> {
    let shown = slot.path.display();
    let stat = nix::sys::stat::fstat(file).map_err(|e| Error::system(format_args!("stat {shown}"), e))?;
    // Sockets and devices cannot have file capabilities.
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

/// Whether root owns the directory, or one above it, and denies it to other users. Walks up from the descriptor: no
/// name is looked up, because a name could be exchanged.
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

/// Makes a detached clone of the tree in which the owner of its root is the inner user (DECISIONS 2).
fn detached_tree(
    slot: &SourceSlot,
    file: &OwnedFd,
    block: BlockIds,
    holders: &mut IdmapNamespaces,
) -> Result<OwnedFd> {
    let shown = slot.path.display();
    let stat = nix::sys::stat::fstat(file).map_err(|e| Error::system(format_args!("stat {shown}"), e))?;
    let tree = mount::clone_tree(file.as_fd(), true)
        .map_err(|e| Error::system(format_args!("clone the mount tree of {shown}"), e))?;
    if let TreeMode::Plain { owner } = slot.tree {
        if owner.is_some_and(|owner| owner != (stat.st_uid, stat.st_gid)) {
            let message = format!("open {shown}: it changed its owner while saggar started");
            return Err(Error::new(Code::Refused, message).hint("something else works on this directory"));
        }
        return Ok(tree);
    }
    let userns = holders.userns(ids::for_tree(&block, (stat.st_uid, stat.st_gid)))?;
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
