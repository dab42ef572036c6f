//! Writes a snapshot. What is read may be changed meanwhile by whoever made it: a file is as long as it was when it
//! was opened.

#![expect(
    clippy::disallowed_methods,
    reason = "the session's own directory, or a place that who asks has chosen"
)]

use super::path::LONGEST;
use super::{DIRECTORY, Label, Limits, PARTIAL, SKIPPED, SKIPPED_ENDS, SUFFIX};
use crate::error::{Code, Error, Result};
use crate::session::beneath::{self, Kind, Meta};
use crate::session::diff::{self, text};
use crate::session::workspace::Place;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// How hard is compressed: fast, and about as small as gzip.
const LEVEL: i32 = 3;
/// How deep a tree is read.
const MAX_DEPTH: usize = 128;
/// How many notes are kept.
const NOTES: usize = 1000;

/// What a snapshot holds.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Its members.
    pub entries: u64,
    /// Bytes of its files.
    pub bytes: u64,
    /// What is not in it, and why; names of the skip list are not mentioned.
    pub notes: Vec<String>,
}

/// Takes a snapshot of the session in this directory, to `output` or among its own; where it is.
///
/// # Errors
/// [`Code::Invalid`] when it holds too much; [`Code::System`].
pub fn take(
    session: &Path,
    label: &Label,
    output: Option<&Path>,
    all: bool,
    limits: Limits,
) -> Result<(PathBuf, Summary)> {
    let place = match output {
        Some(output) => output.to_owned(),
        None => {
            let directory = session.join(DIRECTORY);
            crate::state::own_directory(&directory)?;
            free_name(&directory)
        }
    };
    let partial = {
        let mut name = place.file_name().unwrap_or_default().to_owned();
        name.push(PARTIAL);
        place.with_file_name(name)
    };
    let fail = |e: io::Error| Error::system(format_args!("write {}", partial.display()), e);
    // One that was being written when its writer was killed.
    match fs::remove_file(&partial) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(fail(e)),
        _ => {}
    }
    let mut options = File::options();
    options.write(true).create_new(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let mut file = options.open(&partial).map_err(fail)?;
    let written = write(session, label, &mut file, all, limits).and_then(|summary| {
        file.sync_all().map_err(fail)?;
        fs::rename(&partial, &place)
            .map_err(|e| Error::system(format_args!("put {} in its place", place.display()), e))?;
        // The name, too, is on disk before anybody hears of it.
        let parent = place.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = File::open(parent.unwrap_or(Path::new("."))).and_then(|parent| parent.sync_all());
        parent.map_err(fail)?;
        Ok(summary)
    });
    if written.is_err() {
        let _ = fs::remove_file(&partial);
    }
    Ok((place, written?))
}

fn free_name(directory: &Path) -> PathBuf {
    let now = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
    let names = (1u32..).map(|number| match number {
        1 => format!("{now}{SUFFIX}"),
        number => format!("{now}-{number}{SUFFIX}"),
    });
    names.map(|name| directory.join(name)).find(|path| !path.exists()).unwrap_or_else(|| directory.join(now))
}

/// Writes the snapshot of the session in this directory to `output`; `all` has no skip list.
///
/// # Errors
/// As [`take`].
pub fn write(
    session: &Path,
    label: &Label,
    output: impl Write,
    all: bool,
    limits: Limits,
) -> Result<Summary> {
    let fail = |e: io::Error| Error::system("write a snapshot", e);
    let mut frame = zstd::stream::write::Encoder::new(output, LEVEL).map_err(fail)?;
    frame.include_checksum(true).map_err(fail)?;
    let mut writer = Writer {
        archive: tar::Builder::new(frame),
        limits,
        summary: Summary::default(),
        links: HashMap::new(),
        all,
    };
    let text = serde_json::to_vec(label).unwrap_or_default();
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Regular);
    header.set_mode(0o600);
    header.set_mtime(0);
    header.set_size(text.len() as u64);
    writer.archive.append_data(&mut header, "saggar.json", &text[..]).map_err(fail)?;

    let root =
        beneath::root(session).map_err(|e| Error::system(format_args!("open {}", session.display()), e))?;
    match label.place {
        Some(Place::Copy) => writer.top(root.as_fd(), "workspace", "workspace")?,
        Some(Place::Overlay) => writer.top(root.as_fd(), "upper/changes", "changes")?,
        None => {}
    }
    // The agent's own state whole: its conversations are in it.
    writer.all = true;
    if let Ok(home) = beneath::directory(root.as_fd(), "home") {
        for name in [".claude", ".claude.json"] {
            writer.entry(home.as_fd(), name.as_ref(), &Path::new("home").join(name), 0)?;
        }
    }
    let frame = writer.archive.into_inner().map_err(fail)?;
    let mut output = frame.finish().map_err(fail)?;
    output.flush().map_err(fail)?;
    Ok(writer.summary)
}

struct Writer<W: Write> {
    archive: tar::Builder<W>,
    limits: Limits,
    summary: Summary,
    /// The first name of a file that has several.
    links: HashMap<((u32, u32), u64), PathBuf>,
    all: bool,
}

/// Whether the skip list has this name.
fn is_skipped(name: &OsStr) -> bool {
    SKIPPED.iter().any(|skipped| name == *skipped)
        || SKIPPED_ENDS.iter().any(|end| name.as_bytes().ends_with(end))
}

impl<W: Write> Writer<W> {
    fn top(&mut self, session: BorrowedFd<'_>, path: &str, member: &str) -> Result<()> {
        let opened = match beneath::directory(session, path) {
            // An overlay without changes has no place for any.
            Err(e) if e.kind() == io::ErrorKind::NotFound && member == "changes" => return Ok(()),
            opened => opened.map_err(|e| fails(Path::new(member), &e))?,
        };
        let meta = beneath::itself(opened.as_fd()).map_err(|e| fails(Path::new(member), &e))?;
        self.directory(opened.as_fd(), &meta, Path::new(member), 0)
    }

    fn note(&mut self, path: &Path, why: &str) {
        if self.summary.notes.len() < NOTES {
            self.summary.notes.push(format!("{}: {why}", text::path(path)));
        }
    }

    fn count(&mut self, path: &Path, bytes: u64) -> Result<()> {
        self.summary.entries += 1;
        self.summary.bytes = self.summary.bytes.saturating_add(bytes);
        if self.summary.entries > self.limits.entries || self.summary.bytes > self.limits.bytes {
            let message =
                format!("take a snapshot: {}: there is more than a snapshot may hold", text::path(path));
            return Err(Error::new(Code::Invalid, message).hint("say more with --disk SIZE"));
        }
        Ok(())
    }

    fn entry(&mut self, at: BorrowedFd<'_>, name: &Path, member: &Path, depth: usize) -> Result<()> {
        let fail = |e: io::Error| fails(member, &e);
        let Some(meta) = beneath::look(at, name).map_err(fail)? else { return Ok(()) };
        if member.as_os_str().len() > LONGEST {
            self.note(member, "its path is too long");
            return Ok(());
        }
        let is_whiteout = member.starts_with("changes") && diff::is_whiteout(at, name, &meta);
        match meta.kind {
            _ if is_whiteout => {
                let mut header = header(&meta, tar::EntryType::Char);
                header.set_device_major(0).and_then(|()| header.set_device_minor(0)).map_err(fail)?;
                self.count(member, 0)?;
                self.archive.append_data(&mut header, member, io::empty()).map_err(fail)
            }
            Kind::Other(kind) => {
                self.note(member, &format!("it is a {kind}"));
                Ok(())
            }
            Kind::Directory if depth >= MAX_DEPTH => {
                self.note(member, &format!("it is deeper than {MAX_DEPTH} directories"));
                Ok(())
            }
            Kind::Directory => {
                let lent = beneath::directory_anyway(at, name).map_err(fail)?;
                self.directory(lent.opened.as_fd(), &meta, member, depth + 1)
            }
            Kind::Link => {
                let target = beneath::link(at, name).map_err(fail)?;
                self.count(member, 0)?;
                self.extensions(&meta, false).map_err(fail)?;
                let mut header = header(&meta, tar::EntryType::Symlink);
                self.archive.append_link(&mut header, member, &target).map_err(fail)
            }
            Kind::File => self.file(at, name, member),
        }
    }

    fn directory(&mut self, opened: BorrowedFd<'_>, meta: &Meta, member: &Path, depth: usize) -> Result<()> {
        let fail = |e: io::Error| fails(member, &e);
        self.count(member, 0)?;
        let opaque = member.starts_with("changes") && diff::is_opaque(opened);
        self.extensions(meta, opaque).map_err(fail)?;
        let mut header = header(meta, tar::EntryType::Directory);
        self.archive.append_data(&mut header, member, io::empty()).map_err(fail)?;
        let most = usize::try_from(self.limits.entries).unwrap_or(usize::MAX);
        for name in beneath::names(opened, most).map_err(fail)? {
            if self.all || !is_skipped(&name) {
                self.entry(opened, Path::new(&name), &member.join(&name), depth)?;
            }
        }
        Ok(())
    }

    fn file(&mut self, at: BorrowedFd<'_>, name: &Path, member: &Path) -> Result<()> {
        let fail = |e: io::Error| fails(member, &e);
        let (lent, meta) = beneath::file_anyway(at, name).map_err(fail)?;
        if meta.links > 1 {
            if let Some(first) = self.links.get(&(meta.device, meta.inode)) {
                let mut header = header(&meta, tar::EntryType::Link);
                let first = first.clone();
                self.count(member, 0)?;
                return self.archive.append_link(&mut header, member, first).map_err(fail);
            }
            self.links.insert((meta.device, meta.inode), member.to_owned());
        }
        if meta.has_set_id() {
            self.note(member, "its set-id bits are left out");
        }
        self.count(member, meta.size)?;
        self.extensions(&meta, false).map_err(fail)?;
        let mut header = header(&meta, tar::EntryType::Regular);
        header.set_size(meta.size);
        let mut exact = Exact { file: &lent.opened, left: meta.size, short: false };
        self.archive.append_data(&mut header, member, &mut exact).map_err(fail)?;
        if exact.short {
            self.note(member, "it became shorter while it was read; zeros stand for the rest");
        }
        Ok(())
    }

    /// What a header has no room for: it has whole seconds.
    fn extensions(&mut self, meta: &Meta, opaque: bool) -> io::Result<()> {
        let (seconds, nanos) =
            (meta.mtime.unsigned_abs() / 1_000_000_000, meta.mtime.unsigned_abs() % 1_000_000_000);
        let sign = if meta.mtime < 0 { "-" } else { "" };
        let time = format!("{sign}{seconds}.{nanos:09}");
        let whole = nanos == 0 && meta.mtime >= 0;
        let records = [
            (!whole).then_some(("mtime", time.as_bytes())),
            opaque.then_some(("SCHILY.xattr.user.overlay.opaque", &b"y"[..])),
        ];
        self.archive.append_pax_extensions(records.into_iter().flatten())
    }
}

fn header(meta: &Meta, kind: tar::EntryType) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(meta.mode & 0o1777);
    header.set_mtime(u64::try_from(meta.mtime / 1_000_000_000).unwrap_or(0));
    header.set_size(0);
    header
}

fn fails(member: &Path, error: &io::Error) -> Error {
    Error::system(format_args!("take a snapshot of {}", text::path(member)), error)
}

/// As many bytes of a file as its header says.
struct Exact<'a> {
    file: &'a File,
    left: u64,
    short: bool,
}

impl Read for Exact<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 {
            return Ok(0);
        }
        let mut count = if self.short { 0 } else { self.file.read(&mut buffer[..most])? };
        if count == 0 {
            self.short = true;
            buffer[..most].fill(0);
            count = most;
        }
        self.left -= count as u64;
        Ok(count)
    }
}
