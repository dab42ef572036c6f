//! Limits that change while a sandbox or a container runs: what was asked for is in the kernel's files, all of it, or
//! after an error nothing of it. Faults are played by strace on the calls of the real program.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::agents::{Control, Served, sandbox};
use super::bundle::Bench;
use super::in_guest_of;
use super::inject::{FAULTS, Fault, Tracer, was_injected};
use super::limits::Given;
use crate::support::caller::Caller;

/// What a cgroup's files say.
fn read(cgroup: &Path, files: &[&str]) -> Vec<String> {
    let read =
        |file: &&str| fs::read_to_string(cgroup.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
    files.iter().map(read).map(|text| text.trim().replace('\n', "; ")).collect()
}

/// The weight of who is idle is less than any that can be asked for: it reads 0, or since Linux 6.12 the least.
#[track_caller]
fn is_idle(cgroup: &Path) {
    let says = read(cgroup, &["cpu.idle", "cpu.weight"]);
    assert!(says[0] == "1" && ["0", "1"].contains(&says[1].as_str()), "{says:?}");
}

/// The files of [`FIRST`] and [`SECOND`], and what the two come to in them.
fn files() -> [(&'static str, String, String); 14] {
    let disk = fs::read_to_string("/sys/class/block/vda/dev").unwrap().trim().to_owned();
    let io = |rate: &str| format!("{disk} rbps=max wbps={rate} riops=max wiops=50");
    let plain = |file, first: &str, second: &str| (file, first.to_owned(), second.to_owned());
    [
        plain("memory.max", "100663296", "134217728"),
        plain("memory.swap.max", "4194304", "8388608"),
        plain("memory.high", "92274688", "125829120"),
        plain("cpu.max", "80000 100000", "50000 100000"),
        plain("cpu.max.burst", "10000", "20000"),
        plain("cpu.idle", "0", "0"),
        plain("cpu.weight", "70", "50"),
        plain("pids.max", "100", "120"),
        plain("cpuset.cpus", "0-1", "0"),
        plain("cpuset.cpus.effective", "0-1", "0"),
        plain("cpuset.mems", "0", "0"),
        ("io.max", io("1048576"), io("2097152")),
        plain("hugetlb.2MB.max", "4194304", "8388608"),
        plain("hugetlb.2MB.rsvd.max", "4194304", "8388608"),
    ]
}

const FIRST: &str = "swap = '4M'\nmemory_high = '88M'\ncpus = 0.8\ncpu_burst = '10ms'\ncpu_weight = 70\n\
    cpuset_cpus = '0-1'\ncpuset_mems = '0'\nio.'/dev/vda' = { write_bps = '1M', write_iops = 50 }\nhugetlb.2MB = '4M'";

fn second_update() -> Value {
    json!({ "limits": {
        "memory": "128M", "swap": "8M", "memory_high": "120M", "pids": 120, "cpus": 0.5, "cpu_burst": "20ms",
        "cpu_weight": 50, "cpuset_cpus": "0", "io": { "/dev/vda": { "write_bps": "2M" } }, "hugetlb": { "2MB": "8M" },
    } })
}

/// What is written to a file that then reads so.
fn written(file: &str, reads: &str) -> String {
    let mut words = reads.split(' ');
    let disk = words.next().filter(|_| file == "io.max");
    let rate = words.find(|word| !word.ends_with("=max"));
    disk.zip(rate).map_or_else(|| reads.to_owned(), |(disk, rate)| format!("{disk} {rate}"))
}

as_each_caller! {
    /// What the control socket changes is in the kernel's files.
    fn given_a_cgroup_its_limits_change(caller) {
        let given = Given::new(caller);
        let mut served = Served::with(&given, "");
        let mut client = Control::connect(&given);
        let cgroup = sandbox(&given);
        let files = ["memory.max", "memory.swap.max", "memory.high", "pids.max", "cpu.max", "cpu.max.burst", "cpu.weight", "cpu.idle"];
        let update = |limits: Value| json!({ "limits": limits });
        // memory.high is ours as long as nobody names one.
        let first = read(&cgroup, &files);
        assert_eq!(first, ["100663296", "0", "95944704", "100", "100000 100000", "0", "100", "0"]);

        let more = json!({
            "memory": "128M", "swap": "8M", "memory_high": "120M", "pids": 120, "cpus": 0.5, "cpu_burst": "20ms", "cpu_weight": 50,
        });
        assert_eq!(client.call("update", update(more)), json!({ "generation": 2 }));
        let second = ["134217728", "8388608", "125829120", "120", "50000 100000", "20000", "50", "0"];
        assert_eq!(read(&cgroup, &files), second);
        assert_eq!(client.call("state", json!({}))["generation"], 2);

        // The weight is the kernel's own then, and the one that was asked for afterwards.
        client.call("update", update(json!({ "cpu_idle": true })));
        is_idle(&cgroup);
        client.call("update", update(json!({ "cpu_idle": false })));
        assert_eq!(read(&cgroup, &files), second);
        served.agent_lives();
        served.shut_down();
        given.is_as_it_was();
    }
}

/// One call that changes every limit there is; and whichever of its files refuses, or reads back different, all read
/// what they read before.
#[test]
fn given_a_cgroup_an_update_is_done_whole_or_not_at_all() {
    let caller = match Caller::root() {
        Ok(caller) => caller,
        Err(why) => skip!("{why}"),
    };
    let given = Given::new(caller);
    given.switch_hugetlb_on();
    let mut served = Served::with(&given, FIRST);
    let mut client = Control::connect(&given);
    let (cgroup, all) = (sandbox(&given), files());
    let names: Vec<&str> = all.iter().map(|(file, ..)| *file).collect();
    let (first, after): (Vec<_>, Vec<_>) =
        all.iter().map(|(_, first, second)| (first.clone(), second.clone())).unzip();
    assert_eq!(read(&cgroup, &names), first);
    let changed = all.iter().filter(|(file, first, second)| first != second && !file.ends_with(".effective"));
    for (file, _, second) in changed {
        for fault in FAULTS {
            let value = written(file, second);
            // The burst is written before the quota, which may be below it, and after.
            let when = if *file == "cpu.max.burst" { ":when=1..2" } else { "" };
            let inject = fault.inject(&value) + when;
            let tracer = Tracer::attach(&given, served.child.id(), &cgroup.join(file), &inject);
            let answer = client.ask("update", second_update());
            tracer.end();
            let said =
                answer["error"]["message"].as_str().unwrap_or_else(|| panic!("{file} {fault:?}: {answer}"));
            fault.is_told(said, file, &value);
            assert_eq!(read(&cgroup, &names), first, "{file} {fault:?}: {said}");
        }
    }
    assert_eq!(client.call("update", second_update()), json!({ "generation": 2 }));
    assert_eq!(read(&cgroup, &names), after);
    served.agent_lives();
    served.shut_down();
    given.is_as_it_was();
}

/// `linux.resources` with everything that cgroup v2 has a file for.
fn resources(more: u64) -> Value {
    let disk = fs::read_to_string("/sys/class/block/vda/dev").unwrap();
    let (major, minor) = disk.trim().split_once(':').unwrap();
    let number = |text: &str| text.parse::<u64>().unwrap();
    json!({
        "memory": { "limit": more * (64 << 20), "swap": more * (72 << 20), "reservation": more * (8 << 20) },
        "cpu": {
            "quota": more * 20_000, "period": 100_000, "burst": more * 10_000, "shares": more * 512,
            "cpus": if more == 1 { "0-1" } else { "0" }, "mems": "0",
        },
        "pids": { "limit": more * 50 },
        "blockIO": { "throttleReadBpsDevice": [{ "major": number(major), "minor": number(minor), "rate": more << 20 }] },
        "hugepageLimits": [{ "pageSize": "2MB", "limit": more * (4 << 20) }],
        "unified": {
            "memory.high": (more * (56 << 20)).to_string(), "memory.oom.group": (more % 2).to_string(),
            "cgroup.max.depth": (more * 3).to_string(),
        },
    })
}

/// The files of [`resources`], with what they read by it.
fn files_of_resources(more: u64) -> Vec<(&'static str, String)> {
    let disk = fs::read_to_string("/sys/class/block/vda/dev").unwrap();
    let of = |file, number: u64| (file, (more * number).to_string());
    vec![
        of("memory.max", 64 << 20),
        of("memory.swap.max", 8 << 20),
        of("memory.low", 8 << 20),
        of("memory.high", 56 << 20),
        ("memory.oom.group", (more % 2).to_string()),
        ("cpu.max", format!("{} 100000", more * 20_000)),
        of("cpu.max.burst", 10_000),
        // As systemd and the other runtimes turn shares into weights.
        ("cpu.weight", if more == 1 { "59" } else { "100" }.to_owned()),
        ("cpuset.cpus", if more == 1 { "0-1" } else { "0" }.to_owned()),
        ("cpuset.mems", "0".to_owned()),
        of("pids.max", 50),
        ("io.max", format!("{} rbps={} wbps=max riops=max wiops=max", disk.trim(), more << 20)),
        of("hugetlb.2MB.max", 4 << 20),
        of("hugetlb.2MB.rsvd.max", 4 << 20),
        of("cgroup.max.depth", 3),
    ]
}

/// Containers of root's in a cgroup that the test knows.
struct Containers {
    bench: Bench,
    cgroup: PathBuf,
}

impl Containers {
    fn new() -> Result<Self, &'static str> {
        in_guest_of("unified");
        let bench = Bench::new(Caller::root()?);
        let cgroup = Path::new("/sys/fs/cgroup").join(bench.place.path().file_name().unwrap());
        let containers = Containers { bench, cgroup };
        containers.configure(resources(1));
        Ok(containers)
    }

    /// The next container has these resources.
    fn configure(&self, resources: Value) {
        let name = self.cgroup.file_name().unwrap().to_str().unwrap();
        self.bench.configure(|config| {
            config["linux"]["cgroupsPath"] = json!(format!("/{name}"));
            config["linux"]["resources"] = resources;
        });
    }

    /// `saggar ARGS` with a fault in its writes to one file of the cgroup: fails and says so.
    #[track_caller]
    fn fails(&self, args: &[&str], (file, value): (&str, &str), fault: Fault) {
        let trace = self.bench.place.join("trace");
        let inject =
            ["-P", self.cgroup.join(file).to_str().unwrap(), "-e", &fault.inject(value)].map(str::to_owned);
        let said = self.bench.finish(self.traced(&trace, &inject, args));
        assert!(!said.status.success(), "{file} {fault:?}: {}", fs::read_to_string(&trace).unwrap());
        let said = said.fails("linux.resources.");
        was_injected(&trace);
        fault.is_told(&said.stderr, file, value);
        assert!(said.stderr.contains("hint: "), "{said:?}");
    }

    fn traced(&self, trace: &Path, options: &[String], args: &[&str]) -> Command {
        let verb = self.bench.command(args);
        let mut command = self.bench.place.command(Path::new("/usr/bin/strace"));
        command.arg("-o").arg(trace).args(options).arg(verb.get_program()).args(verb.get_args());
        command
    }
}

/// A container is not made without a limit that it was to have: each file by itself, refused, and read back different.
#[test]
fn given_a_cgroup_a_container_is_not_made_without_its_limits() {
    let containers = match Containers::new() {
        Ok(containers) => containers,
        Err(why) => skip!("{why}"),
    };
    let bench = &containers.bench;
    let bundle = bench.bundle();
    for (file, reads) in files_of_resources(1) {
        let value = written(file, &reads);
        for fault in FAULTS {
            // What the kernel would have without a write.
            if fault == Fault::Kept && file == "cpuset.mems" {
                continue;
            }
            let id = bench.id();
            containers.fails(&["create", "--bundle", bundle.to_str().unwrap(), &id], (file, &value), fault);
            bench.is_clean(&id);
            assert!(!containers.cgroup.exists(), "{file}");
        }
    }
    // An idle one has no share of the CPU: these two stand by themselves.
    containers.configure(json!({ "cpu": { "idle": 1 }, "blockIO": { "weight": 200 } }));
    let id = bench.start();
    let weight =
        ["io.weight", "io.bfq.weight"].into_iter().find(|file| containers.cgroup.join(file).exists());
    let weight = weight.expect("a scheduler of weights");
    let reads = read(&containers.cgroup, &["cpu.idle", weight]);
    assert_eq!(reads.first().map(String::as_str), Some("1"));
    let default = reads[1].trim_start_matches("default ").to_owned();
    bench.say(&["delete", "--force", &id]).ok();
    for (file, value) in [("cpu.idle", "1"), (weight, &default)] {
        for fault in FAULTS {
            let id = bench.id();
            containers.fails(&["create", "--bundle", bundle.to_str().unwrap(), &id], (file, value), fault);
            bench.is_clean(&id);
            assert!(!containers.cgroup.exists(), "{file}");
        }
    }
    containers.configure(resources(1));
    // Devices are a program in the kernel.
    let (id, trace) = (bench.id(), bench.place.join("trace"));
    let inject = ["-e".to_owned(), "inject=bpf:error=EPERM".to_owned()];
    let create = ["create", "--bundle", bundle.to_str().unwrap(), &id];
    let said = bench
        .finish(containers.traced(&trace, &inject, &create))
        .fails("linux.resources.devices cannot hold: bpf in");
    was_injected(&trace);
    assert!(said.stderr.contains("hint: "), "{said:?}");
    bench.is_clean(&id);
    assert!(!containers.cgroup.exists());
}

/// `saggar update`: every limit reads back; and whichever of its files refuses, all read what they read before.
#[test]
fn given_a_cgroup_a_container_is_changed_whole_or_not_at_all() {
    let containers = match Containers::new() {
        Ok(containers) => containers,
        Err(why) => skip!("{why}"),
    };
    let (bench, cgroup) = (&containers.bench, &containers.cgroup);
    let id = bench.start();
    let (first, second) = (files_of_resources(1), files_of_resources(2));
    let names: Vec<&str> = first.iter().map(|(file, _)| *file).collect();
    let texts = |files: &[(&str, String)]| files.iter().map(|(_, text)| text.clone()).collect::<Vec<_>>();
    assert_eq!(read(cgroup, &names), texts(&first));

    let mut document = resources(2);
    document["devices"] = json!([{ "allow": false, "access": "rwm" }]);
    let document = bench.place.make_file("resources.json", &document.to_string());
    let update = ["update", "--resources", document.to_str().unwrap(), &id];
    for ((file, after), (_, before)) in second.iter().zip(&first) {
        if after == before {
            continue;
        }
        for fault in FAULTS {
            containers.fails(&update, (file, &written(file, after)), fault);
            assert_eq!(read(cgroup, &names), texts(&first), "{file} {fault:?}");
        }
    }
    // The devices come last.
    let trace = bench.place.join("trace");
    let inject = ["-e".to_owned(), "inject=bpf:error=EPERM".to_owned()];
    bench.finish(containers.traced(&trace, &inject, &update)).fails("linux.resources.devices cannot hold");
    was_injected(&trace);
    assert_eq!(read(cgroup, &names), texts(&first), "devices");

    bench.say(&update).ok();
    assert_eq!(read(cgroup, &names), texts(&second));
    bench.say(&["update", "--cpu-idle", "1", &id]).ok();
    is_idle(cgroup);
}
