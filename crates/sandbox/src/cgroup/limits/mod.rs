//! `linux.resources` as writes to control files. Each write is read back; one that does not hold is an error with a
//! hint.
//!
//! First everything is lowered to a list of [`CgroupSetting`]s, which is data; then the list is applied. So invalid
//! values and missing controllers are rejected before anything changes.
//!
//! | module | purpose |
//! |---|---|
//! | [`memory`] [`cpu`] [`io`] [`pids_and_network`] [`unified`] | one part of `linux.resources` each, for v1 and v2 |
//! | [`setting`] | one write, its check, and a hint if it fails |
//! | [`transaction`] | several writes, all or none |
//! | [`convert`] | converts values of v1 to values of v2 |

pub(super) mod convert;
mod cpu;
mod io;
mod memory;
mod pids_and_network;
mod setting;
#[cfg(test)]
mod tests;
mod transaction;
mod unified;

pub(super) use cpu::parse_number_list;
pub(super) use memory::page_size;
pub(super) use setting::{SettingFailure, V1_NO_LIMIT, apply_setting};
pub(super) use transaction::{AppliedSettings, apply_all};

use super::control_files::ControlFiles;
use crate::host::cgroups::CgroupVersion;
use oci_spec::runtime::LinuxResources;
use saggar_sys::error::{Code, Error, Result};

/// One write to one control file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CgroupSetting {
    /// The field below `linux.resources` that requires it.
    pub field: String,
    /// The controller of the file.
    pub controller: String,
    /// The name of the file.
    pub file: String,
    /// The text to write.
    pub value: String,
    /// The content that the file must have afterwards.
    pub expected: ExpectedValue,
    /// Whether a failure is ignored: the same value is written again later, after settings that may have prevented it.
    pub tentative: bool,
}

/// The expected content of a file after a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ExpectedValue {
    /// The number that was written, rounded down to a multiple of this value; `max`, `-1` and the kernel's maximum are
    /// equal.
    Number(u64),
    /// The words that were written.
    Words,
    /// A line that starts with these words.
    LineStart(String),
    /// `key=value` in the line of a device; a missing line means `max` for every key.
    DeviceKey {
        /// `major:minor`
        device: String,
        /// The name of the key.
        key: &'static str,
        /// A number or `max`.
        value: String,
    },
    /// The device has no line.
    NoDeviceLine(String),
    /// The same set of numbers, in a notation such as `0-3,7`.
    NumberSet,
    /// The same set of numbers in this other file, which holds the effective value.
    NumberSetIn(&'static str),
    /// A line that contains every word written; not checked if the file cannot be read.
    ContainsWords,
}

/// The settings that `linux.resources` requires on this host, and warnings about fields without effect.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CgroupSettings {
    /// The settings in the order of the writes.
    pub list: Vec<CgroupSetting>,
    /// Warnings for the log.
    pub warnings: Vec<String>,
}

impl CgroupSettings {
    fn push(
        &mut self,
        field: &str,
        (controller, file): (&str, &str),
        value: impl ToString,
        expect: ExpectedValue,
    ) {
        self.list.push(CgroupSetting {
            field: field.to_owned(),
            controller: controller.to_owned(),
            file: file.to_owned(),
            value: value.to_string(),
            expected: expect,
            tentative: false,
        });
    }

    /// Marks the last setting as tentative: it may fail now and is written again at the end of its part.
    fn mark_tentative(&mut self) {
        if let Some(last) = self.list.last_mut() {
            last.tentative = true;
        }
    }

    fn warn(&mut self, field: &str, why: &str) {
        self.warnings.push(format!("linux.resources.{field} {why}"));
    }
}

/// Lowers all resources except devices ([`super::device`]).
pub(super) fn lower(resources: &LinuxResources, tree: &dyn ControlFiles) -> Result<CgroupSettings> {
    let mut settings = CgroupSettings::default();
    if let Some(memory) = resources.memory() {
        memory::lower(memory, tree, &mut settings)?;
    }
    if let Some(cpu) = resources.cpu() {
        cpu::lower(cpu, tree, &mut settings)?;
    }
    if let Some(pids) = resources.pids() {
        pids_and_network::pids(pids, tree, &mut settings)?;
    }
    if let Some(block_io) = resources.block_io() {
        io::lower(block_io, tree, &mut settings)?;
    }
    for limit in resources.hugepage_limits().iter().flatten() {
        pids_and_network::hugepages(limit, tree, &mut settings)?;
    }
    if let Some(network) = resources.network() {
        pids_and_network::network(network, tree, &mut settings)?;
    }
    for (device, limit) in resources.rdma().iter().flatten() {
        pids_and_network::rdma(device, limit, tree, &mut settings)?;
    }
    if let Some(unified) = resources.unified() {
        unified::lower(unified, tree, &mut settings)?;
    }
    Ok(settings)
}

/// Applies the settings in their order, all of them or none.
pub(super) fn apply(settings: &CgroupSettings, tree: &dyn ControlFiles) -> Result<AppliedSettings> {
    apply_all(&settings.list, tree).map_err(|(at, SettingFailure { message: what, hint, .. })| {
        let field = settings.list.get(at).map_or("", |setting| &setting.field);
        let message = format!("linux.resources.{field} cannot hold: {what}");
        Error::new(Code::Unsupported, message).hint(hint)
    })
}

/// The controllers of cgroup v2 that the settings need.
pub(super) fn controllers(resources: &LinuxResources) -> Vec<String> {
    let mut needed = Vec::new();
    let cpu = resources.cpu().as_ref();
    let sets = cpu.is_some_and(|cpu| cpu.cpus().is_some() || cpu.mems().is_some());
    let has = [
        ("memory", resources.memory().is_some()),
        ("cpu", cpu.is_some()),
        ("cpuset", sets),
        ("pids", resources.pids().is_some()),
        ("io", resources.block_io().is_some()),
        ("hugetlb", resources.hugepage_limits().as_ref().is_some_and(|list| !list.is_empty())),
        ("rdma", resources.rdma().as_ref().is_some_and(|list| !list.is_empty())),
    ];
    needed.extend(has.into_iter().filter(|(_, is)| *is).map(|(name, _)| name.to_owned()));
    let unified = resources.unified().iter().flat_map(|unified| unified.keys());
    needed.extend(unified.filter_map(|key| key.split_once('.')).map(|(name, _)| name.to_owned()));
    needed.retain(|name| name != "cgroup");
    needed
}

/// The version of a controller that `field` needs.
fn version(tree: &dyn ControlFiles, controller: &str, field: &str) -> Result<CgroupVersion> {
    tree.version(controller).ok_or_else(|| {
        let message = format!("linux.resources.{field} cannot hold: there is no {controller} controller here");
        Error::new(Code::Unsupported, message).hint(format!(
            "/proc/cgroups and cgroup.controllers tell which controllers the kernel gives; switch {controller} on (a \
             boot option such as cgroup_enable={controller}, or delegation), or leave the limit out"
        ))
    })
}

/// The error for a value that no kernel accepts.
fn invalid_value_error(field: &str, why: impl std::fmt::Display) -> Error {
    Error::new(Code::Invalid, format!("linux.resources.{field}: {why}"))
}

/// The error for a setting that only v1 supports.
fn v1_only_error(field: &str, instead: &str) -> Error {
    let message = format!("linux.resources.{field} cannot hold: cgroup v2 has no such limit");
    Error::new(Code::Unsupported, message).hint(format!("leave it out{instead}"))
}
