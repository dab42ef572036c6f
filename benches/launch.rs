//! How long a whole command takes, from exec to exit: `saggar wrap -- TRUE` against its peers, in turn in one
//! run, so that the machine's moods hit all of them alike. Prints medians and the ratios pair by pair; there
//! are no absolute bounds. Where there is a C compiler, so does the floor (`floor.c`): what the kernel alone takes for
//! such a sandbox.
//!
//! `cargo bench --bench launch [-- RUNS [SAGGAR]]`: RUNS rounds (default 200); SAGGAR another binary to measure.

// A bench that cannot go on may say so and stop.
#![allow(clippy::expect_used, clippy::print_stdout)]

mod common;

use common::{BWRAP, TRUE, compile, median, which};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

struct Peer {
    name: &'static str,
    argv: Vec<String>,
    times: Vec<Duration>,
}

fn main() {
    // `cargo bench` adds `--bench`; `cargo test --benches` runs this too, and then once is enough.
    let mut numbers = std::env::args().skip(1).filter(|arg| !arg.starts_with("--"));
    let bench = std::env::args().any(|arg| arg == "--bench");
    let runs: usize = numbers.next().and_then(|n| n.parse().ok()).unwrap_or(if bench { 200 } else { 3 });
    let saggar = numbers.next().map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_saggar")), PathBuf::from);

    let scratch =
        tempfile::Builder::new().prefix("saggar-bench").tempdir_in("/var/tmp").expect("scratch directory");
    let program = tiny(scratch.path());
    let workspace = scratch.path().to_string_lossy().into_owned();
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();

    let mut peers = vec![
        Peer { name: "bare", argv: vec![program.clone()], times: vec![] },
        Peer {
            name: "saggar",
            argv: [words(&saggar.to_string_lossy()), words("wrap --"), vec![program.clone()]].concat(),
            times: vec![],
        },
    ];
    if let Some(floor) = compile(scratch.path(), "floor", include_str!("floor.c")) {
        peers.push(Peer { name: "floor", argv: vec![text_of(&floor), program.clone()], times: vec![] });
    } else {
        eprintln!("SKIPPED floor: it was not compiled");
    }
    if let Some(bwrap) = which("bwrap") {
        let bind = vec!["--bind".into(), workspace.clone(), workspace.clone(), "--chdir".into(), workspace];
        let argv = [vec![text_of(&bwrap)], words(BWRAP), bind, vec![program]].concat();
        peers.push(Peer { name: "bwrap", argv, times: vec![] });
    } else {
        eprintln!("SKIPPED bwrap: not installed");
    }

    for round in 0..runs + 3 {
        for peer in &mut peers {
            let time = time(&peer.argv, scratch.path());
            // The first rounds warm caches.
            if round >= 3 {
                peer.times.push(time);
            }
        }
    }
    report(&peers);
}

/// A tiny static program, so that the payload's own start hides nothing; `true` without a compiler.
fn tiny(directory: &Path) -> String {
    compile(directory, "true", TRUE).map_or_else(|| "/bin/true".to_owned(), |program| text_of(&program))
}

fn text_of(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn time(argv: &[String], directory: &Path) -> Duration {
    let mut command = Command::new(&argv[0]);
    command.args(&argv[1..]).current_dir(directory).stdin(Stdio::null()).stdout(Stdio::null());
    let start = Instant::now();
    let status = command.status().expect("run a peer");
    let time = start.elapsed();
    assert!(status.success(), "{argv:?} failed: {status}");
    time
}

fn report(peers: &[Peer]) {
    let saggar = &peers[1].times;
    println!("{:8} {:>10} {:>10} {:>22}", "what", "min ms", "median ms", "saggar / it (median)");
    for peer in peers {
        let ms: Vec<f64> = peer.times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
        let ratios: Vec<f64> = saggar
            .iter()
            .zip(&peer.times)
            .map(|(ours, its)| ours.as_secs_f64() / its.as_secs_f64())
            .collect();
        let min = ms.iter().copied().fold(f64::INFINITY, f64::min);
        println!("{:8} {min:>10.2} {:>10.2} {:>22.2}", peer.name, median(&ms), median(&ratios));
    }
}
