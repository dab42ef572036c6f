//! `saggar stats`: prints the current resource usage of running sandboxes, as a table or one JSON object per line.

mod hosts;
mod table;

use crate::cgroup::agent::live::{self, LiveSandbox};
use crate::cgroup::agent::sandbox_stats::{ResourceUsage, SandboxStats};
use crate::cgroup::stats::Pressure;
use crate::cli::StatsArgs;
use crate::error::{Code, Error, Result};
use crate::id::SandboxId;
use crate::state;
use hosts::{ControlSockets, NetworkCounters};
use nix::unistd::geteuid;
use serde::Serialize;
use std::path::{Path, PathBuf};
use table::{aligned, bytes, dash};

/// A row for one sandbox.
#[derive(Debug, Serialize)]
struct StatsRow {
    id: String,
    /// The cgroup; without one, it is only known that the sandbox runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    cgroup: Option<PathBuf>,
    #[serde(flatten)]
    stats: SandboxStats,
    /// The hosts that it has connected to, if its network is by policy and its supervisor replies.
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<NetworkCounters>,
}

pub(super) fn run(args: &StatsArgs) -> Result<u8> {
    let selected = args.id.as_deref().map(SandboxId::parse).transpose()?;
    let uid = geteuid();
    let mut rows = rows(
        live::find_sandboxes((!uid.is_root()).then_some(uid.as_raw())),
        &state::running::running_sandboxes()?,
    );
    if let Some(wanted) = &selected {
        rows.retain(|row| row.id == wanted.as_str());
        if rows.is_empty() {
            let message = format!("stats of sandbox {:?}: no sandbox of this name runs", wanted.as_str());
            return Err(Error::new(Code::Invalid, message).hint("saggar stats lists those that do"));
        }
    }
    let hosts = ControlSockets::find();
    rows.iter_mut().for_each(|row| row.network = hosts.query(&row.id));
    let mut text = if args.json { json(&rows) } else { table(&rows) };
    if !args.json
        && selected.is_some()
        && let Some(network) = rows.first().and_then(|row| row.network.as_ref())
    {
        text.push_str(&network.table());
    }
    super::print_as(args.json, &text)?;
    Ok(0)
}

/// Merges sandboxes with a cgroup and those without one.
fn rows(live: Vec<LiveSandbox>, named: &[SandboxId]) -> Vec<StatsRow> {
    let without = named.iter().filter(|id| !live.iter().any(|live| live.id == **id));
    let without: Vec<StatsRow> = without
        .map(|id| StatsRow {
            id: id.to_string(),
            cgroup: None,
            stats: SandboxStats::default(),
            network: None,
        })
        .collect();
    let with = live.into_iter().map(|LiveSandbox { id, cgroups }| StatsRow {
        id: id.to_string(),
        cgroup: cgroups.directories().next().map(Path::to_owned),
        stats: cgroups.stats().unwrap_or_default(),
        network: None,
    });
    let mut rows: Vec<StatsRow> = with.chain(without).collect();
    rows.sort_by(|one, other| one.id.cmp(&other.id));
    rows
}

fn json(rows: &[StatsRow]) -> String {
    rows.iter().filter_map(|row| serde_json::to_string(row).ok()).map(|line| line + "\n").collect()
}

const HEADER: [&str; 9] = [
    "ID",
    "CPU TIME",
    "MEMORY / LIMIT",
    "PEAK",
    "PIDS / LIMIT",
    "READ / WRITTEN",
    "CPU/MEM/IO %",
    "KILLED",
    "SENT / RECEIVED",
];

/// Formats the table, with a dash for unknown values.
fn table(rows: &[StatsRow]) -> String {
    aligned(std::iter::once(HEADER.map(str::to_owned)).chain(rows.iter().map(cells)))
}

fn cells(row: &StatsRow) -> [String; 9] {
    let SandboxStats { cpu, memory, pids, io, pressure, exceeded: met } = &row.stats;
    let of = |amount: &Option<ResourceUsage>, show: fn(u64) -> String| {
        let amount = amount.as_ref();
        amount.map_or_else(dash, |one| format!("{} / {}", show(one.current), one.max.map_or_else(dash, show)))
    };
    let waits =
        [&pressure.cpu, &pressure.memory, &pressure.io].map(|one| one.as_ref().map_or_else(dash, share));
    [
        row.id.clone(),
        cpu.map_or_else(dash, |cpu| seconds(cpu.usage_usec)),
        of(memory, bytes),
        memory.and_then(|memory| memory.peak).map_or_else(dash, bytes),
        of(pids, |count| count.to_string()),
        io.map_or_else(dash, |io| format!("{} / {}", bytes(io.rbytes), bytes(io.wbytes))),
        if row.cgroup.is_some() { waits.join("/") } else { dash() },
        met.oom_kills.map_or_else(dash, |kills| kills.to_string()),
        row.network.as_ref().map_or_else(dash, NetworkCounters::transferred),
    ]
}

fn share(pressure: &Pressure) -> String {
    format!("{:.0}", pressure.some.avg10)
}

fn seconds(usec: u64) -> String {
    format!("{}.{:02}s", usec / 1_000_000, usec % 1_000_000 / 10_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::agent::sandbox_stats::CpuTime;

    #[test]
    fn the_table_shows_what_is_known() {
        let cpu = CpuTime { usage_usec: 1_234_567, ..CpuTime::default() };
        let stats = SandboxStats {
            cpu: Some(cpu),
            memory: Some(ResourceUsage { current: 61 << 20, peak: Some(3 << 30), max: Some(2 << 30) }),
            pids: Some(ResourceUsage { current: 7, peak: None, max: None }),
            ..SandboxStats::default()
        };
        let row = |id: &str, cgroup: Option<&str>, stats| StatsRow {
            id: id.into(),
            cgroup: cgroup.map(Into::into),
            stats,
            network: None,
        };
        let shown = table(&[row("build", Some("/x"), stats), row("bare", None, SandboxStats::default())]);
        insta::assert_snapshot!(shown);
    }
}
