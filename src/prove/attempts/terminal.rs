//! Injecting input into terminals, on a terminal of the probe's own: what a filter refuses there it refuses on a
//! caller's.

use super::super::scene::Scene;
use super::super::{Attempt, Boundary, No, Rule, Tried};
use super::{at, done};
use crate::sys::throwaway::Throwaway;
use std::os::fd::AsRawFd;

/// TIOCLINUX, which libc names for some targets only.
const TIOCLINUX: u64 = 0x541c;
/// A bit that the kernel ignores in the request of an ioctl.
const HIGH: u64 = 1 << 32;

/// The attempts.
pub(super) const ATTEMPTS: &[Attempt] = &[
    new("type-ahead", "Type into a terminal", |child, _| control(child, libc::TIOCSTI, at(b"x"))),
    new("type-ahead-high", "The same with a bit that the kernel ignores", |child, _| {
        control(child, libc::TIOCSTI | HIGH, at(b"x"))
    }),
    new("console-selection", "Select and paste on a console", |child, _| {
        control(child, TIOCLINUX, at(b"\x03"))
    })
    .rule(Rule::Denied),
    new("console-selection-high", "The same with a bit that the kernel ignores", |child, _| {
        control(child, TIOCLINUX | HIGH, at(b"\x03"))
    })
    .rule(Rule::Denied),
    new("line-discipline", "Load a line discipline", |child, _| control(child, libc::TIOCSETD, at(&0_i32))),
    Attempt::new("callers-terminal", Boundary::Descriptors, "Open the terminal of the caller", |_, scene| {
        if !scene.terminal {
            return Err(No::Untried);
        }
        match std::fs::File::open("/dev/tty") {
            Ok(_) => Ok(()),
            Err(_) => Err(No::Nothing),
        }
    }),
];

const fn new(name: &'static str, does: &'static str, run: fn(&Throwaway, &Scene) -> Tried) -> Attempt {
    Attempt::new(name, Boundary::Seccomp, does, run)
}

/// An ioctl on a terminal that is the controlling one of this process.
fn control(child: &Throwaway, request: u64, argument: u64) -> Tried {
    let pair = nix::pty::openpty(None, None).map_err(|_| No::Untried)?;
    let _ = nix::unistd::setsid();
    let terminal = u64::from(pair.slave.as_raw_fd().unsigned_abs());
    let _ = child.call(libc::SYS_ioctl, &[terminal, libc::TIOCSCTTY, 0]);
    let answer = child.call(libc::SYS_ioctl, &[terminal, request, argument]);
    // Were it closed, this process would be hung up before it could say what it was told.
    std::mem::forget(pair);
    done(answer)
}
