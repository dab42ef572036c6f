//! The child's side of a start.
//!
//! There are two children, side by side. [`agent`] walks the steps of a policy's sandbox and becomes its pid 1, which
//! starts programs for as long as the sandbox lives. [`container`] walks the steps of a bundle and becomes the
//! program itself, in part through an intermediate process, since it joins namespaces of others. Their plans differ
//! ([`crate::plan`] says why), and so does whom they serve afterwards; what both do in the same way is here, once.
//!
//! No heap, no lock, no log: the memory of the process that forked was copied in the middle of whatever it did.
//! Whatever fails is sent to it as `{step, errno}`, and the child ends; the kernel takes the rest of the sandbox with
//! it.
#![allow(unsafe_code)]

pub mod agent;
pub mod container;
mod parent_death;
pub mod program_path;
mod trees;
pub mod watcher;
pub mod wire;

/// Makes a raw system call and checks its result. Only for calls that neither nix nor libc wraps.
macro_rules! call {
    ($nr:expr $(, $arg:expr)* $(,)?) => {
        // SAFETY: every caller in this module passes arguments of the types that the manual page of the
        // call names, and pointers to values that live until the call returns.
        saggar_sys::check(unsafe { libc::syscall($nr $(, $arg)*) })
    };
}
use call;
