//! A kernel that refuses a limit, or takes it and keeps another, or has no controller for it: played by strace on
//! the calls of the real program, each file of each limit by itself.
//!
//! What must hold is refused with the file, the value and a cure; what nobody named is degraded. Either way no
//! program has run without what was promised, and nothing is left.

use std::fs;
use std::path::Path;

use super::{Given, Run};
use crate::support::caller::Caller;

/// A limit: how `[limits]` names it, what its error calls it, the file that is written with what, and the file that
/// is read back.
struct Limit {
    text: &'static str,
    name: &'static str,
    file: &'static str,
    value: &'static str,
    told: &'static str,
}

const fn limit(text: &'static str, name: &'static str, file: &'static str, value: &'static str) -> Limit {
    Limit { text, name, file, value, told: file }
}

const LIMITS: [Limit; 15] = [
    limit("memory = '64M'", "memory", "memory.max", "67108864"),
    limit("memory = '64M'", "memory", "memory.swap.max", "0"),
    limit("swap = '8M'", "swap", "memory.swap.max", "8388608"),
    limit("memory_high = '32M'", "memory_high", "memory.high", "33554432"),
    limit("cpus = 0.5", "cpu", "cpu.max", "50000 100000"),
    limit("cpu_burst = '20ms'", "cpu_burst", "cpu.max.burst", "20000"),
    limit("cpu_weight = 50", "cpu_weight", "cpu.weight", "50"),
    limit("cpu_idle = true", "cpu_idle", "cpu.idle", "1"),
    limit("pids = 50", "pids", "pids.max", "50"),
    Limit { told: "cpuset.cpus.effective", ..limit("cpuset_cpus = '0'", "cpuset_cpus", "cpuset.cpus", "0") },
    Limit { told: "cpuset.mems.effective", ..limit("cpuset_mems = '0'", "cpuset_mems", "cpuset.mems", "0") },
    limit("io.'/dev/vda'.read_bps = '1M'", "io", "io.max", "rbps=1048576"),
    limit("io.'/dev/vda'.write_bps = '1M'", "io", "io.max", "wbps=1048576"),
    limit("io.'/dev/vda'.read_iops = 10", "io", "io.max", "riops=10"),
    limit("io.'/dev/vda'.write_iops = 10", "io", "io.max", "wiops=10"),
];

const HUGETLB: [Limit; 2] = [
    limit("hugetlb.2MB = '4M'", "hugetlb", "hugetlb.2MB.max", "4194304"),
    limit("hugetlb.2MB = '4M'", "hugetlb", "hugetlb.2MB.rsvd.max", "4194304"),
];

const ID: &str = "faulty";

/// `saggar wrap` with a fault injected into the calls on one file of the sandbox's cgroup.
fn with_fault(given: &Given, limits: &str, file: &str, fault: &str) -> Option<i32> {
    with_fault_at(given, limits, &given.path.join(format!("saggar-{ID}")).join(file), fault)
}

fn with_fault_at(given: &Given, limits: &str, path: &Path, fault: &str) -> Option<i32> {
    let inject = format!("inject={fault}");
    let strace = ["-P", path.to_str().unwrap(), "-e", &inject];
    let program = ["touch", "ran"];
    given.start(&Run { options: &["--id", ID], limits, strace: &strace, program: &program }).end()
}

/// strace has done what it was asked to: a test of a fault that did not happen proves nothing.
#[track_caller]
fn was_injected(given: &Given) {
    let trace = fs::read_to_string(given.place.work().join("trace")).unwrap();
    assert!(trace.contains("(INJECTED"), "{trace}");
}

#[track_caller]
fn is_refused(given: &Given, status: Option<i32>, words: &[&str]) {
    let said = given.stderr();
    assert_eq!(status, Some(125), "{words:?}: {said}");
    for word in words.iter().chain(&["cannot hold", "hint: "]) {
        assert!(said.contains(word), "no {word:?} in: {said}");
    }
    assert!(!given.place.work().join("ran").exists(), "{words:?}: the program ran");
    given.is_as_it_was();
}

/// EINVAL, and a file that reads two digits more than what is in it.
const REFUSED: &str = "write:error=EINVAL";
const READS_77: &str = "read:poke_exit=@arg2=3737";

fn each_fault(given: &Given, limit: &Limit) {
    let Limit { text, name, file, value, told } = limit;
    let subject = format!("the limit {name} = ");
    let from = format!("from --policy {}", given.place.join("limits.toml").display());
    let status = with_fault(given, text, file, REFUSED);
    was_injected(given);
    is_refused(given, status, &[&subject, &from, &format!("/{file}: Invalid argument"), value]);

    let status = with_fault(given, text, told, READS_77);
    was_injected(given);
    is_refused(given, status, &[&subject, &from, &format!("/{told} reads \"77"), value]);
}

as_each_caller! {
    /// A named limit whose write fails, or that reads back different, stops the start.
    fn given_a_cgroup_a_limit_with_a_fault_is_refused(caller) {
        let given = Given::new(caller);
        LIMITS.iter().for_each(|limit| each_fault(&given, limit));
        let weight = match given.path.join("io.weight").exists() {
            true => limit("io_weight = 200", "io_weight", "io.weight", "200"),
            false => limit("io_weight = 200", "io_weight", "io.bfq.weight", "109"),
        };
        each_fault(&given, &weight);
    }

    /// One that nobody named is degraded, with the file and the value, and the program runs.
    fn given_a_cgroup_a_default_with_a_fault_is_degraded(caller) {
        let given = Given::new(caller);
        for (name, file, value) in [
            ("memory", "memory.max", "2147483648"), ("memory", "memory.swap.max", "0"),
            ("cpu", "cpu.max", "100000 100000"), ("pids", "pids.max", "512"),
        ] {
            for fault in [REFUSED, READS_77] {
                let status = with_fault(&given, "", file, fault);
                was_injected(&given);
                assert_eq!(status, Some(0), "{}", given.stderr());
                let degraded = given.events()[0]["degraded"].clone();
                let lack = degraded.as_array().unwrap().iter().find(|lack| lack["what"] == name).expect(name);
                let why = lack["why"].as_str().unwrap();
                assert!(why.contains(&format!("/{file}")) && why.contains(&format!("{value:?}")), "{why}");
                fs::remove_file(given.place.work().join("ran")).unwrap();
                given.is_as_it_was();
            }
        }
    }

    /// A kernel that does not switch the controllers on: one after the other is tried, and what it said is told.
    fn given_a_cgroup_a_controller_that_cannot_be_enabled_is_reported(caller) {
        let given = Given::new(caller);
        let switches = given.path.join("cgroup.subtree_control");
        let status = with_fault_at(&given, "memory = '64M'", &switches, "write:error=EBUSY");
        was_injected(&given);
        let why = format!("write \"+memory\" to {}: Device or resource busy", switches.display());
        is_refused(&given, status, &["the limit memory = 67108864", "memory.max", &why]);
        let status = with_fault_at(&given, "", &switches, "write:error=EBUSY:when=1..2");
        was_injected(&given);
        assert_eq!(status, Some(0), "{}", given.stderr());
        let degraded = given.events()[0]["degraded"].clone();
        let degraded = degraded.as_array().unwrap().iter().map(|lack| lack["what"].as_str().unwrap());
        let degraded: Vec<_> = degraded.filter(|what| ["cpu", "memory", "pids"].contains(what)).collect();
        assert_eq!(degraded, ["cpu"], "all at once failed, and then the first");
        fs::remove_file(given.place.work().join("ran")).unwrap();
        given.is_as_it_was();
    }

    /// A limit whose controller is not there is refused by name; the others hold. For root there is another place.
    fn given_a_cgroup_a_limit_without_its_controller_is_refused(caller) {
        const ALL: [&str; 5] = ["cpu", "cpuset", "io", "memory", "pids"];
        for missing in ALL {
            let others: Vec<&str> = ALL.into_iter().filter(|name| *name != missing).collect();
            let given = Given::with_only(caller, &others);
            let of_it = |limit: &&Limit| limit.file.starts_with(&format!("{missing}."));
            for Limit { text, name, .. } in LIMITS.iter().filter(of_it) {
                let program = ["touch", "ran"];
                let status = given.start(&Run { limits: text, program: &program, ..Run::default() }).end();
                if caller.is_root() {
                    assert_eq!(status, Some(0), "{}", given.stderr());
                    fs::remove_file(given.place.work().join("ran")).unwrap();
                    continue;
                }
                let why = format!("the {missing} controller was not delegated to {}", given.path.display());
                is_refused(&given, status, &[&format!("the limit {name} = "), &why, &format!("echo +{missing}")]);
            }
            let status = given.start(&Run { program: &["true"], ..Run::default() }).end();
            assert_eq!(status, Some(0), "{}", given.stderr());
            let named: Vec<_> = given.events()[0]["degraded"].as_array().unwrap().iter().map(|lack| lack["what"].clone()).collect();
            for default in ["cpu", "memory", "pids"] {
                assert_eq!(named.contains(&default.into()), default == missing && !caller.is_root(), "{named:?}");
            }
        }
    }

    /// What no host can give is refused too, before and after anybody looks at the kernel.
    fn given_a_cgroup_a_limit_for_missing_cpus_or_disks_is_refused(caller) {
        let given = Given::new(caller);
        for (limits, words) in [
            ("cpuset_cpus = '0,7'", ["cpuset.cpus", "\"0,7\""]),
            ("cpuset_mems = '5'", ["cpuset.mems", "\"5\""]),
            ("io.'4000:1'.read_bps = '1M'", ["no disk has the number 4000:1", "lsblk"]),
            ("io.'/proc'.read_bps = '1M'", ["/proc is on no single disk", "lsblk"]),
            ("io.'/dev/nothing'.read_bps = '1M'", ["look at /dev/nothing", "No such file"]),
        ] {
            let status = given.start(&Run { limits, program: &["touch", "ran"], ..Run::default() }).end();
            is_refused(&given, status, &words);
        }
        // The kernel takes a CPU that the cgroup above has not, and runs the programs on those that it has.
        fs::write(given.path.join("cpuset.cpus"), "0").unwrap();
        let status =
            given.start(&Run { limits: "cpuset_cpus = '1'", program: &["touch", "ran"], ..Run::default() }).end();
        is_refused(&given, status, &["/cpuset.cpus.effective reads \"0\" after \"1\" was written"]);
    }
}

/// Huge pages, which the administrator has to switch on.
#[test]
fn given_a_cgroup_huge_pages_are_limited_or_refused() {
    let caller = match Caller::root() {
        Ok(caller) => caller,
        Err(why) => skip!("{why}"),
    };
    let user = match Caller::ordinary() {
        Ok(caller) => caller,
        Err(why) => skip!("{why}"),
    };
    // Root has another place, with every controller.
    let given = Given::with_only(user, &["memory"]);
    let [limit, _] = &HUGETLB;
    let status = given.start(&Run { limits: limit.text, program: &["touch", "ran"], ..Run::default() }).end();
    is_refused(&given, status, &["the hugetlb controller was not delegated", "+hugetlb"]);
    drop(given);

    let given = Given::new(caller);
    given.switch_hugetlb_on();
    let program = ["sh", "-c", "echo up; cat"];
    let mut saggar = given.start(&Run { limits: limit.text, program: &program, ..Run::default() });
    saggar.heard("up");
    for Limit { file, value, .. } in &HUGETLB {
        assert_eq!(fs::read_to_string(given.sandbox().join(file)).unwrap().trim(), *value);
    }
    assert_eq!(saggar.end(), Some(0));
    HUGETLB.iter().for_each(|limit| each_fault(&given, limit));
    let status =
        given.start(&Run { limits: "hugetlb.16GB = 0", program: &["touch", "ran"], ..Run::default() }).end();
    is_refused(&given, status, &["hugetlb.16GB.max", "this kernel was built or booted without"]);
}
