//! A disposable child process that can make any system call. The probe of `saggar doctor --prove` makes its attempts in
//! such children.
//!
//! Unlike [`super::attempt`] it needs neither `clone3` nor `/proc`, because the probe also runs inside other sandboxes.

use super::{SysResult, check, clone, process};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

/// Proof that this process ends after one attempt. A raw system call may corrupt its memory or its descriptors: no
/// other code runs in it.
#[derive(Debug)]
pub struct DisposableChild(());

/// How the child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChildExit {
    /// The child exited with this status.
    Exited(i32),
    /// This signal killed the child.
    Killed(i32),
}

/// Runs `job` in a child and waits for its exit. The child exits with the status that `job` returns. After `seconds`
/// the kernel kills the child with SIGALRM.
///
/// The caller must have one thread.
///
/// # Errors
/// Those of clone(2) and wait(2).
pub fn run_disposable_child(seconds: u32, job: impl FnOnce(&DisposableChild) -> u8) -> SysResult<ChildExit> {
    // SAFETY: the probe has one thread, so every lock is free in the child as well.
    let pid = unsafe { clone::fork() }?;
    if pid == 0 {
        /// A panic must not unwind into the parent's code.
        struct ExitOnUnwind;
        impl Drop for ExitOnUnwind {
            fn drop(&mut self) {
                process::exit_now(255);
            }
        }
        let _never = ExitOnUnwind;
        // SIGALRM ends the child only if its action is the default.
        process::reset_signals();
        nix::unistd::alarm::set(seconds);
        process::exit_now(job(&DisposableChild(())).into())
    }
    loop {
        match waitpid(Pid::from_raw(pid), None) {
            Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(errno),
            Ok(WaitStatus::Exited(_, status)) => return Ok(ChildExit::Exited(status)),
            Ok(WaitStatus::Signaled(_, signal, _)) => return Ok(ChildExit::Killed(signal as i32)),
            Ok(_) => {}
        }
    }
}

impl DisposableChild {
    /// Makes the system call `number` with up to six arguments; missing arguments are zero.
    ///
    /// # Errors
    /// Those of the call.
    pub fn call(&self, number: i64, args: &[u64]) -> SysResult<i64> {
        let mut all = [0; 6];
        all.iter_mut().zip(args).for_each(|(to, from)| *to = *from);
        let [a, b, c, d, e, f] = all;
        // SAFETY: this process is disposable ([`DisposableChild`]): no code relies on memory that the call may have
        // changed.
        check(unsafe { libc::syscall(number, a, b, c, d, e, f) })
    }

    /// Forks a child of the child. Returns `None` in the new process and its pid in the caller.
    ///
    /// # Errors
    /// Those of clone(2).
    pub fn fork(&self) -> SysResult<Option<i32>> {
        // SAFETY: this process has one thread.
        let pid = unsafe { clone::fork() }?;
        Ok((pid != 0).then_some(pid))
    }

    /// Makes a system call by the i386 entry (`int 0x80`).
    ///
    /// # Errors
    /// Those of the call.
    #[cfg(target_arch = "x86_64")]
    pub fn call_i386(&self, number: i32, first: i32) -> SysResult<i32> {
        let mut answer = number;
        // SAFETY: as for `call`; the compiler reserves `rbx`, so its value is exchanged and restored.
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
        assert_eq!(run_disposable_child(10, |_| 7), Ok(ChildExit::Exited(7)));
        let kill = run_disposable_child(10, |child| {
            let _ = child.call(libc::SYS_kill, &[u64::from(std::process::id()), 9]);
            0
        });
        assert_eq!(kill, Ok(ChildExit::Killed(9)));
    }
}
