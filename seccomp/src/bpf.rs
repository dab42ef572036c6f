//! The kernel's packet filter machine, as far as the programs here use it (linux/bpf_common.h, linux/filter.h).

/// One instruction: `struct sock_filter`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    /// What to do, one of the constants here.
    pub code: u16,
    /// How many instructions to skip when a comparison holds.
    pub jt: u8,
    /// How many to skip when it does not.
    pub jf: u8,
    /// The operand.
    pub k: u32,
}

/// `A = word at k of seccomp_data`: BPF_LD | BPF_W | BPF_ABS.
pub const LOAD: u16 = 0x20;
/// `A &= k`: BPF_ALU | BPF_AND | BPF_K.
pub const AND: u16 = 0x54;
/// `goto +k`: BPF_JMP | BPF_JA.
pub const JA: u16 = 0x05;
/// `if A == k`: BPF_JMP | BPF_JEQ | BPF_K.
pub const IF_EQUAL: u16 = 0x15;
/// `if A > k`: BPF_JMP | BPF_JGT | BPF_K.
pub const IF_GREATER: u16 = 0x25;
/// `if A >= k`: BPF_JMP | BPF_JGE | BPF_K.
pub const IF_AT_LEAST: u16 = 0x35;
/// `return k`: BPF_RET | BPF_K.
pub const RET: u16 = 0x06;

/// Where the number is in `struct seccomp_data` (linux/seccomp.h).
pub const NUMBER: u32 = 0;
/// Where the architecture is.
pub const ARCH: u32 = 4;

/// The longest program the kernel takes (BPF_MAXINSNS).
pub const LONGEST: usize = 4096;

/// `return k` as an instruction.
pub fn ret(k: u32) -> Instruction {
    Instruction { code: RET, jt: 0, jf: 0, k }
}
