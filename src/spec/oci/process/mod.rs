//! `process`, of a `config.json` or alone in a `process.json` (config.md, Process).

pub(super) mod capabilities;
mod limits;
mod overrides;
mod scheduling;

pub use limits::limit_name;
pub use overrides::{Overrides, with_overrides};

use super::document;
use super::field::Field;
use super::list::bits;
use super::text::some_text;
use super::{Warning, json};
use crate::error::{Code, Error, Result};
use crate::spec::Program;
use crate::spec::container::{Container, CpuAffinity, Process};
use oci_spec::runtime::{Box as ConsoleSize, User};
use serde::Deserialize;
use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;

/// The most supplementary groups (NGROUPS_MAX).
const MAX_GROUPS: usize = 65536;
/// More CPUs than any kernel can be built for.
const MAX_CPUS: u32 = 8192;

/// Where a process stands: below `process`, or as a document of its own.
#[derive(Clone, Copy)]
pub(super) struct Place(Option<&'static str>);

impl Place {
    pub(super) const OF_CONTAINER: Place = Place(Some("process"));
    const ALONE: Place = Place(None);

    /// Calls `then` with the field of this name.
    fn field<T>(self, key: &str, then: impl FnOnce(Field<'_>) -> T) -> T {
        match self.0 {
            Some(process) => then(Field::root(process).key(key)),
            None => then(Field::root(key)),
        }
    }
}

/// Lowers the bytes of a `process.json` of `exec` (specs-go's Process): the whole process, of which nothing but the
/// personality comes from the container.
///
/// # Errors
/// As [`super::parse`].
pub fn process(bytes: &[u8], container: &Container) -> Result<(Process, Vec<Warning>)> {
    let mut warnings = Vec::new();
    let lowered = json::read(bytes).and_then(|entry| lower(entry, Place::ALONE, &mut warnings));
    let mut process = lowered.map_err(|error| error.context("process.json"))?;
    process.personality = container.process.as_ref().and_then(|process| process.personality);
    Ok((process, warnings))
}

/// The process of a document. The personality stands elsewhere in it.
pub(super) fn lower(entry: document::Process, place: Place, warnings: &mut Vec<Warning>) -> Result<Process> {
    let terminal = entry.terminal.unwrap_or(false);
    let console_size = match entry.console_size {
        Some(size) if terminal => place.field("consoleSize", |field| console_size(&size, field))?,
        _ => None,
    };
    let (user, groups) = place.field("user", |field| user(entry.user, field))?;
    let program = program(entry.args, entry.env, entry.cwd, place)?;
    let affinity = match entry.exec_cpu_affinity {
        Some(affinity) => place.field("execCPUAffinity", |field| cpu_affinity(affinity, field))?,
        None => CpuAffinity::default(),
    };
    Ok(Process {
        program,
        terminal,
        console_size,
        uid: user.uid(),
        gid: user.gid(),
        groups,
        keep_groups: false,
        umask: user.umask(),
        capabilities: place
            .field("capabilities", |field| capabilities::lower(entry.capabilities, field, warnings)),
        rlimits: place.field("rlimits", |field| limits::rlimits(entry.rlimits, field))?,
        no_new_privs: entry.no_new_privileges.unwrap_or(false),
        apparmor_profile: some_text(entry.apparmor_profile),
        selinux_label: some_text(entry.selinux_label),
        oom_score_adj: place
            .field("oomScoreAdj", |field| limits::oom_score_adj(entry.oom_score_adj, field))?,
        io_priority: place.field("ioPriority", |field| scheduling::io_priority(entry.io_priority, field))?,
        scheduler: place.field("scheduler", |field| scheduling::scheduler(entry.scheduler, field))?,
        cpu_affinity: affinity,
        personality: None,
    })
}

fn program(
    args: Option<Vec<String>>,
    env: Option<Vec<String>>,
    cwd: Option<String>,
    place: Place,
) -> Result<Program> {
    let args = args.unwrap_or_default();
    if args.is_empty() {
        return Err(place.field("args", |field| field.invalid("must hold at least the program")));
    }
    let cwd = match cwd {
        Some(cwd) if cwd.starts_with('/') => PathBuf::from(cwd),
        Some(cwd) if !cwd.is_empty() => {
            return Err(place
                .field("cwd", |field| field.invalid(format_args!("must be an absolute path, is {cwd:?}"))));
        }
        _ => {
            return Err(place
                .field("cwd", |field| field.missing())
                .hint("name the working directory: \"cwd\": \"/\""));
        }
    };
    let env = place.field("env", |field| environment(env.unwrap_or_default(), field))?;
    Ok(Program { argv: args.into_iter().map(OsString::from).collect(), file: None, env, cwd })
}

/// The environment; of two variables with one name the later one counts.
fn environment(entries: Vec<String>, field: Field<'_>) -> Result<Vec<(OsString, OsString)>> {
    let mut all: Vec<(OsString, OsString)> = Vec::with_capacity(entries.len());
    let mut places: HashMap<OsString, usize> = HashMap::with_capacity(entries.len());
    for (index, entry) in entries.iter().enumerate() {
        let Some((name, value)) = entry.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            let error = field.at(index).invalid(format_args!("must be NAME=value, is {entry:?}"));
            return Err(error);
        };
        let (name, value) = (OsString::from(name), OsString::from(value));
        match places.get(&name) {
            Some(place) => all[*place].1 = value,
            None => {
                places.insert(name.clone(), all.len());
                all.push((name, value));
            }
        }
    }
    Ok(all)
}

fn console_size(size: &serde_json::Value, field: Field<'_>) -> Result<Option<(u16, u16)>> {
    let size = ConsoleSize::deserialize(size)
        .map_err(|error| field.invalid(format_args!("is not valid: {error}")))?;
    let number = |value: u64, key: &str| {
        u16::try_from(value)
            .map_err(|_| field.key(key).invalid(format_args!("must be at most 65535, is {value}")))
    };
    let (width, height) = (number(size.width(), "width")?, number(size.height(), "height")?);
    // Docker gives zeros for a size that it does not know.
    Ok((width != 0 && height != 0).then_some((width, height)))
}

fn user(user: Option<User>, field: Field<'_>) -> Result<(User, Vec<u32>)> {
    let user = user.unwrap_or_default();
    let groups = user.additional_gids().clone().unwrap_or_default();
    // The last number means no id in every call that takes one.
    let no_id =
        |id: u32, field: Field<'_>| if id == u32::MAX { Err(field.invalid("is not an id")) } else { Ok(()) };
    no_id(user.uid(), field.key("uid"))?;
    no_id(user.gid(), field.key("gid"))?;
    let list = field.key("additionalGids");
    if groups.len() > MAX_GROUPS {
        return Err(list.invalid(format_args!("has {} groups; the kernel takes {MAX_GROUPS}", groups.len())));
    }
    groups.iter().enumerate().try_for_each(|(index, gid)| no_id(*gid, list.at(index)))?;
    if let Some(umask) = user.umask().filter(|umask| *umask > 0o777) {
        return Err(field.key("umask").invalid(format_args!("must be at most 511 (0777), is {umask}")));
    }
    Ok((user, groups))
}

fn cpu_affinity(affinity: document::CpuAffinity, field: Field<'_>) -> Result<CpuAffinity> {
    let mask = |list: Option<String>, key: &str| {
        some_text(list).map(|list| bits(&list, MAX_CPUS, field.key(key))).transpose()
    };
    Ok(CpuAffinity { initial: mask(affinity.initial, "initial")?, last: mask(affinity.last, "final")? })
}

/// The error of a container whose document has no process.
fn no_process() -> Error {
    Error::new(Code::Invalid, "process is missing").hint("a container without a process cannot run a program")
}
