//! The numbers of the system calls, from `syscalls.tbl`.

use super::Result;
use std::collections::BTreeMap;

/// An architecture that saggar has a table for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arch {
    /// 64-bit x86: built and tested.
    X86_64,
    /// 64-bit Arm: the tables are there.
    Aarch64,
}

impl Arch {
    /// The architecture with cargo's name for it (`CARGO_CFG_TARGET_ARCH`).
    pub(crate) fn from_cargo(name: &str) -> Result<Self> {
        match name {
            "x86_64" => Ok(Arch::X86_64),
            "aarch64" => Ok(Arch::Aarch64),
            other => Err(format!(
                "saggar has no system call numbers for {other}: it builds for x86_64 and aarch64 \
                 (a column in seccomp/syscalls.tbl and an entry in seccomp/compiler/table.rs add one)"
            )),
        }
    }

    /// What `seccomp_data.arch` holds (linux/audit.h).
    pub(crate) fn audit(self) -> u32 {
        match self {
            Arch::X86_64 => 0xc000_003e,
            Arch::Aarch64 => 0xc000_00b7,
        }
    }

    /// The first number of a foreign ABI that shares `seccomp_data.arch`: x32 sets bit 30 (asm/unistd.h).
    pub(crate) fn foreign_from(self) -> Option<u32> {
        match self {
            Arch::X86_64 => Some(0x4000_0000),
            Arch::Aarch64 => None,
        }
    }

    fn column(self) -> usize {
        match self {
            Arch::X86_64 => 1,
            Arch::Aarch64 => 2,
        }
    }
}

/// Every call we know, by name; `None` where the architecture has no such call.
#[derive(Debug)]
pub(crate) struct Table {
    numbers: BTreeMap<String, Option<u32>>,
}

impl Table {
    /// Reads the text of `syscalls.tbl`.
    pub(crate) fn parse(text: &str, arch: Arch) -> Result<Self> {
        let mut numbers = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let bad = || format!("syscalls.tbl: {line:?} is not a name and two numbers");
            let &[name, _, _] = fields.as_slice() else { return Err(bad()) };
            let number = match fields[arch.column()] {
                "-" => None,
                digits => Some(digits.parse().map_err(|_| bad())?),
            };
            if numbers.insert(name.to_owned(), number).is_some() {
                return Err(format!("syscalls.tbl: {name} stands twice"));
            }
        }
        Ok(Table { numbers })
    }

    /// The number of `name` here, `None` if the architecture lacks it; an error if nobody has it.
    pub(crate) fn number(&self, name: &str) -> Result<Option<u32>> {
        self.numbers.get(name).copied().ok_or_else(|| format!("{name:?} is not a call of syscalls.tbl"))
    }

    /// The names of all calls, of every architecture.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.numbers.keys().map(String::as_str)
    }

    /// The highest number in use.
    pub(crate) fn newest(&self) -> u32 {
        self.numbers.values().flatten().copied().max().unwrap_or(0)
    }
}
