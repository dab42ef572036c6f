//! Reads a snapshot that anybody may have written into an empty directory. Every member is looked at before anything
//! is made, every name is made anew (what is there already is an error), and no link is ever followed: whoever names a
//! directory above a member names one that this archive made.
//!
//! What does not stand in the table of [`Reader::member`] is refused, with the member's name: an oddity of a format is
//! where two readers differ.

use super::{Label, Limits, path};
use crate::error::{Code, Error, Result};
use crate::session::beneath::{self, Kind};
use crate::session::diff::text;
use rustix::fs::{AtFlags, FileType, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use tar::{EntryType, Header};

const BLOCK: usize = 512;
/// The largest window of a frame: 128 MiB of memory.
const WINDOW_LOG: u32 = 27;
/// The longest extension of a header: a path, a target, a few times.
const MAX_EXTENSION: u64 = 64 << 10;
/// The longest label.
const MAX_LABEL: u64 = 64 << 10;
/// How many zeros may come after the end.
const MAX_TAIL: u64 = 1 << 20;

/// What was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contents {
    /// What it is of.
    pub label: Label,
    /// Its members.
    pub entries: u64,
    /// Bytes of its files.
    pub bytes: u64,
}

/// Reads the snapshot `input` into the directory `into`. What is made below `changes` belongs to `owner`.
///
/// # Errors
/// [`Code::Invalid`] naming the member; what was made until then stays, for the caller to remove.
pub fn extract(
    input: impl Read,
    into: BorrowedFd<'_>,
    limits: Limits,
    owner: Option<(u32, u32)>,
) -> Result<Contents> {
    let mut frame =
        zstd::stream::read::Decoder::new(input).map_err(|e| invalid("the snapshot", &e.to_string()))?;
    frame.window_log_max(WINDOW_LOG).map_err(|e| invalid("the snapshot", &e.to_string()))?;
    extract_unpacked(frame, into, limits, owner)
}

/// As [`extract`], of an archive that no frame is around.
///
/// # Errors
/// As [`extract`].
pub fn extract_unpacked(
    input: impl Read,
    into: BorrowedFd<'_>,
    limits: Limits,
    owner: Option<(u32, u32)>,
) -> Result<Contents> {
    let mut reader = Reader {
        input,
        into,
        left: limits,
        limits,
        owner,
        label: None,
        directories: Vec::new(),
        parent: None,
        next: Next::default(),
    };
    while reader.member()? {}
    reader.finish()
}

fn invalid(name: &str, why: &str) -> Error {
    Error::new(Code::Invalid, format!("read a snapshot: {name}: {why}"))
        .hint("take a new snapshot, or name another; nothing of this one was kept")
}

/// What stands in front of a header and belongs to it.
#[derive(Debug, Default)]
struct Next {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    mtime: Option<(i64, u32)>,
    opaque: bool,
    any: bool,
}

/// A directory gets its mode and its time when nothing more is made in it.
struct Made {
    path: PathBuf,
    mode: u32,
    mtime: (i64, u32),
}

struct Reader<'a, R: Read> {
    input: R,
    into: BorrowedFd<'a>,
    left: Limits,
    limits: Limits,
    owner: Option<(u32, u32)>,
    label: Option<Label>,
    directories: Vec<Made>,
    /// The directory of the last member.
    parent: Option<(PathBuf, OwnedFd)>,
    next: Next,
}

/// One member that is about to be made.
struct Member<'a> {
    path: &'a Path,
    shown: String,
    mode: u32,
    mtime: (i64, u32),
    size: u64,
}

impl<R: Read> Reader<'_, R> {
    /// Reads one member; false at the end.
    fn member(&mut self) -> Result<bool> {
        let mut block = [0; BLOCK];
        self.exactly(&mut block, "the snapshot")?;
        if block == [0; BLOCK] {
            return self.end().map(|()| false);
        }
        let header = Header::from_byte_slice(&block);
        let stated = String::from_utf8_lossy(&header.path_bytes()).into_owned();
        let stated = text::name(stated.as_ref());
        let sum: u32 = block
            .iter()
            .enumerate()
            .map(|(at, byte)| if (148..156).contains(&at) { u32::from(b' ') } else { u32::from(*byte) })
            .sum();
        if header.cksum().ok() != Some(sum) {
            return Err(invalid(&stated, "its header is damaged"));
        }
        let number = |value: io::Result<u64>| value.map_err(|_| invalid(&stated, "its header is damaged"));
        let size = number(header.entry_size())?;
        match header.entry_type() {
            EntryType::XHeader => return self.pax(size, &stated).map(|()| true),
            EntryType::GNULongName => {
                let name = self.long(size, &stated)?;
                return self.once(|next| &mut next.path, name, &stated).map(|()| true);
            }
            EntryType::GNULongLink => {
                let name = self.long(size, &stated)?;
                return self.once(|next| &mut next.link, name, &stated).map(|()| true);
            }
            _ => {}
        }

        let next = std::mem::take(&mut self.next);
        let bytes = next.path.unwrap_or_else(|| header.path_bytes().into_owned());
        let shown = text::path(Path::new(OsStr::from_bytes(&bytes)));
        let path = path::member(&bytes).map_err(|why| invalid(&shown, why))?;
        let mode = header.mode().map_err(|_| invalid(&shown, "its header is damaged"))?;
        let seconds = number(header.mtime())?;
        let mtime = next.mtime.unwrap_or((i64::try_from(seconds).unwrap_or(0), 0));
        let link = next.link.or_else(|| header.link_name_bytes().map(|name| name.into_owned()));
        if mode & 0o6000 != 0 {
            return Err(invalid(&shown, "it has a set-id bit"));
        }
        let kind = header.entry_type();
        let has_content = matches!(kind, EntryType::Regular);
        if size != 0 && !has_content {
            return Err(invalid(&shown, "it has content, and is no file"));
        }
        if self.label.is_none() != (path == Path::new("saggar.json")) {
            let why = "the first member, and no other, is saggar.json";
            return Err(invalid(&shown, why));
        }
        if next.opaque && kind != EntryType::Directory {
            return Err(invalid(&shown, "it is marked as opaque, and is no directory"));
        }
        self.count(&shown, size)?;
        let member = Member { path: &path, shown, mode: mode & 0o1777, mtime, size };
        if self.label.is_none() {
            return self.label(&member, kind).map(|()| true);
        }
        match kind {
            EntryType::Regular => self.file(&member),
            EntryType::Directory => self.directory(&member, next.opaque),
            EntryType::Symlink => self.symlink(&member, link.as_deref().unwrap_or_default()),
            EntryType::Link => self.hard_link(&member, link.as_deref().unwrap_or_default()),
            EntryType::Char => self.whiteout(&member, header),
            _ => Err(invalid(&member.shown, "it is neither a file nor a directory nor a link")),
        }?;
        Ok(true)
    }

    fn count(&mut self, shown: &str, size: u64) -> Result<()> {
        let left = (self.left.entries.checked_sub(1), self.left.bytes.checked_sub(size));
        let (Some(entries), Some(bytes)) = left else {
            let Limits { entries, bytes } = self.limits;
            let why = format!("the snapshot holds more than {entries} members or {bytes} bytes");
            return Err(invalid(shown, &why).hint("say more with --disk SIZE, if you know where it is from"));
        };
        self.left = Limits { entries, bytes };
        Ok(())
    }

    fn exactly(&mut self, buffer: &mut [u8], shown: &str) -> Result<()> {
        self.input.read_exact(buffer).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => invalid(shown, "the snapshot ends too early"),
            _ => invalid(shown, &e.to_string()),
        })
    }

    /// What fills a block up.
    fn padding(&mut self, size: u64, shown: &str) -> Result<()> {
        let over = usize::try_from(size % BLOCK as u64).unwrap_or(0);
        let mut rest = [0; BLOCK];
        if over == 0 { Ok(()) } else { self.exactly(&mut rest[over..], shown) }
    }

    fn small(&mut self, size: u64, most: u64, shown: &str) -> Result<Vec<u8>> {
        if size > most {
            return Err(invalid(shown, "an extension of its header is too long"));
        }
        let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
        self.exactly(&mut bytes, shown)?;
        self.padding(size, shown)?;
        Ok(bytes)
    }

    fn long(&mut self, size: u64, shown: &str) -> Result<Vec<u8>> {
        let mut bytes = self.small(size, path::LONGEST as u64 + 200, shown)?;
        if bytes.last() == Some(&0) {
            bytes.pop();
        }
        Ok(bytes)
    }

    fn once(
        &mut self,
        field: impl Fn(&mut Next) -> &mut Option<Vec<u8>>,
        value: Vec<u8>,
        shown: &str,
    ) -> Result<()> {
        if field(&mut self.next).replace(value).is_some() {
            return Err(invalid(shown, "its name is said twice"));
        }
        Ok(())
    }

    /// An extended header: records `length key=value`.
    fn pax(&mut self, size: u64, shown: &str) -> Result<()> {
        let bytes = self.small(size, MAX_EXTENSION, shown)?;
        if std::mem::replace(&mut self.next.any, true) {
            return Err(invalid(shown, "it has two extended headers"));
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let record = record(rest).ok_or_else(|| invalid(shown, "its extended header is damaged"))?;
            rest = &rest[record.length..];
            match record.key {
                b"path" => self.once(|next| &mut next.path, record.value.to_vec(), shown)?,
                b"linkpath" => self.once(|next| &mut next.link, record.value.to_vec(), shown)?,
                b"mtime" => {
                    let time = time(record.value).ok_or_else(|| invalid(shown, "its time is none"))?;
                    self.next.mtime = Some(time);
                }
                b"SCHILY.xattr.user.overlay.opaque" if record.value == b"y" => self.next.opaque = true,
                b"atime" | b"ctime" | b"comment" | b"uid" | b"gid" | b"uname" | b"gname" => {}
                key => {
                    let key = text::name(OsStr::from_bytes(key));
                    return Err(invalid(
                        shown,
                        &format!("its extended header says {key}, which is not for here"),
                    ));
                }
            }
        }
        Ok(())
    }

    fn label(&mut self, member: &Member<'_>, kind: EntryType) -> Result<()> {
        if kind != EntryType::Regular {
            return Err(invalid(&member.shown, "it is no file"));
        }
        let bytes = self.small(member.size, MAX_LABEL, &member.shown)?;
        let label: Label =
            serde_json::from_slice(&bytes).map_err(|e| invalid(&member.shown, &e.to_string()))?;
        if label.version != 1 {
            return Err(invalid(&member.shown, "it is of another version of saggar"));
        }
        self.label = Some(label);
        Ok(())
    }

    /// The directory of a member, which an earlier member has made.
    fn parent(&mut self, member: &Member<'_>) -> Result<BorrowedFd<'_>> {
        let above = member.path.parent().unwrap_or(Path::new(""));
        if self.parent.as_ref().is_none_or(|(path, _)| path != above) {
            let is_home = above == Path::new("home");
            let opened = beneath::directory(self.into, above).or_else(|e| {
                if !is_home || e.kind() != io::ErrorKind::NotFound {
                    return Err(e);
                }
                rustix::fs::mkdirat(self.into, above, Mode::RWXU)?;
                beneath::directory(self.into, above)
            });
            let opened = opened.map_err(|e| {
                invalid(&member.shown, &format!("the directory above it cannot be used: {e}"))
            })?;
            self.parent = Some((above.to_owned(), opened));
        }
        self.parent
            .as_ref()
            .map(|(_, opened)| opened.as_fd())
            .ok_or_else(|| invalid(&member.shown, "it is nowhere"))
    }

    fn file(&mut self, member: &Member<'_>) -> Result<()> {
        let fail = |e: io::Error| unmade(member, &e);
        let name = name(member);
        let parent = self.parent(member)?;
        let mut file = beneath::create(parent, name, 0o600).map_err(fail)?;
        self.content(&mut file, member)?;
        self.padding(member.size, &member.shown)?;
        self.own(file.as_fd(), member)?;
        let set = rustix::fs::fchmod(&file, Mode::from_raw_mode(member.mode))
            .and_then(|()| rustix::fs::futimens(&file, &times(member.mtime)));
        set.map_err(|e| fail(e.into()))
    }

    /// A block of zeros becomes a hole.
    fn content(&mut self, file: &mut File, member: &Member<'_>) -> Result<()> {
        let fail = |e: io::Error| unmade(member, &e);
        let mut buffer = vec![0; 64 << 10];
        let mut left = member.size;
        while left > 0 {
            let count = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
            self.exactly(&mut buffer[..count], &member.shown)?;
            if buffer[..count].iter().all(|byte| *byte == 0) {
                file.seek(SeekFrom::Current(i64::try_from(count).unwrap_or(0))).map_err(fail)?;
            } else {
                file.write_all(&buffer[..count]).map_err(fail)?;
            }
            left -= count as u64;
        }
        file.set_len(member.size).map_err(fail)
    }

    fn own(&self, file: BorrowedFd<'_>, member: &Member<'_>) -> Result<()> {
        let Some((uid, gid)) = self.owner.filter(|_| member.path.starts_with("changes")) else {
            return Ok(());
        };
        let owner = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        rustix::fs::fchown(file, owner.0, owner.1).map_err(|e| unmade(member, &e.into()))
    }

    /// The link or the whiteout that was just made, opened: it gets its owner and its time, and no name does.
    fn finish_name(&self, parent: BorrowedFd<'_>, member: &Member<'_>, kind: Kind) -> io::Result<()> {
        let opened = beneath::open_link(parent, name(member))?;
        let is = beneath::itself(opened.as_fd())?;
        if is.kind != kind || is.links != 1 {
            return Err(io::Error::other("another program put something else in its place"));
        }
        if let Some((uid, gid)) = self.owner.filter(|_| member.path.starts_with("changes")) {
            crate::sys::file::set_owner(opened.as_fd(), uid, gid)?;
        }
        if kind == Kind::Link {
            rustix::fs::utimensat(&opened, c"", &times(member.mtime), AtFlags::EMPTY_PATH)?;
        }
        Ok(())
    }

    fn directory(&mut self, member: &Member<'_>, opaque: bool) -> Result<()> {
        let fail = |e: io::Error| unmade(member, &e);
        let parent = self.parent(member)?;
        rustix::fs::mkdirat(parent, name(member), Mode::RWXU).map_err(|e| fail(e.into()))?;
        let opened = beneath::directory(parent, name(member)).map_err(fail)?;
        self.own(opened.as_fd(), member)?;
        if opaque {
            if !member.path.starts_with("changes") {
                return Err(invalid(&member.shown, "it is marked as opaque, and is in no overlay"));
            }
            rustix::fs::fsetxattr(&opened, c"user.overlay.opaque", b"y", XattrFlags::empty())
                .map_err(|e| fail(e.into()))?;
        }
        let made = Made { path: member.path.to_owned(), mode: member.mode, mtime: member.mtime };
        self.directories.push(made);
        Ok(())
    }

    fn symlink(&mut self, member: &Member<'_>, target: &[u8]) -> Result<()> {
        if target.is_empty() || target.len() > 4095 || target.contains(&0) {
            return Err(invalid(&member.shown, "its target is none"));
        }
        let parent = self.parent(member)?.try_clone_to_owned().map_err(|e| unmade(member, &e))?;
        let make = || -> io::Result<()> {
            rustix::fs::symlinkat(OsStr::from_bytes(target), &parent, name(member))?;
            self.finish_name(parent.as_fd(), member, Kind::Link)
        };
        make().map_err(|e| unmade(member, &e))
    }

    /// Another name of a file that this archive has made.
    fn hard_link(&mut self, member: &Member<'_>, target: &[u8]) -> Result<()> {
        let refuse = |why: &str| Err(invalid(&member.shown, &format!("its target {why}")));
        let first = match path::member(target) {
            Ok(first) => first,
            Err(why) => return refuse(&format!("is refused: {why}")),
        };
        let tree = |path: &Path| path.components().next().map(|part| part.as_os_str().to_owned());
        if tree(&first) != tree(member.path) {
            return refuse("is in another tree");
        }
        let above = match beneath::directory(self.into, first.parent().unwrap_or(Path::new(""))) {
            Ok(above) => above,
            Err(e) => return refuse(&format!("cannot be reached: {e}")),
        };
        let name_there = Path::new(first.file_name().unwrap_or_default());
        match beneath::look(above.as_fd(), name_there) {
            Ok(Some(meta)) if meta.kind == Kind::File => {}
            _ => return refuse("is no file of the snapshot"),
        }
        let parent = self.parent(member)?;
        rustix::fs::linkat(&above, name_there, parent, name(member), AtFlags::empty())
            .map_err(|e| unmade(member, &e.into()))
    }

    /// A device 0:0, which is none: with it an overlay says that a name is gone.
    fn whiteout(&mut self, member: &Member<'_>, header: &Header) -> Result<()> {
        let numbers = (header.device_major().ok().flatten(), header.device_minor().ok().flatten());
        if numbers != (Some(0), Some(0)) || !member.path.starts_with("changes/") {
            return Err(invalid(&member.shown, "it is a device"));
        }
        let parent = self.parent(member)?.try_clone_to_owned().map_err(|e| unmade(member, &e))?;
        let make = || -> io::Result<()> {
            rustix::fs::mknodat(&parent, name(member), FileType::CharacterDevice, Mode::empty(), 0)?;
            self.finish_name(parent.as_fd(), member, Kind::Other("device"))
        };
        make().map_err(|e| unmade(member, &e))
    }

    /// The second block of zeros, and nothing but zeros after it; then the checksum of the frame is right.
    fn end(&mut self) -> Result<()> {
        let mut block = [0; BLOCK];
        self.exactly(&mut block, "the end")?;
        let mut seen = 0;
        let mut empty = block == [0; BLOCK];
        loop {
            match self.input.read(&mut block) {
                Ok(0) if empty => return Ok(()),
                Ok(0) => return Err(invalid("the end", "something comes after it")),
                Ok(count) => {
                    seen += count as u64;
                    empty &= block[..count].iter().all(|byte| *byte == 0);
                    if !empty || seen > MAX_TAIL {
                        return Err(invalid("the end", "something comes after it"));
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(invalid("the end", &e.to_string())),
            }
        }
    }

    fn finish(self) -> Result<Contents> {
        let Some(label) = self.label else { return Err(invalid("the snapshot", "it is empty")) };
        if self.next.any || self.next.path.is_some() || self.next.link.is_some() {
            return Err(invalid("the end", "a header has no member"));
        }
        for made in self.directories.iter().rev() {
            let set = || -> io::Result<()> {
                let opened = beneath::directory(self.into, &made.path)?;
                rustix::fs::fchmod(&opened, Mode::from_raw_mode(made.mode))?;
                Ok(rustix::fs::futimens(&opened, &times(made.mtime))?)
            };
            set().map_err(|e| invalid(&text::path(&made.path), &e.to_string()))?;
        }
        Ok(Contents {
            label,
            entries: self.limits.entries - self.left.entries,
            bytes: self.limits.bytes - self.left.bytes,
        })
    }
}

fn name<'a>(member: &Member<'a>) -> &'a Path {
    member.path.file_name().map_or(member.path, Path::new)
}

fn unmade(member: &Member<'_>, error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::AlreadyExists => invalid(&member.shown, "it comes twice"),
        _ => Error::system(format_args!("read a snapshot: make {}", member.shown), error),
    }
}

fn times((seconds, nanos): (i64, u32)) -> Timestamps {
    let time = Timespec { tv_sec: seconds, tv_nsec: nanos.into() };
    Timestamps { last_access: time, last_modification: time }
}

struct Record<'a> {
    length: usize,
    key: &'a [u8],
    value: &'a [u8],
}

/// The first record of an extended header.
fn record(bytes: &[u8]) -> Option<Record<'_>> {
    let space = bytes.iter().take(8).position(|byte| *byte == b' ')?;
    let digits = &bytes[..space];
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let length: usize = std::str::from_utf8(digits).ok()?.parse().ok()?;
    let text = bytes.get(space + 1..length)?.strip_suffix(b"\n")?;
    let equals = text.iter().position(|byte| *byte == b'=')?;
    Some(Record { length, key: &text[..equals], value: &text[equals + 1..] })
}

/// Seconds with a fraction.
fn time(value: &[u8]) -> Option<(i64, u32)> {
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
