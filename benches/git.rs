//! What git costs inside: commands in a repository of 50 000 files, bare, under `saggar wrap` and under bubblewrap, in
//! turn in one run. Two ratios for each command, to bubblewrap: of the time that git takes by a clock inside, and of the
//! whole command, with the sandbox's start and what saggar looks for at its end.
//!
//! `cargo bench --bench git [-- RUNS [SAGGAR]]`: RUNS rounds (default 20); SAGGAR another binary to measure.

// A bench that cannot go on may say so and stop.
#![allow(clippy::expect_used, clippy::print_stdout)]

mod common;

use common::{median, which};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Directories of the repository, and files in each.
const DIRECTORIES: usize = 500;
const FILES: usize = 100;

/// Before each command. Whose a file is differs between the peers, and would have each of them read all files anew.
const GIT: &str = "g() { git -c user.name=b -c user.email=b@example.org -c protocol.file.allow=always \
    -c core.checkStat=minimal \"$@\"; }; ";

/// The commands by name.
const COMMANDS: [(&str, &str); 6] = [
    ("status", "g status --short"),
    ("commit", "echo $(date +%N) >d0/0 && g add d0/0 && g commit -qm more"),
    ("fetch", "g fetch -q ./.upstream.git +main:refs/remotes/upstream/main"),
    ("rebase", "g rebase -q --force-rebase HEAD~3"),
    ("worktree", "g worktree add -q --detach .work && g worktree remove -f .work"),
    ("submodule", "g submodule -q foreach 'git status --short' && g submodule status"),
];

/// What makes the repository, in an empty directory.
const MAKE: &str = "g init -q -b main . && printf '.upstream.git\\n.work\\n' >.git/info/exclude && g add . && \
    g commit -qm first && g clone -q --bare . .upstream.git && \
    g init -q -b main .work && (cd .work && echo x >x && g add x && g commit -qm x) && \
    g submodule --quiet add ./.work part && g commit -qm part && rm -rf .work && \
    for n in 1 2 3 4; do echo $n >d0/0; g add d0/0; g commit -qm $n; done";

/// One way to run a command: how it is called, and what comes before the program.
struct Peer {
    name: &'static str,
    argv: Vec<String>,
}

/// Seconds that a command took.
#[derive(Clone, Copy)]
struct Time {
    inside: f64,
    whole: f64,
}

fn main() {
    // `cargo bench` adds `--bench`; `cargo test --benches` runs this too, and then once is enough.
    let bench = std::env::args().any(|arg| arg == "--bench");
    let mut numbers = std::env::args().skip(1).filter(|arg| !arg.starts_with("--"));
    let runs = numbers.next().and_then(|n| n.parse().ok()).unwrap_or(if bench { 20 } else { 1 });
    let saggar = numbers.next().map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_saggar")), PathBuf::from);
    let scratch =
        tempfile::Builder::new().prefix("saggar-bench").tempdir_in("/var/tmp").expect("scratch directory");
    make(scratch.path(), if bench { FILES } else { 1 });
    let peers = peers(&saggar, scratch.path());
    println!(
        "{:10} {:>9} {:>32} {:>32}",
        "what", "bare ms", "inside: saggar, bwrap, ratio", "whole: saggar, bwrap, ratio"
    );
    for (name, command) in COMMANDS {
        let rounds: Vec<Vec<Time>> = (0..=runs)
            .map(|_| peers.iter().map(|peer| time(peer, command, scratch.path())).collect())
            .collect();
        // The first round warms caches.
        report(name, rounds.get(1..).filter(|rest| !rest.is_empty()).unwrap_or(&rounds));
    }
}

fn make(directory: &Path, files: usize) {
    for number in 0..DIRECTORIES {
        let at = directory.join(format!("d{number}"));
        fs::create_dir(&at).expect("make a directory");
        for file in 0..files {
            fs::write(at.join(file.to_string()), format!("{number} {file}\n")).expect("write a file");
        }
    }
    let made = Command::new("sh").arg("-c").arg([GIT, MAKE].concat()).current_dir(directory).status();
    assert!(made.expect("run a shell").success(), "make the repository");
}

/// The command bare, under saggar, and under bubblewrap where that is installed.
fn peers(saggar: &Path, directory: &Path) -> Vec<Peer> {
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let mut peers = vec![
        Peer { name: "bare", argv: Vec::new() },
        Peer { name: "saggar", argv: [vec![text(saggar)], words("wrap --")].concat() },
    ];
    match which("bwrap") {
        Some(bwrap) => {
            let bind = ["--bind", &text(directory), &text(directory), "--chdir", &text(directory)]
                .map(str::to_owned);
            let argv = [vec![text(&bwrap)], words(common::BWRAP), bind.to_vec()].concat();
            peers.push(Peer { name: "bwrap", argv });
        }
        None => eprintln!("SKIPPED bwrap: not installed"),
    }
    peers
}

fn time(peer: &Peer, command: &str, directory: &Path) -> Time {
    // What git says goes nowhere, and the clock's two times come out.
    let script = format!("{GIT} date +%s%N; {{ {command}; }} >/dev/null && date +%s%N");
    let argv = [peer.argv.as_slice(), &["/bin/sh".into(), "-c".into(), script]].concat();
    let mut run = Command::new(&argv[0]);
    run.args(&argv[1..]).current_dir(directory).stdin(Stdio::null()).env("HOME", "/nonexistent");
    let start = Instant::now();
    let output = run.output().expect("run a peer");
    let whole = start.elapsed().as_secs_f64();
    assert!(output.status.success(), "{} {command}: {}", peer.name, String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("two numbers");
    let times: Vec<f64> = text.lines().map(|line| line.parse().expect("nanoseconds")).collect();
    Time { inside: (times[1] - times[0]) / 1e9, whole }
}

fn report(name: &str, rounds: &[Vec<Time>]) {
    let of = |peer: usize, what: fn(&Time) -> f64| -> Option<f64> {
        let times: Option<Vec<f64>> = rounds.iter().map(|round| round.get(peer).map(what)).collect();
        times.map(|times| median(&times) * 1e3)
    };
    let compared = |what: fn(&Time) -> f64| match (of(1, what), of(2, what)) {
        (Some(ours), Some(its)) => format!("{ours:.1} {its:.1} {:.2}", ours / its),
        (ours, _) => format!("{:.1}", ours.unwrap_or(0.0)),
    };
    let bare = of(0, |time| time.inside).unwrap_or(0.0);
    println!(
        "{name:10} {bare:>9.1} {:>32} {:>32}",
        compared(|time| time.inside),
        compared(|time| time.whole)
    );
}
