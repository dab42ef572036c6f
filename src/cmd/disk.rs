//! What bounds what programs write on disk, for `wrap`, `agent` and `explain`: the host is asked here, the answer is
//! [`plan::disk`]'s.

use super::prepare::Prepared;
use crate::cli::SandboxArgs;
use crate::error::{Code, Error, Result};
use crate::host::quota;
use crate::log::tell as say;
use crate::plan::disk::{self, Bound, Disk, Question};
use crate::session::Session;
use crate::session::changes::Kept;
use crate::session::image::Image;
use crate::session::meter::Meter;
use crate::session::project::Project;
use crate::spec::policy::{Effective, Home};
use crate::spec::{Changes, Protection, Strength};
use crate::text::Show;
use std::path::Path;

/// How long what programs change is to last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lasting {
    /// As long as the sandbox.
    Sandbox,
    /// As long as its session, as an agent's does: it alone gets an image.
    Session,
}

/// What bounds the sandbox of these options. `session` is where its session is, or will be.
pub(super) fn choose(
    args: &SandboxArgs,
    policy: &Effective,
    copy: bool,
    session: Option<&Path>,
    lasting: Lasting,
) -> Disk {
    let overlay = args.workspace_overlay;
    let home = match policy.files.home.value {
        Home::Tmp => disk::Home::Memory,
        Home::Session => disk::Home::Session,
        Home::Directory(_) => disk::Home::Host,
    };
    // A start is counted: the host is asked only about what could be used.
    let wants_quota = overlay || copy || home == disk::Home::Session;
    let no_quota = match session {
        Some(session) if wants_quota => quota::refused(session),
        _ => Some("there is no place for sessions".to_owned()),
    };
    let lasting = session.filter(|_| lasting == Lasting::Session);
    let has_image = lasting.map(Image::of).is_some_and(|image| image.exists());
    let no_image = match lasting {
        // Only what must hold gets one.
        Some(session) if no_quota.is_some() && policy.strength(Protection::Disk) == Strength::Require => {
            let begun = ["workspace", "home", "upper"].iter().any(|name| session.join(name).exists());
            let begun = (begun && !has_image).then(|| "the session was begun without one".to_owned());
            begun.or_else(quota::image_refused)
        }
        _ => Some("only an agent's session has one".to_owned()),
    };
    let memory = overlay && quota::memory_takes_changes();
    let copy = copy && !overlay;
    let keep = overlay && lasting.is_some_and(quota::disk_takes_changes);
    let (no_quota, no_image) = (no_quota.as_deref(), no_image.as_deref());
    disk::choose(policy, &Question { overlay, copy, home, no_quota, no_image, has_image, memory, keep })
}

/// Says at the begin where the workspace of a session is.
pub(super) fn tell_place(session: &Session, disk: &Disk, workspace: &Path) {
    say(&format!("workspace: {}", workspace.shown()));
    if disk.needs_image() {
        say(&format!("workspace: {}", in_image(&Image::of(session.directory()))));
    }
}

/// How to get at what is in an image, when the sandbox has ended.
fn in_image(image: &Image) -> String {
    let (file, place) = (image.file(), image.place());
    let (file, place) = (file.shown(), place.shown());
    format!("that is in the file system of {file}; when this is over: mount -o loop {file} {place}")
}

/// Mounts the image of a session that needs one.
///
/// # Errors
/// As [`Session::mount_image`].
pub(super) fn mount_image(disk: &Disk, session: &mut Session) -> Result<()> {
    if disk.needs_image() { session.mount_image(disk.bytes, disk.inodes) } else { Ok(()) }
}

/// The error of a workspace that could not be made. A new image in which there was no room for it is removed: there
/// is nothing else in it.
pub(super) fn no_room(disk: &Disk, session: &Session, error: Error) -> Error {
    if !disk.needs_image() {
        return error;
    }
    Image::of(session.directory()).remove();
    let (bytes, inodes) = (disk.bytes, disk.inodes);
    let message = format!("{error}; the limits are disk = {bytes} and inodes = {inodes}");
    Error::new(Code::Invalid, message).hint("raise --disk or --inodes, or leave them out")
}

/// Refuses a work tree that an overlay would not show as it is.
///
/// # Errors
/// [`Code::Refused`] when a file system is mounted in it.
pub(super) fn check_lower(workspace: &Path) -> Result<()> {
    let mounts = procfs::process::Process::myself().and_then(|process| process.mountinfo());
    let mounts = mounts.map_err(|e| Error::system("read the mounts of this host", e))?;
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
pub(super) fn changes(disk: &Disk, place: &Path) -> Changes {
    match disk.workspace {
        Bound::Memory => Changes::Memory { size: disk.bytes, inodes: disk.inodes },
        Bound::Quota | Bound::Image | Bound::Nothing => Changes::Directory(place.join("upper")),
    }
}

/// The project of a session that has a quota. What nobody asked for and cannot be had is listed.
pub(super) fn project(disk: &mut Disk, session: &Path) -> Result<Option<Project>> {
    if !disk.needs_quota() {
        return Ok(None);
    }
    match Project::of(session) {
        Err(error) if !disk.is_required() => {
            disk.lack.get_or_insert((error.to_string(), String::new()));
            Ok(None)
        }
        project => project.map(Some),
    }
}

/// Sets the quota of a sandbox that has a project. What nobody asked for and cannot be had is listed.
pub(super) fn limit(prepared: &mut Prepared) -> Result<()> {
    let Some(project) = &prepared.project else { return Ok(()) };
    let disk = &mut prepared.disk;
    match project.limit(disk.bytes, disk.inodes) {
        Err(error) if !disk.is_required() && disk.lack.is_none() => {
            disk.lack = Some((error.to_string(), String::new()));
            prepared.plan.degraded.extend(disk.degraded());
            Ok(())
        }
        Err(error) if disk.is_required() => Err(error),
        _ => Ok(()),
    }
}

/// What tells whether the limit on disk was reached.
pub(super) fn meter(prepared: &Prepared, session: &Path) -> Option<Meter> {
    match &prepared.project {
        _ if prepared.disk.needs_image() => Some(Meter::Image(Image::of(session))),
        Some(project) if prepared.disk.lack.is_none() => Some(Meter::Quota(project.clone())),
        _ => None,
    }
}

/// Says at the end what becomes of the changes of an overlay, when there are any.
pub(super) fn tell(prepared: &Prepared, kept: Option<&Kept>, has_changes: bool) {
    let workspace = prepared.workspace.shown();
    match (prepared.disk.workspace, kept) {
        (_, Some(kept)) if has_changes => {
            let directory = kept.changes_directory();
            let changes = directory.shown();
            say(&format!("workspace: {workspace} is as it was; the changes to it are in {changes}"));
            if prepared.disk.workspace == Bound::Image
                && let Some(session) = kept.place().parent()
            {
                say(&format!("workspace: {}", in_image(&Image::of(session))));
            }
        }
        (Bound::Memory, None) => {
            let lost = "the changes to it were in memory, and are gone";
            say(&format!("workspace: {workspace} is as it was; {lost}"));
        }
        _ => {}
    }
}
