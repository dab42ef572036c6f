//! Containers by the library's own calls, seen from inside and by the kernel's account of them.
//!
//! Without a test harness, since the runtime must have one thread. Each case runs in a process of its own, as root
//! and as an ordinary user where it can be both. `cargo test --test containers NAME` runs those whose name has NAME
//! in it.

#![allow(unsafe_code, clippy::exit, clippy::cast_possible_truncation, clippy::cast_possible_wrap)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, missing_docs)]

mod bundle;
mod cases;
mod files;
mod heap;
mod life;
mod mounts;
mod namespaces;
mod process;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Gid, Uid, fork, setgroups, setresgid, setresuid};

/// A user that no account has, so that it owns nothing.
const ORDINARY: u32 = 65432;

/// Who runs a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    Root,
    Ordinary,
}

fn main() -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    heap::share();
    let root = nix::unistd::geteuid().is_root();
    let (mut failed, mut ran, mut skipped) = (Vec::new(), 0, 0);
    for (name, callers, case) in cases::ALL {
        for caller in *callers {
            let name = format!("{name} as {caller:?}");
            if !wanted.is_empty() && !wanted.iter().any(|wanted| name.contains(wanted)) {
                continue;
            }
            if *caller == Caller::Root && !root {
                println!("SKIPPED {name}: it needs root");
                skipped += 1;
                continue;
            }
            ran += 1;
            if !run(*caller, *case, root) {
                println!("FAILED {name}");
                failed.push(name);
            }
        }
    }
    println!("{} of {ran} cases passed, {skipped} skipped", ran - failed.len());
    let allocated = heap::allocations();
    if allocated > 0 {
        println!("FAILED: the children of starts allocated {allocated} times");
    }
    ExitCode::from(u8::from(!failed.is_empty() || allocated > 0))
}

fn run(caller: Caller, case: fn(Caller), root: bool) -> bool {
    // SAFETY: one thread.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            heap::may_be_used();
            // Ten times the usual patience of tests: a case that does not end has failed.
            nix::unistd::alarm::set(600);
            if caller == Caller::Ordinary && root {
                setgroups(&[]).unwrap();
                let (uid, gid) = (Uid::from_raw(ORDINARY), Gid::from_raw(ORDINARY));
                setresgid(gid, gid, gid).unwrap();
                setresuid(uid, uid, uid).unwrap();
                // A change of the user makes a process undumpable, and its files in /proc root's.
                nix::sys::prctl::set_dumpable(true).unwrap();
            }
            let passed = catch_unwind(AssertUnwindSafe(|| case(caller))).is_ok();
            std::process::exit(i32::from(!passed));
        }
        ForkResult::Parent { child } => matches!(waitpid(child, None), Ok(WaitStatus::Exited(_, 0))),
    }
}
