//! An interpreter of the kernel's packet filter machine, as far as seccomp uses it, to run a program on any call.

use crate::seccomp::SockFilter;

/// One system call: `struct seccomp_data` without the instruction pointer.
#[derive(Debug, Clone, Copy)]
pub struct SeccompData {
    /// `AUDIT_ARCH_*`.
    pub arch: u32,
    /// Of the call.
    pub number: u32,
    /// Registers, whether the call has them or not.
    pub args: [u64; 6],
}

impl SeccompData {
    /// The word at an offset of `struct seccomp_data`, on a little-endian machine.
    fn word(&self, offset: u32) -> u32 {
        let argument = |index: u32| self.args[index as usize].to_le_bytes();
        let bytes = match offset {
            0 => return self.number,
            4 => return self.arch,
            16..64 if offset.is_multiple_of(8) => argument((offset - 16) / 8)[..4].to_vec(),
            16..64 if offset.is_multiple_of(4) => argument((offset - 16) / 8)[4..].to_vec(),
            _ => panic!("load of offset {offset}"),
        };
        u32::from_le_bytes(bytes.try_into().unwrap())
    }
}

/// The result of a program for a call, and the number of steps.
pub fn run(program: &[SockFilter], call: &SeccompData) -> (u32, usize) {
    let (mut at, mut accumulator) = (0, 0);
    for steps in 1.. {
        // Jumps only go forward, so the only way not to end is an index past the end, which panics.
        let SockFilter { code, jt, jf, k } = program[at];
        let mut jump = |holds: bool| at += usize::from(if holds { jt } else { jf });
        match code {
            0x20 => accumulator = call.word(k),
            0x54 => accumulator &= k,
            0x05 => at += k as usize,
            0x15 => jump(accumulator == k),
            0x25 => jump(accumulator > k),
            0x35 => jump(accumulator >= k),
            0x06 => return (k, steps),
            other => panic!("instruction {other:#x}"),
        }
        at += 1;
    }
    unreachable!("the loop ends at a return")
}
