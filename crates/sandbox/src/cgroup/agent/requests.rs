//! The limits of a sandbox as writes to control files: data, before anything is written.
//!
//! A limit becomes the field of `linux.resources` that a container has for it, and the same code lowers both
//! ([`crate::cgroup::limits`]). A limit of version 2 for which there is no such field is a write to its file.

mod resources;
#[cfg(test)]
mod tests;

use super::disk::{self, DiskNumber};
use super::v1::V1Cgroup;
use crate::cgroup::control_files::ControlFiles;
use crate::cgroup::limits::{self, CgroupSetting, ExpectedValue, page_size};
use crate::host::cgroups::CgroupVersion;
use crate::spec::{LimitSpec, LimitsSpec, Origin};
use nix::errno::Errno;
use oci_spec::runtime::LinuxResources;
use std::collections::HashMap;
use std::fmt::Display;
use std::path::PathBuf;

/// The controller name for core files of cgroup v2, which every cgroup has.
pub(super) const CORE: &str = "cgroup";

/// Every controller that a limit may need.
const ALL_CONTROLLERS: [&str; 6] = ["cpu", "cpuset", "hugetlb", "io", "memory", "pids"];

const MEMORY_AND_SWAP: &str = "memory.memsw.limit_in_bytes";

/// The controllers that these limits need.
pub(super) fn controllers(limits: &LimitsSpec) -> Vec<&'static str> {
    needed_controllers(LimitRequests::new(limits, &PlannedFiles::default()).list.iter())
}

/// The controller of the limit with this name.
pub(super) fn controller_of(name: &str, limits: &LimitsSpec) -> &'static str {
    let all = LimitRequests::new(limits, &PlannedFiles::default()).list;
    all.iter().find(|request| request.name == name).map_or(CORE, |request| request.controller)
}

/// The controllers that these requests need, each once.
pub(super) fn needed_controllers<'a>(
    limits: impl Iterator<Item = &'a LimitRequest<'a>>,
) -> Vec<&'static str> {
    let needed: Vec<_> = limits.map(|request| request.controller).collect();
    ALL_CONTROLLERS.into_iter().filter(|name| needed.contains(name)).collect()
}

/// The control files of cgroups that are not made yet: version 2 but for the controllers of these.
#[derive(Debug, Default)]
pub(super) struct PlannedFiles<'a> {
    pub v1: &'a [V1Cgroup],
}

impl ControlFiles for PlannedFiles<'_> {
    fn version(&self, controller: &str) -> Option<CgroupVersion> {
        let is_v1 = self.v1.iter().any(|one| one.has(controller));
        Some(if is_v1 { CgroupVersion::V1 } else { CgroupVersion::V2 })
    }

    fn read(&self, _: &str, _: &str) -> Result<String, Errno> {
        Err(Errno::ENOENT)
    }

    fn write(&self, _: &str, _: &str, _: &str) -> Result<(), Errno> {
        Err(Errno::ENOENT)
    }

    fn path(&self, _: &str, file: &str) -> PathBuf {
        file.into()
    }

    /// Whatever a kernel may have.
    fn has(&self, _: &str, _: &str) -> bool {
        true
    }
}

/// Control files, with those of version 2 for controllers that are missing: messages name the file that a limit needs.
struct WithMissing<'a>(&'a dyn ControlFiles);

impl ControlFiles for WithMissing<'_> {
    fn version(&self, controller: &str) -> Option<CgroupVersion> {
        // Rates of disks are limited in version 2 alone.
        (controller != "blkio").then(|| self.0.version(controller).unwrap_or(CgroupVersion::V2))
    }

    fn read(&self, controller: &str, file: &str) -> Result<String, Errno> {
        self.0.read(controller, file)
    }

    fn write(&self, controller: &str, file: &str, value: &str) -> Result<(), Errno> {
        self.0.write(controller, file, value)
    }

    fn path(&self, controller: &str, file: &str) -> PathBuf {
        self.0.path(controller, file)
    }

    fn has(&self, controller: &str, file: &str) -> bool {
        self.0.has(controller, file)
    }
}

/// One requested limit.
#[derive(Debug)]
pub(super) struct LimitRequest<'a> {
    /// Its name in `degraded` and `explain`.
    pub name: &'static str,
    /// The value, for messages.
    pub value: String,
    /// Whether a failure to set it is an error.
    pub required: bool,
    /// The policy layer that set it.
    pub origin: &'a Origin,
    /// The controller of its files.
    pub controller: &'static str,
    /// The reason why there is no write for it.
    pub refused: Option<String>,
}

/// The index of a request in [`LimitRequests::list`].
pub(super) type RequestIndex = usize;

/// Every requested limit, and the writes for all of them.
#[derive(Debug, Default)]
pub(super) struct LimitRequests<'a> {
    /// The limits.
    pub list: Vec<LimitRequest<'a>>,
    /// The writes in their order, each with the limit that it is for.
    pub writes: Vec<(RequestIndex, CgroupSetting)>,
}

impl<'a> LimitRequests<'a> {
    /// The requests for these limits, for the versions of the controllers in `tree`.
    pub(super) fn new(limits: &'a LimitsSpec, tree: &dyn ControlFiles) -> Self {
        let (tree, mut all) = (&WithMissing(tree), LimitRequests::default());
        all.memory(limits, tree);
        all.cpu(limits, tree);
        if let Some(pids) = &limits.pids {
            let at = all.push("pids", "pids", pids);
            all.lower(&resources::pids(pids.value), tree, at);
        }
        all.cpusets(limits, tree);
        all.io(limits, tree);
        // Every cgroup counts it (cpu.stat), so no file is written; the supervisor ends the sandbox at the limit.
        if let Some(time) = &limits.cpu_time {
            all.push("cpu_time", CORE, time);
        }
        for (size, limit) in &limits.hugetlb {
            let at = all.push("hugetlb", "hugetlb", limit);
            all.list[at].value = format!("{size}: {}", limit.value);
            all.lower(&resources::huge_pages(size, limit.value), tree, at);
        }
        all
    }

    /// The writes for one limit.
    pub(super) fn writes_for(&self, at: RequestIndex) -> impl Iterator<Item = &CgroupSetting> {
        self.writes.iter().filter(move |(of, _)| *of == at).map(|(_, setting)| setting)
    }

    fn push<T: Display>(
        &mut self,
        name: &'static str,
        controller: &'static str,
        limit: &'a LimitSpec<T>,
    ) -> RequestIndex {
        let LimitSpec { value, required, origin } = limit;
        let value = value.to_string();
        self.list.push(LimitRequest { name, value, required: *required, origin, controller, refused: None });
        self.list.len() - 1
    }

    /// Adds the writes for the limit at `at`.
    fn lower(&mut self, resources: &LinuxResources, tree: &dyn ControlFiles, at: RequestIndex) {
        match limits::lower(resources, tree) {
            Ok(lowered) => self.writes.extend(lowered.list.into_iter().map(|setting| (at, setting))),
            Err(error) => self.list[at].refused = Some(error.to_string()),
        }
    }

    /// Adds the writes for several limits that depend on each other, each with its fields.
    fn lower_together(
        &mut self,
        resources: &LinuxResources,
        tree: &dyn ControlFiles,
        fields: &[(&str, Option<RequestIndex>)],
    ) {
        let request_for = |setting: &CgroupSetting| {
            let field = fields.iter().find(|(field, _)| *field == setting.field);
            field.and_then(|(_, at)| *at).ok_or_else(|| format!("{} has no limit", setting.field))
        };
        let lowered = limits::lower(resources, tree).map_err(|error| error.to_string());
        let writes = lowered.and_then(|lowered| {
            lowered
                .list
                .into_iter()
                .map(|setting| Ok((request_for(&setting)?, setting)))
                .collect::<Result<Vec<_>, _>>()
        });
        match writes {
            Ok(writes) => self.writes.extend(writes),
            Err(why) => fields.iter().filter_map(|(_, at)| *at).for_each(|at| {
                self.list[at].refused = Some(why.clone());
            }),
        }
    }

    /// Adds a write to a file of version 2. The name of a file begins with that of its controller.
    fn write(&mut self, at: RequestIndex, file: &str, value: impl ToString, expected: ExpectedValue) {
        let setting = CgroupSetting {
            field: format!("unified.{file}"),
            controller: file.split('.').next().unwrap_or(file).to_owned(),
            file: file.to_owned(),
            value: value.to_string(),
            expected,
            tentative: false,
        };
        self.writes.push((at, setting));
    }

    fn memory(&mut self, limits: &'a LimitsSpec, tree: &dyn ControlFiles) {
        const MEMORY: &str = "memory";
        let bytes = || ExpectedValue::Number(page_size());
        let is_v1 = tree.version(MEMORY) == Some(CgroupVersion::V1);
        let memory = limits.memory.as_ref().map(|limit| self.push(MEMORY, MEMORY, limit));
        let swap = limits.swap.as_ref().map(|limit| self.push("swap", MEMORY, limit));
        if is_v1 {
            let counts_swap = tree.has(MEMORY, MEMORY_AND_SWAP);
            let fields =
                [("memory.limit", memory), ("memory.swappiness", memory), ("memory.swap", swap.or(memory))];
            self.lower_together(&resources::memory_and_swap(limits, counts_swap), tree, &fields);
            if let Some(swap) = swap.filter(|_| !counts_swap) {
                self.list[swap].refused = Some(format!("this kernel has no {MEMORY_AND_SWAP}"));
            }
        } else {
            if let (Some(limit), Some(at)) = (&limits.memory, memory) {
                self.lower(&resources::memory(limit.value), tree, at);
            }
            // Without a limit of its own, there is no swap beside limited memory.
            if let Some(at) = swap.or(memory) {
                let most = limits.swap.as_ref().map_or(0, |limit| limit.value);
                self.write(at, "memory.swap.max", most, bytes());
            }
        }
        if let Some(high) = &limits.memory_high {
            let at = self.push("memory_high", MEMORY, high);
            match is_v1 {
                true => self.list[at].refused = Some("version 1 of cgroups has no memory.high".to_owned()),
                false => self.write(at, "memory.high", high.value, bytes()),
            }
        }
    }

    fn cpu(&mut self, limits: &'a LimitsSpec, tree: &dyn ControlFiles) {
        const CPU: &str = "cpu";
        let quota = limits.cpu_milli.as_ref().map(|limit| {
            let at = self.push("cpu", CPU, limit);
            self.list[at].value = format!("{}.{:03}", limit.value / 1000, limit.value % 1000);
            at
        });
        let burst = limits.cpu_burst.as_ref().map(|limit| {
            let at = self.push("cpu_burst", CPU, limit);
            self.list[at].value.push_str("us");
            at
        });
        let idle = limits.cpu_idle.as_ref().map(|limit| self.push("cpu_idle", CPU, limit));
        let fields = [("cpu.quota", quota), ("cpu.period", quota), ("cpu.burst", burst), ("cpu.idle", idle)];
        self.lower_together(&resources::cpu_time(limits), tree, &fields);
        let is_idle = limits.cpu_idle.as_ref().is_some_and(|idle| idle.value);
        if let Some(weight) = limits.cpu_weight.as_ref().filter(|_| !is_idle) {
            // After cpu.idle: when that is cleared, the kernel drops the weight.
            let at = self.push("cpu_weight", CPU, weight);
            match tree.version(CPU) {
                Some(CgroupVersion::V1) => self.lower(&resources::cpu_shares(weight.value), tree, at),
                _ => self.write(at, "cpu.weight", weight.value, ExpectedValue::Words),
            }
        }
    }

    fn cpusets(&mut self, limits: &'a LimitsSpec, tree: &dyn ControlFiles) {
        const CPUSET: &str = "cpuset";
        let is_v1 = tree.version(CPUSET) == Some(CgroupVersion::V1);
        let from = self.writes.len();
        if let Some(cpus) = &limits.cpuset_cpus {
            let at = self.push("cpuset_cpus", CPUSET, cpus);
            self.lower(&resources::cpus(&cpus.value), tree, at);
        }
        if let Some(nodes) = &limits.cpuset_mems {
            let at = self.push("cpuset_mems", CPUSET, nodes);
            self.lower(&resources::memory_nodes(&nodes.value), tree, at);
        }
        // The file itself reads back what was written, even if the parent cgroup has none of these CPUs or nodes.
        for (_, setting) in self.writes[from..].iter_mut().filter(|_| !is_v1) {
            let effective = match setting.file.as_str() {
                "cpuset.cpus" => "cpuset.cpus.effective",
                _ => "cpuset.mems.effective",
            };
            setting.expected = ExpectedValue::NumberSetIn(effective);
        }
    }

    fn io(&mut self, limits: &'a LimitsSpec, tree: &dyn ControlFiles) {
        const IO: &str = "io";
        let rates: Vec<_> = limits
            .io
            .iter()
            .map(|(disk, key, limit)| (disk, *key, limit, disk::device_number(disk)))
            .collect();
        // Two names may mean the same disk: then the lower rate applies, whichever layer set it.
        let mut lowest: HashMap<(DiskNumber, &str), u64> = HashMap::new();
        for (_, key, limit, number) in &rates {
            let Ok(number) = number else { continue };
            let least = lowest.entry((*number, key)).or_insert(limit.value);
            *least = limit.value.min(*least);
        }
        for (disk, key, limit, number) in rates {
            let at = self.push(IO, IO, limit);
            self.list[at].value = format!("{disk} {key}={}", limit.value);
            let rate = number.and_then(|number| {
                let rate = lowest.get(&(number, key)).copied().unwrap_or(limit.value);
                resources::disk_rate(number, key, rate)
            });
            match rate {
                Ok(rate) => self.lower(&rate, tree, at),
                Err(why) => self.list[at].refused = Some(why),
            }
        }
        if let Some(limit) = &limits.io_weight {
            let at = self.push("io_weight", IO, limit);
            // The BFQ scheduler has its own scale, which ends at 1000; systemd converts weights in the same way.
            let weight = limit.value;
            let of_bfq = if weight <= 100 { weight } else { 100 + (weight - 100) * 900 / 9900 };
            let expected = |weight| ExpectedValue::LineStart(format!("default {weight}"));
            let has_bfq = tree.has(IO, "io.bfq.weight");
            if tree.has(IO, "io.weight") || !has_bfq {
                self.write(at, "io.weight", weight, expected(weight));
            }
            if has_bfq {
                self.write(at, "io.bfq.weight", of_bfq, expected(of_bfq));
            }
        }
    }
}
