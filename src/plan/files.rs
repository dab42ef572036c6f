//! The file tree of a sandbox as steps: the root, its directories, links and files, and the mounts.

use super::step::{EMPTY, MAX_TREES, Source, Step};
use super::{Block, Slot, Tree, below_root, c_string, owners, quotas};
use crate::error::{Code, Error, Result};
use crate::host::{Host, Kind};
use crate::spec::{Changes, Cover, Mount, MountKind, Origin, Profile, SandboxSpec};
use std::collections::BTreeSet;
use std::ffi::CString;
use std::path::{Path, PathBuf};

/// Bytes and inodes of the private root: it holds mount points and a few small files.
const ROOT_SIZE: u64 = 4 << 20;
const ROOT_INODES: u64 = 4096;

/// Gathers the steps of the phase [`super::step::Phase::Files`].
#[derive(Debug)]
pub(super) struct Files<'a> {
    host: &'a Host,
    block: Option<&'a Block>,
    steps: Vec<Step>,
    slots: Vec<Slot>,
    made: BTreeSet<PathBuf>,
}

impl<'a> Files<'a> {
    pub(super) fn new(host: &'a Host, block: Option<&'a Block>) -> Self {
        Files {
            host,
            block,
            steps: Vec::new(),
            slots: Vec::new(),
            made: BTreeSet::from([PathBuf::from("/")]),
        }
    }

    pub(super) fn into_parts(mut self) -> (Vec<Step>, Vec<Slot>) {
        let slots = self.slots.len();
        for step in &mut self.steps {
            if let Step::ReceiveTrees { count } = step {
                *count = slots;
            }
        }
        (self.steps, self.slots)
    }

    pub(super) fn add(&mut self, spec: &SandboxSpec) -> Result<()> {
        let (size, inodes) = (c_string(&ROOT_SIZE.to_string())?, c_string(&ROOT_INODES.to_string())?);
        self.steps.push(Step::NewRoot { size, inodes });
        self.directory(&Path::new("/").join(EMPTY.to_string_lossy().as_ref()))?;
        for (index, mount) in spec.mounts.iter().enumerate() {
            self.mount(mount, &spec.mounts[..index], spec.profile)?;
            if mount.kind == MountKind::Proc {
                self.steps.extend(quotas::steps(&self.host.quotas, spec.profile, &mount.at)?);
                self.mask_proc(spec, &mount.at)?;
            }
        }
        for (path, target) in &spec.links {
            // A mount at or below it has made it a directory: then that stands.
            if !self.made.contains(path) {
                self.link(path, target)?;
            }
        }
        for (path, content) in &spec.files {
            self.parents(path)?;
            self.steps.push(Step::WriteFile { path: below_root(path)?, content: c_string(content)? });
        }
        for mount in &spec.mounts {
            if matches!(mount.kind, MountKind::Tmpfs { .. }) && !mount.writable {
                self.steps.push(Step::Seal { path: below_root(&mount.at)? });
            }
        }
        for pin in &spec.pins {
            self.steps.push(Step::Pin { path: below_root(&pin.at)?, read_only: pin.read_only });
        }
        for (at, origin) in &spec.hidden {
            self.hide(at, origin)?;
        }
        Ok(())
    }

    fn mount(&mut self, mount: &Mount, earlier: &[Mount], profile: Profile) -> Result<()> {
        let path = below_root(&mount.at)?;
        let mut directory = true;
        if let MountKind::System { source } = &mount.kind {
            match self.host.kind(source) {
                Some(Kind::Link(target)) => return self.link(&mount.at, target),
                Some(kind) => directory = *kind == Kind::Directory,
                None => return Ok(()),
            }
        }
        if let Some(source) = mount.kind.named() {
            let Some(kind) = self.host.kind(source) else {
                let message = format!("{} does not exist", source.display());
                return Err(Error::new(Code::Invalid, message).hint(format!("{} names it", mount.origin)));
            };
            directory = *kind == Kind::Directory;
        }
        if !inside_a_tree_of_the_host(&mount.at, earlier) {
            if directory {
                self.directory(&mount.at)?;
            } else if self.made.insert(mount.at.clone()) {
                self.parents(&mount.at)?;
                self.steps.push(Step::Touch { path: path.clone() });
            }
        }
        let number = |n: u64| c_string(&n.to_string());
        let step = match &mount.kind {
            MountKind::System { source } => {
                let device = mount.at.starts_with("/dev");
                Step::Bind { source: Source::System(c_path(source)?), path, writable: mount.writable, device }
            }
            MountKind::Named { source } => {
                let source = self.named(source, mount.writable)?;
                Step::Bind { source, path, writable: mount.writable, device: false }
            }
            MountKind::Overlay { lower, changes } => {
                let source = self.named(lower, mount.writable)?;
                // Programs write what lies over it.
                if let Some(slot) = self.slots.last_mut() {
                    slot.writable = false;
                }
                self.steps.push(Step::Bind { source, path: path.clone(), writable: false, device: false });
                self.changes(changes)?;
                Step::Overlay { path }
            }
            MountKind::Tmpfs { size, inodes, mode } => Step::Tmpfs {
                path,
                size: number(*size)?,
                inodes: number(*inodes)?,
                mode: c_string(&format!("{mode:04o}"))?,
            },
            MountKind::Proc => Step::Proc { path, hide: profile == Profile::Strict },
            MountKind::Devpts { max } => Step::Devpts { path, max: number((*max).into())? },
            MountKind::Mqueue => Step::Mqueue { path },
        };
        self.steps.push(step);
        Ok(())
    }

    /// Where the changes of an overlay are, on [`EMPTY`] until the overlay holds it.
    fn changes(&mut self, changes: &Changes) -> Result<()> {
        let path = EMPTY.to_owned();
        let step = match changes {
            Changes::Memory { size, inodes } => Step::Tmpfs {
                path,
                size: c_string(&size.to_string())?,
                inodes: c_string(&inodes.to_string())?,
                mode: c"0700".to_owned(),
            },
            Changes::Directory(directory) => {
                let source = self.named(directory, true)?;
                Step::Bind { source, path, writable: true, device: false }
            }
        };
        self.steps.push(step);
        Ok(())
    }

    fn link(&mut self, at: &Path, target: &Path) -> Result<()> {
        self.parents(at)?;
        self.steps.push(Step::Symlink { path: below_root(at)?, target: c_path(target)? });
        Ok(())
    }

    fn named(&mut self, path: &Path, writable: bool) -> Result<Source> {
        let slot = self.slots.len();
        if slot == MAX_TREES {
            let message = format!("more than {MAX_TREES} paths of the host are named");
            return Err(
                Error::new(Code::Invalid, message).hint("name a directory that holds several of them")
            );
        }
        if self.block.is_some() && slot == 0 {
            // As late as can be: until here the parent maps owners while the child works.
            self.steps.push(Step::ReceiveTrees { count: 0 });
        }
        let tree = owners::tree(path, writable, self.block, self.host);
        self.slots.push(Slot { path: path.to_owned(), tree, writable });
        let path = c_path(path)?;
        Ok(if tree == Tree::None { Source::Checked { slot, path } } else { Source::Tree { slot, path } })
    }

    /// What is not there is not hidden: whatever comes there later is the programs' own.
    fn hide(&mut self, at: &Path, origin: &Origin) -> Result<()> {
        let path = below_root(at)?;
        self.steps.push(match self.host.kind(at) {
            None => return Ok(()),
            Some(Kind::File) => Step::MaskFile { path },
            Some(Kind::Directory) => Step::MaskDirectory { path },
            // Covering the link would leave what it leads to.
            Some(Kind::Link(target)) => {
                let message = format!("hide {}: it is a link to {}", at.display(), target.display());
                let hint = format!("hide what it leads to; {origin} names the link");
                return Err(Error::new(Code::Invalid, message).hint(hint));
            }
        });
        Ok(())
    }

    fn mask_proc(&mut self, spec: &SandboxSpec, proc: &Path) -> Result<()> {
        for mask in &spec.proc_masks {
            if self.host.kind(&Path::new("/proc").join(mask.name)).is_none() {
                continue;
            }
            let path = below_root(&proc.join(mask.name))?;
            self.steps.push(match mask.how {
                Cover::File => Step::MaskFile { path },
                Cover::Directory => Step::MaskDirectory { path },
                Cover::ReadOnly => Step::Pin { path, read_only: true },
            });
        }
        Ok(())
    }

    fn parents(&mut self, path: &Path) -> Result<()> {
        path.parent().map_or(Ok(()), |parent| self.directory(parent))
    }

    /// A directory of the private root with its parents, each made once.
    fn directory(&mut self, path: &Path) -> Result<()> {
        let mut missing: Vec<&Path> = path.ancestors().filter(|a| !self.made.contains(*a)).collect();
        while let Some(next) = missing.pop() {
            self.steps.push(Step::Mkdir { path: below_root(next)?, mode: 0o755 });
            self.made.insert(next.to_owned());
        }
        Ok(())
    }
}

/// Whether `at` lies in an earlier tree of the host, where saggar makes no mount point: it would be made in
/// the host's own tree. A tmpfs is ours, and gets its directories.
fn inside_a_tree_of_the_host(at: &Path, earlier: &[Mount]) -> bool {
    let under = earlier.iter().rev().find(|mount| lies_in(at, &mount.at));
    under.is_some_and(|mount| matches!(mount.kind, MountKind::System { .. }) || mount.kind.named().is_some())
}

/// [`Path::starts_with`], which takes both paths apart, and is asked some six hundred times in a start: the first
/// byte that differs says no, unless the two could be spellings of one path.
fn lies_in(at: &Path, tree: &Path) -> bool {
    let (inner, outer) = (at.as_os_str().as_encoded_bytes(), tree.as_os_str().as_encoded_bytes());
    let differ = inner.iter().zip(outer).find(|(a, b)| a != b);
    let means_nothing = |byte: &u8| b"/.".contains(byte);
    match differ {
        Some((a, b)) if !means_nothing(a) && !means_nothing(b) => false,
        _ => at.starts_with(tree),
    }
}

fn c_path(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_encoded_bytes())
        .map_err(|_| Error::new(Code::Invalid, format!("the path {} has a NUL byte", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_short_way_to_ask_says_what_the_long_way_says(at in "/?([ab./]|/b){0,6}", tree in "/?([ab./]|/b){0,6}") {
            prop_assert_eq!(lies_in(at.as_ref(), tree.as_ref()), Path::new(&at).starts_with(&tree), "{} {}", at, tree);
        }
    }
}
