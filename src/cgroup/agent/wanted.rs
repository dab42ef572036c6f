//! The limits of a sandbox as writes to control files: data, before anything is written.

use super::disk;
use crate::cgroup::limits::{Expect, Setting, page};
use crate::spec::{Limit, Limits, NumberSet, Origin, PERIOD};
use std::collections::HashMap;
use std::fmt::Display;

/// What stands for the core of cgroup v2, which every cgroup has.
pub(super) const CORE: &str = "cgroup";

/// One limit.
#[derive(Debug)]
pub(super) struct Wanted<'a> {
    /// As `degraded` and `explain` call it.
    pub name: &'static str,
    /// The value, for messages.
    pub value: String,
    /// Whether it must hold.
    pub required: bool,
    /// Who set it.
    pub origin: &'a Origin,
    /// Whose files it is in.
    pub controller: &'static str,
    /// The writes; an error says why there can be none.
    pub settings: Result<Vec<Setting>, String>,
}

/// One write to `file`, whose name begins with that of its controller.
fn setting(file: &str, value: impl Display, expect: Expect) -> Setting {
    Setting {
        field: String::new(),
        controller: file.split('.').next().unwrap_or(file).to_owned(),
        file: file.to_owned(),
        value: value.to_string(),
        expect,
        tentative: false,
    }
}

/// Every limit, in the order in which they are written. `has` tells whether a control file is there.
pub(super) fn wanted<'a>(limits: &'a Limits, has: &dyn Fn(&'static str) -> bool) -> Vec<Wanted<'a>> {
    let mut all = Vec::new();
    memory(limits, &mut all);
    cpu(limits, &mut all);
    let pids = limits.pids.iter();
    all.extend(pids.map(|limit| one("pids", limit, setting("pids.max", limit.value, Expect::Number(1)))));
    let sets = [
        ("cpuset_cpus", "cpuset.cpus", "cpuset.cpus.effective", &limits.cpuset_cpus),
        ("cpuset_mems", "cpuset.mems", "cpuset.mems.effective", &limits.cpuset_mems),
    ];
    for (name, file, told, limit) in sets {
        // The file itself reads what was written, even where the cgroup above has none of these.
        let write = |set: &NumberSet| setting(file, set, Expect::Effective(told));
        all.extend(limit.iter().map(|limit| one(name, limit, write(&limit.value))));
    }
    io(limits, has, &mut all);
    // Any cgroup counts it (cpu.stat); the supervisor ends the sandbox.
    all.extend(limits.cpu_time.iter().map(|limit| several("cpu_time", limit, Vec::new())));
    for (size, limit) in &limits.hugetlb {
        // Pages that are in use, and pages that are reserved: who has mapped them need not have touched them.
        let files = [format!("hugetlb.{size}.max"), format!("hugetlb.{size}.rsvd.max")];
        let settings = files.map(|file| setting(&file, limit.value, Expect::Number(size.bytes())));
        let mut wanted = several("hugetlb", limit, settings.into());
        wanted.value = format!("{size}: {}", limit.value);
        all.push(wanted);
    }
    all
}

fn one<'a, T: Display>(name: &'static str, limit: &'a Limit<T>, setting: Setting) -> Wanted<'a> {
    several(name, limit, vec![setting])
}

fn several<'a, T: Display>(name: &'static str, limit: &'a Limit<T>, settings: Vec<Setting>) -> Wanted<'a> {
    let controller = match name.split('_').next() {
        Some("memory" | "swap") => "memory",
        Some("cpuset") => "cpuset",
        Some("cpu") if name == "cpu_time" => CORE,
        Some("cpu") => "cpu",
        Some("io") => "io",
        Some("hugetlb") => "hugetlb",
        _ => "pids",
    };
    let Limit { value, named, origin } = limit;
    Wanted { name, value: value.to_string(), required: *named, origin, controller, settings: Ok(settings) }
}

fn memory<'a>(limits: &'a Limits, all: &mut Vec<Wanted<'a>>) {
    let bytes = |file, value| setting(file, value, Expect::Number(page()));
    if let Some(limit) = &limits.memory {
        let mut settings = vec![bytes("memory.max", limit.value)];
        if limits.swap.is_none() {
            settings.push(bytes("memory.swap.max", 0));
        }
        all.push(several("memory", limit, settings));
    }
    let more =
        [("swap", "memory.swap.max", &limits.swap), ("memory_high", "memory.high", &limits.memory_high)];
    for (name, file, limit) in more {
        all.extend(limit.iter().map(|limit| one(name, limit, bytes(file, limit.value))));
    }
}

fn cpu<'a>(limits: &'a Limits, all: &mut Vec<Wanted<'a>>) {
    if let Some(limit) = &limits.cpu_milli {
        let text = format!("{} {PERIOD}", limit.value.saturating_mul(PERIOD) / 1000);
        let mut wanted = one("cpu", limit, setting("cpu.max", text, Expect::Words));
        wanted.value = format!("{}.{:03}", limit.value / 1000, limit.value % 1000);
        all.push(wanted);
    }
    // After the quota, which bounds it.
    let burst = limits.cpu_burst.iter();
    all.extend(burst.map(|limit| {
        let mut wanted = one("cpu_burst", limit, setting("cpu.max.burst", limit.value, Expect::Words));
        wanted.value.push_str("us");
        wanted
    }));
    let idle = limits.cpu_idle.iter();
    all.extend(
        idle.map(|limit| one("cpu_idle", limit, setting("cpu.idle", u8::from(limit.value), Expect::Words))),
    );
    if !limits.cpu_idle.as_ref().is_some_and(|idle| idle.value) {
        let weight = limits.cpu_weight.iter();
        all.extend(
            weight.map(|limit| one("cpu_weight", limit, setting("cpu.weight", limit.value, Expect::Words))),
        );
    }
}

fn io<'a>(limits: &'a Limits, has: &dyn Fn(&'static str) -> bool, all: &mut Vec<Wanted<'a>>) {
    let rates: Vec<_> =
        limits.io.iter().map(|(disk, key, limit)| (disk, *key, limit, disk::number(disk))).collect();
    // Two names may mean one disk: then the lower rate holds, whoever gave it.
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
            vec![setting("io.max", text, Expect::Key { device: number, key, value: rate.to_string() })]
        });
        all.push(Wanted {
            value: format!("{disk} {key}={}", limit.value),
            settings,
            ..several("io", limit, Vec::new())
        });
    }
    if let Some(limit) = &limits.io_weight {
        // The scheduler BFQ has a scale of its own, which ends at 1000; systemd bends it likewise.
        let weight = limit.value;
        let of_bfq = if weight <= 100 { weight } else { 100 + (weight - 100) * 900 / 9900 };
        let write = |file, weight| setting(file, weight, Expect::Line(format!("default {weight}")));
        let settings = match (has("io.weight"), has("io.bfq.weight")) {
            (true, true) => vec![write("io.weight", weight), write("io.bfq.weight", of_bfq)],
            (false, true) => vec![write("io.bfq.weight", of_bfq)],
            (_, false) => vec![write("io.weight", weight)],
        };
        all.push(several("io_weight", limit, settings));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit<T>(value: T) -> Option<Limit<T>> {
        Some(Limit { value, named: true, origin: Origin::COMMAND_LINE })
    }

    fn all() -> Limits {
        Limits {
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

    fn lines(limits: &Limits, has: &dyn Fn(&'static str) -> bool) -> String {
        let line = |wanted: &Wanted| {
            let writes = match &wanted.settings {
                Ok(list) => list
                    .iter()
                    .map(|one| format!("{:?} to {}", one.value, one.file))
                    .collect::<Vec<_>>()
                    .join(", "),
                Err(why) => why.clone(),
            };
            format!("{} = {} ({}): {writes}", wanted.name, wanted.value, wanted.controller)
        };
        wanted(limits, has).iter().map(line).collect::<Vec<_>>().join("\n")
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

    #[test]
    fn memory_alone_has_no_swap_and_an_idle_sandbox_no_weight() {
        let limits = Limits {
            memory: limit(1 << 20),
            cpu_idle: limit(true),
            cpu_weight: limit(9),
            ..Limits::default()
        };
        insta::assert_snapshot!(lines(&limits, &|_| true), @r#"
        memory = 1048576 (memory): "1048576" to memory.max, "0" to memory.swap.max
        cpu_idle = true (cpu): "1" to cpu.idle
        "#);
    }

    #[test]
    fn a_weight_for_disks_goes_to_bfq_too_on_its_own_scale() {
        for (weight, of_bfq) in [(1, 1), (100, 100), (10_000, 1000)] {
            let limits = Limits { io_weight: limit(weight), ..Limits::default() };
            let both = lines(&limits, &|_| true);
            assert!(
                both.ends_with(&format!("\"{weight}\" to io.weight, \"{of_bfq}\" to io.bfq.weight")),
                "{both}"
            );
        }
    }
}
