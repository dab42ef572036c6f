//! The file tree of a sandbox as steps: the root, its directories, links and files, and the mounts.

use super::step::{Source, Step};
use super::{Slot, below_root, c_string};
use crate::error::{Code, Error, Result};
use crate::spec::{Cover, Mount, MountKind, Profile, SandboxSpec};
use std::collections::BTreeSet;
use std::ffi::CString;
use std::path::{Path, PathBuf};

/// Bytes and inodes of the private root: it holds mount points and a few small files.
const ROOT_SIZE: u64 = 4 << 20;
const ROOT_INODES: u64 = 4096;

/// Gathers the steps of the phase [`super::step::Phase::Files`].
#[derive(Debug)]
pub(super) struct Files {
    privileged: bool,
    steps: Vec<Step>,
    slots: Vec<Slot>,
    made: BTreeSet<PathBuf>,
}

impl Files {
    pub(super) fn new(privileged: bool) -> Self {
        Files { privileged, steps: Vec::new(), slots: Vec::new(), made: BTreeSet::from([PathBuf::from("/")]) }
    }

    pub(super) fn into_parts(self) -> (Vec<Step>, Vec<Slot>) {
        (self.steps, self.slots)
    }

    pub(super) fn add(&mut self, spec: &SandboxSpec) -> Result<()> {
        let (size, inodes) = (c_string(&ROOT_SIZE.to_string())?, c_string(&ROOT_INODES.to_string())?);
        self.steps.push(Step::NewRoot { size, inodes });
        for (index, mount) in spec.mounts.iter().enumerate() {
            self.mount(mount, &spec.mounts[..index], spec.profile)?;
            if mount.kind == MountKind::Proc {
                self.mask_proc(spec, &mount.at)?;
            }
        }
        for (path, target) in &spec.links {
            self.parents(path)?;
            let target = CString::new(target.as_os_str().as_encoded_bytes()).map_err(|_| {
                Error::new(Code::Invalid, format!("the link {} has a NUL byte", path.display()))
            })?;
            self.steps.push(Step::Symlink { path: below_root(path)?, target });
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
        Ok(())
    }

    fn mount(&mut self, mount: &Mount, earlier: &[Mount], profile: Profile) -> Result<()> {
        let path = below_root(&mount.at)?;
        let is_file = matches!(mount.kind, MountKind::Bind { directory: false, .. });
        if !self.inside_a_mount(&mount.at, earlier)? {
            if is_file {
                self.parents(&mount.at)?;
                if self.made.insert(mount.at.clone()) {
                    self.steps.push(Step::Touch { path: path.clone() });
                }
            } else {
                self.directory(&mount.at)?;
            }
        }
        let number = |n: u64| c_string(&n.to_string());
        let step = match &mount.kind {
            MountKind::Bind { source, named, .. } => {
                let device = mount.at.starts_with("/dev");
                let source = self.source(source, *named)?;
                Step::Bind { source, path, writable: mount.writable, device }
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

    /// Whether `at` lies in an earlier bind of the host, where saggar makes no mount point: it would be
    /// made in the host's tree. A tmpfs is ours, and gets its directories.
    fn inside_a_mount(&mut self, at: &Path, earlier: &[Mount]) -> Result<bool> {
        let under = earlier.iter().rev().find(|mount| at.starts_with(&mount.at));
        Ok(matches!(under, Some(Mount { kind: MountKind::Bind { .. }, .. })))
    }

    fn source(&mut self, path: &Path, named: bool) -> Result<Source> {
        let c_path = CString::new(path.as_os_str().as_encoded_bytes())
            .map_err(|_| Error::new(Code::Invalid, format!("the path {} has a NUL byte", path.display())))?;
        if !named {
            return Ok(Source::System(c_path));
        }
        let slot = self.slots.len();
        self.slots.push(Slot { path: path.to_owned(), tree: self.privileged });
        Ok(if self.privileged {
            Source::Tree { slot, path: c_path }
        } else {
            Source::Checked { slot, path: c_path }
        })
    }

    fn mask_proc(&mut self, spec: &SandboxSpec, proc: &Path) -> Result<()> {
        for mask in &spec.proc_masks {
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
