//! The numbers of the system calls, from `syscalls.tbl`.

use crate::Result;
use crate::arch::{Arch, X32_BIT};
use std::collections::BTreeMap;

/// The architecture with cargo's name for it (`CARGO_CFG_TARGET_ARCH`).
pub fn from_cargo(name: &str) -> Result<Arch> {
    match name {
        "x86_64" => Ok(Arch::X86_64),
        "aarch64" => Ok(Arch::Aarch64),
        other => Err(format!(
            "saggar has no system call numbers for {other}: it builds for x86_64 and aarch64 \
             (a column in seccomp/syscalls.tbl and an entry in seccomp/src/arch.rs add one)"
        )),
    }
}

/// A call: its name, and its number on each architecture, as `seccomp_data.nr` has it.
#[derive(Debug)]
pub struct Row<'a> {
    /// Its name.
    pub name: &'a str,
    /// By [`Arch::column`]; `None` where the architecture has no such call.
    pub numbers: [Option<u32>; Arch::ALL.len()],
}

/// Reads the text of `syscalls.tbl`.
pub fn rows(text: &str) -> Result<Vec<Row<'_>>> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(row).collect()
}

fn row(line: &str) -> Result<Row<'_>> {
    let bad = || format!("syscalls.tbl: {line:?} is not a name and a number for each architecture");
    let mut fields = line.split_whitespace();
    let name = fields.next().ok_or_else(bad)?;
    let mut numbers = [None; Arch::ALL.len()];
    for arch in Arch::ALL {
        numbers[arch.column()] = match fields.next().ok_or_else(bad)? {
            "-" => None,
            digits => Some(digits.parse::<u32>().map_err(|_| bad())?),
        };
    }
    numbers[Arch::X32.column()] = numbers[Arch::X32.column()].map(|number| number | X32_BIT);
    if fields.next().is_some() { Err(bad()) } else { Ok(Row { name, numbers }) }
}

/// Every call of the architectures that saggar is built for, by name; `None` where this one has no such call.
#[derive(Debug)]
pub struct Table {
    numbers: BTreeMap<String, Option<u32>>,
}

impl Table {
    /// One architecture's share of `syscalls.tbl`.
    pub fn parse(text: &str, arch: Arch) -> Result<Self> {
        let built = [Arch::X86_64, Arch::Aarch64];
        let mut numbers = BTreeMap::new();
        for Row { name, numbers: all } in rows(text)? {
            if built.iter().all(|arch| all[arch.column()].is_none()) {
                continue;
            }
            if numbers.insert(name.to_owned(), all[arch.column()]).is_some() {
                return Err(format!("syscalls.tbl: {name} stands twice"));
            }
        }
        Ok(Table { numbers })
    }

    /// The number of `name` here, `None` if the architecture lacks it; an error if nobody has it.
    pub fn number(&self, name: &str) -> Result<Option<u32>> {
        self.numbers.get(name).copied().ok_or_else(|| format!("{name:?} is not a call of syscalls.tbl"))
    }

    /// The names of all calls, of every architecture.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.numbers.keys().map(String::as_str)
    }

    /// The highest number in use.
    pub fn newest(&self) -> u32 {
        self.numbers.values().flatten().copied().max().unwrap_or(0)
    }
}
