//! A run of which any process is killed at any moment continues to the same end.

use std::fs;
use std::time::Instant;

use nix::sys::signal::Signal;

use super::place::{Pairs, expected};
use crate::support::deadline::Deadline;
use crate::support::process::Watch;

/// How many runs are killed.
const ROUNDS: u32 = 50;

/// The supervisors of all sessions of the place.
fn supervisors(pairs: &Pairs) -> Vec<Watch> {
    let records = pairs.sessions().into_iter().filter_map(|session| {
        let path = pairs.stage.place.join("state/saggar/sessions").join(session).join("session.json");
        let record: serde_json::Value = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
        u32::try_from(record["supervisor"]["pid"].as_u64()?).ok()
    });
    records.filter_map(Watch::of).collect()
}

/// The processes below this one, without zombies.
fn below(pid: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let children = children.split_whitespace().filter_map(|child| child.parse().ok());
    let runs = |child: &u32| fs::read(format!("/proc/{child}/cmdline")).is_ok_and(|words| !words.is_empty());
    children.filter(runs).flat_map(|child| [vec![child], below(child)].concat()).collect()
}

as_each_caller! {
    fn am_21_a_killed_run_resumes_to_the_same_conversation(caller) {
        let pairs = Pairs::new(caller);
        // How long a run takes here and now says which moments there are.
        let begun = Instant::now();
        assert_eq!(pairs.stage.run(pairs.run_command(&[])).code, 0);
        let whole = begun.elapsed();
        for round in 1..=ROUNDS {
            let run = u64::from(round) + 1;
            let mut runner = pairs.start(pairs.run_command(&[]));
            let moment = Deadline::after(whole.mul_f64(f64::from(round) / f64::from(ROUNDS)));
            Watch::of(runner.pid()).unwrap().is_gone_by(moment);
            runner.signal(Signal::SIGKILL);
            runner.wait();
            // In every second round the supervisors as well, and so the agents.
            if round % 2 == 0 {
                for supervisor in supervisors(&pairs) {
                    supervisor.signal(Signal::SIGKILL);
                    supervisor.wait_gone("a supervisor");
                }
            }
            let number = run.to_string();
            // A run that was killed before it had a number does not exist.
            if pairs.run(&["status", &number]).code != 0 {
                assert_eq!(pairs.stage.run(pairs.run_command(&[])).code, 0);
            }
            let resumed = pairs.run(&["resume", &number]);
            assert_eq!(resumed.code, 0, "round {round}: {resumed:?}");
            assert_eq!(pairs.messages(run), expected(), "round {round}");
            assert_eq!(pairs.sessions(), [""; 0], "round {round}: {resumed:?}");
        }
    }

    /// The agent, the other processes of its sandbox, its mailbox, its launcher, a worker: each may be the one.
    fn a_run_of_which_one_process_is_killed_goes_on(caller) {
        let pairs = Pairs::new(caller);
        let begun = Instant::now();
        assert_eq!(pairs.stage.run(pairs.run_command(&[])).code, 0);
        let whole = begun.elapsed();
        for round in 1..=ROUNDS {
            let mut runner = pairs.start(pairs.run_command(&[]));
            let moment = Deadline::after(whole.mul_f64(f64::from(round) / f64::from(ROUNDS)));
            Watch::of(runner.pid()).unwrap().is_gone_by(moment);
            let processes: Vec<u32> = supervisors(&pairs).iter().flat_map(|one| below(one.pid())).collect();
            // Spread without a pattern.
            let victim = processes.get(round as usize * 7 % processes.len().max(1)).copied().and_then(Watch::of);
            let name = victim.as_ref().map(|victim| {
                fs::read_to_string(format!("/proc/{}/comm", victim.pid())).unwrap_or_default()
            });
            if let Some(victim) = victim {
                victim.signal(Signal::SIGKILL);
            }
            runner.wait();
            let run = u64::from(round) + 1;
            let number = run.to_string();
            let status = pairs.ok(&["status", "--json", &number]);
            if serde_json::from_str::<serde_json::Value>(&status).unwrap()["state"] != "approved" {
                let resumed = pairs.run(&["resume", &number]);
                assert_eq!(resumed.code, 0, "round {round}, {name:?}: {resumed:?} after {}", runner.stderr());
            }
            assert_eq!(pairs.messages(run), expected(), "round {round}, {name:?}");
            assert_eq!(pairs.sessions(), [""; 0], "round {round}, {name:?}");
        }
    }
}
