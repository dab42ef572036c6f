//! Numbers in a file that processes share: one page, mapped for a moment, counted up without a lock.

use super::{Errno, SysResult};
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// How many numbers there are.
pub const WORDS: usize = PAGE / size_of::<AtomicU64>();

/// Bytes of the file. Every page size of Linux is a multiple of it, so it is in one page.
const PAGE: usize = 4096;
const BYTES: libc::off_t = 4096;

/// The numbers, as long as they are mapped.
#[derive(Debug)]
pub struct Shared {
    base: NonNull<AtomicU64>,
    /// Neither Send nor Sync: nobody needs it.
    _words: PhantomData<*mut AtomicU64>,
}

impl Shared {
    /// Maps the numbers of a file that is open for reading and writing; a file that is shorter grows, by zeros.
    ///
    /// The file must be one that nobody else truncates: a touch of what is no longer there ends a process (SIGBUS,
    /// mmap(2)). For want of space it cannot be: all of it is allocated before.
    ///
    /// # Errors
    /// Those of fallocate(2) and mmap(2).
    pub fn map(file: BorrowedFd<'_>) -> SysResult<Self> {
        let mode = nix::fcntl::FallocateFlags::empty();
        nix::fcntl::fallocate(file, mode, 0, BYTES)?;
        let (nowhere, protection) = (std::ptr::null_mut(), libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing of ours.
        let base = unsafe { libc::mmap(nowhere, PAGE, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        let base = NonNull::new(base.cast::<AtomicU64>()).ok_or(Errno::ENOMEM)?;
        Ok(Shared { base, _words: PhantomData })
    }

    /// The numbers.
    pub fn words(&self) -> &[AtomicU64; WORDS] {
        // SAFETY: the mapping is a page long and aligned to one, lives as long as `self`, and whoever else has it
        // changes it as we do, by atomic operations.
        unsafe { self.base.cast().as_ref() }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing borrowed from it outlives us.
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
        let one = Shared::map(file.as_fd()).unwrap();
        let other = Shared::map(file.as_fd()).unwrap();
        one.words()[WORDS - 1].fetch_add(7, Ordering::Relaxed);
        assert_eq!(other.words()[WORDS - 1].load(Ordering::Relaxed), 7);
        drop((one, other));
        assert_eq!(file.metadata().unwrap().len(), 4096);
        assert_eq!(Shared::map(file.as_fd()).unwrap().words()[WORDS - 1].load(Ordering::Relaxed), 7);
    }

    #[test]
    fn what_is_no_file_is_an_error() {
        let (reader, _writer) = nix::unistd::pipe().unwrap();
        assert!(Shared::map(reader.as_fd()).is_err());
    }
}
