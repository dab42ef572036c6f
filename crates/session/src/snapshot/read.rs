//! Extracts an untrusted snapshot into an empty directory. Every member is checked before any file is created. Every
//! name must be new (an existing one is an error), and no link is ever followed: the directory of a member must have
//! been created by this archive.
//!
//! Members of any type that is not in the table of `Reader::read_member` are rejected with their name: readers of tar
//! differ in rare features of the format.

use super::{SnapshotLabel, SnapshotLimits, member_path};
use crate::diff::text;
use rustix::fs::{AtFlags, FileType, Mode, XattrFlags};
use saggar_sys::beneath::{self, FileKind};
use saggar_sys::error::{Code, Error, Result};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use tar::{EntryType, Header};

const BLOCK_SIZE: usize = 512;
/// Largest window of a zstd frame: 128 MiB of memory.
const MAX_WINDOW_LOG: u32 = 27;
/// Largest extended header in bytes: several times a path and a target.
const MAX_EXTENSION: u64 = 64 << 10;
/// Largest label in bytes.
const MAX_LABEL: u64 = 64 << 10;
/// Most zero bytes after the end of the archive.
const MAX_TAIL: u64 = 1 << 20;

/// A summary of an extracted snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotContents {
    /// Its label.
    pub label: SnapshotLabel,
    /// Number of its members.
    pub entries: u64,
    /// Bytes of its files.
    pub bytes: u64,
}

/// The members that are extracted. All members are read and checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotPart {
    /// All members.
    All,
    /// Members of the workspace or the upper layer.
    Tree,
    /// Members of the home.
    Home,
}

impl SnapshotPart {
    fn includes(self, path: &Path) -> bool {
        match self {
            SnapshotPart::All => true,
            SnapshotPart::Tree => !path.starts_with("home"),
            SnapshotPart::Home => path.starts_with("home"),
        }
    }
}

/// Extracts the snapshot `input` into the directory `into`.
///
/// # Errors
/// [`Code::Invalid`] naming the member; files that were created until then stay, and the caller must remove them.
pub fn extract(input: impl Read, into: BorrowedFd<'_>, limits: SnapshotLimits) -> Result<SnapshotContents> {
    extract_part(input, into, limits, SnapshotPart::All)
}

/// Like [`extract`], for a part of the members.
///
/// # Errors
/// As [`extract`].
pub fn extract_part(
    input: impl Read,
    into: BorrowedFd<'_>,
    limits: SnapshotLimits,
    part: SnapshotPart,
) -> Result<SnapshotContents> {
    let mut frame =
        zstd::stream::read::Decoder::new(input).map_err(|e| invalid_error("the snapshot", &e.to_string()))?;
    frame.window_log_max(MAX_WINDOW_LOG).map_err(|e| invalid_error("the snapshot", &e.to_string()))?;
    read_archive(frame, into, limits, part)
}

/// Like [`extract`], for an uncompressed archive.
///
/// # Errors
/// As [`extract`].
pub fn extract_unpacked(
    input: impl Read,
    into: BorrowedFd<'_>,
    limits: SnapshotLimits,
) -> Result<SnapshotContents> {
    read_archive(input, into, limits, SnapshotPart::All)
}

fn read_archive(
    input: impl Read,
    into: BorrowedFd<'_>,
    limits: SnapshotLimits,
    part: SnapshotPart,
) -> Result<SnapshotContents> {
    let mut reader = ArchiveReader {
        input,
        into,
        remaining: limits,
        limits,
        part,
        label: None,
        directories: Vec::new(),
        parent: None,
        pending: PendingHeader::default(),
    };
    while reader.read_member()? {}
    reader.set_directory_attributes()
}

fn invalid_error(name: &str, why: &str) -> Error {
    Error::new(Code::Invalid, format!("read a snapshot: {name}: {why}"))
        .hint("take a new snapshot, or name another; nothing of this one was kept")
}

/// Extended headers that precede the header of a member.
#[derive(Debug, Default)]
struct PendingHeader {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    mtime: Option<(i64, u32)>,
    is_opaque: bool,
    is_present: bool,
}

/// A directory; its mode and times are set when all of its entries have been created.
struct CreatedDirectory {
    path: PathBuf,
    mode: u32,
    mtime: (i64, u32),
}

struct ArchiveReader<'a, R: Read> {
    input: R,
    into: BorrowedFd<'a>,
    remaining: SnapshotLimits,
    limits: SnapshotLimits,
    part: SnapshotPart,
    label: Option<SnapshotLabel>,
    directories: Vec<CreatedDirectory>,
    /// The directory of the last member.
    parent: Option<(PathBuf, OwnedFd)>,
    pending: PendingHeader,
}

/// A member that is about to be created.
struct ArchiveMember<'a> {
    path: &'a Path,
    shown: String,
    mode: u32,
    mtime: (i64, u32),
    size: u64,
}

impl<R: Read> ArchiveReader<'_, R> {
    /// Reads one member; false at the end.
    fn read_member(&mut self) -> Result<bool> {
        let mut block = [0; BLOCK_SIZE];
        self.read_exactly(&mut block, "the snapshot")?;
        if block == [0; BLOCK_SIZE] {
            return self.read_end().map(|()| false);
        }
        let header = Header::from_byte_slice(&block);
        let stated = String::from_utf8_lossy(&header.path_bytes()).into_owned();
        let stated = text::show_name(stated.as_ref());
        let sum: u32 = block
            .iter()
            .enumerate()
            .map(|(at, byte)| if (148..156).contains(&at) { u32::from(b' ') } else { u32::from(*byte) })
            .sum();
        if header.cksum().ok() != Some(sum) {
            return Err(invalid_error(&stated, "its header is damaged"));
        }
        let number =
            |value: io::Result<u64>| value.map_err(|_| invalid_error(&stated, "its header is damaged"));
        let size = number(header.entry_size())?;
        match header.entry_type() {
            EntryType::XHeader => return self.read_pax(size, &stated).map(|()| true),
            EntryType::GNULongName => {
                let name = self.read_long_name(size, &stated)?;
                return self.set_once(|next| &mut next.path, name, &stated).map(|()| true);
            }
            EntryType::GNULongLink => {
                let name = self.read_long_name(size, &stated)?;
                return self.set_once(|next| &mut next.link, name, &stated).map(|()| true);
            }
            _ => {}
        }

        let next = std::mem::take(&mut self.pending);
        let bytes = next.path.unwrap_or_else(|| header.path_bytes().into_owned());
        let shown = text::show_path(Path::new(OsStr::from_bytes(&bytes)));
        let path = member_path::parse_member_path(&bytes).map_err(|why| invalid_error(&shown, why))?;
        let mode = header.mode().map_err(|_| invalid_error(&shown, "its header is damaged"))?;
        let seconds = number(header.mtime())?;
        let mtime = next.mtime.unwrap_or((i64::try_from(seconds).unwrap_or(0), 0));
        let link = next.link.or_else(|| header.link_name_bytes().map(|name| name.into_owned()));
        if mode & 0o6000 != 0 {
            return Err(invalid_error(&shown, "it has a set-id bit"));
        }
        let kind = header.entry_type();
        let has_content = matches!(kind, EntryType::Regular);
        if size != 0 && !has_content {
            return Err(invalid_error(&shown, "it has content, and is no file"));
        }
        if self.label.is_none() != (path == Path::new("saggar.json")) {
            let why = "the first member, and no other, is saggar.json";
            return Err(invalid_error(&shown, why));
        }
        if next.is_opaque && kind != EntryType::Directory {
            return Err(invalid_error(&shown, "it is marked as opaque, and is no directory"));
        }
        self.count_member(&shown, size)?;
        let member = ArchiveMember { path: &path, shown, mode: mode & 0o1777, mtime, size };
        if self.label.is_none() {
            return self.read_label(&member, kind).map(|()| true);
        }
        match kind {
            _ if !self.part.includes(&path) => self.skip_content(&member),
            EntryType::Regular => self.create_file(&member),
            EntryType::Directory => self.create_directory(&member, next.is_opaque),
            EntryType::Symlink => self.create_symlink(&member, link.as_deref().unwrap_or_default()),
            EntryType::Link => self.create_hard_link(&member, link.as_deref().unwrap_or_default()),
            EntryType::Char => self.create_whiteout(&member, header),
            _ => Err(invalid_error(&member.shown, "it is neither a file nor a directory nor a link")),
        }?;
        Ok(true)
    }

    fn count_member(&mut self, shown: &str, size: u64) -> Result<()> {
        let left = (self.remaining.entries.checked_sub(1), self.remaining.bytes.checked_sub(size));
        let (Some(entries), Some(bytes)) = left else {
            let SnapshotLimits { entries, bytes } = self.limits;
            let why = format!("the snapshot holds more than {entries} members or {bytes} bytes");
            return Err(
                invalid_error(shown, &why).hint("raise the limit with --disk SIZE if you trust its source")
            );
        };
        self.remaining = SnapshotLimits { entries, bytes };
        Ok(())
    }

    fn read_exactly(&mut self, buffer: &mut [u8], shown: &str) -> Result<()> {
        self.input.read_exact(buffer).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => invalid_error(shown, "the snapshot ends too early"),
            _ => invalid_error(shown, &e.to_string()),
        })
    }

    /// Reads the padding to the end of a block.
    fn read_padding(&mut self, size: u64, shown: &str) -> Result<()> {
        let over = usize::try_from(size % BLOCK_SIZE as u64).unwrap_or(0);
        let mut rest = [0; BLOCK_SIZE];
        if over == 0 { Ok(()) } else { self.read_exactly(&mut rest[over..], shown) }
    }

    fn read_bounded(&mut self, size: u64, most: u64, shown: &str) -> Result<Vec<u8>> {
        if size > most {
            return Err(invalid_error(shown, "an extension of its header is too long"));
        }
        let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
        self.read_exactly(&mut bytes, shown)?;
        self.read_padding(size, shown)?;
        Ok(bytes)
    }

    fn read_long_name(&mut self, size: u64, shown: &str) -> Result<Vec<u8>> {
        let mut bytes = self.read_bounded(size, member_path::MAX_MEMBER_PATH as u64 + 200, shown)?;
        if bytes.last() == Some(&0) {
            bytes.pop();
        }
        Ok(bytes)
    }

    fn set_once(
        &mut self,
        field: impl Fn(&mut PendingHeader) -> &mut Option<Vec<u8>>,
        value: Vec<u8>,
        shown: &str,
    ) -> Result<()> {
        if field(&mut self.pending).replace(value).is_some() {
            return Err(invalid_error(shown, "its name is given twice"));
        }
        Ok(())
    }

    /// Reads an extended header: records `length key=value`.
    fn read_pax(&mut self, size: u64, shown: &str) -> Result<()> {
        let bytes = self.read_bounded(size, MAX_EXTENSION, shown)?;
        if std::mem::replace(&mut self.pending.is_present, true) {
            return Err(invalid_error(shown, "it has two extended headers"));
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let record = parse_pax_record(rest)
                .ok_or_else(|| invalid_error(shown, "its extended header is damaged"))?;
            rest = &rest[record.length..];
            match record.key {
                b"path" => self.set_once(|next| &mut next.path, record.value.to_vec(), shown)?,
                b"linkpath" => self.set_once(|next| &mut next.link, record.value.to_vec(), shown)?,
                b"mtime" => {
                    let time = parse_time(record.value)
                        .ok_or_else(|| invalid_error(shown, "its time is invalid"))?;
                    self.pending.mtime = Some(time);
                }
                b"SCHILY.xattr.user.overlay.opaque" if record.value == b"y" => self.pending.is_opaque = true,
                b"atime" | b"ctime" | b"comment" | b"uid" | b"gid" | b"uname" | b"gname" => {}
                key => {
                    let key = text::show_name(OsStr::from_bytes(key));
                    return Err(invalid_error(
                        shown,
                        &format!("its extended header has {key}, which is not supported"),
                    ));
                }
            }
        }
        Ok(())
    }

    fn read_label(&mut self, member: &ArchiveMember<'_>, kind: EntryType) -> Result<()> {
        if kind != EntryType::Regular {
            return Err(invalid_error(&member.shown, "it is no file"));
        }
        let bytes = self.read_bounded(member.size, MAX_LABEL, &member.shown)?;
        let label: SnapshotLabel =
            serde_json::from_slice(&bytes).map_err(|e| invalid_error(&member.shown, &e.to_string()))?;
        if label.version != 1 {
            return Err(invalid_error(&member.shown, "it is of another version of saggar"));
        }
        self.label = Some(label);
        Ok(())
    }

    /// Opens the directory of a member, which an earlier member must have created.
    fn open_parent(&mut self, member: &ArchiveMember<'_>) -> Result<BorrowedFd<'_>> {
        let above = member.path.parent().unwrap_or(Path::new(""));
        if self.parent.as_ref().is_none_or(|(path, _)| path != above) {
            let is_home = above == Path::new("home");
            let opened = beneath::open_directory(self.into, above).or_else(|e| {
                if !is_home || e.kind() != io::ErrorKind::NotFound {
                    return Err(e);
                }
                rustix::fs::mkdirat(self.into, above, Mode::RWXU)?;
                beneath::open_directory(self.into, above)
            });
            let opened = opened.map_err(|e| {
                invalid_error(&member.shown, &format!("the directory above it cannot be used: {e}"))
            })?;
            self.parent = Some((above.to_owned(), opened));
        }
        self.parent
            .as_ref()
            .map(|(_, opened)| opened.as_fd())
            .ok_or_else(|| invalid_error(&member.shown, "it is nowhere"))
    }

    fn create_file(&mut self, member: &ArchiveMember<'_>) -> Result<()> {
        let fail = |e: io::Error| creation_error(member, &e);
        let name = member_name(member);
        let parent = self.open_parent(member)?;
        let mut file = beneath::create_file(parent, name, 0o600).map_err(fail)?;
        self.write_content(&mut file, member)?;
        self.read_padding(member.size, &member.shown)?;
        let set = rustix::fs::fchmod(&file, Mode::from_raw_mode(member.mode))
            .and_then(|()| rustix::fs::futimens(&file, &beneath::timestamps(member.mtime)));
        set.map_err(|e| fail(e.into()))
    }

    /// Writes the content; blocks of zeros become holes.
    fn write_content(&mut self, file: &mut File, member: &ArchiveMember<'_>) -> Result<()> {
        let fail = |e: io::Error| creation_error(member, &e);
        let mut buffer = vec![0; 64 << 10];
        let mut left = member.size;
        while left > 0 {
            let count = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
            self.read_exactly(&mut buffer[..count], &member.shown)?;
            if buffer[..count].iter().all(|byte| *byte == 0) {
                file.seek(SeekFrom::Current(i64::try_from(count).unwrap_or(0))).map_err(fail)?;
            } else {
                file.write_all(&buffer[..count]).map_err(fail)?;
            }
            left -= count as u64;
        }
        file.set_len(member.size).map_err(fail)
    }

    /// Reads the content of a member that is not extracted.
    fn skip_content(&mut self, member: &ArchiveMember<'_>) -> Result<()> {
        let mut buffer = vec![0; 64 << 10];
        let mut left = member.size;
        while left > 0 {
            let count = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
            self.read_exactly(&mut buffer[..count], &member.shown)?;
            left -= count as u64;
        }
        self.read_padding(member.size, &member.shown)
    }

    /// Opens the link or whiteout that was just created, and sets its times by descriptor.
    fn finish_name(
        &self,
        parent: BorrowedFd<'_>,
        member: &ArchiveMember<'_>,
        kind: FileKind,
    ) -> io::Result<()> {
        let opened = beneath::open_link(parent, member_name(member))?;
        let is = beneath::stat_fd(opened.as_fd())?;
        if is.kind != kind || is.links != 1 {
            return Err(io::Error::other("another program put something else in its place"));
        }
        if kind == FileKind::Symlink {
            rustix::fs::utimensat(&opened, c"", &beneath::timestamps(member.mtime), AtFlags::EMPTY_PATH)?;
        }
        Ok(())
    }

    fn create_directory(&mut self, member: &ArchiveMember<'_>, opaque: bool) -> Result<()> {
        let fail = |e: io::Error| creation_error(member, &e);
        let parent = self.open_parent(member)?;
        rustix::fs::mkdirat(parent, member_name(member), Mode::RWXU).map_err(|e| fail(e.into()))?;
        let opened = beneath::open_directory(parent, member_name(member)).map_err(fail)?;
        if opaque {
            if !member.path.starts_with("changes") {
                return Err(invalid_error(&member.shown, "it is marked as opaque, and is in no overlay"));
            }
            rustix::fs::fsetxattr(&opened, c"user.overlay.opaque", b"y", XattrFlags::empty())
                .map_err(|e| fail(e.into()))?;
        }
        let made = CreatedDirectory { path: member.path.to_owned(), mode: member.mode, mtime: member.mtime };
        self.directories.push(made);
        Ok(())
    }

    fn create_symlink(&mut self, member: &ArchiveMember<'_>, target: &[u8]) -> Result<()> {
        if target.is_empty() || target.len() > 4095 || target.contains(&0) {
            return Err(invalid_error(&member.shown, "its target is invalid"));
        }
        let parent =
            self.open_parent(member)?.try_clone_to_owned().map_err(|e| creation_error(member, &e))?;
        let make = || -> io::Result<()> {
            rustix::fs::symlinkat(OsStr::from_bytes(target), &parent, member_name(member))?;
            self.finish_name(parent.as_fd(), member, FileKind::Symlink)
        };
        make().map_err(|e| creation_error(member, &e))
    }

    /// Creates a hard link to a file of this archive.
    fn create_hard_link(&mut self, member: &ArchiveMember<'_>, target: &[u8]) -> Result<()> {
        let refuse = |why: &str| Err(invalid_error(&member.shown, &format!("its target {why}")));
        let first = match member_path::parse_member_path(target) {
            Ok(first) => first,
            Err(why) => return refuse(&format!("is refused: {why}")),
        };
        let tree = |path: &Path| path.components().next().map(|part| part.as_os_str().to_owned());
        if tree(&first) != tree(member.path) {
            return refuse("is in another tree");
        }
        let above = match beneath::open_directory(self.into, first.parent().unwrap_or(Path::new(""))) {
            Ok(above) => above,
            Err(e) => return refuse(&format!("cannot be reached: {e}")),
        };
        let name_there = Path::new(first.file_name().unwrap_or_default());
        match beneath::stat_beneath(above.as_fd(), name_there) {
            Ok(Some(meta)) if meta.kind == FileKind::File => {}
            _ => return refuse("is no file of the snapshot"),
        }
        let parent = self.open_parent(member)?;
        rustix::fs::linkat(&above, name_there, parent, member_name(member), AtFlags::empty())
            .map_err(|e| creation_error(member, &e.into()))
    }

    /// Creates a character device 0:0, which marks a deleted name in an overlay.
    fn create_whiteout(&mut self, member: &ArchiveMember<'_>, header: &Header) -> Result<()> {
        let numbers = (header.device_major().ok().flatten(), header.device_minor().ok().flatten());
        if numbers != (Some(0), Some(0)) || !member.path.starts_with("changes/") {
            return Err(invalid_error(&member.shown, "it is a device"));
        }
        let parent =
            self.open_parent(member)?.try_clone_to_owned().map_err(|e| creation_error(member, &e))?;
        let make = || -> io::Result<()> {
            rustix::fs::mknodat(&parent, member_name(member), FileType::CharacterDevice, Mode::empty(), 0)?;
            self.finish_name(parent.as_fd(), member, FileKind::Other("device"))
        };
        make().map_err(|e| creation_error(member, &e))
    }

    /// Reads the second block of zeros, checks that only zeros follow, and verifies the checksum of the frame.
    fn read_end(&mut self) -> Result<()> {
        let mut block = [0; BLOCK_SIZE];
        self.read_exactly(&mut block, "the end")?;
        let mut seen = 0;
        let mut empty = block == [0; BLOCK_SIZE];
        loop {
            match self.input.read(&mut block) {
                Ok(0) if empty => return Ok(()),
                Ok(0) => return Err(invalid_error("the end", "something comes after it")),
                Ok(count) => {
                    seen += count as u64;
                    empty &= block[..count].iter().all(|byte| *byte == 0);
                    if !empty || seen > MAX_TAIL {
                        return Err(invalid_error("the end", "something comes after it"));
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(invalid_error("the end", &e.to_string())),
            }
        }
    }

    fn set_directory_attributes(self) -> Result<SnapshotContents> {
        let Some(label) = self.label else { return Err(invalid_error("the snapshot", "it is empty")) };
        if self.pending.is_present || self.pending.path.is_some() || self.pending.link.is_some() {
            return Err(invalid_error("the end", "a header has no member"));
        }
        for made in self.directories.iter().rev() {
            let set = || -> io::Result<()> {
                let opened = beneath::open_directory(self.into, &made.path)?;
                rustix::fs::fchmod(&opened, Mode::from_raw_mode(made.mode))?;
                Ok(rustix::fs::futimens(&opened, &beneath::timestamps(made.mtime))?)
            };
            set().map_err(|e| invalid_error(&text::show_path(&made.path), &e.to_string()))?;
        }
        Ok(SnapshotContents {
            label,
            entries: self.limits.entries - self.remaining.entries,
            bytes: self.limits.bytes - self.remaining.bytes,
        })
    }
}

fn member_name<'a>(member: &ArchiveMember<'a>) -> &'a Path {
    member.path.file_name().map_or(member.path, Path::new)
}

fn creation_error(member: &ArchiveMember<'_>, error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::AlreadyExists => invalid_error(&member.shown, "it comes twice"),
        _ => Error::system(format_args!("read a snapshot: make {}", member.shown), error),
    }
}

struct PaxRecord<'a> {
    length: usize,
    key: &'a [u8],
    value: &'a [u8],
}

/// Parses the first record of an extended header.
fn parse_pax_record(bytes: &[u8]) -> Option<PaxRecord<'_>> {
    let space = bytes.iter().take(8).position(|byte| *byte == b' ')?;
    let digits = &bytes[..space];
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let length: usize = std::str::from_utf8(digits).ok()?.parse().ok()?;
    let text = bytes.get(space + 1..length)?.strip_suffix(b"\n")?;
    let equals = text.iter().position(|byte| *byte == b'=')?;
    Some(PaxRecord { length, key: &text[..equals], value: &text[equals + 1..] })
}

/// Parses seconds with a fraction.
fn parse_time(value: &[u8]) -> Option<(i64, u32)> {
    let text = std::str::from_utf8(value).ok()?;
    let (negative, text) = text.strip_prefix('-').map_or((false, text), |text| (true, text));
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits =
        |text: &str| !text.is_empty() && text.len() <= 18 && text.bytes().all(|c| c.is_ascii_digit());
    if !digits(seconds) || !digits(fraction) {
        return None;
    }
    let fraction: u32 = format!("{fraction:0<9}")[..9].parse().ok()?;
    let seconds: i64 = seconds.parse().ok()?;
    Some(match (negative, fraction) {
        (false, _) => (seconds, fraction),
        (true, 0) => (-seconds, 0),
        (true, _) => (-seconds - 1, 1_000_000_000 - fraction),
    })
}
