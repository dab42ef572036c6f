//! A child process that is thrown away, and any system call in it: what the probe of `saggar doctor --prove` makes its
//! attempts with.
//!
//! Unlike [`super::attempt`] it needs neither `clone3` nor `/proc`, since it runs inside of other sandboxes as well.

use super::{SysResult, check, clone, process};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

/// Proof that this process ends after one attempt: whatever a raw system call does to its memory or its descriptors, no
/// other code runs on them.
#[derive(Debug)]
pub struct Throwaway(());

/// How the child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// With this status.
    Exited(i32),
    /// By this signal.
    Killed(i32),
}

/// Runs `job` in a child, which exits with the status that it returns, and waits for the end. The kernel ends a child
/// that takes longer than `seconds` with SIGALRM.
///
/// Only for a process with one thread.
///
/// # Errors
/// Those of clone(2) and wait(2).
pub fn throwaway(seconds: u32, job: impl FnOnce(&Throwaway) -> u8) -> SysResult<Ended> {
    // SAFETY: the probe has one thread, so that every lock is free in the child as well.
    let pid = unsafe { clone::fork() }?;
    if pid == 0 {
        /// A panic must not unwind into the parent's code.
        struct Never;
        impl Drop for Never {
            fn drop(&mut self) {
                process::exit_now(255);
            }
        }
        let _never = Never;
        // One that has no default action for it would not be ended.
        process::reset_signals();
        nix::unistd::alarm::set(seconds);
        process::exit_now(job(&Throwaway(())).into())
    }
    loop {
        match waitpid(Pid::from_raw(pid), None) {
            Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(errno),
            Ok(WaitStatus::Exited(_, status)) => return Ok(Ended::Exited(status)),
            Ok(WaitStatus::Signaled(_, signal, _)) => return Ok(Ended::Killed(signal as i32)),
            Ok(_) => {}
        }
    }
}

impl Throwaway {
    /// The system call `number` with up to six arguments, the rest of them zero.
    ///
    /// # Errors
    /// Those of the call.
    pub fn call(&self, number: i64, args: &[u64]) -> SysResult<i64> {
        let mut all = [0; 6];
        all.iter_mut().zip(args).for_each(|(to, from)| *to = *from);
        let [a, b, c, d, e, f] = all;
        // SAFETY: this process is thrown away (`Throwaway`): no code relies on what the call may have changed.
        check(unsafe { libc::syscall(number, a, b, c, d, e, f) })
    }

    /// A child of the child: true in it.
    ///
    /// # Errors
    /// Those of clone(2).
    pub fn fork(&self) -> SysResult<Option<i32>> {
        // SAFETY: one thread.
        let pid = unsafe { clone::fork() }?;
        Ok((pid != 0).then_some(pid))
    }

    /// A system call of 32-bit programs, by the way that they make it.
    ///
    /// # Errors
    /// Those of the call.
    #[cfg(target_arch = "x86_64")]
    pub fn call_i386(&self, number: i32, first: i32) -> SysResult<i32> {
        let mut answer = number;
        // SAFETY: as for `call`; the compiler keeps `rbx` for itself, so that it is exchanged and given back.
        unsafe {
            std::arch::asm!(
                "xchg {first}, rbx", "int 0x80", "xchg {first}, rbx",
                first = inout(reg) i64::from(first) => _,
                inout("eax") answer, inout("ecx") 0 => _, inout("edx") 0 => _,
                out("r8") _, out("r9") _, out("r10") _, out("r11") _,
            );
        }
        if answer < 0 { Err(super::Errno::from_raw(-answer)) } else { Ok(answer) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_child_is_the_answer() {
        assert_eq!(throwaway(10, |_| 7), Ok(Ended::Exited(7)));
        let kill = throwaway(10, |child| {
            let _ = child.call(libc::SYS_kill, &[u64::from(std::process::id()), 9]);
            0
        });
        assert_eq!(kill, Ok(Ended::Killed(9)));
    }
}
