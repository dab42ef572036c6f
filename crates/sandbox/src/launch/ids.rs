//! Allocates blocks of host ids, each exclusive to one sandbox and held by an open lock (DECISIONS 2), and the ids of
//! supervisors.
//!
//! No sandbox uses the last block of the range: for every other block it has one id, to which the sandbox's supervisor
//! switches when it gives up root (DECISIONS 33). No sandbox maps it, and no two supervisors share one.

use crate::spec::ID_BLOCK_SIZE;
use crate::state;
use nix::fcntl::{Flock, FlockArg};
use nix::unistd::{AccessFlags, access};
use saggar_sys::error::{Code, Error, Result};
use std::fs::File;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

/// The overflow id, the user and group that own nothing, on every system.
pub const NOBODY: u32 = 65534;

/// Project ids of sessions; the ids that administrators choose are usually far below.
pub const PROJECT_IDS: std::ops::Range<u32> = 0x5347_0000..0x5357_0000;

/// A block of ids. It is held until this is dropped, or the process crashes.
#[derive(Debug)]
pub struct IdBlock {
    /// The first id.
    pub base: u32,
    /// The user and group id of the supervisor.
    pub supervisor: u32,
    _lock: Flock<File>,
}

/// Takes a free block from `range`, outside the ranges that /etc/subuid and /etc/subgid give to users. No two sandboxes of
/// root have the same one, whatever runtime directory each has.
///
/// # Errors
/// [`Code::Unsupported`] when every block is taken; [`Code::System`].
pub fn allocate(range: RangeInclusive<u32>) -> Result<IdBlock> {
    state::with_shared_locks(|runtime| allocate_in(&runtime.join("ids"), &range))
}

fn allocate_in(directory: &Path, range: &RangeInclusive<u32>) -> Result<IdBlock> {
    state::ensure_private_directory(directory)?;
    for number in numbers(range) {
        let path = lock_path(directory, number);
        let file = state::lock_options()
            .create(true)
            .open(&path)
            .map_err(|e| Error::system(format_args!("open {}", path.display()), e))?;
        if let Ok(lock) = Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            let supervisor = supervisor_of(range, number);
            return Ok(IdBlock { base: number * ID_BLOCK_SIZE, supervisor, _lock: lock });
        }
    }
    Err(pool_exhausted(range))
}

/// Returns the id of the supervisor of the sandbox with this block number. A range of one block has no spare id.
fn supervisor_of(range: &RangeInclusive<u32>, number: u32) -> u32 {
    let (first, count) = blocks(range);
    if count < 2 { NOBODY } else { (first + count - 1) * ID_BLOCK_SIZE + (number - first) }
}

/// Returns the number of the first block of a range, and the number of blocks, including that of the supervisors.
fn blocks(range: &RangeInclusive<u32>) -> (u32, u32) {
    let first = range.start().div_ceil(ID_BLOCK_SIZE);
    (first, (range.end().saturating_add(1) / ID_BLOCK_SIZE).saturating_sub(first))
}

/// The usage of a range: its blocks, and how many of them a sandbox could take now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdPoolUsage {
    /// The first id of the lowest free block.
    pub base: u32,
    /// Blocks outside the ranges of /etc/subuid and /etc/subgid.
    pub blocks: usize,
    /// Those of them that no sandbox holds.
    pub free: usize,
}

/// Counts the free blocks without taking one; writes nothing.
///
/// # Errors
/// [`Code::Unsupported`] when every block is taken.
pub fn usage(range: RangeInclusive<u32>) -> Result<IdPoolUsage> {
    let shared = state::default_runtime_path().join("ids");
    let is_used = state::named_runtime_path().is_none() || access(&shared, AccessFlags::W_OK).is_ok();
    let directory = if is_used { shared } else { state::runtime_path().join("ids") };
    let is_free = |number: &u32| match File::open(lock_path(&directory, *number)) {
        // A shared lock, held for a moment: a concurrent start skips this block.
        Ok(file) => Flock::lock(file, FlockArg::LockSharedNonblock).is_ok(),
        Err(_) => true,
    };
    let blocks = numbers(&range).count();
    let free: Vec<u32> = numbers(&range).filter(is_free).collect();
    let first = free.iter().min().ok_or_else(|| pool_exhausted(&range))?;
    Ok(IdPoolUsage { base: first * ID_BLOCK_SIZE, blocks, free: free.len() })
}

/// Returns the numbers of the blocks of `range` that no subordinate range overlaps. Concurrent starts begin at
/// different blocks, so that they do not contend for every lock; the number of first blocks is small, so that few lock
/// files are made.
fn numbers(range: &RangeInclusive<u32>) -> impl Iterator<Item = u32> {
    let taken = subordinate_ranges();
    let (first, all) = blocks(range);
    let count = if all < 2 { all } else { all - 1 };
    let start = std::process::id() % count.clamp(1, 64);
    (0..count).map(move |step| first + (start + step) % count).filter(move |number| {
        let base = u64::from(number * ID_BLOCK_SIZE);
        let end = base + u64::from(ID_BLOCK_SIZE);
        !taken.iter().any(|range| range.start < end && base < range.end)
    })
}

fn lock_path(directory: &Path, number: u32) -> PathBuf {
    directory.join(format!("{number}.lock"))
}

fn pool_exhausted(range: &RangeInclusive<u32>) -> Error {
    let message = format!("take a block of ids: all of {}-{} are in use", range.start(), range.end());
    Error::new(Code::Unsupported, message).hint("widen sandbox.id_range in /etc/saggar/config.toml")
}

/// Reads the ranges that /etc/subuid and /etc/subgid give to users (subuid(5)): `name:first:count` a line.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_supervisor_has_an_id_of_its_own_that_no_sandbox_maps() {
        let range = 1_879_048_192..=2_147_418_111;
        let numbers: Vec<u32> = numbers(&range).collect();
        let ids: std::collections::BTreeSet<u32> =
            numbers.iter().map(|number| supervisor_of(&range, *number)).collect();
        assert_eq!(ids.len(), numbers.len());
        assert!(ids.iter().all(|id| range.contains(id) && !numbers.contains(&(id / ID_BLOCK_SIZE))));
        assert_eq!(supervisor_of(&(ID_BLOCK_SIZE..=2 * ID_BLOCK_SIZE - 1), 1), NOBODY);
    }
}
