//! Chooses the limit on the disk usage of programs, for the workspace and the home directory (DECISIONS 29). Pure: the
//! caller passes what the host supports.
//!
//! ```text
//!              overlay                                no overlay
//! root    a project quota on its changes,     a copy: a project quota, else an image if the limit is required
//!         else memory                         the tree itself: nothing, since saggar must not mark a user's tree
//! user    memory                              nothing
//! ```
//! An image is a file system in a file of the session, for its workspace and home together. Users do not look for their
//! files in it, so it is used only for a required limit that no other mechanism provides. The changes of an overlay go
//! into the image if the home does.
//!
//! The changes of a session must outlive its sandbox: unless the policy names a limit, they are on disk, with or
//! without a quota. Where memory cannot hold the changes of an overlay (Linux before 6.6) and no quota is available,
//! they are on disk without a limit.

use super::DegradedProtection;
use crate::spec::policy::{ByteSize, EffectivePolicy};
use crate::spec::{Protection, ProtectionStrength};
use saggar_sys::error::{Code, Error, Result};

/// The minimum number of inodes of a file system in memory.
const MIN_INODES: u64 = 1024;

/// What to limit, and what the host supports for it.
#[derive(Debug, Clone)]
pub struct DiskFacts<'a> {
    /// Whether the workspace is the lower layer of an overlay.
    pub overlay: bool,
    /// Whether the workspace is a copy that belongs to the session.
    pub copy: bool,
    /// Where the home directory is.
    pub home: HomeLocation,
    /// Why the session's directory can have no project quota; `None` when it can.
    pub no_quota: Option<&'a str>,
    /// Why the session can have no image; `None` when it can.
    pub no_image: Option<&'a str>,
    /// Whether the session has an image from an earlier run.
    pub has_image: bool,
    /// Whether memory can hold the changes of an overlay.
    pub memory: bool,
    /// Whether the changes of an overlay must outlive the sandbox, and the disk can hold them.
    pub keep_changes: bool,
}

impl DiskFacts<'_> {
    /// Why no image is available, to follow the reason for no quota.
    fn image_reason(&self) -> String {
        self.no_image.map_or_else(String::new, |why| format!(", and no image: {why}"))
    }

    /// Whether workspace and home go into an image.
    fn uses_image(&self, required: bool) -> bool {
        if self.has_image {
            return true;
        }
        let ours = (self.overlay || self.copy) && self.home != HomeLocation::Host;
        let on_disk = self.home == HomeLocation::Session || !(self.overlay && self.memory);
        required && ours && on_disk && self.no_quota.is_some() && self.no_image.is_none()
    }
}

/// Where the home directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HomeLocation {
    /// In memory.
    Memory,
    /// In the session's directory.
    Session,
    /// A directory of the host.
    Host,
}

/// What limits the size of one tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskBound {
    /// A file system in memory, with a size of its own.
    Memory,
    /// A project quota.
    Quota,
    /// A file system that belongs to the session, in a file.
    Image,
    /// Nothing.
    Unbounded,
}

/// The limit of a sandbox, and how it is enforced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskLimit {
    /// What limits the workspace.
    pub workspace: DiskBound,
    /// What limits the home directory.
    pub home: DiskBound,
    /// Maximum size in bytes.
    pub bytes: u64,
    /// Maximum number of inodes.
    pub inodes: u64,
    /// Description of the mechanism.
    pub mechanism: String,
    /// Why the limit is not enforced, and the hint that fixes it.
    pub missing: Option<(String, String)>,
    /// Description of the limit, if it is required.
    required: Option<String>,
}

/// Chooses what limits the workspace and the home directory.
pub fn choose_disk_limit(policy: &EffectivePolicy, question: &DiskFacts<'_>) -> DiskLimit {
    let limits = &policy.limits;
    let must_hold = policy.strength(Protection::Disk) == ProtectionStrength::Require;
    let image = question.uses_image(must_hold);
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
        DiskFacts { overlay: true, .. } | DiskFacts { copy: true, .. } if image => DiskBound::Image,
        DiskFacts { overlay: true, .. } if quota => DiskBound::Quota,
        DiskFacts { overlay: true, keep_changes: true, .. } if required.is_none() && !is_named => {
            DiskBound::Unbounded
        }
        DiskFacts { overlay: true, memory: true, .. } => DiskBound::Memory,
        DiskFacts { copy: true, .. } if quota => DiskBound::Quota,
        _ => DiskBound::Unbounded,
    };
    let home = match question.home {
        HomeLocation::Memory => DiskBound::Memory,
        HomeLocation::Session if image => DiskBound::Image,
        HomeLocation::Session if quota => DiskBound::Quota,
        HomeLocation::Session | HomeLocation::Host => DiskBound::Unbounded,
    };
    let (mut bytes, mut inodes) = (limits.disk.value.bytes(), u64::from(limits.inodes.value));
    if workspace == DiskBound::Memory {
        // By default, the changes in memory stay well below the memory limit; a named limit overrides that.
        if !limits.disk.is_named() {
            bytes = bytes.min(limits.memory.value.bytes() / 4);
        }
        if !limits.inodes.is_named() {
            inodes = inodes.min((bytes / 4096).max(MIN_INODES));
        }
    }
    if image && !limits.inodes.is_named() {
        inodes = inodes.min((bytes / 4096).max(MIN_INODES));
    }
    let mut disk =
        DiskLimit { workspace, home, bytes, inodes, mechanism: String::new(), missing: None, required };
    disk.missing = disk.find_missing(question, limits.memory.value);
    disk.mechanism = disk.describe();
    disk
}

impl DiskLimit {
    /// Why the limit is not enforced, and the hint that fixes it.
    fn find_missing(&self, question: &DiskFacts<'_>, memory: ByteSize) -> Option<(String, String)> {
        let no_quota = question.no_quota.unwrap_or_default();
        let unmet = |why: String, cure: &str| Some((why, cure.to_owned()));
        match (self.workspace, self.home) {
            (DiskBound::Unbounded, _)
                if question.overlay && question.keep_changes && self.required.is_none() =>
            {
                unmet(
                    format!(
                        "the changes of an overlay are kept on disk, and {no_quota}; only each file is bounded (fsize)"
                    ),
                    "use --disk SIZE --home tmp to keep them in memory; they are lost when the sandbox ends",
                )
            }
            (DiskBound::Unbounded, _) if question.overlay => unmet(
                format!("memory cannot take the changes of an overlay before Linux 6.6, and {no_quota}"),
                "boot a newer kernel, or leave the limit out",
            ),
            (DiskBound::Unbounded, _) if question.copy => unmet(
                format!("{no_quota}{}; only each file is bounded (fsize)", question.image_reason()),
                "keep sessions on an ext4 or xfs that is mounted with prjquota and be root, or use \
                 --workspace-overlay --home tmp; all changes are then lost when the sandbox ends",
            ),
            (DiskBound::Unbounded, _) => unmet(
                "the workspace is a directory of the host; only each file is bounded (fsize)".to_owned(),
                "use --workspace-overlay, or leave the limit out",
            ),
            (_, DiskBound::Unbounded) if question.home == HomeLocation::Host => unmet(
                "the home directory is a directory of the host; only each file is bounded (fsize)".to_owned(),
                "use --home tmp, or leave the limit out",
            ),
            (_, DiskBound::Unbounded) => unmet(
                format!("the home directory is on disk, and {no_quota}{}", question.image_reason()),
                "use --home tmp, with which the agent's own files are lost when the sandbox ends, or leave the \
                 limit out",
            ),
            (DiskBound::Memory, _) if self.bytes >= memory.bytes() => unmet(
                format!("the changes lie in memory, of which there is {memory} in all"),
                "use a --disk below --memory",
            ),
            _ => None,
        }
    }

    fn describe(&self) -> String {
        if let Some((why, _)) = &self.missing {
            return why.clone();
        }
        match (self.workspace, self.home) {
            (DiskBound::Quota, DiskBound::Quota) => "a project quota over workspace and home together".to_owned(),
            (DiskBound::Quota, _) => "a project quota over the workspace; the home is in memory".to_owned(),
            (DiskBound::Image, DiskBound::Image) => {
                "a file system in the session's disk.img, for workspace and home together".to_owned()
            }
            (DiskBound::Image, _) => {
                "a file system in the session's disk.img, for the workspace; the home is in memory".to_owned()
            }
            (_, DiskBound::Image) => "a file system in the session's disk.img, for the home".to_owned(),
            (_, DiskBound::Quota) => {
                "an overlay over the workspace, its changes in memory, where they count as memory; a project quota \
                 over the home"
                    .to_owned()
            }
            _ => "an overlay over the workspace: its changes are in memory, and count as memory".to_owned(),
        }
    }

    /// Whether the session needs a project quota.
    pub fn needs_quota(&self) -> bool {
        self.workspace == DiskBound::Quota || self.home == DiskBound::Quota
    }

    /// Whether the session's image must be mounted.
    pub fn needs_image(&self) -> bool {
        self.workspace == DiskBound::Image || self.home == DiskBound::Image
    }

    /// The protections that are missing, as a start lists them.
    pub fn degraded_protections(&self) -> impl Iterator<Item = DegradedProtection> {
        let missing =
            |what: &str, why: &str| DegradedProtection { name: what.to_owned(), reason: why.to_owned() };
        let lack = self.missing.iter();
        lack.flat_map(move |(why, _)| ["disk", "inodes"].map(|what| missing(what, why)))
    }

    /// Whether the limit is required.
    pub fn is_required(&self) -> bool {
        self.required.is_some()
    }

    /// Returns an error if the limit is required and cannot be enforced.
    ///
    /// # Errors
    /// [`Code::Unsupported`] with a hint.
    pub fn check(&self) -> Result<()> {
        match (&self.required, &self.missing) {
            (Some(limit), Some((why, cure))) => {
                Err(Error::new(Code::Unsupported, format!("the limit {limit}, cannot hold: {why}"))
                    .hint(cure.clone()))
            }
            _ => Ok(()),
        }
    }
}
