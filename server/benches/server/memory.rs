//! Memory of processes, from /proc (proc(5)).

use std::collections::HashMap;
use std::fs;

/// Memory in use, in KiB. Memory that processes share is divided among them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MemoryUse {
    /// Of the server.
    pub(crate) server: u64,
    /// Of the supervisors and all their descendants.
    pub(crate) sessions: u64,
    /// Available on the machine: what the kernel uses for processes is missing from it too.
    pub(crate) available: u64,
}

impl MemoryUse {
    /// Reads the memory of a server, and of sessions with these supervisors.
    pub(crate) fn read(server: u32, supervisors: &[u32]) -> Self {
        let sessions = descendants(supervisors).into_iter().map(proportional_size).sum();
        MemoryUse { server: proportional_size(server), sessions, available: available() }
    }
}

/// These processes, and all that they have started.
fn descendants(roots: &[u32]) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for process in fs::read_dir("/proc").expect("/proc").flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // It may have exited.
        let Ok(stat) = fs::read_to_string(process.path().join("stat")) else { continue };
        let after_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
        let parent = after_name.split(' ').nth(1).and_then(|parent| parent.parse().ok());
        children.entry(parent.unwrap_or_default()).or_default().push(pid);
    }
    let mut found = roots.to_vec();
    let mut next = 0;
    while let Some(pid) = found.get(next) {
        found.extend(children.get(pid).into_iter().flatten());
        next += 1;
    }
    found
}

/// The proportional set size of a process; 0 if it has exited.
fn proportional_size(pid: u32) -> u64 {
    field(&format!("/proc/{pid}/smaps_rollup"), "Pss:").unwrap_or_default()
}

fn available() -> u64 {
    field("/proc/meminfo", "MemAvailable:").expect("MemAvailable")
}

/// The number after this name in a file of /proc.
fn field(file: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}
