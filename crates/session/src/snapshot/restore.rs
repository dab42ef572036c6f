//! Restores a snapshot over the data of a session.
//!
//! ```text
//! restore.new (extracted, synced) ── one rename ──> restore.ready ── each tree to its place ──> removed
//! ```
//! Workers ([`saggar_sys::file_worker`]) read the archive. They can write to `restore.new` and nowhere else, each with
//! the ids of the owner of the files it creates: for root, the home belongs to root and the workspace to the owner of
//! the folder.
//!
//! Before the rename, nothing in the session has changed. After it the restore is effective: the next process that
//! opens the session completes a restore that was killed.

use super::{SnapshotContents, SnapshotLimits, SnapshotPart, conversation, extract_part, home};
use crate::create::FileOwner;
use crate::workspace_origin::{ChangeStorage, WorkspaceOrigin};
use crate::{create, remove};
use rustix::fs::Mode;
use saggar_sys::beneath;
use saggar_sys::error::{Code, Error, Result};
use saggar_sys::file_worker::{self, Confinement, FileAccess};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

const STAGING_NAME: &str = "restore.new";
const READY_NAME: &str = "restore.ready";
/// Address space of a worker in bytes: a frame's window, and the names of all directories.
const WORKER_MEMORY: u64 = 2 << 30;
/// Most names that an unfinished restore leaves: the old trees, and the remaining new ones.
const MAX_LEFTOVER_NAMES: usize = 2 * (TARGETS.len() + home::MAX_NAMES) + 1;
/// Largest result of a worker in bytes: a label, and some log entries.
const MAX_RESULT: usize = 1 << 20;

/// The trees of a snapshot, and their places in a session. Names in the home are added: each has its place there.
const TARGETS: [(&str, &str); 3] =
    [("workspace", "workspace"), ("changes", "upper/changes"), ("agent.json", "agent.json")];

fn io_error(what: &str) -> impl Fn(io::Error) -> Error {
    let what = what.to_owned();
    move |e| Error::system(format_args!("restore {what}"), e)
}

/// Restores the snapshot `file` over the data of the session in this directory, whose workspace has the path `workspace`
/// inside its sandbox. The caller holds its lock.
///
/// # Errors
/// [`Code::Invalid`] for a snapshot that is rejected, and then nothing has changed; [`Code::System`].
#[expect(clippy::disallowed_methods, reason = "the snapshot that who asks has chosen")]
pub fn restore_snapshot(
    session: &Path,
    workspace: Option<&str>,
    file: &Path,
    limits: SnapshotLimits,
) -> Result<SnapshotContents> {
    let root = beneath::open_root(session).map_err(io_error("the session"))?;
    let mut options = File::options();
    let input = options.read(true).custom_flags(libc::O_NONBLOCK).open(file).and_then(|input| {
        if input.metadata()?.is_file() { Ok(input) } else { Err(io::Error::other("it is no regular file")) }
    });
    let input =
        input.map_err(|e| Error::new(Code::Invalid, format!("open the snapshot {}: {e}", file.display())))?;
    remove::remove_tree(root.as_fd(), Path::new(STAGING_NAME))?;
    let done = stage_archive((session, root.as_fd()), workspace, &input, limits);
    match done {
        Err(error) => {
            let _ = remove::remove_tree(root.as_fd(), Path::new(STAGING_NAME));
            Err(error)
        }
        Ok(contents) => {
            rustix::fs::renameat(&root, STAGING_NAME, &root, READY_NAME)
                .map_err(|e| io_error(READY_NAME)(e.into()))?;
            finish_restore(session)?;
            Ok(contents)
        }
    }
}

/// The owners of a session's data; `None` for the caller.
#[derive(Debug, Clone, Copy)]
struct RestoredOwners {
    /// Owner of the workspace or the upper layer: the owner of the folder.
    tree_owner: FileOwner,
    /// Owner of the home: unchanged.
    home_owner: FileOwner,
}

impl RestoredOwners {
    fn for_session(root: BorrowedFd<'_>, origin: Option<&WorkspaceOrigin>) -> io::Result<Self> {
        let home = match beneath::open_directory(root, "home") {
            Err(e) if e.kind() == io::ErrorKind::NotFound => file_worker::worker_owner(root)?,
            opened => file_worker::worker_owner(opened?.as_fd())?,
        };
        let folder = origin.and_then(|origin| beneath::open_root(&origin.folder).ok());
        let tree = folder.map_or(Ok(home), |folder| file_worker::worker_owner(folder.as_fd()))?;
        Ok(RestoredOwners { tree_owner: tree, home_owner: home })
    }
}

/// Extracts the archive into the new directory `new`.
fn extract_in_workers(
    new: BorrowedFd<'_>,
    input: &File,
    owners: RestoredOwners,
    limits: SnapshotLimits,
) -> Result<SnapshotContents> {
    let pass = |part, owner, directory: BorrowedFd<'_>| {
        let mut start = input;
        start.seek(SeekFrom::Start(0)).map_err(io_error("the snapshot"))?;
        let confinement = Confinement {
            task: "read the snapshot",
            owner,
            capabilities: 0,
            directories: &[(directory, FileAccess::Write)],
            files: &[new, input.as_fd()],
            limits: file_worker::WorkerLimits {
                memory: WORKER_MEMORY,
                file_size: limits.bytes,
                output_size: MAX_RESULT,
                ..limits.for_worker()
            },
        };
        file_worker::run_worker(&confinement, || extract_part(io::BufReader::new(input), new, limits, part))
    };
    create::set_owner(new, owners.tree_owner).map_err(io_error(STAGING_NAME))?;
    if owners.tree_owner == owners.home_owner {
        return pass(SnapshotPart::All, owners.tree_owner, new);
    }
    // The owner of the home needs search permission; no process of either owner can reach the session itself.
    let way = Mode::RWXU | Mode::XGRP | Mode::XOTH;
    rustix::fs::fchmod(new, way).map_err(|e| io_error(STAGING_NAME)(e.into()))?;
    let home =
        create::create_directory(new, Path::new("home"), owners.home_owner).map_err(io_error("home"))?;
    let contents = pass(SnapshotPart::Tree, owners.tree_owner, new)?;
    if pass(SnapshotPart::Home, owners.home_owner, home.as_fd())? != contents {
        return Err(Error::new(Code::Invalid, "read the snapshot: it changed meanwhile"));
    }
    Ok(contents)
}

fn stage_archive(
    (session, root): (&Path, BorrowedFd<'_>),
    workspace: Option<&str>,
    input: &File,
    limits: SnapshotLimits,
) -> Result<SnapshotContents> {
    rustix::fs::mkdirat(root, STAGING_NAME, Mode::RWXU).map_err(|e| io_error(STAGING_NAME)(e.into()))?;
    let new = beneath::open_directory(root, STAGING_NAME).map_err(io_error(STAGING_NAME))?;
    let origin = WorkspaceOrigin::load(session).ok();
    let owners = RestoredOwners::for_session(root, origin.as_ref()).map_err(io_error("the session"))?;
    let contents = extract_in_workers(new.as_fd(), input, owners, limits)?;
    let place = origin.map(|origin| origin.storage);
    if contents.label.place != place {
        let say = |place: Option<ChangeStorage>| match place {
            Some(ChangeStorage::Copy) => "a copy of its folder",
            Some(ChangeStorage::Overlay) => "an overlay over its folder",
            None => "the folder itself",
        };
        let (of, is) = (say(contents.label.place), say(place));
        let message =
            format!("restore a session that works on {is} from a snapshot of one that works on {of}");
        return Err(
            Error::new(Code::Refused, message).hint("start a session of that kind, and restore into it")
        );
    }
    if place == Some(ChangeStorage::Overlay) && is_missing(new.as_fd(), "changes") {
        // A snapshot without changes also replaces the changes of the session, with none.
        let mode = Mode::RWXU | Mode::RGRP | Mode::XGRP | Mode::ROTH | Mode::XOTH;
        create::create_directory(new.as_fd(), Path::new("changes"), owners.tree_owner)
            .and_then(|made| Ok(rustix::fs::fchmod(&made, mode)?))
            .map_err(io_error("changes"))?;
    }
    // The names are checked before the restore takes effect.
    home::paths_to_restore(new.as_fd()).map_err(io_error("home"))?;
    if let (Some(from), Some(to)) = (&contents.label.workspace, workspace)
        && let Ok(home) = beneath::open_directory(new.as_fd(), "home")
    {
        conversation::move_transcripts(home.as_fd(), from, to).map_err(io_error("the conversation"))?;
    }
    if let Some(agent_session) = &contents.label.agent_session {
        let record = serde_json::json!({
            "version": 1, "session": contents.label.session, "agent_session": agent_session,
        });
        let written = beneath::create_file(new.as_fd(), "agent.json", 0o600)
            .and_then(|mut file| file.write_all(record.to_string().as_bytes()));
        written.map_err(io_error("agent.json"))?;
    }
    rustix::fs::syncfs(&new).map_err(|e| io_error(STAGING_NAME)(e.into()))?;
    Ok(contents)
}

fn is_missing(at: BorrowedFd<'_>, name: &str) -> bool {
    matches!(beneath::stat_beneath(at, name), Ok(None))
}

/// Completes an unfinished restore, and removes unfinished snapshots. Cheap when there are none.
///
/// # Errors
/// [`Code::System`].
#[expect(
    clippy::disallowed_methods,
    reason = "the session's own directory, where no program of a sandbox can write"
)]
pub fn finish_restore(session: &Path) -> Result<()> {
    super::remove_partial(session);
    let ready = session.join(READY_NAME);
    if ready.symlink_metadata().is_err() {
        return Ok(());
    }
    let root = beneath::open_root(session).map_err(io_error("the session"))?;
    let ready = beneath::open_directory(root.as_fd(), READY_NAME).map_err(io_error(READY_NAME))?;
    for (number, (from, to)) in TARGETS.into_iter().enumerate() {
        let aside = format!("old-{number}");
        move_into_place(root.as_fd(), ready.as_fd(), (from.as_ref(), to.as_ref()), aside.as_ref())
            .map_err(io_error(to))?;
    }
    restore_home(root.as_fd(), ready.as_fd()).map_err(io_error("home"))?;
    rustix::fs::syncfs(&root).map_err(|e| io_error("the session")(e.into()))?;
    // One by one, each in a worker with the ids of its owner.
    for name in beneath::read_names(ready.as_fd(), MAX_LEFTOVER_NAMES).map_err(io_error(READY_NAME))? {
        remove::remove_tree(ready.as_fd(), Path::new(&name))?;
    }
    remove::remove_tree(root.as_fd(), Path::new(READY_NAME))
}

fn restore_home(root: BorrowedFd<'_>, ready: BorrowedFd<'_>) -> io::Result<()> {
    let paths = home::paths_to_restore(ready)?;
    if paths.is_empty() {
        return Ok(());
    }
    match rustix::fs::mkdirat(root, "home", Mode::RWXU) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(errno) => return Err(errno.into()),
    }
    let opened = beneath::open_directory(root, "home")?;
    let owner = file_worker::worker_owner(opened.as_fd())?;
    for path in paths {
        let path = Path::new("home").join(home::make_way(opened.as_fd(), &path, owner)?);
        move_into_place(root, ready, (&path, &path), &home::aside_name(&path))?;
    }
    Ok(())
}

/// Moves one tree to its place, and the old tree out of it. Steps that were done already are skipped.
fn move_into_place(
    root: BorrowedFd<'_>,
    ready: BorrowedFd<'_>,
    (from, to): (&Path, &Path),
    aside: &OsStr,
) -> io::Result<()> {
    let source = match beneath::open_directory(ready, from.parent().unwrap_or(Path::new(""))) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    let from = from.file_name().unwrap_or_default();
    if beneath::stat_beneath(source.as_fd(), from)?.is_none() {
        return Ok(());
    }
    let above = to.parent().unwrap_or(Path::new(""));
    if !above.as_os_str().is_empty() {
        match rustix::fs::mkdirat(root, above, Mode::RWXU) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    let target = beneath::open_directory(root, above)?;
    let to = to.file_name().unwrap_or_default();
    if beneath::stat_beneath(target.as_fd(), to)?.is_some() {
        beneath::remove(ready, aside)?;
        rename_overriding_mode((target.as_fd(), to), (ready, aside))?;
    }
    rename_overriding_mode((source.as_fd(), from), (target.as_fd(), to))
}

/// Renames `from` to `to`. A directory that gets another parent must be writable for its owner, since its `..` changes:
/// if it is not, it is for the moment of the rename.
fn rename_overriding_mode(from: (BorrowedFd<'_>, &OsStr), to: (BorrowedFd<'_>, &OsStr)) -> io::Result<()> {
    match rustix::fs::renameat(from.0, from.1, to.0, to.1) {
        Err(rustix::io::Errno::ACCESS) => {}
        renamed => return Ok(renamed?),
    }
    let mode = beneath::stat_beneath(from.0, from.1)?.map(|meta| Mode::from_raw_mode(meta.mode));
    let directory = beneath::open_overriding_mode(from.0, Path::new(from.1))?;
    let renamed = rustix::fs::renameat(from.0, from.1, to.0, to.1);
    if let Some(mode) = mode {
        rustix::fs::fchmod(&directory, mode)?;
    }
    Ok(renamed?)
}
