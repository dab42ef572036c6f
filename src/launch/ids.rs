//! A block of host ids that is one sandbox's alone, held by an open lock (DECISIONS 2).

use crate::error::{Code, Error, Result};
use crate::spec::BLOCK;
use crate::state;
use nix::fcntl::{Flock, FlockArg};
use std::fs::File;
use std::ops::RangeInclusive;
use std::os::unix::fs::OpenOptionsExt;

/// A block of [`BLOCK`] ids. It is ours until this is dropped, also by a crash.
#[derive(Debug)]
pub struct IdBlock {
    /// The first id.
    pub base: u32,
    _lock: Flock<File>,
}

/// Takes a free block from `range`, which avoids the ranges that /etc/subuid and /etc/subgid give to users.
///
/// # Errors
/// [`Code::Unsupported`] when every block is taken; [`Code::System`].
pub fn take(range: RangeInclusive<u32>) -> Result<IdBlock> {
    let directory = state::runtime_dir()?.join("ids");
    state::own_directory(&directory)?;
    let taken = subordinate_ranges();
    let first = range.start().div_ceil(BLOCK);
    let count = (range.end().saturating_add(1) / BLOCK).saturating_sub(first);
    // Starts at once begin at different places, so that they do not meet at every lock; few places, so that
    // few lock files are ever made.
    let start = std::process::id() % count.clamp(1, 64);
    for step in 0..count {
        let number = first + (start + step) % count;
        let base = number * BLOCK;
        let ids = u64::from(base)..u64::from(base) + u64::from(BLOCK);
        if taken.iter().any(|range| range.start < ids.end && ids.start < range.end) {
            continue;
        }
        let path = directory.join(format!("{number}.lock"));
        let file = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&path)
            .map_err(|e| Error::system(format_args!("open {}", path.display()), e))?;
        if let Ok(lock) = Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            return Ok(IdBlock { base, _lock: lock });
        }
    }
    let message = format!("take a block of ids: all {count} of {}-{} are in use", range.start(), range.end());
    Err(Error::new(Code::Unsupported, message).hint("widen sandbox.id_range in /etc/saggar/config.toml"))
}

/// What /etc/subuid and /etc/subgid give away (subuid(5)): `name:first:count` a line.
fn subordinate_ranges() -> Vec<std::ops::Range<u64>> {
    ["/etc/subuid", "/etc/subgid"]
        .iter()
        .filter_map(|path| std::fs::read_to_string(path).ok())
        .flat_map(|text| {
            text.lines()
                .filter_map(|line| {
                    let mut fields = line.split(':').skip(1).map(|field| field.trim().parse::<u64>());
                    let (first, count) = (fields.next()?.ok()?, fields.next()?.ok()?);
                    Some(first..first.saturating_add(count))
                })
                .collect::<Vec<_>>()
        })
        .collect()
}
