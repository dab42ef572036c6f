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
    let (mut passed, mut failed, mut filtered) = (0, 0, 0);
    for (name, callers, case) in cases::ALL {
        for caller in *callers {
            let name = format!("{name} as {caller:?}");
            if !wanted.is_empty() && !wanted.iter().any(|wanted| name.contains(wanted)) {
                filtered += 1;
                continue;
            }
            if *caller == Caller::Root && !root {
                println!("SKIPPED {name}: it needs root");
                continue;
            }
            // As the harness of the standard library, so that what counts and repeats tests understands it.
            let outcome = if run(*caller, *case, root) {
                passed += 1;
                "ok"
            } else {
                failed += 1;
                "FAILED"
            };
            println!("test {name} ... {outcome}");
        }
    }
    // No test's alone, and not to be repeated.
    let allocated = heap::allocations();
    if allocated > 0 {
        println!("FAILED: the children of starts allocated {allocated} times");
    }
    let outcome = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {outcome}. {passed} passed; {failed} failed; 0 ignored; 0 measured; {filtered} filtered out"
    );
    ExitCode::from(u8::from(failed > 0 || allocated > 0))
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
