//! Writes a snapshot. Programs may change files meanwhile: a file is written with the size that it had when it was
//! opened.

#![expect(
    clippy::disallowed_methods,
    reason = "the session's own directory, or a place that who asks has chosen"
)]

use super::member_path::MAX_MEMBER_PATH;
use super::sources::SnapshotSources;
use super::{
    PARTIAL_SUFFIX, SKIPPED_NAMES, SKIPPED_SUFFIXES, SNAPSHOTS_DIRECTORY, SUFFIX, SnapshotLabel,
    SnapshotLimits,
    home::{self, StateName},
};
use crate::diff::{self, text};
use saggar_sys::beneath::{self, FileKind, FileMeta};
use saggar_sys::error::{Code, Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Compression level of zstd: fast, and about as small as gzip.
const COMPRESSION_LEVEL: i32 = 3;
/// Most levels of directories.
const MAX_DEPTH: usize = 128;
/// Most notes.
const MAX_NOTES: usize = 1000;

/// A summary of a written snapshot.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotSummary {
    /// Number of its members.
    pub entries: u64,
    /// Bytes of its files.
    pub bytes: u64,
    /// Files that are not in it, and why; names of the skip list are not mentioned.
    pub notes: Vec<String>,
}

/// Takes a snapshot of the session in this directory, to `output` or to the session's own snapshots; returns its path
/// and summary. A worker reads the files that programs of the session created ([`SnapshotSources::write_in_worker`]).
///
/// # Errors
/// [`Code::Invalid`] when it exceeds a limit; [`Code::System`].
pub fn take_snapshot(
    session: &Path,
    label: &SnapshotLabel,
    output: Option<&Path>,
    all: bool,
    limits: SnapshotLimits,
) -> Result<(PathBuf, SnapshotSummary)> {
    let sources = SnapshotSources::open(session, label.place)?;
    let place = match output {
        Some(output) => output.to_owned(),
        None => {
            let directory = session.join(SNAPSHOTS_DIRECTORY);
            saggar_sandbox::state::ensure_private_directory(&directory)?;
            free_name(&directory)
        }
    };
    let partial = {
        let mut name = place.file_name().unwrap_or_default().to_owned();
        name.push(PARTIAL_SUFFIX);
        place.with_file_name(name)
    };
    let fail = |e: io::Error| Error::system(format_args!("write {}", partial.display()), e);
    // A snapshot that was unfinished when its writer was killed.
    match fs::remove_file(&partial) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(fail(e)),
        _ => {}
    }
    let mut options = File::options();
    options.write(true).create_new(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let file = options.open(&partial).map_err(fail)?;
    let written = sources.write_in_worker(label, &file, all, limits).and_then(|summary| {
        file.sync_all().map_err(fail)?;
        fs::rename(&partial, &place)
            .map_err(|e| Error::system(format_args!("put {} in its place", place.display()), e))?;
        // The name is synced too before the result is reported.
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

/// Writes the snapshot of the session in this directory to `output`, in this process; with `all` no name is skipped.
///
/// # Errors
/// As [`take_snapshot`].
pub fn write_snapshot(
    session: &Path,
    label: &SnapshotLabel,
    output: impl Write,
    all: bool,
    limits: SnapshotLimits,
) -> Result<SnapshotSummary> {
    write_to(&SnapshotSources::open(session, label.place)?, label, output, all, limits)
}

/// Like [`write_snapshot`], for open trees.
pub(super) fn write_to(
    sources: &SnapshotSources,
    label: &SnapshotLabel,
    output: impl Write,
    all: bool,
    limits: SnapshotLimits,
) -> Result<SnapshotSummary> {
    let fail = |e: io::Error| Error::system("write a snapshot", e);
    let mut frame = zstd::stream::write::Encoder::new(output, COMPRESSION_LEVEL).map_err(fail)?;
    frame.include_checksum(true).map_err(fail)?;
    let mut writer = ArchiveWriter {
        archive: tar::Builder::new(frame),
        limits,
        summary: SnapshotSummary::default(),
        hard_links: HashMap::new(),
        include_skipped: all,
    };
    let text = serde_json::to_vec(label).unwrap_or_default();
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Regular);
    header.set_mode(0o600);
    header.set_mtime(0);
    header.set_size(text.len() as u64);
    writer.archive.append_data(&mut header, "saggar.json", &text[..]).map_err(fail)?;

    if let Some((tree, member)) = &sources.tree {
        writer.write_top(tree.as_fd(), Path::new(member))?;
    }
    // The agent's own state is written whole: it contains its conversations.
    writer.include_skipped = true;
    if let Some(home) = &sources.home {
        match all {
            true => writer.write_home(home.as_fd())?,
            false => writer.write_agent_state(home.as_fd(), Path::new(""))?,
        }
    }
    let frame = writer.archive.into_inner().map_err(fail)?;
    let mut output = frame.finish().map_err(fail)?;
    output.flush().map_err(fail)?;
    Ok(writer.summary)
}

struct ArchiveWriter<W: Write> {
    archive: tar::Builder<W>,
    limits: SnapshotLimits,
    summary: SnapshotSummary,
    /// The first path of a file with several hard links.
    hard_links: HashMap<((u32, u32), u64), PathBuf>,
    include_skipped: bool,
}

/// Whether a name is in the skip list.
fn is_skipped(name: &OsStr) -> bool {
    SKIPPED_NAMES.iter().any(|skipped| name == *skipped)
        || SKIPPED_SUFFIXES.iter().any(|end| name.as_bytes().ends_with(end))
}

impl<W: Write> ArchiveWriter<W> {
    fn write_top(&mut self, tree: BorrowedFd<'_>, member: &Path) -> Result<()> {
        let meta = beneath::stat_fd(tree).map_err(|e| io_error(member, &e))?;
        self.write_directory(tree, &meta, member, 0)
    }

    fn write_home(&mut self, home: BorrowedFd<'_>) -> Result<()> {
        for name in home::all_names(home)? {
            self.write_entry(home, Path::new(&name), &Path::new("home").join(&name), 0)?;
        }
        Ok(())
    }

    /// Writes the state of known agents in the directory `above` of the home.
    fn write_agent_state(&mut self, opened: BorrowedFd<'_>, above: &Path) -> Result<()> {
        for name in home::state_names(above) {
            match name {
                StateName::Whole(name) => {
                    let member = Path::new("home").join(above).join(&name);
                    self.write_entry(opened, Path::new(&name), &member, 0)?;
                }
                StateName::Above(name) => {
                    let (path, name) = (above.join(&name), Path::new(&name));
                    let member = Path::new("home").join(&path);
                    let fail = |e: io::Error| io_error(&member, &e);
                    let meta = beneath::stat_beneath(opened, name).map_err(fail)?;
                    if let Some(meta) = meta.filter(|meta| meta.kind == FileKind::Directory) {
                        let below = beneath::open_directory_overriding_mode(opened, name).map_err(fail)?;
                        self.write_directory_header(&meta, false, &member)?;
                        self.write_agent_state(below.opened.as_fd(), &path)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn add_note(&mut self, path: &Path, why: &str) {
        if self.summary.notes.len() < MAX_NOTES {
            self.summary.notes.push(format!("{}: {why}", text::show_path(path)));
        }
    }

    fn count_member(&mut self, path: &Path, bytes: u64) -> Result<()> {
        self.summary.entries += 1;
        self.summary.bytes = self.summary.bytes.saturating_add(bytes);
        if self.summary.entries > self.limits.entries || self.summary.bytes > self.limits.bytes {
            let message =
                format!("take a snapshot: {}: there is more than a snapshot may hold", text::show_path(path));
            return Err(Error::new(Code::Invalid, message).hint("raise the limit with --disk SIZE"));
        }
        Ok(())
    }

    fn write_entry(&mut self, at: BorrowedFd<'_>, name: &Path, member: &Path, depth: usize) -> Result<()> {
        let fail = |e: io::Error| io_error(member, &e);
        let Some(meta) = beneath::stat_beneath(at, name).map_err(fail)? else { return Ok(()) };
        if member.as_os_str().len() > MAX_MEMBER_PATH {
            self.add_note(member, "its path is too long");
            return Ok(());
        }
        let is_whiteout = member.starts_with("changes") && diff::is_whiteout(at, name, &meta);
        match meta.kind {
            _ if is_whiteout => {
                let mut header = tar_header(&meta, tar::EntryType::Char);
                header.set_device_major(0).and_then(|()| header.set_device_minor(0)).map_err(fail)?;
                self.count_member(member, 0)?;
                self.archive.append_data(&mut header, member, io::empty()).map_err(fail)
            }
            FileKind::Other(kind) => {
                self.add_note(member, &format!("it is a {kind}"));
                Ok(())
            }
            FileKind::Directory if depth >= MAX_DEPTH => {
                self.add_note(member, &format!("it is deeper than {MAX_DEPTH} directories"));
                Ok(())
            }
            FileKind::Directory => {
                let lent = beneath::open_directory_overriding_mode(at, name).map_err(fail)?;
                self.write_directory(lent.opened.as_fd(), &meta, member, depth + 1)
            }
            FileKind::Symlink => {
                let target = beneath::read_link(at, name).map_err(fail)?;
                self.count_member(member, 0)?;
                self.write_pax_extensions(&meta, false).map_err(fail)?;
                let mut header = tar_header(&meta, tar::EntryType::Symlink);
                self.archive.append_link(&mut header, member, &target).map_err(fail)
            }
            FileKind::File => self.write_file(at, name, member),
        }
    }

    fn write_directory(
        &mut self,
        opened: BorrowedFd<'_>,
        meta: &FileMeta,
        member: &Path,
        depth: usize,
    ) -> Result<()> {
        let fail = |e: io::Error| io_error(member, &e);
        let opaque = member.starts_with("changes") && diff::is_opaque(opened);
        self.write_directory_header(meta, opaque, member)?;
        let most = usize::try_from(self.limits.entries).unwrap_or(usize::MAX);
        for name in beneath::read_names(opened, most).map_err(fail)? {
            if self.include_skipped || !is_skipped(&name) {
                self.write_entry(opened, Path::new(&name), &member.join(&name), depth)?;
            }
        }
        Ok(())
    }

    fn write_directory_header(&mut self, meta: &FileMeta, opaque: bool, member: &Path) -> Result<()> {
        let fail = |e: io::Error| io_error(member, &e);
        self.count_member(member, 0)?;
        self.write_pax_extensions(meta, opaque).map_err(fail)?;
        let mut header = tar_header(meta, tar::EntryType::Directory);
        self.archive.append_data(&mut header, member, io::empty()).map_err(fail)
    }

    fn write_file(&mut self, at: BorrowedFd<'_>, name: &Path, member: &Path) -> Result<()> {
        let fail = |e: io::Error| io_error(member, &e);
        let (lent, meta) = beneath::open_file_overriding_mode(at, name).map_err(fail)?;
        if meta.links > 1 {
            if let Some(first) = self.hard_links.get(&(meta.device, meta.inode)) {
                let mut header = tar_header(&meta, tar::EntryType::Link);
                let first = first.clone();
                self.count_member(member, 0)?;
                return self.archive.append_link(&mut header, member, first).map_err(fail);
            }
            self.hard_links.insert((meta.device, meta.inode), member.to_owned());
        }
        if meta.has_set_id() {
            self.add_note(member, "its set-id bits are left out");
        }
        self.count_member(member, meta.size)?;
        self.write_pax_extensions(&meta, false).map_err(fail)?;
        let mut header = tar_header(&meta, tar::EntryType::Regular);
        header.set_size(meta.size);
        let mut exact = ExactReader { file: &lent.opened, remaining: meta.size, is_truncated: false };
        self.archive.append_data(&mut header, member, &mut exact).map_err(fail)?;
        if exact.is_truncated {
            self.add_note(member, "it became shorter while it was read; the rest was filled with zeros");
        }
        Ok(())
    }

    /// Writes values that do not fit into a header, which has whole seconds.
    fn write_pax_extensions(&mut self, meta: &FileMeta, opaque: bool) -> io::Result<()> {
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

fn tar_header(meta: &FileMeta, kind: tar::EntryType) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(meta.mode & 0o1777);
    header.set_mtime(u64::try_from(meta.mtime / 1_000_000_000).unwrap_or(0));
    header.set_size(0);
    header
}

pub(super) fn io_error(member: &Path, error: &io::Error) -> Error {
    Error::system(format_args!("take a snapshot of {}", text::show_path(member)), error)
}

/// Reads as many bytes of a file as its header declares.
struct ExactReader<'a> {
    file: &'a File,
    remaining: u64,
    is_truncated: bool,
}

impl Read for ExactReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.remaining).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 {
            return Ok(0);
        }
        let mut count = if self.is_truncated { 0 } else { self.file.read(&mut buffer[..most])? };
        if count == 0 {
            self.is_truncated = true;
            buffer[..most].fill(0);
            count = most;
        }
        self.remaining -= count as u64;
        Ok(count)
    }
}
