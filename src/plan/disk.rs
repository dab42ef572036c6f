//! What bounds what programs write on disk, the workspace and the home directory, and how far (DECISIONS 29).
//! Pure: what the host can do is said by the caller.
//!
//! ```text
//!              under an overlay                       not
//! root    a project quota on its changes,     a copy: a project quota, else an image where the limit must hold
//!         else memory                         the tree itself: nothing, it is not ours to mark
//! user    memory                              nothing
//! ```
//! An image is a file system in a file of the session, over its workspace and home together. What is in it is not
//! where people look for it, and so it is made only for a limit that must hold and that nothing else gives; an
//! overlay gets into it when the home does.
//!
//! The changes of a session are to outlive its sandbox: unless a limit was named, they are on disk, with a quota or
//! without. Where memory cannot take the changes of an overlay (Linux before 6.6), and there is no quota, they are on
//! disk and nothing bounds them.

use super::Degraded;
use crate::error::{Code, Error, Result};
use crate::spec::policy::{Effective, Size};
use crate::spec::{Protection, Strength};

/// Inodes that memory takes at least.
const LEAST_INODES: u64 = 1024;

/// What is to be bounded, and what the host has for it.
#[derive(Debug, Clone)]
pub struct Question<'a> {
    /// Whether the workspace lies under an overlay.
    pub overlay: bool,
    /// Whether the workspace is a copy of the session's.
    pub copy: bool,
    /// Where the home directory is.
    pub home: Home,
    /// Why the session's directory can have no project quota; `None` when it can.
    pub no_quota: Option<&'a str>,
    /// Why the session can have no image; `None` when it can.
    pub no_image: Option<&'a str>,
    /// Whether it has one, from an earlier run.
    pub has_image: bool,
    /// Whether memory can take the changes of an overlay.
    pub memory: bool,
    /// Whether the changes of an overlay are to outlive the sandbox, and the disk can take them.
    pub keep: bool,
}

impl Question<'_> {
    /// Why there is no image, after why there is no quota.
    fn and_no_image(&self) -> String {
        self.no_image.map_or_else(String::new, |why| format!(", and no image: {why}"))
    }

    /// Whether workspace and home go into an image.
    fn on_image(&self, required: bool) -> bool {
        if self.has_image {
            return true;
        }
        let ours = (self.overlay || self.copy) && self.home != Home::Host;
        let on_disk = self.home == Home::Session || !(self.overlay && self.memory);
        required && ours && on_disk && self.no_quota.is_some() && self.no_image.is_none()
    }
}

/// Where the home directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Home {
    /// In memory.
    Memory,
    /// In the session's directory.
    Session,
    /// A directory of the host's.
    Host,
}

/// What bounds one tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// A file system in memory with its own size.
    Memory,
    /// A project quota.
    Quota,
    /// A file system of the session's own, in a file.
    Image,
    /// Nothing.
    Nothing,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// What bounds the workspace.
    pub workspace: Bound,
    /// What bounds the home directory.
    pub home: Bound,
    /// Bytes at most.
    pub bytes: u64,
    /// Inodes at most.
    pub inodes: u64,
    /// What bounds them, in words.
    pub means: String,
    /// Why they do not hold, and what cures it.
    pub lack: Option<(String, String)>,
    /// The limit in words that must hold, when one must.
    required: Option<String>,
}

/// Chooses what bounds the workspace and the home directory.
pub fn choose(policy: &Effective, question: &Question<'_>) -> Disk {
    let limits = &policy.limits;
    let must_hold = policy.strength(Protection::Disk) == Strength::Require;
    let image = question.on_image(must_hold);
    let quota = question.no_quota.is_none() && !image;
    let named = [
        limits.disk.is_named().then(|| format!("disk = {}, from {}", limits.disk.value, limits.disk.layer)),
        limits
            .inodes
            .is_named()
            .then(|| format!("inodes = {}, from {}", limits.inodes.value, limits.inodes.layer)),
    ];
    let required = must_hold.then(|| {
        let named: Vec<String> = named.into_iter().flatten().collect();
        if named.is_empty() {
            format!("disk = {}, which is required", limits.disk.value)
        } else {
            named.join(" and ")
        }
    });
    let is_named = limits.disk.is_named() || limits.inodes.is_named();
    let workspace = match question {
        Question { overlay: true, .. } | Question { copy: true, .. } if image => Bound::Image,
        Question { overlay: true, .. } if quota => Bound::Quota,
        Question { overlay: true, keep: true, .. } if required.is_none() && !is_named => Bound::Nothing,
        Question { overlay: true, memory: true, .. } => Bound::Memory,
        Question { copy: true, .. } if quota => Bound::Quota,
        _ => Bound::Nothing,
    };
    let home = match question.home {
        Home::Memory => Bound::Memory,
        Home::Session if image => Bound::Image,
        Home::Session if quota => Bound::Quota,
        Home::Session | Home::Host => Bound::Nothing,
    };
    let (mut bytes, mut inodes) = (limits.disk.value.bytes(), u64::from(limits.inodes.value));
    if workspace == Bound::Memory {
        // What lies in memory adds up to less than there is, unless somebody knows better.
        if !limits.disk.is_named() {
            bytes = bytes.min(limits.memory.value.bytes() / 4);
        }
        if !limits.inodes.is_named() {
            inodes = inodes.min((bytes / 4096).max(LEAST_INODES));
        }
    }
    if image && !limits.inodes.is_named() {
        inodes = inodes.min((bytes / 4096).max(LEAST_INODES));
    }
    let mut disk = Disk { workspace, home, bytes, inodes, means: String::new(), lack: None, required };
    disk.lack = disk.lack(question, limits.memory.value);
    disk.means = disk.in_words();
    disk
}

impl Disk {
    /// Why the limit does not hold, and the cure.
    fn lack(&self, question: &Question<'_>, memory: Size) -> Option<(String, String)> {
        let no_quota = question.no_quota.unwrap_or_default();
        let said = |why: String, cure: &str| Some((why, cure.to_owned()));
        match (self.workspace, self.home) {
            (Bound::Nothing, _) if question.overlay && question.keep && self.required.is_none() => said(
                format!(
                    "the changes of an overlay are kept on disk, and {no_quota}; only each file is bounded (fsize)"
                ),
                "say --disk SIZE --home tmp, and they are in memory and do not outlive the sandbox",
            ),
            (Bound::Nothing, _) if question.overlay => said(
                format!("memory cannot take the changes of an overlay before Linux 6.6, and {no_quota}"),
                "boot a newer kernel, or leave the limit out",
            ),
            (Bound::Nothing, _) if question.copy => said(
                format!("{no_quota}{}; only each file is bounded (fsize)", question.and_no_image()),
                "keep sessions on an ext4 or xfs that is mounted with prjquota and be root, or say \
                 --workspace-overlay --home tmp, and nothing outlives the sandbox",
            ),
            (Bound::Nothing, _) => said(
                "the workspace is a directory of the host; only each file is bounded (fsize)".to_owned(),
                "say --workspace-overlay, or leave the limit out",
            ),
            (_, Bound::Nothing) if question.home == Home::Host => said(
                "the home directory is a directory of the host; only each file is bounded (fsize)".to_owned(),
                "say --home tmp, or leave the limit out",
            ),
            (_, Bound::Nothing) => said(
                format!("the home directory is on disk, and {no_quota}{}", question.and_no_image()),
                "say --home tmp, and the agent's own files do not outlive the sandbox; or leave the limit out",
            ),
            (Bound::Memory, _) if self.bytes >= memory.bytes() => said(
                format!("the changes lie in memory, of which there is {memory} in all"),
                "say a --disk below --memory",
            ),
            _ => None,
        }
    }

    fn in_words(&self) -> String {
        if let Some((why, _)) = &self.lack {
            return why.clone();
        }
        match (self.workspace, self.home) {
            (Bound::Quota, Bound::Quota) => "a project quota over workspace and home together".to_owned(),
            (Bound::Quota, _) => "a project quota over the workspace; the home is in memory".to_owned(),
            (Bound::Image, Bound::Image) => {
                "a file system in the session's disk.img, for workspace and home together".to_owned()
            }
            (Bound::Image, _) => {
                "a file system in the session's disk.img, for the workspace; the home is in memory".to_owned()
            }
            (_, Bound::Image) => "a file system in the session's disk.img, for the home".to_owned(),
            (_, Bound::Quota) => {
                "an overlay over the workspace, its changes in memory, where they count as memory; a project quota \
                 over the home"
                    .to_owned()
            }
            _ => "an overlay over the workspace: its changes are in memory, and count as memory".to_owned(),
        }
    }

    /// Whether a project quota is to be set.
    pub fn needs_quota(&self) -> bool {
        self.workspace == Bound::Quota || self.home == Bound::Quota
    }

    /// Whether the session's image is to be mounted.
    pub fn needs_image(&self) -> bool {
        self.workspace == Bound::Image || self.home == Bound::Image
    }

    /// What is missing, as a start lists it.
    pub fn degraded(&self) -> impl Iterator<Item = Degraded> {
        let missing = |what: &str, why: &str| Degraded { what: what.to_owned(), why: why.to_owned() };
        let lack = self.lack.iter();
        lack.flat_map(move |(why, _)| ["disk", "inodes"].map(|what| missing(what, why)))
    }

    /// Whether it must hold.
    pub fn is_required(&self) -> bool {
        self.required.is_some()
    }

    /// Refuses what must hold and cannot.
    ///
    /// # Errors
    /// [`Code::Unsupported`] with the cure.
    pub fn check(&self) -> Result<()> {
        match (&self.required, &self.lack) {
            (Some(limit), Some((why, cure))) => {
                Err(Error::new(Code::Unsupported, format!("the limit {limit}, cannot hold: {why}"))
                    .hint(cure.clone()))
            }
            _ => Ok(()),
        }
    }
}
