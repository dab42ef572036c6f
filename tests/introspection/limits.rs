//! Every limit of a policy: what `explain` says of it is what a start then does, whatever this host gives.

use super::{json, saggar};
use crate::support::caller::Caller;
use crate::support::place::Place;
use saggar::host::cgroups::{CgroupLayout, CgroupVersion};
use serde_json::Value;

/// What stands below `[limits]`, how `explain` calls it, and its controller.
const LIMITS: [(&str, &str, &str); 13] = [
    ("memory = '64M'", "memory", "memory"),
    ("memory_high = '32M'", "memory_high", "memory"),
    ("swap = '8M'", "swap", "memory"),
    ("hugetlb.2MB = '4M'", "hugetlb", "hugetlb"),
    ("cpus = 0.5", "cpu", "cpu"),
    ("cpu_burst = '20ms'", "cpu_burst", "cpu"),
    ("cpu_weight = 50", "cpu_weight", "cpu"),
    ("cpu_idle = true", "cpu_idle", "cpu"),
    ("cpuset_cpus = '0'", "cpuset_cpus", "cpuset"),
    ("cpuset_mems = '0'", "cpuset_mems", "cpuset"),
    ("io.'/'.read_bps = '1M'", "io", "io"),
    ("io_weight = 50", "io_weight", "io"),
    ("pids = 50", "pids", "pids"),
];

fn with_limits(place: &Place, limits: &str, args: &[&str]) -> std::process::Command {
    let policy = place.join("limits.toml");
    if !policy.exists() {
        place.make_file("limits.toml", "");
    }
    std::fs::write(&policy, format!("[limits]\n{limits}\n")).unwrap();
    let mut command = saggar(place, &args[..1]);
    command.arg("--policy").arg(policy).args(&args[1..]);
    command
}

/// The rows of `explain` of this name.
fn rows(report: &Value, name: &str) -> Vec<Value> {
    report["limits"].as_array().unwrap().iter().filter(|row| row["name"] == name).cloned().collect()
}

as_each_caller! {
    /// KC-02 to KC-04: a limit that holds is listed with who set it; one that cannot hold is refused by name, with
    /// its controller and the cure, and what `explain` says of it is so.
    fn a_named_limit_holds_or_is_refused_as_explained(caller) {
        let place = Place::new(caller);
        let layout = CgroupLayout::discover().unwrap();
        for (limits, name, controller) in LIMITS {
            let report = json(with_limits(&place, limits, &["explain", "--json"]), 0);
            let [row] = &rows(&report, name)[..] else { panic!("{limits}: {report}") };
            assert_eq!(row["layer"], format!("--policy {}", place.join("limits.toml").display()));
            assert_eq!(row["named"], true);
            let output = with_limits(&place, limits, &["wrap", "--", "touch", "ran"]).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            let ran = place.join("work/ran").exists();
            if row["holds"] == true {
                assert!(output.status.success() && ran, "{limits}: {said}");
                std::fs::remove_file(place.join("work/ran")).unwrap();
                continue;
            }
            assert_eq!((output.status.code(), ran), (Some(125), false), "{limits}: {said}");
            for word in [&format!("the limit {name} = "), "from --policy ", "cannot hold: ", "hint: "] {
                assert!(said.contains(word), "{limits}: no {word:?} in {said}");
            }
            let old = if controller == "io" { "blkio" } else { controller };
            if layout.hierarchy_of(old).is_some_and(|home| home.version == CgroupVersion::V1) {
                let why = match name {
                    "memory_high" if caller.is_root() => "version 1 of cgroups has no memory.high".to_owned(),
                    _ => format!("cgroup v1 has the {controller} controller of this host"),
                };
                assert!(said.contains(&why) && said.contains("systemd.unified_cgroup_hierarchy=1"), "{limits}: {said}");
            }
        }
    }

    /// A set of CPUs and memory nodes is that of the program, in whichever version of cgroups root has it.
    fn a_set_of_cpus_that_holds_is_that_of_the_program(caller) {
        let place = Place::new(caller);
        let limits = "cpuset_cpus = '0'\ncpuset_mems = '0'";
        let report = json(with_limits(&place, limits, &["explain", "--json"]), 0);
        let is_held = ["cpuset_cpus", "cpuset_mems"].map(|name| rows(&report, name)[0]["holds"] == true);
        if is_held != [true; 2] {
            assert!(!caller.is_root(), "{report}");
            return;
        }
        let program = ["wrap", "--", "grep", "_allowed_list", "/proc/self/status"];
        let output = with_limits(&place, limits, &program).output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout).replace('\t', " ");
        assert_eq!(stdout, "Cpus_allowed_list: 0\nMems_allowed_list: 0\n", "{output:?}");
    }

    /// A set that the host does not have is refused, as explained.
    fn a_set_of_cpus_that_the_host_does_not_have_is_refused(caller) {
        let place = Place::new(caller);
        let limits = "cpuset_cpus = '0-999'";
        let report = json(with_limits(&place, limits, &["explain", "--json"]), 0);
        assert_eq!(rows(&report, "cpuset_cpus")[0]["holds"], false, "{report}");
        let output = with_limits(&place, limits, &["wrap", "--", "touch", "ran"]).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        assert!(!place.join("work/ran").exists());
    }

    /// What is not named and has no default is no row; a weight beside `cpu_idle` says that it means nothing.
    fn the_rows_are_those_of_the_policy(caller) {
        let place = Place::new(caller);
        let report = json(with_limits(&place, "pids = 9", &["explain", "--json"]), 0);
        for (_, name, _) in LIMITS {
            let is_default = ["memory", "cpu", "pids"].contains(&name);
            assert_eq!(rows(&report, name).len(), usize::from(is_default), "{name}");
        }
        place.make_file("work/saggar.toml", "[limits]\ncpu_idle = true\n");
        let report = json(with_limits(&place, "cpu_weight = 50", &["explain", "--json"]), 0);
        assert_eq!(rows(&report, "cpu_weight")[0]["value"], "nothing, beside cpu_idle");
        assert_eq!(rows(&report, "cpu_idle")[0]["layer"], "workspace saggar.toml");
    }

    /// DECISIONS 1: a limit of nobody's that is required stops the start, and one of somebody's that is only
    /// preferred does not.
    fn the_word_on_a_protection_is_the_last(caller) {
        let place = Place::new(caller);
        let report = json(saggar(&place, &["explain", "--json"]), 0);
        let holds = rows(&report, "memory")[0]["holds"] == true;
        let status = |args: &[&str]| saggar(&place, args).output().unwrap().status.code();
        let required = status(&["wrap", "--require", "memory", "--", "true"]);
        assert_eq!(required, Some(if holds { 0 } else { 125 }));
        assert_eq!(status(&["wrap", "--memory", "64M", "--prefer", "memory", "--", "true"]), Some(0));
    }
}

/// KC-07: cycle after cycle leaves no cgroup, whatever of its limits holds on this host.
#[test]
fn many_cycles_leave_no_cgroup() {
    let caller = match Caller::root() {
        Ok(caller) => caller,
        Err(why) => skip!("{why}"),
    };
    let layout = CgroupLayout::discover().unwrap();
    if layout.v2_hierarchy().is_none() {
        skip!("this host has no cgroup v2 hierarchy");
    }
    let slices = layout.hierarchies.iter().map(|hierarchy| hierarchy.mount_point.join("saggar.slice"));
    let own = layout.hierarchies.iter().map(|hierarchy| hierarchy.own_cgroup.clone());
    let parents: Vec<_> = own.chain(slices).collect();
    let place = Place::new(caller);
    for _ in 0..crate::support::rounds(25, 500) {
        let said = super::stdout(saggar(&place, &["wrap", "--status-fd", "1", "--", "true"]), 0);
        let started: Value = serde_json::from_str(said.lines().next().unwrap()).unwrap();
        if started["degraded"].as_array().unwrap().iter().any(|lack| lack["what"] == "cgroup") {
            skip!("no cgroup can be made here");
        }
        let name = format!("saggar-{}", started["id"].as_str().unwrap());
        for cgroup in parents.iter().map(|parent| parent.join(&name)) {
            assert!(!cgroup.exists(), "{} is left", cgroup.display());
        }
    }
}
