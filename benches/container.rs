//! How long a container takes, from exec to exit: `create; start; delete` and `run` of one bundle, by saggar and
//! by the runtimes that are installed, in turn in one run, so that the machine's moods hit all of them alike; with
//! the state of containers on a tmpfs, as /run is, and on a disk. Prints medians and the ratios pair by pair; there
//! are no absolute bounds.
//!
//! `cargo bench --bench container [-- RUNS [SAGGAR]]`, as root: RUNS rounds (default 100); SAGGAR another binary.

// A bench that cannot go on may say so and stop.
#![allow(clippy::expect_used, clippy::print_stdout)]

mod common;

use common::{TRUE, compile, median, which};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What Docker gives a container, without its seccomp profile: each runtime would have to compile that.
const CONFIG: &str = r#"{
  "ociVersion": "1.0.2",
  "process": { "terminal": false, "user": { "uid": 0, "gid": 0 }, "cwd": "/", "args": ["/true"], "env": ["PATH=/"],
    "capabilities": { "bounding": ["CAP_CHOWN", "CAP_KILL"], "effective": ["CAP_CHOWN", "CAP_KILL"],
      "permitted": ["CAP_CHOWN", "CAP_KILL"] },
    "rlimits": [{ "type": "RLIMIT_NOFILE", "hard": 1024, "soft": 1024 }], "noNewPrivileges": true },
  "root": { "path": "rootfs", "readonly": true },
  "hostname": "bench",
  "mounts": [
    { "destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "noexec", "nodev"] },
    { "destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "strictatime", "mode=755", "size=65536k"] },
    { "destination": "/dev/pts", "type": "devpts", "source": "devpts",
      "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"] },
    { "destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": ["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"] },
    { "destination": "/dev/mqueue", "type": "mqueue", "source": "mqueue", "options": ["nosuid", "noexec", "nodev"] }
  ],
  "linux": {
    "namespaces": [{ "type": "pid" }, { "type": "network" }, { "type": "ipc" }, { "type": "uts" }, { "type": "mount" }],
    "maskedPaths": ["/proc/kcore", "/proc/keys", "/proc/timer_list"],
    "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]
  }
}"#;

/// What is timed, and where the state is.
const TIMED: [(&str, Timed, &str); 4] = [
    ("create; start; delete, state on a tmpfs", cycle, "/dev/shm"),
    ("create; start; delete, state on a disk", cycle, "/var/tmp"),
    ("run, state on a tmpfs", once, "/dev/shm"),
    ("run, state on a disk", once, "/var/tmp"),
];

/// One of the two, by a program, with its `--root`, of a bundle.
type Timed = fn(&Path, &Path, &Path) -> Duration;

struct Peer {
    name: String,
    program: PathBuf,
    /// As [`TIMED`].
    times: [Vec<Duration>; TIMED.len()],
}

fn main() {
    // `cargo bench` adds `--bench`; `cargo test --benches` runs this too, and then once is enough.
    let mut words = std::env::args().skip(1).filter(|arg| !arg.starts_with("--"));
    let bench = std::env::args().any(|arg| arg == "--bench");
    let runs: usize = words.next().and_then(|n| n.parse().ok()).unwrap_or(if bench { 100 } else { 1 });
    let saggar = words.next().map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_saggar")), PathBuf::from);
    if !nix::unistd::geteuid().is_root() {
        println!("SKIPPED: needs root");
        return;
    }
    let scratch =
        tempfile::Builder::new().prefix("saggar-bench").tempdir_in("/var/tmp").expect("scratch directory");
    cover_unified();
    let roots = TIMED.map(|(_, _, place)| {
        tempfile::Builder::new().prefix("saggar-bench").tempdir_in(place).expect("directory for state")
    });
    let Some(bundle) = bundle(scratch.path()) else {
        println!("SKIPPED: no C compiler for the program");
        return;
    };
    let mut peers: Vec<Peer> = [("saggar", Some(saggar)), ("crun", which("crun")), ("runc", which("runc"))]
        .into_iter()
        .filter_map(|(name, program)| match program {
            Some(program) => Some(Peer { name: name.into(), program, times: Default::default() }),
            None => {
                println!("SKIPPED {name}: not installed");
                None
            }
        })
        .collect();
    for round in 0..runs + 2 {
        for (number, ((_, timed, _), root)) in TIMED.iter().zip(&roots).enumerate() {
            // In turn: who comes first wakes what the kernel has put to sleep (the writers' side of cgroup.procs).
            for turn in 0..peers.len() {
                let index = (turn + round) % peers.len();
                let peer = &mut peers[index];
                let time = timed(&peer.program, &root.path().join(&peer.name), &bundle);
                // The first rounds warm caches.
                if round >= 2 {
                    peer.times[number].push(time);
                }
            }
        }
    }
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("load {}", load.split(' ').next().unwrap_or_default());
    for (number, (what, ..)) in TIMED.iter().enumerate() {
        report(what, &peers, |peer| &peer.times[number]);
    }
}

/// crun refuses a cgroup2 hierarchy with controllers beside those of cgroup v1: for us and what we run, and for all of
/// them alike, there is none.
fn cover_unified() {
    use nix::mount::{MsFlags, mount};
    let unified = "/sys/fs/cgroup/unified";
    if Path::new(unified).is_dir() {
        let none = None::<&str>;
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).expect("a mount namespace");
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).expect("private mounts");
        mount(Some("none"), unified, Some("tmpfs"), MsFlags::empty(), none).expect("an empty directory");
    }
}

/// A bundle whose program ends at once.
fn bundle(scratch: &Path) -> Option<PathBuf> {
    let bundle = scratch.join("bundle");
    for dir in ["proc", "dev", "sys"] {
        std::fs::create_dir_all(bundle.join("rootfs").join(dir)).expect("make the bundle");
    }
    std::fs::write(bundle.join("config.json"), CONFIG).expect("write config.json");
    let program = compile(scratch, "true", TRUE)?;
    std::fs::copy(program, bundle.join("rootfs/true")).expect("put the program into the bundle");
    Some(bundle)
}

fn call(program: &Path, root: &Path, words: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.arg("--root").arg(root).args(words).stdin(Stdio::null()).stdout(Stdio::null());
    command.status().expect("run a runtime").success()
}

/// From the start of `create` to the end of `delete`, which does not wait for the program to end by itself.
fn cycle(program: &Path, root: &Path, bundle: &Path) -> Duration {
    let bundle = bundle.to_string_lossy();
    let start = Instant::now();
    assert!(call(program, root, &["create", "--bundle", &bundle, "bench-cycle"]), "{program:?} create");
    assert!(call(program, root, &["start", "bench-cycle"]), "{program:?} start");
    assert!(call(program, root, &["delete", "--force", "bench-cycle"]), "{program:?} delete");
    start.elapsed()
}

fn once(program: &Path, root: &Path, bundle: &Path) -> Duration {
    let start = Instant::now();
    assert!(
        call(program, root, &["run", "--bundle", &bundle.to_string_lossy(), "bench-run"]),
        "{program:?} run"
    );
    start.elapsed()
}

fn report(what: &str, peers: &[Peer], of: impl Fn(&Peer) -> &Vec<Duration>) {
    println!("{what}\n{:8} {:>10} {:>10} {:>22}", "", "min ms", "median ms", "saggar / it (median)");
    for peer in peers {
        let ms: Vec<f64> = of(peer).iter().map(|time| time.as_secs_f64() * 1e3).collect();
        let pairs = of(&peers[0]).iter().zip(of(peer));
        let ratios: Vec<f64> = pairs.map(|(ours, its)| ours.as_secs_f64() / its.as_secs_f64()).collect();
        let min = ms.iter().copied().fold(f64::INFINITY, f64::min);
        println!("{:8} {min:>10.2} {:>10.2} {:>22.2}", peer.name, median(&ms), median(&ratios));
    }
}
