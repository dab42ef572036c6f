//! `process`, in a `config.json` or as a separate `process.json` (config.md, Process).

pub(super) mod capabilities;
mod exec_options;
mod limits;
mod scheduling;

pub use exec_options::{ExecOptions, process_with_options};
pub use limits::rlimit_name;

use super::bitmask::parse_bitmask;
use super::document;
use super::field_path::FieldPath;
use super::text::non_empty;
use super::{ConfigWarning, json};
use crate::spec::ProgramSpec;
use crate::spec::container::{ContainerSpec, CpuAffinity, ProcessSpec};
use oci_spec::runtime::{Box as ConsoleSize, User};
use saggar_sys::error::{Code, Error, Result};
use serde::Deserialize;
use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;

/// The most supplementary groups (NGROUPS_MAX).
const MAX_GROUPS: usize = 65536;
/// At least the number of CPUs of any kernel configuration.
const MAX_CPUS: u32 = 8192;

/// The location of a process: the key `process` of a document, or a document of its own.
#[derive(Clone, Copy)]
pub(super) struct ProcessLocation(Option<&'static str>);

impl ProcessLocation {
    pub(super) const CONFIG_JSON: ProcessLocation = ProcessLocation(Some("process"));
    const PROCESS_JSON: ProcessLocation = ProcessLocation(None);

    /// Calls `then` with the path of the field `key`.
    fn with_field<T>(self, key: &str, then: impl FnOnce(FieldPath<'_>) -> T) -> T {
        match self.0 {
            Some(process) => then(FieldPath::root(process).key(key)),
            None => then(FieldPath::root(key)),
        }
    }
}

/// Lowers the bytes of a `process.json` for `exec` (specs-go's Process). It is the whole process; only the
/// personality is taken from the container.
///
/// # Errors
/// As for [`super::parse_config`].
pub fn parse_process(bytes: &[u8], container: &ContainerSpec) -> Result<(ProcessSpec, Vec<ConfigWarning>)> {
    let mut warnings = Vec::new();
    let lowered = json::read_object(bytes)
        .and_then(|entry| lower_process(entry, ProcessLocation::PROCESS_JSON, &mut warnings));
    let mut process = lowered?;
    process.personality = container.process.as_ref().and_then(|process| process.personality);
    Ok((process, warnings))
}

/// Lowers the process of a document. The personality is in another part of the document.
pub(super) fn lower_process(
    entry: document::OciProcess,
    location: ProcessLocation,
    warnings: &mut Vec<ConfigWarning>,
) -> Result<ProcessSpec> {
    let terminal = entry.terminal.unwrap_or(false);
    let console_size = match entry.console_size {
        Some(size) if terminal => location.with_field("consoleSize", |field| console_size(&size, field))?,
        _ => None,
    };
    let (user, groups) = location.with_field("user", |field| user(entry.user, field))?;
    let program = program(entry.args, entry.env, entry.cwd, location)?;
    let affinity = match entry.exec_cpu_affinity {
        Some(affinity) => location.with_field("execCPUAffinity", |field| cpu_affinity(affinity, field))?,
        None => CpuAffinity::default(),
    };
    Ok(ProcessSpec {
        program,
        terminal,
        console_size,
        uid: user.uid(),
        gid: user.gid(),
        groups,
        keep_groups: false,
        umask: user.umask(),
        capabilities: location.with_field("capabilities", |field| {
            capabilities::lower_capabilities(entry.capabilities, field, warnings)
        }),
        rlimits: location.with_field("rlimits", |field| limits::lower_rlimits(entry.rlimits, field))?,
        no_new_privs: entry.no_new_privileges.unwrap_or(false),
        apparmor_profile: non_empty(entry.apparmor_profile),
        selinux_label: non_empty(entry.selinux_label),
        oom_score_adj: location
            .with_field("oomScoreAdj", |field| limits::check_oom_score_adj(entry.oom_score_adj, field))?,
        io_priority: location
            .with_field("ioPriority", |field| scheduling::lower_io_priority(entry.io_priority, field))?,
        scheduler: location
            .with_field("scheduler", |field| scheduling::lower_scheduler(entry.scheduler, field))?,
        cpu_affinity: affinity,
        personality: None,
    })
}

fn program(
    args: Option<Vec<String>>,
    env: Option<Vec<String>>,
    cwd: Option<String>,
    location: ProcessLocation,
) -> Result<ProgramSpec> {
    let args = args.unwrap_or_default();
    if args.is_empty() {
        return Err(location.with_field("args", |field| field.invalid("must hold at least the program")));
    }
    let cwd = match cwd {
        Some(cwd) if cwd.starts_with('/') => PathBuf::from(cwd),
        Some(cwd) if !cwd.is_empty() => {
            return Err(location.with_field("cwd", |field| {
                field.invalid(format_args!("must be an absolute path, is {cwd:?}"))
            }));
        }
        _ => {
            return Err(location
                .with_field("cwd", |field| field.missing())
                .hint("name the working directory: \"cwd\": \"/\""));
        }
    };
    let env = location.with_field("env", |field| environment(env.unwrap_or_default(), field))?;
    Ok(ProgramSpec { argv: args.into_iter().map(OsString::from).collect(), file: None, env, cwd })
}

/// Lowers the environment; of two variables with one name, the later applies.
fn environment(entries: Vec<String>, field: FieldPath<'_>) -> Result<Vec<(OsString, OsString)>> {
    let mut all: Vec<(OsString, OsString)> = Vec::with_capacity(entries.len());
    let mut positions: HashMap<OsString, usize> = HashMap::with_capacity(entries.len());
    for (index, entry) in entries.iter().enumerate() {
        let Some((name, value)) = entry.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            let error = field.index(index).invalid(format_args!("must be NAME=value, is {entry:?}"));
            return Err(error);
        };
        let (name, value) = (OsString::from(name), OsString::from(value));
        match positions.get(&name) {
            Some(place) => all[*place].1 = value,
            None => {
                positions.insert(name.clone(), all.len());
                all.push((name, value));
            }
        }
    }
    Ok(all)
}

fn console_size(size: &serde_json::Value, field: FieldPath<'_>) -> Result<Option<(u16, u16)>> {
    let size = ConsoleSize::deserialize(size)
        .map_err(|error| field.invalid(format_args!("is not valid: {error}")))?;
    let number = |value: u64, key: &str| {
        u16::try_from(value)
            .map_err(|_| field.key(key).invalid(format_args!("must be at most 65535, is {value}")))
    };
    let (width, height) = (number(size.width(), "width")?, number(size.height(), "height")?);
    // Docker sends zeros for an unknown size.
    Ok((width != 0 && height != 0).then_some((width, height)))
}

fn user(user: Option<User>, field: FieldPath<'_>) -> Result<(User, Vec<u32>)> {
    let user = user.unwrap_or_default();
    let groups = user.additional_gids().clone().unwrap_or_default();
    // The id 2^32 - 1 means "no id" in every system call with an id.
    let no_id = |id: u32, field: FieldPath<'_>| {
        if id == u32::MAX { Err(field.invalid("is not an id")) } else { Ok(()) }
    };
    no_id(user.uid(), field.key("uid"))?;
    no_id(user.gid(), field.key("gid"))?;
    let list = field.key("additionalGids");
    if groups.len() > MAX_GROUPS {
        return Err(list.invalid(format_args!("has {} groups; the kernel takes {MAX_GROUPS}", groups.len())));
    }
    groups.iter().enumerate().try_for_each(|(index, gid)| no_id(*gid, list.index(index)))?;
    if let Some(umask) = user.umask().filter(|umask| *umask > 0o777) {
        return Err(field.key("umask").invalid(format_args!("must be at most 511 (0777), is {umask}")));
    }
    Ok((user, groups))
}

fn cpu_affinity(affinity: document::OciCpuAffinity, field: FieldPath<'_>) -> Result<CpuAffinity> {
    let mask = |list: Option<String>, key: &str| {
        non_empty(list).map(|list| parse_bitmask(&list, MAX_CPUS, field.key(key))).transpose()
    };
    Ok(CpuAffinity { initial: mask(affinity.initial, "initial")?, at_exec: mask(affinity.last, "final")? })
}

/// The error for a container without a process.
fn no_process() -> Error {
    Error::new(Code::Invalid, "process is missing").hint("a container without a process cannot run a program")
}
