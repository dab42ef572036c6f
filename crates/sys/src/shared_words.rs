//! Counters in a file that processes share: one page, mapped for a short time, updated without a lock.

use super::{Errno, SysResult};
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// The number of counters.
pub const WORDS: usize = PAGE / size_of::<AtomicU64>();

/// Size of the file in bytes. It divides every page size of Linux, so the counters are in one page.
const PAGE: usize = 4096;
const BYTES: libc::off_t = 4096;

/// The mapped counters.
#[derive(Debug)]
pub struct SharedWords {
    base: NonNull<AtomicU64>,
    /// Neither Send nor Sync: no caller needs either.
    _words: PhantomData<*mut AtomicU64>,
}

impl SharedWords {
    /// Maps the counters of a file that is open for reading and writing. A shorter file is extended with zeros.
    ///
    /// No other process may truncate the file: an access beyond its end kills the process (SIGBUS, mmap(2)). A full
    /// disk cannot cause this, because all space is allocated first.
    ///
    /// # Errors
    /// Those of fallocate(2) and mmap(2).
    pub fn map(file: BorrowedFd<'_>) -> SysResult<Self> {
        let mode = nix::fcntl::FallocateFlags::empty();
        nix::fcntl::fallocate(file, mode, 0, BYTES)?;
        let (nowhere, protection) = (std::ptr::null_mut(), libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: a new mapping at an address that the kernel chooses does not affect existing memory.
        let base = unsafe { libc::mmap(nowhere, PAGE, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        let base = NonNull::new(base.cast::<AtomicU64>()).ok_or(Errno::ENOMEM)?;
        Ok(SharedWords { base, _words: PhantomData })
    }

    /// The counters.
    pub fn words(&self) -> &[AtomicU64; WORDS] {
        // SAFETY: the mapping is a page long and aligned to one, lives as long as `self`, and other processes that map
        // it change it by atomic operations only.
        unsafe { self.base.cast().as_ref() }
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no borrow of it outlives `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), PAGE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::sync::atomic::Ordering;

    #[test]
    fn what_one_adds_another_reads() {
        let file = tempfile::tempfile().unwrap();
        let one = SharedWords::map(file.as_fd()).unwrap();
        let other = SharedWords::map(file.as_fd()).unwrap();
        one.words()[WORDS - 1].fetch_add(7, Ordering::Relaxed);
        assert_eq!(other.words()[WORDS - 1].load(Ordering::Relaxed), 7);
        drop((one, other));
        assert_eq!(file.metadata().unwrap().len(), 4096);
        assert_eq!(SharedWords::map(file.as_fd()).unwrap().words()[WORDS - 1].load(Ordering::Relaxed), 7);
    }

    #[test]
    fn what_is_no_file_is_an_error() {
        let (reader, _writer) = nix::unistd::pipe().unwrap();
        assert!(SharedWords::map(reader.as_fd()).is_err());
    }
}
