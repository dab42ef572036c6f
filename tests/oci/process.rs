//! `process` of config.json (config.md, Process), as a program finds it.

use super::bundle::{Bench, Said};
use crate::support::caller::Caller;
use nix::sched::{CpuSet, sched_getaffinity};
use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// What a container of this configuration says.
fn ran(bench: &Bench, script: &str, change: impl FnOnce(&mut Value)) -> Said {
    bench.configure(|config| {
        config["process"]["args"] = json!(["/bin/busybox", "sh", "-c", script]);
        change(config);
    });
    // Unasked, standard error has only what ends the verb.
    bench.say(&["--debug", "run", "--bundle", bench.bundle().to_str().unwrap(), &bench.id()])
}

/// The CPUs that this test may use, as the kernel lists them.
fn cpus() -> Vec<usize> {
    let set = sched_getaffinity(Pid::from_raw(0)).unwrap();
    (0..CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap()).collect()
}

const ALLOWED: &str = "busybox sed -n 's/^Cpus_allowed_list:[^0-9]*//p' /proc/self/status";

as_each_caller! {
    /// execCPUAffinity: "This setting is not applicable to the container's init process."
    fn the_affinity_for_exec_is_for_exec_alone(caller) {
        let cpus = cpus();
        let (Some(first), Some(last)) = (cpus.first(), cpus.last()) else { unreachable!() };
        if first == last {
            skip!("needs two CPUs");
        }
        let bench = Bench::new(caller);
        let script = format!("{ALLOWED} > /tmp/init; exec busybox sleep 1000");
        bench.configure(|config| {
            config["process"]["args"] = json!(["/bin/busybox", "sh", "-c", script]);
            config["process"]["execCPUAffinity"] = json!({ "initial": first.to_string(), "final": last.to_string() });
        });
        let id = bench.start();
        let said = bench.say(&["exec", &id, "/bin/busybox", "sh", "-c", ALLOWED]).ok();
        assert_eq!(said.stdout, format!("{last}\n"));
        let of_init = bench.say(&["exec", &id, "/bin/cat", "/tmp/init"]).ok().stdout;
        assert!(of_init.contains(&first.to_string()) && of_init.contains(&last.to_string()), "{of_init}");
        // Without `final` the CPUs stay as they are when the process is in its cgroup.
        let process = bench.place.make_file("process.json", &json!({
            "user": { "uid": 0, "gid": 0 }, "cwd": "/", "env": ["PATH=/bin"],
            "args": ["/bin/busybox", "sh", "-c", ALLOWED], "execCPUAffinity": { "initial": first.to_string() },
        }).to_string());
        let said = bench.say(&["exec", "--process", process.to_str().unwrap(), &id]).ok();
        assert_eq!(said.stdout, format!("{first}\n"));
    }

    /// As runc and crun have it: a container may use what its cgroup has, and not what its caller was left with.
    fn the_affinity_of_the_caller_is_not_the_containers(caller) {
        let cpus = cpus();
        if cpus.len() < 2 {
            skip!("needs two CPUs");
        }
        let bench = Bench::new(caller);
        bench.program(&["/bin/busybox", "sh", "-c", ALLOWED]);
        let (bundle, id) = (bench.bundle(), bench.id());
        let pinned = format!("taskset -cp {} $$ > /dev/null", cpus[0]);
        let command = bench.command_after(&pinned, &["run", "--bundle", bundle.to_str().unwrap(), &id]);
        let said = bench.finish(command).ok();
        assert_ne!(said.stdout, format!("{}\n", cpus[0]));
    }

    /// "rlim.rlim_cur MUST match", "rlim.rlim_max MUST match". A limit that an ordinary user cannot have is an error;
    /// root without CAP_SYS_RESOURCE is told what it got.
    fn limits_are_exact_or_it_is_said(caller) {
        let bench = Bench::new(caller);
        let limit = |soft: u64, hard: u64| json!([{ "type": "RLIMIT_NOFILE", "soft": soft, "hard": hard }]);
        let script = "ulimit -Sn; ulimit -Hn";
        let said = ran(&bench, script, |config| config["process"]["rlimits"] = limit(77, 99)).ok();
        assert_eq!(said.stdout, "77\n99\n");
        let (_, ours) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        let more = ours + 1;
        let said = ran(&bench, script, |config| config["process"]["rlimits"] = limit(88, more));
        if !caller.is_root() {
            let said = said.fails(&format!("RLIMIT_NOFILE: the hard limit {more} is above our own {ours}"));
            assert!(said.stderr.contains("CAP_SYS_RESOURCE"), "{said:?}");
        } else if has_capability(24) {
            assert_eq!(said.ok().stdout, format!("88\n{more}\n"));
        } else {
            assert_eq!(said.stdout, format!("88\n{ours}\n"));
            assert!(said.ok().stderr.contains(&format!("RLIMIT_NOFILE is {ours} and not {more}")));
        }
    }

    /// "If unspecified, the umask should not be changed": nobody does that, since a caller's is an accident. As runc
    /// and crun it is 0022 then, for every process of a container.
    fn the_umask_is_the_given_one_or_0022(caller) {
        let bench = Bench::new(caller);
        let under = |umask: &str, args: &[&str]| bench.finish(bench.command_after(umask, args)).ok().stdout;
        let bundle = bench.bundle();
        for (given, expected) in [(None, "0022\n"), (Some(0o027), "0027\n"), (Some(0), "0000\n")] {
            bench.configure(|config| {
                config["process"]["args"] = json!(["/bin/busybox", "sh", "-c", "umask"]);
                config["process"]["user"]["umask"] = json!(given);
            });
            let said = under("umask 077", &["run", "--bundle", bundle.to_str().unwrap(), &bench.id()]);
            assert_eq!(said, expected, "{given:?}");
        }
        bench.configure(|config| config["process"]["user"]["umask"] = json!(0o027));
        let id = bench.start();
        assert_eq!(under("umask 0", &["exec", &id, "/bin/busybox", "sh", "-c", "umask"]), "0027\n");
    }

    /// linux.memoryPolicy is the container's: what `exec` adds has it, too.
    fn exec_has_the_memory_policy_of_the_container(caller) {
        let bench = Bench::new(caller);
        bench.configure(|config| config["linux"]["memoryPolicy"] = json!({ "mode": "MPOL_BIND", "nodes": "0" }));
        let id = bench.start();
        let said = bench.say(&["exec", &id, "/bin/cat", "/proc/1/numa_maps", "/proc/self/numa_maps"]).ok();
        for line in said.stdout.lines() {
            assert_eq!(line.split(' ').nth(1), Some("bind:0"), "{line}");
        }
    }
}

/// An ordinary user's container has the devices that it was given and makes none: an allow-list that no cgroup
/// holds is no loss, and nothing to be told each time. A device that is to be refused is.
#[test]
fn rules_for_devices_that_lose_nothing_are_not_warned_of() {
    let caller = match Caller::ordinary() {
        Ok(caller) => caller,
        Err(why) => skip!("{why}"),
    };
    let bench = Bench::new(caller);
    let with = |rules: Value| {
        ran(&bench, "true", |config| config["linux"]["resources"] = json!({ "devices": rules })).ok().stderr
    };
    let usual = json!([{ "allow": false, "access": "rwm" },
        { "allow": true, "type": "c", "major": 10, "minor": 200, "access": "rw" }]);
    let said = with(usual);
    assert!(!said.contains("devices"), "{said}");
    let said = with(json!([{ "allow": true, "access": "rwm" },
        { "allow": false, "type": "c", "major": 10, "minor": 200, "access": "rwm" }]));
    assert!(said.contains("linux.resources.devices are not in force"), "{said}");
}

fn has_capability(number: u32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    u64::from_str_radix(line.trim(), 16).unwrap() >> number & 1 == 1
}

/// A user namespace has no right to raise a limit above that of its maker; the runtime may have it.
#[test]
fn root_raises_a_limit_inside_of_a_user_namespace() {
    let caller = match Caller::root() {
        Ok(caller) => caller,
        Err(why) => skip!("{why}"),
    };
    let bench = Bench::new(caller);
    bench.configure(|config| {
        config["process"]["args"] = json!(["/bin/busybox", "sh", "-c", "ulimit -Sn; ulimit -Hn"]);
        config["process"]["rlimits"] = json!([{ "type": "RLIMIT_NOFILE", "soft": 50, "hard": 60 }]);
        config["linux"]["namespaces"].as_array_mut().unwrap().push(json!({ "type": "user" }));
        let map = json!([{ "containerID": 0, "hostID": 0, "size": 65536 }]);
        config["linux"]["uidMappings"] = map.clone();
        config["linux"]["gidMappings"] = map;
    });
    let (bundle, id) = (bench.bundle(), bench.id());
    let command = bench.command_after(
        "ulimit -Sn 40; ulimit -Hn 55",
        &["--debug", "run", "--bundle", bundle.to_str().unwrap(), &id],
    );
    let said = bench.finish(command);
    if has_capability(24) {
        assert_eq!(said.ok().stdout, "50\n60\n");
    } else {
        assert_eq!(said.stdout, "50\n55\n");
        assert!(said.ok().stderr.contains("RLIMIT_NOFILE is 55 and not 60"));
    }
}

/// features-linux.md: supportedFlags are those that the current kernel has. Each of them loads.
#[test]
fn the_flags_of_features_are_those_of_the_kernel() {
    let bench = Bench::new(Caller::current());
    let seccomp = bench.say(&["features"]).ok().json()["linux"]["seccomp"].clone();
    let known = seccomp["knownFlags"].as_array().unwrap();
    let supported = seccomp["supportedFlags"].as_array().unwrap();
    assert!(!supported.is_empty() && supported.iter().all(|flag| known.contains(flag)), "{seccomp}");
    for flag in known {
        let loads = ran(&bench, "true", |config| {
            config["linux"]["seccomp"] = json!({ "defaultAction": "SCMP_ACT_ALLOW", "flags": [flag],
                "syscalls": [{ "names": ["getpid"], "action": "SCMP_ACT_NOTIFY" }], "listenerPath": "/nonexistent" });
            if flag != "SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV" {
                config["linux"]["seccomp"]["syscalls"][0]["action"] = json!("SCMP_ACT_LOG");
            }
        });
        let refused = loads.stderr.contains("this kernel has no");
        assert_eq!(refused, !supported.contains(flag), "{flag}: {loads:?}");
    }
}
