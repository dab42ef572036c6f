//! The limits of a sandbox as writes to control files: data, before anything is written.

mod v1;

use super::disk;
use super::v1::V1Cgroup;
use crate::cgroup::control_files::ControlFiles;
use crate::cgroup::limits::{CgroupSetting, ExpectedValue, page_size};
use crate::host::cgroups::CgroupVersion;
use crate::spec::{CPU_PERIOD_US, CpusetList, LimitSpec, LimitsSpec, Origin};
use nix::errno::Errno;
use std::collections::HashMap;
use std::fmt::Display;
use std::path::PathBuf;

/// The controller name for core files of cgroup v2, which every cgroup has.
pub(super) const CORE: &str = "cgroup";

/// Every controller that a limit may need.
const ALL_CONTROLLERS: [&str; 6] = ["cpu", "cpuset", "hugetlb", "io", "memory", "pids"];

/// The controllers that these limits need.
pub(super) fn controllers(limits: &LimitsSpec) -> Vec<&'static str> {
    needed_controllers(limit_requests(limits, &PlannedFiles::default()).iter())
}

/// The controller of the limit with this name.
pub(super) fn controller_of(name: &str, limits: &LimitsSpec) -> &'static str {
    let all = limit_requests(limits, &PlannedFiles::default());
    let request = all.iter().find(|request| request.name == name);
    request.map_or(CORE, |request| request.controller)
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
    /// The writes, or the reason why there are none.
    pub settings: Result<Vec<CgroupSetting>, String>,
}

/// One write to `file`, whose name begins with the name of its controller.
fn setting(file: &str, value: impl Display, expect: ExpectedValue) -> CgroupSetting {
    CgroupSetting {
        field: String::new(),
        controller: file.split('.').next().unwrap_or(file).to_owned(),
        file: file.to_owned(),
        value: value.to_string(),
        expected: expect,
        tentative: false,
    }
}

/// Every limit, in the order of the writes, for the versions of the controllers in `tree`.
pub(super) fn limit_requests<'a>(limits: &'a LimitsSpec, tree: &dyn ControlFiles) -> Vec<LimitRequest<'a>> {
    let mut all = Vec::new();
    match tree.version("memory") {
        Some(CgroupVersion::V1) => v1::memory(limits, tree, &mut all),
        _ => memory(limits, &mut all),
    }
    match tree.version("cpu") {
        Some(CgroupVersion::V1) => v1::cpu(limits, &mut all),
        _ => cpu(limits, &mut all),
    }
    let pids = limits.pids.iter();
    all.extend(pids.map(|limit| {
        single_write("pids", limit, setting("pids.max", limit.value, ExpectedValue::Number(1)))
    }));
    let sets = [
        ("cpuset_cpus", "cpuset.cpus", "cpuset.cpus.effective", &limits.cpuset_cpus),
        ("cpuset_mems", "cpuset.mems", "cpuset.mems.effective", &limits.cpuset_mems),
    ];
    for (name, file, read_file, limit) in sets {
        // The file itself reads back what was written, even if the parent cgroup has none of these CPUs or nodes.
        let write = |set: &CpusetList| setting(file, set, ExpectedValue::NumberSetIn(read_file));
        all.extend(limit.iter().map(|limit| single_write(name, limit, write(&limit.value))));
    }
    io(limits, tree, &mut all);
    // Every cgroup counts it (cpu.stat), so no file is written; the supervisor ends the sandbox at the limit.
    all.extend(limits.cpu_time.iter().map(|limit| multiple_writes("cpu_time", limit, Vec::new())));
    for (size, limit) in &limits.hugetlb {
        // Both the pages in use and the reserved pages are limited: a program that has mapped pages may not have
        // touched them.
        let files = [format!("hugetlb.{size}.max"), format!("hugetlb.{size}.rsvd.max")];
        let settings = files.map(|file| setting(&file, limit.value, ExpectedValue::Number(size.bytes())));
        let mut request = multiple_writes("hugetlb", limit, settings.into());
        request.value = format!("{size}: {}", limit.value);
        all.push(request);
    }
    all
}

fn single_write<'a, T: Display>(
    name: &'static str,
    limit: &'a LimitSpec<T>,
    setting: CgroupSetting,
) -> LimitRequest<'a> {
    multiple_writes(name, limit, vec![setting])
}

fn multiple_writes<'a, T: Display>(
    name: &'static str,
    limit: &'a LimitSpec<T>,
    settings: Vec<CgroupSetting>,
) -> LimitRequest<'a> {
    let controller = match name.split('_').next() {
        Some("memory" | "swap") => "memory",
        Some("cpuset") => "cpuset",
        Some("cpu") if name == "cpu_time" => CORE,
        Some("cpu") => "cpu",
        Some("io") => "io",
        Some("hugetlb") => "hugetlb",
        _ => "pids",
    };
    let LimitSpec { value, required: named, origin } = limit;
    LimitRequest {
        name,
        value: value.to_string(),
        required: *named,
        origin,
        controller,
        settings: Ok(settings),
    }
}

fn memory<'a>(limits: &'a LimitsSpec, all: &mut Vec<LimitRequest<'a>>) {
    let bytes = |file, value| setting(file, value, ExpectedValue::Number(page_size()));
    if let Some(limit) = &limits.memory {
        let mut settings = vec![bytes("memory.max", limit.value)];
        if limits.swap.is_none() {
            settings.push(bytes("memory.swap.max", 0));
        }
        all.push(multiple_writes("memory", limit, settings));
    }
    let more =
        [("swap", "memory.swap.max", &limits.swap), ("memory_high", "memory.high", &limits.memory_high)];
    for (name, file, limit) in more {
        all.extend(limit.iter().map(|limit| single_write(name, limit, bytes(file, limit.value))));
    }
}

fn cpu<'a>(limits: &'a LimitsSpec, all: &mut Vec<LimitRequest<'a>>) {
    if let Some(limit) = &limits.cpu_milli {
        let text = format!("{} {CPU_PERIOD_US}", limit.value.saturating_mul(CPU_PERIOD_US) / 1000);
        let mut request = single_write("cpu", limit, setting("cpu.max", text, ExpectedValue::Words));
        request.value = format!("{}.{:03}", limit.value / 1000, limit.value % 1000);
        all.push(request);
    }
    // The burst comes after the quota, which limits it.
    let burst = limits.cpu_burst.iter();
    all.extend(burst.map(|limit| {
        let mut request =
            single_write("cpu_burst", limit, setting("cpu.max.burst", limit.value, ExpectedValue::Words));
        request.value.push_str("us");
        request
    }));
    let idle = limits.cpu_idle.iter();
    all.extend(idle.map(|limit| {
        single_write("cpu_idle", limit, setting("cpu.idle", u8::from(limit.value), ExpectedValue::Words))
    }));
    if !limits.cpu_idle.as_ref().is_some_and(|idle| idle.value) {
        let weight = limits.cpu_weight.iter();
        all.extend(weight.map(|limit| {
            single_write("cpu_weight", limit, setting("cpu.weight", limit.value, ExpectedValue::Words))
        }));
    }
}

fn io<'a>(limits: &'a LimitsSpec, tree: &dyn ControlFiles, all: &mut Vec<LimitRequest<'a>>) {
    let rates: Vec<_> =
        limits.io.iter().map(|(disk, key, limit)| (disk, *key, limit, disk::device_number(disk))).collect();
    // Two names may mean the same disk: then the lower rate applies, whichever layer set it.
    let mut lowest: HashMap<(&str, &str), u64> = HashMap::new();
    for (_, key, limit, number) in &rates {
        let Ok(number) = number else { continue };
        let least = lowest.entry((number, key)).or_insert(limit.value);
        *least = limit.value.min(*least);
    }
    for (disk, key, limit, number) in &rates {
        let settings = number.clone().map(|number| {
            let rate = lowest.get(&(number.as_str(), *key)).copied().unwrap_or(limit.value);
            let text = format!("{number} {key}={rate}");
            vec![setting(
                "io.max",
                text,
                ExpectedValue::DeviceKey { device: number, key, value: rate.to_string() },
            )]
        });
        all.push(LimitRequest {
            value: format!("{disk} {key}={}", limit.value),
            settings,
            ..multiple_writes("io", limit, Vec::new())
        });
    }
    if let Some(limit) = &limits.io_weight {
        // The BFQ scheduler has its own scale, which ends at 1000; systemd converts weights in the same way.
        let weight = limit.value;
        let of_bfq = if weight <= 100 { weight } else { 100 + (weight - 100) * 900 / 9900 };
        let write =
            |file, weight| setting(file, weight, ExpectedValue::LineStart(format!("default {weight}")));
        let settings = match (tree.has("io", "io.weight"), tree.has("io", "io.bfq.weight")) {
            (true, true) => vec![write("io.weight", weight), write("io.bfq.weight", of_bfq)],
            (false, true) => vec![write("io.bfq.weight", of_bfq)],
            (_, false) => vec![write("io.weight", weight)],
        };
        all.push(multiple_writes("io_weight", limit, settings));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit<T>(value: T) -> Option<LimitSpec<T>> {
        Some(LimitSpec { value, required: true, origin: Origin::COMMAND_LINE })
    }

    fn all() -> LimitsSpec {
        LimitsSpec {
            memory: limit(64 << 20),
            memory_high: limit(32 << 20),
            swap: limit(8 << 20),
            hugetlb: vec![("2MB".parse().unwrap(), limit(4 << 20).unwrap())],
            cpu_milli: limit(1500),
            cpu_burst: limit(20_000),
            cpu_weight: limit(50),
            cpu_idle: limit(false),
            cpuset_cpus: limit("0-1".parse().unwrap()),
            cpuset_mems: limit("0".parse().unwrap()),
            io: vec![("4000:1".parse().unwrap(), "wbps", limit(1 << 20).unwrap())],
            io_weight: limit(1000),
            pids: limit(50),
            cpu_time: limit(1000),
            disk: None,
            inodes: None,
        }
    }

    /// Control files of which only the names are known.
    struct Named<'a> {
        version: CgroupVersion,
        has: &'a dyn Fn(&str) -> bool,
    }

    impl ControlFiles for Named<'_> {
        fn version(&self, _: &str) -> Option<CgroupVersion> {
            Some(self.version)
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

        fn has(&self, _: &str, file: &str) -> bool {
            (self.has)(file)
        }
    }

    fn lines(limits: &LimitsSpec, has: &dyn Fn(&str) -> bool) -> String {
        lines_of(limits, &Named { version: CgroupVersion::V2, has })
    }

    fn lines_of(limits: &LimitsSpec, tree: &dyn ControlFiles) -> String {
        let line = |request: &LimitRequest| {
            let writes = match &request.settings {
                Ok(list) => list
                    .iter()
                    .map(|one| format!("{:?} to {}", one.value, one.file))
                    .collect::<Vec<_>>()
                    .join(", "),
                Err(why) => why.clone(),
            };
            format!("{} = {} ({}): {writes}", request.name, request.value, request.controller)
        };
        limit_requests(limits, tree).iter().map(line).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn every_limit_becomes_writes() {
        insta::assert_snapshot!(lines(&all(), &|file| file == "io.weight"), @r#"
        memory = 67108864 (memory): "67108864" to memory.max
        swap = 8388608 (memory): "8388608" to memory.swap.max
        memory_high = 33554432 (memory): "33554432" to memory.high
        cpu = 1.500 (cpu): "150000 100000" to cpu.max
        cpu_burst = 20000us (cpu): "20000" to cpu.max.burst
        cpu_idle = false (cpu): "0" to cpu.idle
        cpu_weight = 50 (cpu): "50" to cpu.weight
        pids = 50 (pids): "50" to pids.max
        cpuset_cpus = 0-1 (cpuset): "0-1" to cpuset.cpus
        cpuset_mems = 0 (cpuset): "0" to cpuset.mems
        io = 4000:1 wbps=1048576 (io): no disk has the number 4000:1
        io_weight = 1000 (io): "1000" to io.weight
        cpu_time = 1000 (cgroup): 
        hugetlb = 2MB: 4194304 (hugetlb): "4194304" to hugetlb.2MB.max, "4194304" to hugetlb.2MB.rsvd.max
        "#);
    }

    /// What version 1 does not have is told by name; the controllers that saggar uses only in version 2 have their writes
    /// of it, for which no controller is found.
    #[test]
    fn version_1_has_other_files() {
        let limits = LimitsSpec { hugetlb: Vec::new(), io: Vec::new(), ..all() };
        let lines =
            |has: &dyn Fn(&str) -> bool| lines_of(&limits, &Named { version: CgroupVersion::V1, has });
        insta::assert_snapshot!(lines(&|_| true), @r#"
        memory = 67108864 (memory): "75497472" to memory.memsw.limit_in_bytes, "67108864" to memory.limit_in_bytes
        swap = 8388608 (memory): "75497472" to memory.memsw.limit_in_bytes
        memory_high = 33554432 (memory): version 1 of cgroups has no memory.high
        cpu = 1.500 (cpu): "100000" to cpu.cfs_period_us, "150000" to cpu.cfs_quota_us
        cpu_burst = 20000us (cpu): "20000" to cpu.cfs_burst_us
        cpu_idle = false (cpu): "0" to cpu.idle
        cpu_weight = 50 (cpu): "512" to cpu.shares
        pids = 50 (pids): "50" to pids.max
        cpuset_cpus = 0-1 (cpuset): "0-1" to cpuset.cpus
        cpuset_mems = 0 (cpuset): "0" to cpuset.mems
        io_weight = 1000 (io): "1000" to io.weight, "181" to io.bfq.weight
        cpu_time = 1000 (cgroup): 
        "#);
        let alone = LimitsSpec { memory: limit(1 << 20), ..LimitsSpec::default() };
        let tree = |has| Named { version: CgroupVersion::V1, has };
        insta::assert_snapshot!(lines_of(&alone, &tree(&|_| true)), @r#"memory = 1048576 (memory): "1048576" to memory.memsw.limit_in_bytes, "1048576" to memory.limit_in_bytes, "1048576" to memory.memsw.limit_in_bytes"#);
        insta::assert_snapshot!(lines_of(&alone, &tree(&|_| false)), @r#"memory = 1048576 (memory): "1048576" to memory.limit_in_bytes, "0" to memory.swappiness"#);
        let swap = LimitsSpec { swap: limit(1), ..alone };
        insta::assert_snapshot!(lines_of(&swap, &tree(&|_| false)), @r#"
        memory = 1048576 (memory): "1048576" to memory.limit_in_bytes
        swap = 1 (memory): this kernel has no memory.memsw.limit_in_bytes
        "#);
    }

    #[test]
    fn memory_alone_has_no_swap_and_an_idle_sandbox_no_weight() {
        let limits = LimitsSpec {
            memory: limit(1 << 20),
            cpu_idle: limit(true),
            cpu_weight: limit(9),
            ..LimitsSpec::default()
        };
        insta::assert_snapshot!(lines(&limits, &|_| true), @r#"
        memory = 1048576 (memory): "1048576" to memory.max, "0" to memory.swap.max
        cpu_idle = true (cpu): "1" to cpu.idle
        "#);
    }

    #[test]
    fn a_weight_for_disks_goes_to_bfq_too_on_its_own_scale() {
        for (weight, of_bfq) in [(1, 1), (100, 100), (10_000, 1000)] {
            let limits = LimitsSpec { io_weight: limit(weight), ..LimitsSpec::default() };
            let both = lines(&limits, &|_| true);
            assert!(
                both.ends_with(&format!("\"{weight}\" to io.weight, \"{of_bfq}\" to io.bfq.weight")),
                "{both}"
            );
        }
    }
}
