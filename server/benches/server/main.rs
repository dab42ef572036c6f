//! What the server adds to what it starts and forwards: the time of `POST /sessions` beyond that of `saggar session
//! create`, of the first message of a turn beyond that of the bridge, and of 200 turns at once beyond the same on the bridges;
//! and the memory of many idle sessions. All of the demo agent. The figures of both sides are from the same run, by turns.
//!
//! `cargo bench -p saggar-server --bench server [-- SESSIONS]`: SESSIONS idle ones (default 1000). It runs the `saggar` that is
//! beside the server: build that first, with `cargo build --release`. It fails if the server adds more than its bounds.

#![allow(clippy::expect_used, clippy::print_stdout, reason = "a measurement for developers")]

mod bridge;
mod memory;
mod server;

use memory::MemoryUse;
use server::{Agent, Server};
use std::time::{Duration, Instant};

/// Rounds of a measurement of one request at a time.
const ROUNDS: usize = 40;
const TURNS: usize = 200;
/// The time before a measurement, so that neither side pays for what the other one left to do.
const PAUSE: Duration = Duration::from_millis(20);
const STREAMS: usize = 200;

/// Bounds of the medians, in milliseconds.
const MAX_FROM_POOL: f64 = 5.0;
const MAX_BEYOND_CREATE: f64 = 20.0;
const MAX_BEYOND_BRIDGE: f64 = 2.0;
/// Memory of an idle session, in KiB.
const MAX_IDLE: u64 = 3 << 10;

fn main() {
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let sessions = std::env::args().skip(1).find_map(|argument| argument.parse().ok());
    let sessions = sessions.unwrap_or(if is_bench { 1000 } else { STREAMS });
    let server = Server::start(sessions + 16);
    let mut failures = Vec::new();
    println!("{:<44} {:>10} {:>10} {:>8}", "", "server", "without", "ratio");
    measure_starts(&server, &mut failures);
    measure_first_byte(&server, &mut failures);
    measure_many(&server, sessions, &mut failures);
    drop(server);
    assert!(failures.is_empty(), "beyond the bounds: {}", failures.join("; "));
}

/// `POST /sessions`, with a warm sandbox and without one, beside the command that the server runs for it.
fn measure_starts(server: &Server, failures: &mut Vec<String>) {
    let (mut commands, mut cold, mut warm) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        server.wait_until_warm();
        std::thread::sleep(PAUSE);
        commands.push(server.time_of_create());
        for (agent, times) in [(Agent::Cold, &mut cold), (Agent::Warm, &mut warm)] {
            std::thread::sleep(PAUSE);
            let start = Instant::now();
            let id = server.create_session(agent);
            times.push(milliseconds(start.elapsed()));
            server.end_session(&id);
        }
    }
    let (command, cold, warm) = (median(commands), median(cold), median(warm));
    print_times("POST /sessions", cold, command);
    print_times("POST /sessions, from the warm pool", warm, command);
    check(failures, "POST /sessions beyond `session create`, ms", cold - command, MAX_BEYOND_CREATE);
    check(failures, "POST /sessions from the warm pool, ms", warm, MAX_FROM_POOL);
}

/// From the request to the first message of the agent, beside the same on the socket of the bridge.
fn measure_first_byte(server: &Server, failures: &mut Vec<String>) {
    let id = server.create_session(Agent::Cold);
    let socket = server.bridge_socket(&id);
    let (mut by_server, mut by_bridge) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        std::thread::sleep(PAUSE);
        by_server.push(milliseconds(server.run_turn(&id)));
        std::thread::sleep(PAUSE);
        by_bridge.push(milliseconds(bridge::run_turn(&socket, &id)));
    }
    server.end_session(&id);
    let (by_server, by_bridge) = (median(by_server), median(by_bridge));
    print_times("first message of a turn", by_server, by_bridge);
    check(failures, "first message beyond the bridge, ms", by_server - by_bridge, MAX_BEYOND_BRIDGE);
}

/// Memory of idle sessions, and turns of 200 of them at once.
fn measure_many(server: &Server, sessions: usize, failures: &mut Vec<String>) {
    let before = MemoryUse::read(server.pid(), &[]);
    let start = Instant::now();
    let ids = in_threads(4, sessions, |_| server.create_session(Agent::Cold));
    let starts = start.elapsed();
    let supervisors = server.supervisors();
    assert!(supervisors.len() >= sessions, "a session has no supervisor");
    let after = MemoryUse::read(server.pid(), &supervisors);
    let count = u64::try_from(sessions).expect("a number of sessions");
    let processes = (after.sessions + after.server.saturating_sub(before.server)) / count;
    println!(
        "{sessions} idle sessions, started in {:.1} s: {processes} KiB each, {} of them in the server; \
         of all memory of the machine {} KiB each",
        starts.as_secs_f64(),
        after.server.saturating_sub(before.server) / count,
        before.available.saturating_sub(after.available) / count,
    );
    check(failures, "memory of an idle session, KiB", processes as f64, MAX_IDLE as f64);

    let streamed: Vec<_> = ids.iter().take(STREAMS).collect();
    let sockets: Vec<_> = streamed.iter().map(|id| server.bridge_socket(id)).collect();
    let (mut by_server, mut by_bridge) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let start = Instant::now();
        in_threads(streamed.len(), streamed.len(), |index| server.run_turn(streamed[index]));
        by_server.push(milliseconds(start.elapsed()));
        let start = Instant::now();
        in_threads(sockets.len(), sockets.len(), |index| bridge::run_turn(&sockets[index], streamed[index]));
        by_bridge.push(milliseconds(start.elapsed()));
    }
    print_times(&format!("{} turns at once", streamed.len()), median(by_server), median(by_bridge));
    in_threads(4, ids.len(), |index| server.end_session(&ids[index]));
}

/// The results of `work` of each index, in order, of so many threads.
fn in_threads<T: Send>(threads: usize, count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let work = &work;
    let mut results: Vec<(usize, T)> = std::thread::scope(|scope| {
        let run =
            |first| scope.spawn(move || (first..count).step_by(threads).map(|i| (i, work(i))).collect());
        let running: Vec<_> = (0..threads).map(run).collect();
        running.into_iter().flat_map(|thread| -> Vec<_> { thread.join().expect("no panic") }).collect()
    });
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

fn print_times(label: &str, server: f64, without: f64) {
    println!("{label:<44} {server:>7.2} ms {without:>7.2} ms {:>8.2}", server / without);
}

fn check(failures: &mut Vec<String>, label: &str, value: f64, bound: f64) {
    if value > bound {
        failures.push(format!("{label}: {value:.2}, at most {bound}"));
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
