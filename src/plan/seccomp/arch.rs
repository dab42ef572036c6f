//! The architectures that have tables of system calls.

/// An ABI with system call numbers of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Arch {
    /// 64-bit x86.
    X86_64,
    /// 32-bit x86: `int 0x80` and sysenter.
    X86,
    /// 32-bit pointers on 64-bit x86: the numbers have bit 30 set.
    X32,
    /// 64-bit Arm.
    Aarch64,
    /// 32-bit Arm, EABI.
    Arm,
}

impl Arch {
    /// The one that this binary was built for.
    #[cfg(target_arch = "x86_64")]
    pub const NATIVE: Arch = Arch::X86_64;
    /// The one that this binary was built for.
    #[cfg(target_arch = "aarch64")]
    pub const NATIVE: Arch = Arch::Aarch64;
}
