//! `saggar stats`: what the sandboxes that run use, once: a table for people, or one JSON object a line.

mod hosts;
mod table;

use crate::cgroup::agent::live::{self, Amount, Live, Stats};
use crate::cgroup::stats::Pressure;
use crate::cli::StatsArgs;
use crate::error::{Code, Error, Result};
use crate::id::SandboxId;
use crate::state;
use hosts::{Hosts, Network};
use nix::unistd::geteuid;
use serde::Serialize;
use std::path::PathBuf;
use table::{aligned, bytes, dash};

/// One sandbox.
#[derive(Debug, Serialize)]
struct Row {
    id: String,
    /// Its cgroup; without one nothing is known of it but that it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    cgroup: Option<PathBuf>,
    #[serde(flatten)]
    stats: Stats,
    /// Whom it has reached, where its network goes by policy and its supervisor says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<Network>,
}

pub(super) fn run(args: &StatsArgs) -> Result<u8> {
    let wanted = args.id.as_deref().map(SandboxId::parse).transpose()?;
    let uid = geteuid();
    let mut rows = rows(live::find((!uid.is_root()).then_some(uid.as_raw())), &state::live::named()?);
    if let Some(wanted) = &wanted {
        rows.retain(|row| row.id == wanted.as_str());
        if rows.is_empty() {
            let message = format!("stats of sandbox {:?}: no sandbox of this name runs", wanted.as_str());
            return Err(Error::new(Code::Invalid, message).hint("saggar stats lists those that do"));
        }
    }
    let hosts = Hosts::find();
    rows.iter_mut().for_each(|row| row.network = hosts.of(&row.id));
    let mut text = if args.json { json(&rows) } else { table(&rows) };
    if !args.json
        && wanted.is_some()
        && let Some(network) = rows.first().and_then(|row| row.network.as_ref())
    {
        text.push_str(&network.table());
    }
    super::say_as(args.json, &text)?;
    Ok(0)
}

/// What has a cgroup, and what is only known to run.
fn rows(live: Vec<Live>, named: &[SandboxId]) -> Vec<Row> {
    let without = named.iter().filter(|id| !live.iter().any(|live| live.id == **id));
    let without: Vec<Row> = without
        .map(|id| Row { id: id.to_string(), cgroup: None, stats: Stats::default(), network: None })
        .collect();
    let with = live.into_iter().map(|Live { id, cgroup }| {
        let stats = Stats::of(&cgroup);
        Row { id: id.to_string(), cgroup: Some(cgroup), stats, network: None }
    });
    let mut rows: Vec<Row> = with.chain(without).collect();
    rows.sort_by(|one, other| one.id.cmp(&other.id));
    rows
}

fn json(rows: &[Row]) -> String {
    rows.iter().filter_map(|row| serde_json::to_string(row).ok()).map(|line| line + "\n").collect()
}

const HEAD: [&str; 9] = [
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

/// What is not known is a dash.
fn table(rows: &[Row]) -> String {
    aligned(std::iter::once(HEAD.map(str::to_owned)).chain(rows.iter().map(cells)))
}

fn cells(row: &Row) -> [String; 9] {
    let Stats { cpu, memory, pids, io, pressure, met } = &row.stats;
    let of = |amount: &Option<Amount>, show: fn(u64) -> String| {
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
        row.network.as_ref().map_or_else(dash, Network::moved),
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

    #[test]
    fn the_table_shows_what_is_known() {
        let cpu = live::Cpu { usage_usec: 1_234_567, ..live::Cpu::default() };
        let stats = Stats {
            cpu: Some(cpu),
            memory: Some(Amount { current: 61 << 20, peak: Some(3 << 30), max: Some(2 << 30) }),
            pids: Some(Amount { current: 7, peak: None, max: None }),
            ..Stats::default()
        };
        let row = |id: &str, cgroup: Option<&str>, stats| Row {
            id: id.into(),
            cgroup: cgroup.map(Into::into),
            stats,
            network: None,
        };
        let shown = table(&[row("build", Some("/x"), stats), row("bare", None, Stats::default())]);
        insta::assert_snapshot!(shown);
    }
}
