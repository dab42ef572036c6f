//! Injection of input into a terminal that the probe owns. A filter that denies the call there also denies it on the
//! caller's terminal.

use super::super::context::ProbeContext;
use super::super::{Attempt, AttemptFailure, AttemptResult, Boundary, ContainmentRule};
use super::{address_of, discard_value};
use crate::sys::disposable_child::DisposableChild;
use std::os::fd::AsRawFd;

/// TIOCLINUX, which libc names for some targets only.
const TIOCLINUX: u64 = 0x541c;
/// A bit that the kernel ignores in the request of an ioctl.
const HIGH: u64 = 1 << 32;

/// The attempts of this class.
pub(super) const ATTEMPTS: &[Attempt] = &[
    new("type-ahead", "Type into a terminal", |child, _| control(child, libc::TIOCSTI, address_of(b"x"))),
    new("type-ahead-high", "The same with a bit that the kernel ignores", |child, _| {
        control(child, libc::TIOCSTI | HIGH, address_of(b"x"))
    }),
    new("console-selection", "Select and paste on a console", |child, _| {
        control(child, TIOCLINUX, address_of(b"\x03"))
    })
    .rule(ContainmentRule::Denied),
    new("console-selection-high", "The same with a bit that the kernel ignores", |child, _| {
        control(child, TIOCLINUX | HIGH, address_of(b"\x03"))
    })
    .rule(ContainmentRule::Denied),
    new("line-discipline", "Load a line discipline", |child, _| {
        control(child, libc::TIOCSETD, address_of(&0_i32))
    }),
    Attempt::new("callers-terminal", Boundary::Descriptors, "Open the terminal of the caller", |_, scene| {
        if !scene.terminal {
            return Err(AttemptFailure::NotTried);
        }
        match std::fs::File::open("/dev/tty") {
            Ok(_) => Ok(()),
            Err(_) => Err(AttemptFailure::NoEffect),
        }
    }),
];

const fn new(
    name: &'static str,
    does: &'static str,
    run: fn(&DisposableChild, &ProbeContext) -> AttemptResult,
) -> Attempt {
    Attempt::new(name, Boundary::Seccomp, does, run)
}

/// Makes an ioctl on the controlling terminal of this process.
fn control(child: &DisposableChild, request: u64, argument: u64) -> AttemptResult {
    let pair = nix::pty::openpty(None, None).map_err(|_| AttemptFailure::NotTried)?;
    let _ = nix::unistd::setsid();
    let terminal = u64::from(pair.slave.as_raw_fd().unsigned_abs());
    let _ = child.call(libc::SYS_ioctl, &[terminal, libc::TIOCSCTTY, 0]);
    let answer = child.call(libc::SYS_ioctl, &[terminal, request, argument]);
    // Closing the terminal would hang up this process before it can report its result.
    std::mem::forget(pair);
    discard_value(answer)
}
