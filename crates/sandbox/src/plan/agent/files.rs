//! The file tree of a sandbox as steps: the root, its directories, links and files, and the mounts.

use super::step::{AgentStep, BindSource, EMPTY_DIRECTORY, MAX_TREES};
use super::{BlockIds, SourceSlot, TreeMode, landlock, owners, quotas};
use crate::host::{HostFacts, MountPoint, PathKind};
use crate::plan::path::{below_root, c_path, c_string};
use crate::spec::{
    GitIndexSpec, MaskKind, MountKind, MountSpec, Origin, OverlayUpper, SandboxProfile, SandboxSpec,
    mount_order,
};
use saggar_sys::error::{Code, Error, Result};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Bytes and inodes of the private root: it holds mount points and a few small files.
const ROOT_SIZE: u64 = 4 << 20;
const ROOT_INODES: u64 = 4096;

/// Gathers the steps of the phase [`super::step::AgentPhase::Files`].
#[derive(Debug)]
pub(super) struct AgentFiles<'a> {
    host: &'a HostFacts,
    block: Option<&'a BlockIds>,
    steps: Vec<AgentStep>,
    slots: Vec<SourceSlot>,
    created: BTreeSet<PathBuf>,
    /// Directories of the host that programs cannot rename.
    held: BTreeSet<PathBuf>,
}

impl<'a> AgentFiles<'a> {
    pub(super) fn new(host: &'a HostFacts, block: Option<&'a BlockIds>) -> Self {
        AgentFiles {
            host,
            block,
            steps: Vec::new(),
            slots: Vec::new(),
            created: BTreeSet::from([PathBuf::from("/")]),
            held: BTreeSet::new(),
        }
    }

    pub(super) fn into_parts(mut self) -> (Vec<AgentStep>, Vec<SourceSlot>) {
        let slots = self.slots.len();
        for step in &mut self.steps {
            if let AgentStep::ReceiveTrees { count } = step {
                *count = slots;
            }
        }
        (self.steps, self.slots)
    }

    pub(super) fn add(&mut self, spec: &SandboxSpec) -> Result<()> {
        let (size, inodes) = (c_string(&ROOT_SIZE.to_string())?, c_string(&ROOT_INODES.to_string())?);
        self.steps.push(AgentStep::NewRoot { size, inodes });
        self.directory(&Path::new("/").join(EMPTY_DIRECTORY.to_string_lossy().as_ref()))?;
        for (index, mount) in spec.mounts.iter().enumerate() {
            self.mount(mount, &spec.mounts[..index], spec.profile)?;
            if mount.kind == MountKind::Proc {
                self.steps.extend(quotas::steps(&self.host.user_limits, spec.profile, &mount.destination)?);
            }
            if matches!(mount.kind, MountKind::Proc | MountKind::OuterProc) {
                self.mask_proc(spec, &mount.destination)?;
            }
        }
        for (path, target) in &spec.links {
            // A mount at or below the path has already made it a directory, which is kept.
            if !self.created.contains(path) {
                self.link(path, target, &spec.mounts)?;
            }
        }
        for (path, content) in &spec.files {
            self.check_own(path, &spec.mounts)?;
            self.parents(path)?;
            self.steps.push(AgentStep::WriteFile { path: below_root(path)?, content: c_string(content)? });
        }
        for mount in &spec.mounts {
            if matches!(mount.kind, MountKind::Tmpfs { .. }) && !mount.writable {
                self.steps.push(AgentStep::Seal { path: below_root(&mount.destination)? });
            }
        }
        for GitIndexSpec { directory, content, mode, mtime } in &spec.git_indices {
            self.steps.push(AgentStep::ReplaceIndex {
                directory: below_root(directory)?,
                content: content.clone(),
                mode: *mode,
                mtime: *mtime,
            });
        }
        for pin in &spec.pinned_paths {
            self.steps.push(AgentStep::Pin { path: below_root(&pin.path)?, read_only: pin.read_only });
        }
        self.held.extend(spec.pinned_paths.iter().map(|pin| pin.path.clone()));
        for (at, origin) in &spec.hidden_paths {
            if self.host.path_kind(at).is_some()
                && let Some(tree) = self.host_tree_at(at, &spec.mounts)
            {
                self.hold_above(at, tree)?;
            }
            self.hide(at, origin, &spec.mounts)?;
        }
        Ok(())
    }

    /// Holds the directories above a path in their place, where programs could rename them: the mount at the path would move
    /// with them, and a program could make the path anew, or the next sandbox find its content elsewhere.
    fn hold_above(&mut self, at: &Path, tree: &MountSpec) -> Result<()> {
        if !tree.writable {
            return Ok(());
        }
        let is_below = |above: &&Path| *above != tree.destination && above.starts_with(&tree.destination);
        let mut above: Vec<&Path> = at.ancestors().skip(1).take_while(is_below).collect();
        above.reverse();
        for directory in above {
            if self.held.insert(directory.to_owned()) {
                self.steps.push(AgentStep::Pin { path: below_root(directory)?, read_only: false });
            }
        }
        Ok(())
    }

    fn mount(&mut self, mount: &MountSpec, earlier: &[MountSpec], profile: SandboxProfile) -> Result<()> {
        let path = below_root(&mount.destination)?;
        let mut directory = true;
        if let MountKind::System { source } = &mount.kind {
            match self.host.path_kind(source) {
                Some(PathKind::Link(target)) => return self.link(&mount.destination, target, earlier),
                Some(kind) => directory = *kind == PathKind::Directory,
                None => return Ok(()),
            }
        }
        if let Some(source) = mount.kind.named_source() {
            let Some(kind) = self.host.path_kind(source) else {
                let message = format!("{} does not exist", source.display());
                return Err(Error::new(Code::Invalid, message).hint(format!("{} names it", mount.origin)));
            };
            directory = *kind == PathKind::Directory;
        }
        if let Some(tree) = self.check_place(mount, earlier)? {
            self.check_mount_point(mount, directory, tree)?;
            if !mount.writable {
                self.hold_above(&mount.destination, tree)?;
            }
        } else {
            if directory {
                self.directory(&mount.destination)?;
            } else if self.created.insert(mount.destination.clone()) {
                self.parents(&mount.destination)?;
                self.steps.push(AgentStep::Touch { path: path.clone() });
            }
        }
        if let Some(source) = mount.kind.named_source()
            && let Some(kind) = self.host.path_kind(source)
        {
            let has_rules = landlock::has_file_rules(profile, self.host.landlock_abi);
            check_source(mount, (source, kind), earlier, has_rules)?;
        }
        let number = |n: u64| c_string(&n.to_string());
        let step = match &mount.kind {
            MountKind::System { source } => {
                let device = mount.destination.starts_with("/dev");
                AgentStep::Bind {
                    source: BindSource::System(c_path(source)?),
                    path,
                    writable: mount.writable,
                    device,
                }
            }
            MountKind::Named { source } => {
                let source = self.named(source, mount.writable)?;
                AgentStep::Bind { source, path, writable: mount.writable, device: false }
            }
            MountKind::Overlay { lower, changes } => {
                let source = self.named(lower, mount.writable)?;
                // Programs write to the overlay's upper layer, not to this tree.
                if let Some(slot) = self.slots.last_mut() {
                    slot.writable = false;
                }
                self.steps.push(AgentStep::Bind {
                    source,
                    path: path.clone(),
                    writable: false,
                    device: false,
                });
                self.changes(changes)?;
                AgentStep::Overlay { path }
            }
            MountKind::Tmpfs { size, inodes, mode } => AgentStep::Tmpfs {
                path,
                size: number(*size)?,
                inodes: number(*inodes)?,
                mode: c_string(&format!("{mode:04o}"))?,
            },
            MountKind::Proc => AgentStep::Proc { path, hide_foreign: profile != SandboxProfile::Nesting },
            MountKind::OuterProc => AgentStep::OuterProc { path },
            MountKind::Devpts { max } => AgentStep::Devpts { path, max: number((*max).into())? },
            MountKind::Mqueue => AgentStep::Mqueue { path },
        };
        self.steps.push(step);
        Ok(())
    }

    /// The tree of the host in which a mount point lies. saggar makes none there, because it would be made in the host's
    /// own tree. A tmpfs belongs to the sandbox, and gets its mount points.
    fn host_tree_at<'m>(&self, at: &Path, earlier: &'m [MountSpec]) -> Option<&'m MountSpec> {
        let under = mount_order::containing(earlier, at, |mount| self.host.has_mounted(mount))?;
        under.kind.host_source().is_some().then_some(under)
    }

    /// A mount point in a tree of the host has to be there already.
    fn check_mount_point(&self, mount: &MountSpec, directory: bool, tree: &MountSpec) -> Result<()> {
        let why = match self.host.mount_points.get(&mount.destination) {
            // Not looked at: the system's own, and those in a tree that is still to be made.
            None => return Ok(()),
            Some(MountPoint::Missing) => "does not exist".to_owned(),
            Some(MountPoint::Link(at)) => format!("leads through a link, {}", at.display()),
            Some(MountPoint::Directory) if directory => return Ok(()),
            Some(MountPoint::File) if !directory => return Ok(()),
            Some(MountPoint::Directory) => "is a directory, and the mounted path is a file".to_owned(),
            Some(MountPoint::File) => "is a file, and the mounted path is a directory".to_owned(),
        };
        let (at, above) = (mount.destination.display(), tree.destination.display());
        let message = format!("{at} cannot be mounted in {above}: in that tree of the host it {why}");
        let hint = format!(
            "make it there, or mount it elsewhere with PATH:DEST; {} names {at}, {} names {above}",
            mount.origin, tree.origin
        );
        Err(Error::new(Code::Invalid, message).hint(hint))
    }

    /// Where the system has a link, as `/bin` may be one, the sandbox has it too.
    fn link_target(&self, mount: &MountSpec) -> Option<&PathBuf> {
        match &mount.kind {
            MountKind::System { source } => match self.host.path_kind(source) {
                Some(PathKind::Link(target)) => Some(target),
                _ => None,
            },
            _ => None,
        }
    }

    /// The tree of the host in which the mount point lies, if it lies in one. A mount point in file systems whose files are
    /// the kernel's cannot be made, and none is made through a link.
    fn check_place<'m>(&self, mount: &MountSpec, earlier: &'m [MountSpec]) -> Result<Option<&'m MountSpec>> {
        let is_there = |under: &MountSpec| self.host.has_mounted(under) || self.link_target(under).is_some();
        let Some(under) = mount_order::containing(earlier, &mount.destination, is_there) else {
            return Ok(None);
        };
        let (why, hint) = if let Some(target) = self.link_target(under) {
            (
                format!("that is a link to {} in the sandbox", target.display()),
                "mount it below what the link leads to, with PATH:DEST",
            )
        } else if matches!(
            under.kind,
            MountKind::Proc | MountKind::OuterProc | MountKind::Devpts { .. } | MountKind::Mqueue
        ) && under.destination != mount.destination
        {
            ("saggar makes no files in that file system".to_owned(), "mount it elsewhere with PATH:DEST")
        } else {
            return Ok(under.kind.host_source().is_some().then_some(under));
        };
        let (at, under) = (mount.destination.display(), under.destination.display());
        let message = format!("{at} cannot be mounted in {under}: {why}");
        Err(Error::new(Code::Invalid, message).hint(format!("{hint}; {} names {at}", mount.origin)))
    }

    /// What saggar makes inside is not made in a tree of the host.
    fn check_own(&self, at: &Path, mounts: &[MountSpec]) -> Result<()> {
        let Some(tree) = self.host_tree_at(at, mounts) else { return Ok(()) };
        let above = tree.destination.display();
        let message = format!("{above} cannot be mounted: saggar makes {} in the sandbox", at.display());
        let hint = format!(
            "mount what is needed of it by itself, or elsewhere with PATH:DEST; {} names {above}",
            tree.origin
        );
        Err(Error::new(Code::Invalid, message).hint(hint))
    }

    /// Mounts the upper layer of an overlay on [`EMPTY_DIRECTORY`], until the overlay holds it.
    fn changes(&mut self, changes: &OverlayUpper) -> Result<()> {
        let path = EMPTY_DIRECTORY.to_owned();
        let step = match changes {
            OverlayUpper::Memory { size, inodes } => AgentStep::Tmpfs {
                path,
                size: c_string(&size.to_string())?,
                inodes: c_string(&inodes.to_string())?,
                mode: c"0700".to_owned(),
            },
            OverlayUpper::Directory(directory) => {
                let source = self.named(directory, true)?;
                AgentStep::Bind { source, path, writable: true, device: false }
            }
        };
        self.steps.push(step);
        Ok(())
    }

    fn link(&mut self, at: &Path, target: &Path, mounts: &[MountSpec]) -> Result<()> {
        self.check_own(at, mounts)?;
        self.parents(at)?;
        self.steps.push(AgentStep::Symlink { path: below_root(at)?, target: c_path(target)? });
        Ok(())
    }

    fn named(&mut self, path: &Path, writable: bool) -> Result<BindSource> {
        let slot = self.slots.len();
        if slot == MAX_TREES {
            let message = format!("more than {MAX_TREES} paths of the host are named");
            return Err(
                Error::new(Code::Invalid, message).hint("name a directory that holds several of them")
            );
        }
        if self.block.is_some() && slot == 0 {
            // As late as possible: until then the parent maps owners while the child works.
            self.steps.push(AgentStep::ReceiveTrees { count: 0 });
        }
        let tree = owners::tree_mode(path, writable, self.block, self.host);
        self.slots.push(SourceSlot { path: path.to_owned(), tree, writable });
        let path = c_path(path)?;
        Ok(if tree == TreeMode::None {
            BindSource::Checked { slot, path }
        } else {
            BindSource::Tree { slot, path }
        })
    }

    /// A path that does not exist is not hidden: a file that appears there later belongs to the programs.
    fn hide(&mut self, at: &Path, origin: &Origin, mounts: &[MountSpec]) -> Result<()> {
        let path = below_root(at)?;
        let is_below = |mount: &&MountSpec| mount.destination != at && mount.destination.starts_with(at);
        if let Some(mount) = mounts.iter().find(is_below)
            && self.host.path_kind(at).is_some()
        {
            let (hidden, below) = (at.display(), mount.destination.display());
            let message = format!("{below} cannot be mounted: it lies in {hidden}, which is hidden");
            let hint = format!(
                "hide less of {hidden}, or mount {below} elsewhere with PATH:DEST; {} names {below}, {origin} names {hidden}",
                mount.origin
            );
            return Err(Error::new(Code::Invalid, message).hint(hint));
        }
        self.steps.push(match self.host.path_kind(at) {
            None => return Ok(()),
            Some(PathKind::File | PathKind::Fifo | PathKind::Device) => AgentStep::HideFile { path },
            Some(PathKind::Directory) => AgentStep::HideDirectory { path },
            // Covering the link would leave its target visible.
            Some(PathKind::Link(target)) => {
                let message = format!("hide {}: it is a link to {}", at.display(), target.display());
                let hint = format!("hide what it leads to; {origin} names the link");
                return Err(Error::new(Code::Invalid, message).hint(hint));
            }
        });
        Ok(())
    }

    fn mask_proc(&mut self, spec: &SandboxSpec, proc: &Path) -> Result<()> {
        for mask in &spec.proc_masks {
            if self.host.path_kind(&Path::new("/proc").join(mask.name)).is_none() {
                continue;
            }
            let path = below_root(&proc.join(mask.name))?;
            self.steps.push(match mask.kind {
                MaskKind::File => AgentStep::MaskFile { path },
                MaskKind::Directory => AgentStep::MaskDirectory { path },
                MaskKind::ReadOnly => AgentStep::Pin { path, read_only: true },
            });
        }
        Ok(())
    }

    fn parents(&mut self, path: &Path) -> Result<()> {
        path.parent().map_or(Ok(()), |parent| self.directory(parent))
    }

    /// Makes a directory of the private root and its parents, each once.
    fn directory(&mut self, path: &Path) -> Result<()> {
        let mut missing: Vec<&Path> = path.ancestors().filter(|a| !self.created.contains(*a)).collect();
        while let Some(next) = missing.pop() {
            self.steps.push(AgentStep::Mkdir { path: below_root(next)?, mode: 0o755 });
            self.created.insert(next.to_owned());
        }
        Ok(())
    }
}

/// Refuses a source that would not be in the sandbox what its mode says. A link is not followed, because a process that
/// replaces it would choose what is mounted. `has_rules`: Landlock decides which files programs open.
fn check_source(
    mount: &MountSpec,
    (source, kind): (&Path, &PathKind),
    earlier: &[MountSpec],
    has_rules: bool,
) -> Result<()> {
    let at = mount.destination.display();
    let (why, hint) = match kind {
        PathKind::Directory | PathKind::File => return Ok(()),
        PathKind::Fifo if mount.writable => return Ok(()),
        PathKind::Link(target) => {
            let target = source.parent().unwrap_or(source).join(target);
            (format!("it is a link to {}", target.display()), format!("name what it leads to, with PATH:{at}"))
        }
        PathKind::Device => (
            "it is a device, and programs open those of the sandbox alone: null, zero, full, random, urandom, tty"
                .to_owned(),
            "leave it out".to_owned(),
        ),
        // A read-only mount keeps no one from writing to a FIFO, and what Landlock allows in a directory holds below.
        PathKind::Fifo if !has_rules => (
            "it is a FIFO, and without rules of Landlock programs could write to it".to_owned(),
            "mount it read-write, or use the profile strict on a kernel with Landlock".to_owned(),
        ),
        PathKind::Fifo => {
            let is_above = |above: &&MountSpec| above.writable && mount.destination.starts_with(&above.destination);
            let Some(above) = earlier.iter().find(is_above) else { return Ok(()) };
            let above = above.destination.display();
            (
                format!("it is a FIFO, and programs could write to it at {at}, because {above} is writable"),
                "mount it elsewhere with PATH:DEST, or read-write".to_owned(),
            )
        }
    };
    let message = format!("{} cannot be mounted: {why}", source.display());
    Err(Error::new(Code::Invalid, message).hint(format!("{hint}; {} names it", mount.origin)))
}
