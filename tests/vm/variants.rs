//! What holds on machines that lack something; each test in the guest of that variant (tests/vm/run), and in no
//! other place: `tests/vm/run --variant no-landlock --test variants no_landlock`.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../support/mod.rs"]
#[macro_use]
#[allow(dead_code, unused_imports)] // what the other tests use of it
mod support;

mod agents;
#[path = "../oci/bundle.rs"]
#[allow(dead_code)] // as above
mod bundle;
mod disk;
mod inject;
mod labels;
mod limits;
mod ownership;
mod systemd;
mod updates;

use std::process::Output;

use support::caller::Caller;
use support::place::Place;

/// Panics unless this is a guest of that variant: a test of another would prove nothing.
fn in_guest_of(variant: &str) {
    let found = std::env::var("SAGGAR_GUEST").unwrap_or_else(|_| "no guest".to_owned());
    assert_eq!(found, variant, "the variant of this guest");
}

fn saggar(caller: Caller, arguments: &[&str]) -> (Place, Output) {
    let place = Place::new(caller);
    let output = place.saggar().args(arguments).output().unwrap();
    (place, output)
}

/// Refused before anything ran, with these words.
#[track_caller]
fn refused(output: &Output, words: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    for word in words {
        assert!(said.contains(word), "no {word:?} in: {said}");
    }
    assert!(output.stdout.is_empty());
}

/// The line of `doctor` on this, with its verdict.
fn doctor(caller: Caller, name: &str) -> String {
    let (_place, output) = saggar(caller, &["doctor"]);
    let said = String::from_utf8(output.stdout).unwrap();
    let line = said.lines().find(|line| line.split_whitespace().nth(1) == Some(name));
    line.unwrap_or_else(|| panic!("nothing on {name} in: {said}")).to_owned()
}

as_each_caller! {
    /// The default sandbox needs one; it says so, and which setting it is.
    fn no_userns_is_refused_with_the_cure(caller) {
        in_guest_of("no-userns");
        let (_place, output) = saggar(caller, &["wrap", "--", "echo", "ran"]);
        refused(&output, &["namespace", "user.max_user_namespaces"]);
        assert!(doctor(caller, "user-namespace").starts_with("missing"));
    }

    /// Landlock is required by default: no sandbox without it unless somebody says so.
    fn no_landlock_is_refused_with_the_cure(caller) {
        in_guest_of("no-landlock");
        let (_place, output) = saggar(caller, &["wrap", "--", "echo", "ran"]);
        refused(&output, &["landlock"]);
        assert!(doctor(caller, "landlock").starts_with("missing"));
    }

    /// Root has the limits in version 1 but for those of disks and the early one of memory. These are refused, and all of an
    /// ordinary user; what nobody named is missing, and that is said.
    fn cgroup_v1_gives_root_limits(caller) {
        in_guest_of("cgroup-v1");
        let (_place, output) = saggar(caller, &["wrap", "--", "echo", "ran"]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "ran\n", "{}", String::from_utf8_lossy(&output.stderr));
        let of_root = if caller.is_root() { "ok" } else { "degraded" };
        assert!(doctor(caller, "cgroup-layout").starts_with(of_root));
        // Each controller by its name.
        for (limits, controller, has_root) in [
            ("memory = '64M'", "memory", true), ("swap = 0", "memory", true), ("memory_high = '1G'", "memory", false),
            ("cpus = 0.5", "cpu", true), ("cpu_weight = 50", "cpu", true), ("pids = 50", "pids", true),
            ("cpuset_cpus = '0'", "cpuset", true), ("cpuset_mems = '0'", "cpuset", true), ("hugetlb.2MB = '4M'", "hugetlb", true),
            ("io_weight = 50", "io", false), ("io.'/dev/vda'.read_iops = 5", "io", false),
        ] {
            let place = Place::new(caller);
            let policy = place.make_file("limits.toml", &format!("[limits]\n{limits}\n"));
            let output = place.saggar().args(["wrap", "--policy"]).arg(policy).args(["--", "echo", "ran"]).output().unwrap();
            // Some kernels have memory in cgroup v2 alone (CONFIG_MEMCG_V1, Linux 6.11).
            let old = if controller == "io" { "blkio" } else { controller };
            let is_there = std::path::Path::new("/sys/fs/cgroup").join(old).exists();
            if is_there && has_root && caller.is_root() {
                assert!(output.status.success(), "{limits}: {}", String::from_utf8_lossy(&output.stderr));
                continue;
            }
            let why = match is_there {
                true if limits.starts_with("memory_high") && caller.is_root() => "version 1 of cgroups has no memory.high".to_owned(),
                true => format!("cgroup v1 has the {controller} controller of this host"),
                false => "no cgroup v2 hierarchy is mounted here".to_owned(),
            };
            refused(&output, &["cannot hold", &why, "hint: "]);
        }
    }
}
