//! What bounds what programs write on disk: the host is asked here, the answer is
//! [`crate::plan::agent::disk`]'s.

use super::prepare::PreparedSandbox;
use crate::error::{Code, Error, Result};
use crate::host::disk_bounds;
use crate::host::mounts::own_mounts;
use crate::plan::agent::disk::{self, DiskBound, DiskFacts, DiskLimit};
use crate::session::Session;
use crate::session::disk_usage::DiskUsage;
use crate::session::image::DiskImage;
use crate::session::retained_changes::RetainedChanges;
use crate::session::session_project::SessionProject;
use crate::spec::policy::{EffectivePolicy, HomeSource};
use crate::spec::{OverlayUpper, Protection, ProtectionStrength};
use crate::text::DisplayEscaped;
use std::path::Path;

/// How long what programs change is to last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DiskLifetime {
    /// As long as the sandbox.
    Sandbox,
    /// As long as its session, as an agent's does: it alone gets an image.
    Session,
}

/// What bounds a sandbox, with an `overlay` or a `copy` as its workspace. `session` is where its session is, or will be.
pub(crate) fn choose(
    policy: &EffectivePolicy,
    overlay: bool,
    copy: bool,
    session: Option<&Path>,
    lasting: DiskLifetime,
) -> DiskLimit {
    let home = match policy.files.home.value {
        HomeSource::Tmp => disk::HomeLocation::Memory,
        HomeSource::Session => disk::HomeLocation::Session,
        HomeSource::Directory(_) => disk::HomeLocation::Host,
    };
    // A start is counted: the host is asked only about what could be used.
    let wants_quota = overlay || copy || home == disk::HomeLocation::Session;
    let no_quota = match session {
        Some(session) if wants_quota => disk_bounds::project_quota_obstacle(session),
        _ => Some("there is no place for sessions".to_owned()),
    };
    let lasting = session.filter(|_| lasting == DiskLifetime::Session);
    let has_image = lasting.map(DiskImage::for_session).is_some_and(|image| image.exists());
    let no_image = match lasting {
        // Only what must hold gets one.
        Some(session)
            if no_quota.is_some() && policy.strength(Protection::Disk) == ProtectionStrength::Require =>
        {
            let begun = ["workspace", "home", "upper"].iter().any(|name| session.join(name).exists());
            let begun = (begun && !has_image).then(|| "the session was begun without one".to_owned());
            begun.or_else(disk_bounds::disk_image_obstacle)
        }
        _ => Some("only an agent's session has one".to_owned()),
    };
    let memory = overlay && disk_bounds::tmpfs_supports_overlay();
    let copy = copy && !overlay;
    let keep = overlay && lasting.is_some_and(disk_bounds::supports_overlay_upper);
    let (no_quota, no_image) = (no_quota.as_deref(), no_image.as_deref());
    disk::choose_disk_limit(
        policy,
        &DiskFacts { overlay, copy, home, no_quota, no_image, has_image, memory, keep_changes: keep },
    )
}

/// Where the workspace of a session is, as lines for people.
pub(crate) fn workspace_notices(session: &Session, disk: &DiskLimit, workspace: &Path) -> Vec<String> {
    let image = disk.needs_image().then(|| image_notice(&DiskImage::for_session(session.directory())));
    let place = format!("workspace: {}", workspace.escaped());
    [Some(place), image].into_iter().flatten().collect()
}

/// How to get at what is in an image, when the sandbox has ended.
fn image_notice(image: &DiskImage) -> String {
    let (file, place) = (image.file_path(), image.mount_point());
    let (file, place) = (file.escaped(), place.escaped());
    format!(
        "workspace: that is in the file system of {file}; when this is over: mount -o loop {file} {place}"
    )
}

/// Mounts the image of a session that needs one.
///
/// # Errors
/// As [`Session::mount_image`].
pub(crate) fn mount_image(disk: &DiskLimit, session: &mut Session) -> Result<()> {
    if disk.needs_image() { session.mount_image(disk.bytes, disk.inodes) } else { Ok(()) }
}

/// The error of a workspace that could not be made. A new image in which there was no room for it is removed: there
/// is nothing else in it.
pub(crate) fn disk_full_error(disk: &DiskLimit, session: &Session, error: Error) -> Error {
    if !disk.needs_image() {
        return error;
    }
    DiskImage::for_session(session.directory()).remove();
    let (bytes, inodes) = (disk.bytes, disk.inodes);
    let message = format!("{error}; the limits are disk = {bytes} and inodes = {inodes}");
    Error::new(Code::Invalid, message).hint("raise --disk or --inodes, or leave them out")
}

/// Refuses a work tree that an overlay would not show as it is.
///
/// # Errors
/// [`Code::Refused`] when a file system is mounted in it.
pub(crate) fn check_lower(workspace: &Path) -> Result<()> {
    let mounts = own_mounts()?;
    let inside = |path: &Path| path != workspace && path.starts_with(workspace);
    match mounts.iter().find(|mount| inside(&mount.mount_point)) {
        None => Ok(()),
        Some(mount) => {
            let (workspace, inner) = (workspace.display(), mount.mount_point.display());
            let message = format!("lay an overlay over {workspace}: something is mounted at {inner}");
            Err(Error::new(Code::Refused, message).hint(
                "an overlay has what lies below it instead: unmount it, or name a directory without mounts",
            ))
        }
    }
}

/// Where the changes of an overlay on disk will be; in memory nothing needs a place.
pub(crate) fn overlay_changes(disk: &DiskLimit, directory: &Path) -> OverlayUpper {
    match disk.workspace {
        DiskBound::Memory => OverlayUpper::Memory { size: disk.bytes, inodes: disk.inodes },
        DiskBound::Quota | DiskBound::Image | DiskBound::Unbounded => {
            OverlayUpper::Directory(directory.join("upper"))
        }
    }
}

/// The project of a session that has a quota. A default that is not available is listed.
pub(crate) fn quota_project(disk: &mut DiskLimit, session: &Path) -> Result<Option<SessionProject>> {
    if !disk.needs_quota() {
        return Ok(None);
    }
    match SessionProject::for_session(session) {
        Err(error) if !disk.is_required() => {
            disk.missing.get_or_insert((error.to_string(), String::new()));
            Ok(None)
        }
        project => project.map(Some),
    }
}

/// Sets the quota of a sandbox that has a project. A default that is not available is listed.
pub(crate) fn set_quota(prepared: &mut PreparedSandbox) -> Result<()> {
    let Some(project) = &prepared.project else { return Ok(()) };
    let disk = &mut prepared.disk;
    match project.set_limit(disk.bytes, disk.inodes) {
        Err(error) if !disk.is_required() && disk.missing.is_none() => {
            disk.missing = Some((error.to_string(), String::new()));
            prepared.plan.degraded.extend(disk.degraded_protections());
            Ok(())
        }
        Err(error) if disk.is_required() => Err(error),
        _ => Ok(()),
    }
}

/// What tells whether the limit on disk was reached.
pub(crate) fn disk_usage(prepared: &PreparedSandbox, session: &Path) -> Option<DiskUsage> {
    match &prepared.project {
        _ if prepared.disk.needs_image() => Some(DiskUsage::DiskImage(DiskImage::for_session(session))),
        Some(project) if prepared.disk.missing.is_none() => Some(DiskUsage::ProjectQuota(project.clone())),
        _ => None,
    }
}

/// What becomes of the changes of an overlay when the sandbox has ended, as lines for people; none without changes.
pub(crate) fn changes_notices(
    prepared: &PreparedSandbox,
    retained: Option<&RetainedChanges>,
    has_changes: bool,
) -> Vec<String> {
    let workspace = prepared.workspace.escaped();
    match (prepared.disk.workspace, retained) {
        (bound, Some(retained)) if has_changes => {
            let changes = retained.changes_directory();
            let changes = changes.escaped();
            let kept = format!("workspace: {workspace} is as it was; the changes to it are in {changes}");
            let session = retained.parent_directory().parent().filter(|_| bound == DiskBound::Image);
            let image = session.map(|session| image_notice(&DiskImage::for_session(session)));
            [Some(kept), image].into_iter().flatten().collect()
        }
        (DiskBound::Memory, None) => {
            let lost = "the changes to it were in memory, and are gone";
            vec![format!("workspace: {workspace} is as it was; {lost}")]
        }
        _ => Vec::new(),
    }
}
