//! BP-35, DECISIONS 11: how a bridge ends by signals, and what is left when its runtime cannot clean up.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::json;

use super::killed::leftovers;
use super::served::{Served, Stage};
use crate::kill::{alive_in, wait_for_nothing};
use crate::support::wait;

/// Daemons of every kind in the agent's tree.
const DAEMONS: &str =
    "run: setsid sleep 1000 & (setsid sh -c 'sleep 1000 & exec sleep 1000' &) ; : > up; sleep 1000";

fn busy(stage: &Stage) -> Served {
    let served = stage.demo();
    let mut client = served.connect();
    client.query(DAEMONS);
    wait::until_exists(&stage.work().join("up"));
    std::fs::remove_file(stage.work().join("up")).unwrap();
    // Kept open: it is no disconnect that ends the turn here.
    std::mem::forget(client);
    served
}

as_each_caller! {
    /// BP-35: a polite signal ends the turn, everything in the sandbox, and saggar itself with 0. Nothing of the turn
    /// ends by itself.
    fn bp_35_termination_signal_ends_saggar_with_status_0(caller) {
        let stage = Stage::new(caller);
        for (round, signal) in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP].into_iter().enumerate() {
            let served = if round == 0 { busy(&stage) } else { stage.serve(&["--adapter", "demo", "--resume"]) };
            let (status, stderr) = served.end_by(signal);
            assert!(status.success(), "{signal}: {status} {stderr}");
            assert!(!stage.socket().exists());
            assert_eq!(alive_in(&stage.work()), [0; 0]);
        }
    }

    /// DECISIONS 13: without a command for so long it ends; while one runs, or when one comes in time, it does not.
    fn an_idle_agent_ends(caller) {
        let stage = Stage::new(caller);
        let policy = stage.place.make_file("policy.toml", "limits.idle = '1500ms'");
        let served = stage.serve(&["--adapter", "demo", "--policy", policy.to_str().unwrap()]);
        let begun = Instant::now();
        let mut client = served.connect();
        assert!(client.turn("run: sleep 2").is_done());
        assert!(client.turn("run: sleep 1").is_done());
        let (status, stderr) = served.end();
        assert_eq!(status.code(), Some(124), "{stderr}");
        assert!(stderr.contains("1.5s without a command (idle)"), "{stderr}");
        assert!(begun.elapsed() >= Duration::from_millis(4500), "{:?}", begun.elapsed());
        assert!(!stage.socket().exists());
        assert_eq!(alive_in(&stage.work()), [0; 0]);
    }

    /// BP-35: killed, it takes the sandbox along; the watcher removes socket and directory.
    fn bp_35_a_killed_runtime_leaves_nothing(caller) {
        let stage = Stage::new(caller);
        let served = busy(&stage);
        let begun = Instant::now();
        served.end_by(Signal::SIGKILL);
        wait_for_nothing(&stage.work(), begun.elapsed());
        wait::until_gone(&stage.socket());
        assert_eq!(leftovers(&stage), [""; 0]);
    }

    /// DECISIONS 11: of runtime and watcher together, nothing lives, and the next start goes on.
    fn a_killed_launcher_does_not_block_the_next_start(caller) {
        let stage = Stage::new(caller);
        let served = busy(&stage);
        served.process.kill_launcher();
        let begun = Instant::now();
        served.end_by(Signal::SIGKILL);
        wait_for_nothing(&stage.work(), begun.elapsed());
        // What they left stands here, unless a `saggar gc` of the same user has just been by.
        let served = stage.serve(&["--adapter", "demo", "--resume"]);
        let mut client = served.connect();
        assert!(client.turn("hi").is_done());
        client.send(&json!({"cmd": "interrupt"}));
        served.shut_down(&mut client);
        assert_eq!(leftovers(&stage), [""; 0]);
    }

    /// `saggar gc` removes what both left.
    fn gc_removes_what_dead_sandboxes_left(caller) {
        let stage = Stage::new(caller);
        let served = busy(&stage);
        served.process.kill_launcher();
        served.end_by(Signal::SIGKILL);
        // Root's tests share a runtime directory, and any of them may have swept it by now.
        assert!(caller.is_root() || leftovers(&stage) != [""; 0]);
        let mut gc = stage.place.saggar();
        gc.arg("gc");
        let ended = stage.run(gc);
        assert_eq!(ended.code, 0, "{ended:?}");
        // One of them may be at it.
        leftovers(&stage).iter().for_each(|path| wait::until_gone(path.as_ref()));
        assert_eq!(leftovers(&stage), [""; 0]);
        assert!(!stage.socket().exists());
    }
}
