//! The server, the agent and the supervisor killed at random: no event is lost or doubled for a server that replays.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::served::{Served, Stage};
use crate::kill::wait_for_nothing;
use crate::support::bridge_client::BridgeClient;
use crate::support::process::killed_by;

/// How far a turn of the demo agent counts.
const PIECES: u64 = 6;

fn rounds() -> u32 {
    let long = env::var_os("SAGGAR_TEST_LONG").is_some_and(|long| long == "1");
    if long { 200 } else { 20 }
}

/// splitmix64, from a seed that a failure names.
struct Dice(u64);

impl Dice {
    fn throw(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % sides
    }
}

/// What a server has written down, and so still knows when it is started again.
#[derive(Default)]
struct Server {
    events: BTreeMap<u64, String>,
    /// Commands that it knows to be under way.
    sent: BTreeSet<u64>,
}

impl Server {
    fn newest(&self) -> u64 {
        self.events.keys().next_back().copied().unwrap_or(0)
    }

    /// Writes an event down; whether it is the answer to the replay.
    fn take(&mut self, line: Vec<u8>) -> bool {
        let line = String::from_utf8(line).unwrap();
        let event: Value = serde_json::from_str(&line).unwrap();
        if event["id"] == "r" {
            assert_eq!(event["ev"], "done", "{line}");
            return true;
        }
        let seq = event["seq"].as_u64().unwrap_or_else(|| panic!("an event without a number: {line}"));
        assert_eq!(seq, self.newest() + 1, "each once, in order: {line}");
        self.events.insert(seq, line);
        false
    }

    fn connect(&mut self, served: &Served) -> BridgeClient {
        let mut client = served.connect();
        client.send(&json!({"cmd": "replay", "after": self.newest(), "id": "r"}));
        while !self.take(client.raw_event()) {}
        client
    }

    /// Reads until this command has ended.
    fn read_to_end(&mut self, client: &mut BridgeClient, id: u64) {
        while !self.events.values().any(|line| ends(line) && line.contains(&format!("\"id\":{id},"))) {
            self.take(client.raw_event());
        }
    }
}

fn ends(line: &str) -> bool {
    line.starts_with("{\"ev\":\"done\"") || line.starts_with("{\"ev\":\"error\"")
}

/// What became of each command, and whether all of a turn that is done was told.
fn check(server: &Server) -> BTreeMap<u64, usize> {
    let mut ended: BTreeMap<u64, usize> = BTreeMap::new();
    let mut pieces: BTreeMap<u64, String> = BTreeMap::new();
    let mut results: BTreeMap<u64, String> = BTreeMap::new();
    for line in server.events.values() {
        let event: Value = serde_json::from_str(line).unwrap();
        assert_ne!(event["ev"], "gap", "nothing is lost");
        let id = event["id"].as_u64().unwrap_or_else(|| panic!("an event of no command: {line}"));
        assert!(!ended.contains_key(&id), "an event after the end of its command: {line}");
        if let Some(piece) = event["data"]["event"]["delta"]["text"].as_str() {
            pieces.entry(id).or_default().push_str(piece);
        }
        if event["data"]["subtype"] == "success" {
            let counted: Vec<String> = (1..=PIECES).map(|piece| piece.to_string()).collect();
            let said = format!("{} {}", counted.join(" "), event["data"]["result"].as_str().unwrap());
            results.insert(id, said);
        }
        if event["ev"] == "exec_result" {
            assert_eq!(event["stdout"], format!("{id}\n"));
        }
        if ends(line) {
            *ended.entry(id).or_default() += 1;
        }
    }
    for (id, result) in &results {
        assert_eq!(pieces.get(id), Some(result), "every piece of {id} was told, once");
    }
    assert!(!results.is_empty(), "some turns were done");
    ended
}

as_each_caller! {
    fn killed_process_neither_loses_nor_repeats_events(caller) {
        let seed = env::var("SAGGAR_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or_else(|| {
            u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() % (1 << 32)).unwrap()
        });
        eprintln!("SAGGAR_TEST_SEED={seed}");
        let mut dice = Dice(seed);
        let stage = Stage::new(caller);
        let serve = |resume: &[&str]| {
            let mut options = vec!["--adapter", "demo", "--spool"];
            options.extend_from_slice(resume);
            stage.serve(&options)
        };
        let mut served = serve(&[]);
        let mut server = Server::default();
        let mut client = server.connect(&served);
        let mut kills = [0; 3];
        for round in 0..u64::from(rounds()) {
            let (query, exec) = (2 * round + 1, 2 * round + 2);
            client.send(&json!({"cmd": "query", "prompt": format!("count: {PIECES}"), "sessionId": "s", "id": query,
                "includePartialMessages": true}));
            client.send(&json!({"cmd": "exec", "command": format!("sleep 0.0{}; echo {exec}", dice.throw(10)), "id": exec}));
            server.sent.extend([query, exec]);
            // The moment is what this test is about. Meanwhile it reads, as a server does.
            let until = Instant::now() + Duration::from_millis(dice.throw(180));
            while let Some(left) = until.checked_duration_since(Instant::now()) {
                match client.event_within(left) {
                    Some(line) => {
                        server.take(line);
                    }
                    None => break,
                }
            }
            let who = usize::try_from(dice.throw(3)).unwrap();
            kills[who] += 1;
            match who {
                // What it has not read is gone with it.
                0 => {
                    drop(client);
                    client = server.connect(&served);
                }
                1 => {
                    let agent = served.process.descendants().into_iter().find(|(_, words)| {
                        words.first().is_some_and(|word| word == "saggar") && words.iter().any(|word| word.contains("demo"))
                    });
                    if let Some(watch) = agent.and_then(|(pid, _)| crate::support::process::Watch::of(pid)) {
                        watch.signal(Signal::SIGKILL);
                    }
                }
                _ => {
                    served.process.signal(Signal::SIGKILL);
                    assert!(killed_by(served.process.wait(), Signal::SIGKILL));
                    wait_for_nothing(&stage.work(), Duration::ZERO);
                    served = serve(&["--resume"]);
                    client = server.connect(&served);
                }
            }
        }
        // A last turn, which nobody disturbs: what came before it has ended then.
        let last = 2 * u64::from(rounds()) + 1;
        client.send(&json!({"cmd": "query", "prompt": format!("count: {PIECES}"), "sessionId": "s", "id": last,
            "includePartialMessages": true}));
        server.read_to_end(&mut client, last);
        let ended = check(&server);
        assert!(ended.values().all(|times| *times == 1), "{ended:?}");
        // What had not been read by a supervisor that was killed was never taken.
        let never: Vec<&u64> = server.sent.iter().filter(|id| !ended.contains_key(id)).collect();
        assert!(never.len() <= 2 * kills[2], "{never:?} have no end, {kills:?}");
        // Whoever asks for all of it hears the same, from the first to the last.
        let mut other = Server::default();
        other.connect(&served);
        assert!(other.events == server.events);
        eprintln!("killed: server {}, agent {}, supervisor {}; {} events", kills[0], kills[1], kills[2], server.events.len());
        served.shut_down(&mut client);
    }
}
