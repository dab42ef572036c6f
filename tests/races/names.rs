//! The names that a process uses in the system call before which it is stopped (proc_pid_syscall(5)).

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};

use libc::c_long;
use nix::unistd::Pid;

/// A name that is about to be used.
#[derive(Debug)]
pub(super) struct Used {
    /// Its path, over no link that the kernel knows of.
    pub(super) path: PathBuf,
    /// Whether the call changes what it finds there.
    pub(super) changes: bool,
}

/// A path in a call: the argument that is the directory, where there is one, and the one that is the name.
type Argument = (Option<usize>, usize);

/// A system call, its paths, and whether it changes something.
type Call = (c_long, &'static [Argument], bool);

const PATH: &[Argument] = &[(None, 0)];
const AT: &[Argument] = &[(Some(0), 1)];
const TWO: &[Argument] = &[(Some(0), 1), (Some(2), 3)];

const CALLS: &[Call] = &[
    (libc::SYS_openat, AT, false),
    (libc::SYS_openat2, AT, false),
    (libc::SYS_newfstatat, AT, false),
    (libc::SYS_statx, AT, false),
    (libc::SYS_faccessat, AT, false),
    (libc::SYS_faccessat2, AT, false),
    (libc::SYS_readlinkat, AT, false),
    (libc::SYS_open_tree, AT, false),
    (libc::SYS_mkdirat, AT, true),
    (libc::SYS_mknodat, AT, true),
    (libc::SYS_unlinkat, AT, true),
    (libc::SYS_fchmodat, AT, true),
    (libc::SYS_fchmodat2, AT, true),
    (libc::SYS_fchownat, AT, true),
    (libc::SYS_utimensat, AT, true),
    (libc::SYS_symlinkat, &[(Some(1), 2)], true),
    (libc::SYS_linkat, TWO, true),
    (libc::SYS_renameat2, TWO, true),
    (libc::SYS_move_mount, TWO, true),
    (libc::SYS_mount, &[(None, 0), (None, 1)], true),
    (libc::SYS_setxattr, PATH, true),
    (libc::SYS_lsetxattr, PATH, true),
    (libc::SYS_getxattr, PATH, false),
    (libc::SYS_lgetxattr, PATH, false),
    (libc::SYS_truncate, PATH, true),
    (libc::SYS_statfs, PATH, false),
    (libc::SYS_inotify_add_watch, &[(None, 1)], false),
];

/// Those that newer machines have no more.
#[cfg(target_arch = "x86_64")]
const OLD_CALLS: &[Call] = &[
    (libc::SYS_open, PATH, false),
    (libc::SYS_stat, PATH, false),
    (libc::SYS_lstat, PATH, false),
    (libc::SYS_access, PATH, false),
    (libc::SYS_readlink, PATH, false),
    (libc::SYS_mkdir, PATH, true),
    (libc::SYS_rmdir, PATH, true),
    (libc::SYS_unlink, PATH, true),
    (libc::SYS_chmod, PATH, true),
    (libc::SYS_chown, PATH, true),
    (libc::SYS_lchown, PATH, true),
    (libc::SYS_renameat, TWO, true),
    (libc::SYS_rename, &[(None, 0), (None, 1)], true),
    (libc::SYS_link, &[(None, 0), (None, 1)], true),
    (libc::SYS_symlink, &[(None, 1)], true),
];
#[cfg(not(target_arch = "x86_64"))]
const OLD_CALLS: &[Call] = &[];

/// The names that `pid` is about to use; none when that cannot be seen.
pub(super) fn used(pid: Pid) -> Vec<Used> {
    read(pid).unwrap_or_default()
}

fn read(pid: Pid) -> Option<Vec<Used>> {
    let text = fs::read_to_string(format!("/proc/{pid}/syscall")).ok()?;
    let mut words = text.split_ascii_whitespace();
    let number: c_long = words.next()?.parse().ok()?;
    let hex = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok();
    let arguments: Vec<u64> = words.map_while(hex).collect();
    let (_, paths, changes) = CALLS.iter().chain(OLD_CALLS).find(|call| call.0 == number)?;
    let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
    let changes = *changes || creates(number, &arguments, &memory);
    let resolve = |(directory, name): &Argument| {
        let name = string(&memory, *arguments.get(*name)?)?;
        let directory = directory.map(|index| arguments.get(index).copied().unwrap_or_default());
        Some(Used { path: absolute(pid, directory, &name)?, changes })
    };
    Some(paths.iter().filter_map(resolve).collect())
}

/// Whether an open makes what it opens.
fn creates(number: c_long, arguments: &[u64], memory: &File) -> bool {
    let flags = match number {
        libc::SYS_openat => arguments[2],
        libc::SYS_openat2 => {
            let mut flags = [0; 8];
            let read = memory.read_exact_at(&mut flags, arguments[2]);
            read.map_or(0, |()| u64::from_ne_bytes(flags))
        }
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open => arguments[1],
        _ => 0,
    };
    let wanted = libc::O_CREAT | libc::O_WRONLY | libc::O_RDWR;
    flags & u64::from(wanted.cast_unsigned()) != 0
}

/// The string at `address`, which may end right before a page that is not there.
fn string(memory: &File, address: u64) -> Option<PathBuf> {
    const PAGE: u64 = 4096;
    let (mut bytes, mut at) = (Vec::new(), address);
    while bytes.len() < usize::from(u16::MAX) {
        let mut part = vec![0; usize::try_from(PAGE - at % PAGE).ok()?];
        memory.read_exact_at(&mut part, at).ok()?;
        if let Some(end) = part.iter().position(|byte| *byte == 0) {
            bytes.extend_from_slice(&part[..end]);
            return Some(OsString::from_vec(bytes).into());
        }
        bytes.extend_from_slice(&part);
        at = (at / PAGE + 1) * PAGE;
    }
    None
}

/// The path of `name` as `pid` sees it. None of what is given by its descriptor alone.
fn absolute(pid: Pid, directory: Option<u64>, name: &Path) -> Option<PathBuf> {
    let descriptor = |number: &str| fs::read_link(format!("/proc/{pid}/fd/{number}")).ok();
    if name.as_os_str().is_empty() {
        return None;
    }
    let path = if let Ok(rest) = name.strip_prefix("/proc/self/fd") {
        let mut parts = rest.components();
        let opened = descriptor(parts.next()?.as_os_str().to_str()?)?;
        opened.join(parts.as_path())
    } else if name.is_absolute() {
        name.to_owned()
    } else {
        // An int in a register, whose upper half may be anything.
        let number = directory.and_then(|number| u32::try_from(number & u64::from(u32::MAX)).ok());
        let number = number.map(u32::cast_signed);
        let above = match number {
            None | Some(libc::AT_FDCWD) => fs::read_link(format!("/proc/{pid}/cwd")).ok()?,
            Some(number) => descriptor(&number.to_string())?,
        };
        above.join(name)
    };
    Some(normal(&path))
}

fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(normal.pop()),
            Component::CurDir => {}
            part => normal.push(part),
        }
    }
    normal
}
