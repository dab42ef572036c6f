//! The architectures that `syscalls.tbl` has a column for.

/// An ABI with system call numbers of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Arch {
    /// 64-bit x86.
    X86_64,
    /// 64-bit Arm.
    Aarch64,
    /// 32-bit x86: `int 0x80` and sysenter.
    X86,
    /// 32-bit pointers on 64-bit x86: the numbers have bit 30 set.
    X32,
    /// 32-bit Arm, EABI.
    Arm,
}

/// What marks the number of an x32 call (asm/unistd.h, `__X32_SYSCALL_BIT`).
pub const X32_BIT: u32 = 0x4000_0000;

impl Arch {
    /// All of them, in the order of the columns.
    pub const ALL: [Arch; 5] = [Arch::X86_64, Arch::Aarch64, Arch::X86, Arch::X32, Arch::Arm];

    /// The architecture that this program was built for.
    #[cfg(target_arch = "x86_64")]
    pub const NATIVE: Arch = Arch::X86_64;
    /// The architecture that this program was built for.
    #[cfg(target_arch = "aarch64")]
    pub const NATIVE: Arch = Arch::Aarch64;

    /// Its place among the columns.
    pub fn column(self) -> usize {
        match self {
            Arch::X86_64 => 0,
            Arch::Aarch64 => 1,
            Arch::X86 => 2,
            Arch::X32 => 3,
            Arch::Arm => 4,
        }
    }

    /// What `seccomp_data.arch` holds (linux/audit.h).
    pub fn audit(self) -> u32 {
        match self {
            Arch::X86_64 | Arch::X32 => 0xc000_003e,
            Arch::Aarch64 => 0xc000_00b7,
            Arch::X86 => 0x4000_0003,
            Arch::Arm => 0x4000_0028,
        }
    }
}
