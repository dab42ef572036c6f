//! `linux.resources` as writes to control files, and each written, read back, and explained when it does not hold.
//!
//! First everything is lowered to a list of [`Setting`]s, which is data; then the list is carried out. So what
//! is invalid, or has no controller, is refused before anything is changed.
//!
//! | file | its one job |
//! |---|---|
//! | [`memory`] [`cpu`] [`io`] [`small`] [`unified`] | one part of `linux.resources` each, for v1 and v2 |
//! | [`set`] | one write, its check, and the cure when it fails |
//! | [`all`] | several writes, all or none |
//! | [`convert`] | numbers of v1 as numbers of v2 |

mod all;
pub(super) mod convert;
mod cpu;
mod io;
mod memory;
mod set;
mod small;
#[cfg(test)]
mod tests;
mod unified;

pub(super) use all::{Done, hold_all};
pub(super) use cpu::numbers;
pub(super) use memory::page;
pub(super) use set::{Failure, hold};

use super::tree::Tree;
use crate::error::{Code, Error, Result};
use crate::host::cgroups::Version;
use oci_spec::runtime::LinuxResources;

/// One write to one control file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    /// What asked for it, below `linux.resources`.
    pub field: String,
    /// Whose file it is.
    pub controller: String,
    /// Its name.
    pub file: String,
    /// What is written.
    pub value: String,
    /// What must be read afterwards.
    pub expect: Expect,
    /// A failure is no error: the same is written again later, when what stands in its way has changed.
    pub tentative: bool,
}

/// What a file must read after a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Expect {
    /// The number that was written, rounded down to a multiple of this; `max`, `-1` and the greatest that the kernel
    /// knows are the same.
    Number(u64),
    /// The words that were written.
    Words,
    /// These words at the beginning of a line.
    Line(String),
    /// In the line of a device `key=value`; without the line every key is `max`.
    Key {
        /// `major:minor`
        device: String,
        /// Name.
        key: &'static str,
        /// Number or `max`.
        value: String,
    },
    /// No line for this device.
    NoLine(String),
    /// The same set of numbers, as `0-3,7`.
    Set,
    /// The same set of numbers, in this other file, which tells what came of the write.
    Effective(&'static str),
    /// In some line every word that was written, where the file can be read at all.
    Somewhere,
}

/// The settings that `linux.resources` comes to on this tree, and what means nothing on it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Settings {
    /// In the order in which they are written.
    pub list: Vec<Setting>,
    /// For the log.
    pub warnings: Vec<String>,
}

impl Settings {
    fn push(&mut self, field: &str, (controller, file): (&str, &str), value: impl ToString, expect: Expect) {
        self.list.push(Setting {
            field: field.to_owned(),
            controller: controller.to_owned(),
            file: file.to_owned(),
            value: value.to_string(),
            expect,
            tentative: false,
        });
    }

    /// The last one, tried once more at the end of its part: it may fail now.
    fn tentative(&mut self) {
        if let Some(last) = self.list.last_mut() {
            last.tentative = true;
        }
    }

    fn warn(&mut self, field: &str, why: &str) {
        self.warnings.push(format!("linux.resources.{field} {why}"));
    }
}

/// Lowers everything but the devices ([`super::device`]).
pub(super) fn lower(resources: &LinuxResources, tree: &dyn Tree) -> Result<Settings> {
    let mut settings = Settings::default();
    if let Some(memory) = resources.memory() {
        memory::lower(memory, tree, &mut settings)?;
    }
    if let Some(cpu) = resources.cpu() {
        cpu::lower(cpu, tree, &mut settings)?;
    }
    if let Some(pids) = resources.pids() {
        small::pids(pids, tree, &mut settings)?;
    }
    if let Some(block_io) = resources.block_io() {
        io::lower(block_io, tree, &mut settings)?;
    }
    for limit in resources.hugepage_limits().iter().flatten() {
        small::hugepages(limit, tree, &mut settings)?;
    }
    if let Some(network) = resources.network() {
        small::network(network, tree, &mut settings)?;
    }
    for (device, limit) in resources.rdma().iter().flatten() {
        small::rdma(device, limit, tree, &mut settings)?;
    }
    if let Some(unified) = resources.unified() {
        unified::lower(unified, tree, &mut settings)?;
    }
    Ok(settings)
}

/// Carries the settings out, in their order, all of them or none.
pub(super) fn carry_out(settings: &Settings, tree: &dyn Tree) -> Result<Done> {
    hold_all(&settings.list, tree).map_err(|(at, Failure { what, hint, .. })| {
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

/// The interface of a controller that `field` needs.
fn version(tree: &dyn Tree, controller: &str, field: &str) -> Result<Version> {
    tree.version(controller).ok_or_else(|| {
        let message = format!("linux.resources.{field} cannot hold: there is no {controller} controller here");
        Error::new(Code::Unsupported, message).hint(format!(
            "/proc/cgroups and cgroup.controllers tell which controllers the kernel gives; switch {controller} on (a \
             boot option such as cgroup_enable={controller}, or delegation), or leave the limit out"
        ))
    })
}

/// A value that no kernel takes.
fn invalid(field: &str, why: impl std::fmt::Display) -> Error {
    Error::new(Code::Invalid, format!("linux.resources.{field}: {why}"))
}

/// What only v1 has.
fn only_v1(field: &str, instead: &str) -> Error {
    let message = format!("linux.resources.{field} cannot hold: cgroup v2 has no such limit");
    Error::new(Code::Unsupported, message).hint(format!("leave it out{instead}"))
}
