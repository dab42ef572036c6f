//! The child of a start touches no heap: the runtime's memory is copied in the middle of whatever it did, and a
//! heap that was locked then stays locked. What processes other than a runtime allocate is counted in a page that
//! all of them share.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize};

struct Counting;

/// The pid of this runtime; an inherited copy tells a fork that it is one.
static RUNTIME: AtomicI32 = AtomicI32::new(0);
static COUNT: AtomicPtr<AtomicUsize> = AtomicPtr::new(std::ptr::null_mut());

fn count() {
    // SAFETY: null, or the page that `share` mapped for good.
    if let Some(count) = unsafe { COUNT.load(Relaxed).as_ref() } {
        let runtime = RUNTIME.load(Relaxed);
        if runtime != 0 && runtime != nix::unistd::getpid().as_raw() {
            count.fetch_add(1, Relaxed);
        }
    }
}

// SAFETY: everything is left to the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count();
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Begins to count.
pub(crate) fn share() {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address of the kernel's choice.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), 4096, protection, flags, -1, 0) };
    assert_ne!(page, libc::MAP_FAILED);
    COUNT.store(page.cast(), Relaxed);
}

/// This process is a runtime, or a test: it may allocate.
pub(crate) fn may_be_used() {
    RUNTIME.store(nix::unistd::getpid().as_raw(), Relaxed);
}

/// What all the others have allocated.
pub(crate) fn allocations() -> usize {
    // SAFETY: as in `count`.
    unsafe { COUNT.load(Relaxed).as_ref() }.map_or(0, |count| count.load(Relaxed))
}
