//! Puts a snapshot in the place of what a session has.
//!
//! ```text
//! restore.new (read whole, synced) ── one rename ──> restore.ready ── each tree into its place ──> nothing
//! ```
//! Until the one rename nothing of the session has changed. From then on the restore counts, and whoever opens the
//! session next does what a killed restore left.

use super::{Contents, Limits, extract};
use crate::error::{Code, Error, Result};
use crate::session::workspace::{Origin, Place};
use crate::session::{beneath, make};
use rustix::fs::Mode;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

const NEW: &str = "restore.new";
const READY: &str = "restore.ready";

/// What a snapshot has, and where it belongs in a session.
const PLACES: [(&str, &str); 5] = [
    ("workspace", "workspace"),
    ("changes", "upper/changes"),
    ("home/.claude", "home/.claude"),
    ("home/.claude.json", "home/.claude.json"),
    ("agent.json", "agent.json"),
];

fn fails(what: &str) -> impl Fn(io::Error) -> Error {
    let what = what.to_owned();
    move |e| Error::system(format_args!("restore {what}"), e)
}

/// Puts the snapshot `file` in the place of what the session in this directory has. The caller has its lock.
///
/// # Errors
/// [`Code::Invalid`] for a snapshot that is refused, and then nothing has changed; [`Code::System`].
#[expect(clippy::disallowed_methods, reason = "the snapshot that who asks has chosen")]
pub fn restore(session: &Path, file: &Path, limits: Limits) -> Result<Contents> {
    let root = beneath::root(session).map_err(fails("the session"))?;
    let mut options = File::options();
    let input = options.read(true).custom_flags(libc::O_NONBLOCK).open(file).and_then(|input| {
        if input.metadata()?.is_file() { Ok(input) } else { Err(io::Error::other("it is no regular file")) }
    });
    let input =
        input.map_err(|e| Error::new(Code::Invalid, format!("open the snapshot {}: {e}", file.display())))?;
    beneath::remove(root.as_fd(), NEW).map_err(fails(NEW))?;
    let done = stage(session, root.as_fd(), input, limits);
    match done {
        Err(error) => {
            let _ = beneath::remove(root.as_fd(), NEW);
            Err(error)
        }
        Ok(contents) => {
            rustix::fs::renameat(&root, NEW, &root, READY).map_err(|e| fails(READY)(e.into()))?;
            finish(session)?;
            Ok(contents)
        }
    }
}

fn stage(session: &Path, root: BorrowedFd<'_>, input: File, limits: Limits) -> Result<Contents> {
    rustix::fs::mkdirat(root, NEW, Mode::RWXU).map_err(|e| fails(NEW)(e.into()))?;
    let new = beneath::directory(root, NEW).map_err(fails(NEW))?;
    let origin = Origin::load(session).ok();
    // Of root's sandboxes the owner of the folder owns its changes.
    let owner = origin
        .as_ref()
        .filter(|_| nix::unistd::geteuid().is_root())
        .and_then(|origin| beneath::root(&origin.folder).ok())
        .and_then(|folder| Some(beneath::itself(folder.as_fd()).ok()?.owner));
    let contents = extract(io::BufReader::new(input), new.as_fd(), limits, owner)?;
    let place = origin.map(|origin| origin.place);
    if contents.label.place != place {
        let say = |place: Option<Place>| match place {
            Some(Place::Copy) => "a copy of its folder",
            Some(Place::Overlay) => "an overlay over its folder",
            None => "the folder itself",
        };
        let (of, is) = (say(contents.label.place), say(place));
        let message =
            format!("restore a session that works on {is} from a snapshot of one that works on {of}");
        return Err(
            Error::new(Code::Refused, message).hint("start a session of that kind, and restore into it")
        );
    }
    if place == Some(Place::Overlay) && missing(new.as_fd(), "changes") {
        // No changes are changes, too: what the agent has left goes.
        let mode = Mode::RWXU | Mode::RGRP | Mode::XGRP | Mode::ROTH | Mode::XOTH;
        make::directory(new.as_fd(), Path::new("changes"), owner)
            .and_then(|made| Ok(rustix::fs::fchmod(&made, mode)?))
            .map_err(fails("changes"))?;
    }
    if let Some(agent_session) = &contents.label.agent_session {
        let record = serde_json::json!({
            "version": 1, "session": contents.label.session, "agent_session": agent_session,
        });
        let written = beneath::create(new.as_fd(), "agent.json", 0o600)
            .and_then(|mut file| file.write_all(record.to_string().as_bytes()));
        written.map_err(fails("agent.json"))?;
    }
    rustix::fs::syncfs(&new).map_err(|e| fails(NEW)(e.into()))?;
    Ok(contents)
}

fn missing(at: BorrowedFd<'_>, name: &str) -> bool {
    matches!(beneath::look(at, name), Ok(None))
}

/// Does what is left of a restore that counts, and removes what is left of a snapshot. Cheap when there is nothing.
///
/// # Errors
/// [`Code::System`].
#[expect(
    clippy::disallowed_methods,
    reason = "the session's own directory, where no program of a sandbox can write"
)]
pub fn finish(session: &Path) -> Result<()> {
    super::sweep(session);
    let ready = session.join(READY);
    if ready.symlink_metadata().is_err() {
        return Ok(());
    }
    let root = beneath::root(session).map_err(fails("the session"))?;
    let ready = beneath::directory(root.as_fd(), READY).map_err(fails(READY))?;
    for (number, (from, to)) in PLACES.into_iter().enumerate() {
        put(root.as_fd(), ready.as_fd(), from, to, number).map_err(fails(to))?;
    }
    rustix::fs::syncfs(&root).map_err(|e| fails("the session")(e.into()))?;
    beneath::remove(root.as_fd(), READY).map_err(fails(READY))
}

/// One tree into its place, what was there aside. Whatever was done of that already is not done again.
fn put(root: BorrowedFd<'_>, ready: BorrowedFd<'_>, from: &str, to: &str, number: usize) -> io::Result<()> {
    let (from, to) = (Path::new(from), Path::new(to));
    let source = match beneath::directory(ready, from.parent().unwrap_or(Path::new(""))) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    let from = from.file_name().unwrap_or_default();
    if beneath::look(source.as_fd(), from)?.is_none() {
        return Ok(());
    }
    let above = to.parent().unwrap_or(Path::new(""));
    if !above.as_os_str().is_empty() {
        match rustix::fs::mkdirat(root, above, Mode::RWXU) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    let target = beneath::directory(root, above)?;
    let to = to.file_name().unwrap_or_default();
    let aside = format!("old-{number}");
    if beneath::look(target.as_fd(), to)?.is_some() {
        beneath::remove(ready, &aside)?;
        rustix::fs::renameat(&target, to, ready, aside.as_str())?;
    }
    Ok(rustix::fs::renameat(&source, from, &target, to)?)
}
