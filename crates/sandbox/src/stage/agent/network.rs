//! The network namespace, made beside the mounts.
//!
//! A network namespace takes the kernel about as long as all the file tree of a sandbox, and neither needs the
//! other. So the child starts a process that shares its memory (its stack apart), and that one makes the
//! namespace, in the sandbox's user namespace and so owned by it, while the child mounts. Then the child joins
//! it. The maker never comes back from the kernel after that: it is killed, and pid 1 reaps it as it reaps
//! everything.

use saggar_sys::clone::{self, ChildStack};
use saggar_sys::{Errno, SysResult, futex, namespace, net, pidfd, process};
use std::os::fd::{AsFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

/// What the maker has to say: [`WORKING`], an error number, or [`DONE`] and the number of a socket of the new
/// namespace. (A pidfd of the maker would not do: after the change of the user it may not be looked into.)
static STATE: AtomicU32 = AtomicU32::new(WORKING);
const WORKING: u32 = 0;
const DONE: u32 = 1 << 31;

/// How often it is checked whether the maker lives.
const CHECK_INTERVAL_MS: u16 = 100;

const STACK: usize = 16 << 10;

/// A network namespace on its way.
#[derive(Debug)]
pub(super) struct NetworkNamespaceBuilder {
    pidfd: OwnedFd,
    /// The maker may still be on it when this process goes on: it is never unmapped.
    _stack: std::mem::ManuallyDrop<ChildStack>,
}

impl NetworkNamespaceBuilder {
    /// Starts the maker.
    ///
    /// # Errors
    /// The error number of mmap(2) or clone(2).
    pub(super) fn start() -> SysResult<Self> {
        let stack = std::mem::ManuallyDrop::new(ChildStack::new(STACK)?);
        // SAFETY: `make` changes nothing but its stack and STATE, and makes no call that fails, unless it says
        // so in STATE and the start ends; the stack is never unmapped.
        let (_, pidfd) =
            unsafe { clone::share_memory(libc::CLONE_FILES, &stack, build_namespace, std::ptr::null_mut())? };
        Ok(NetworkNamespaceBuilder { pidfd, _stack: stack })
    }

    /// Joins the namespace, its loopback interface up.
    ///
    /// # Errors
    /// The error number of what the maker could not do, or of setns(2); ESRCH if the maker was killed.
    pub(super) fn join(self) -> SysResult<()> {
        let socket = loop {
            match STATE.load(Ordering::Acquire) {
                // One that was killed says nothing.
                WORKING if pidfd::has_exited(self.pidfd.as_fd()) => return Err(Errno::ESRCH),
                WORKING => futex::wait(&STATE, WORKING, CHECK_INTERVAL_MS)?,
                done if done & DONE != 0 => {
                    let socket = (done & !DONE).cast_signed();
                    // SAFETY: the maker made this descriptor for us, in the table that it shares with us.
                    break unsafe { OwnedFd::from_raw_fd(socket) };
                }
                errno => return Err(Errno::from_raw(errno.cast_signed())),
            }
        };
        let namespace = net::namespace_of(socket.as_fd())?;
        namespace::join(namespace.as_fd(), libc::CLONE_NEWNET)?;
        pidfd::signal(self.pidfd.as_fd(), libc::SIGKILL)
    }
}

/// The maker's whole life.
extern "C" fn build_namespace(_: *mut libc::c_void) -> libc::c_int {
    let made = namespace::unshare(libc::CLONE_NEWNET).and_then(|()| net::loopback_up());
    let state = match made {
        Ok(socket) => DONE | socket.into_raw_fd().cast_unsigned(),
        Err(errno) => (errno as i32).cast_unsigned(),
    };
    STATE.store(state, Ordering::Release);
    futex::wake(&STATE);
    // No more calls that could fail: errno is the child's too.
    loop {
        process::sleep_forever();
    }
}
