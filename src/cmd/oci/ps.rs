//! `saggar ps`: lists the processes in a container's cgroups.

use super::container::LoadedContainer;
use super::list::aligned;
use super::{OciContext, container::ContainerStatus};
use crate::cli::oci::{ListFormat, PsArgs};
use crate::error::{Code, Error, Result};
use crate::text::one_line;
use std::ffi::{OsStr, OsString};
use std::process::Command;

pub(super) fn run(context: &OciContext, args: &PsArgs) -> Result<u8> {
    let (format, options) = options(args)?;
    let found = LoadedContainer::load(context.find(&args.id)?)?;
    if matches!(found.status(), ContainerStatus::Stopped | ContainerStatus::Creating) {
        let id = &found.record.id;
        return Err(Error::new(Code::Refused, format!("ps of container {id:?}: container not running")));
    }
    let mut pids = found.group()?.pids()?;
    // Without cgroups, only the first process is known.
    if pids.is_empty() {
        pids.extend(found.record.process.as_ref().map(|process| process.pid));
    }
    let text = match (format, options.is_empty()) {
        (ListFormat::Json, _) => format!("{}\n", serde_json::json!(pids)),
        (ListFormat::Table, true) => table(&pids),
        (ListFormat::Table, false) => filter_ps(&pids, &options)?,
    };
    crate::cmd::print_as(format == ListFormat::Json, &text)?;
    Ok(0)
}

/// Parses `--format` after the id too, where all other options are for ps(1).
fn options(args: &PsArgs) -> Result<(ListFormat, Vec<OsString>)> {
    let (mut format, mut rest) = (args.format, args.options.as_slice());
    while let [first, after @ ..] = rest {
        let (value, after) = match (first.to_str().and_then(|word| word.strip_prefix("--format=")), after) {
            (Some(value), after) => (OsStr::new(value), after),
            (None, [value, after @ ..]) if first == "--format" => (value.as_os_str(), after),
            _ => break,
        };
        format = match value.to_str() {
            Some("json") => ListFormat::Json,
            Some("table") => ListFormat::Table,
            _ => {
                return Err(Error::new(Code::Usage, format!("--format {value:?} is neither table nor json")));
            }
        };
        rest = after;
    }
    Ok((format, rest.to_vec()))
}

/// Formats a table like that of `ps -ef`.
fn table(pids: &[i32]) -> String {
    const HEADS: [&str; 6] = ["UID", "PID", "PPID", "STIME", "TIME", "CMD"];
    let rows = pids.iter().filter_map(|pid| row(*pid));
    let all: Vec<[String; 6]> = std::iter::once(HEADS.map(str::to_owned)).chain(rows).collect();
    aligned(&all)
}

fn row(pid: i32) -> Option<[String; 6]> {
    let process = procfs::process::Process::new(pid).ok()?;
    let stat = process.stat().ok()?;
    let command = process.cmdline().unwrap_or_default().join(" ");
    let command = if command.is_empty() { format!("[{}]", stat.comm) } else { command };
    let per_second = procfs::ticks_per_second().max(1);
    let seconds = (stat.utime + stat.stime) / per_second;
    let booted = procfs::boot_time_secs().unwrap_or(0);
    let started = i64::try_from(booted + stat.starttime / per_second).unwrap_or(0);
    let started = jiff::Timestamp::from_second(started).ok()?.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let time = format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    let uid = process.uid().ok()?.to_string();
    Some([uid, pid.to_string(), stat.ppid.to_string(), started, time, one_line(&command).into_owned()])
}

/// Returns the table of ps(1) with these options, filtered to these processes.
fn filter_ps(pids: &[i32], options: &[OsString]) -> Result<String> {
    let out = Command::new("ps").args(options).output().map_err(|e| {
        Error::system("run ps, which options after the id are for", e)
            .hint("install ps, or leave the options out")
    })?;
    if !out.status.success() {
        let stderr = String::from_utf8_lossy(&out.stderr).trim().to_owned();
        return Err(Error::new(Code::Usage, format!("ps does not take these options: {stderr}")));
    }
    let text = String::from_utf8_lossy(&out.stdout);
    let mut lines = text.lines();
    let head = lines.next().unwrap_or_default();
    let column = head.split_whitespace().position(|name| name == "PID").ok_or_else(|| {
        Error::new(Code::Usage, "ps with these options prints no column PID").hint("add pid to its format")
    })?;
    let own_lines = lines.filter(|row| {
        let pid = row.split_whitespace().nth(column).and_then(|field| field.parse().ok());
        pid.is_some_and(|pid| pids.contains(&pid))
    });
    Ok(std::iter::once(head).chain(own_lines).map(|row| format!("{}\n", one_line(row))).collect())
}
