//! How long sessions take: their creation, the fast path of one that is idle and of one that is paused, the pause, and
//! the cold path after the supervisor was killed;
//! each against a bare start (`saggar wrap -- true`) in the same round. Medians and ratios; there are no absolute
//! bounds.
//!
//! `cargo bench --bench session [-- RUNS]`: RUNS rounds (default 40). What a command costs besides (exec, arguments) is in
//! every figure; `fast` and `fast, by the socket` tell it apart.

// A bench that cannot go on may say so and stop.
#![allow(clippy::expect_used, clippy::print_stdout)]

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const SAGGAR: &str = env!("CARGO_BIN_EXE_saggar");

fn main() {
    let bench = std::env::args().any(|arg| arg == "--bench");
    let runs =
        std::env::args().skip(1).find_map(|arg| arg.parse().ok()).unwrap_or(if bench { 40 } else { 2 });
    let scratch =
        tempfile::Builder::new().prefix("saggar-bench").tempdir_in("/var/tmp").expect("scratch directory");
    let folder = scratch.path().join("folder");
    std::fs::create_dir(&folder).expect("the agent's folder");
    std::fs::write(folder.join("CLAUDE.md"), "A bench.\n").expect("a CLAUDE.md");
    let saggar = |words: &[&str]| {
        let mut command = Command::new(SAGGAR);
        command.args(words).current_dir(&folder).env("SAGGAR_STATE_DIR", scratch.path().join("state"));
        command.stdin(Stdio::null()).stderr(Stdio::inherit());
        command
    };
    let run = |words: &[&str]| {
        let begun = Instant::now();
        let output = saggar(words).output().expect("saggar runs");
        let time = begun.elapsed();
        assert!(output.status.success(), "{words:?}: {}", output.status);
        (time, String::from_utf8(output.stdout).expect("text"))
    };
    let names = ["bare start", "create", "idle", "pause", "fast", "fast, by the socket", "cold", "end"];
    let mut times: Vec<Vec<Duration>> = vec![Vec::new(); names.len()];
    let mut can_pause = true;
    for round in 0..runs + 2 {
        let mut round_times: Vec<Option<Duration>> = vec![None; names.len()];
        round_times[0] = Some(run(&["wrap", "--", "/bin/true"]).0);
        let dir = folder.to_str().expect("a plain path");
        let (time, shown) =
            run(&["session", "create", "--json", "--session", "bench", "--adapter", "demo", dir]);
        round_times[1] = Some(time);
        let session: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
        round_times[2] = Some(run(&["session", "resume", "bench"]).0);
        if can_pause {
            can_pause = saggar(&["session", "pause", "bench"]).status().expect("saggar runs").success();
        }
        if can_pause {
            run(&["session", "resume", "bench"]);
            round_times[3] = Some(run(&["session", "pause", "bench"]).0);
            round_times[4] = Some(run(&["session", "resume", "bench"]).0);
            run(&["session", "pause", "bench"]);
            let socket = session["controlSocket"].as_str().expect("a socket");
            round_times[5] = Some(by_socket(Path::new(socket)));
        }
        let pid =
            session["supervisor"]["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).expect("a pid");
        kill(pid);
        round_times[6] = Some(run(&["session", "resume", "bench"]).0);
        round_times[7] = Some(run(&["session", "end", "bench"]).0);
        run(&["session", "remove", "bench"]);
        // The first rounds warm caches.
        if round >= 2 {
            for (all, time) in times.iter_mut().zip(round_times) {
                all.extend(time);
            }
        }
    }
    if !can_pause {
        eprintln!("SKIPPED pause and the fast path: no cgroup");
    }
    let bare = times[0].clone();
    println!("{:<22} {:>10} {:>14}", "", "median", "to a bare start");
    for (name, times) in names.iter().zip(&times).filter(|(_, times)| !times.is_empty()) {
        let ratios = times.iter().zip(&bare).map(|(time, bare)| time.as_secs_f64() / bare.as_secs_f64());
        println!(
            "{name:<22} {:>7.2} ms {:>14.2}",
            median(times.iter().map(Duration::as_secs_f64)) * 1e3,
            median(ratios)
        );
    }
}

/// From the call of `resume` to its answer.
fn by_socket(socket: &Path) -> Duration {
    let mut stream = BufReader::new(UnixStream::connect(socket).expect("the control socket"));
    let mut call = |line: &str| {
        stream.get_mut().write_all(line.as_bytes()).expect("it takes a call");
        let mut answer = String::new();
        stream.read_line(&mut answer).expect("it answers");
        assert!(answer.contains("result"), "{answer}");
    };
    call("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"hello\",\"params\":{\"version\":1}}\n");
    let begun = Instant::now();
    call("{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"resume\"}\n");
    begun.elapsed()
}

/// Kills a supervisor; it is gone when this returns.
fn kill(pid: i32) {
    let raw = rustix::process::Pid::from_raw(pid).expect("a pid");
    let pidfd = rustix::process::pidfd_open(raw, rustix::process::PidfdFlags::empty()).expect("it lives");
    rustix::process::pidfd_send_signal(&pidfd, rustix::process::Signal::KILL).expect("it can be killed");
    let mut polled = [nix::poll::PollFd::new(pidfd.as_fd(), nix::poll::PollFlags::POLLIN)];
    nix::poll::poll(&mut polled, nix::poll::PollTimeout::NONE).expect("it ends");
}

fn median(times: impl Iterator<Item = f64>) -> f64 {
    let mut times: Vec<f64> = times.collect();
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}
