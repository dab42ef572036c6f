//! BP-21 to BP-24: shell commands of the server's, in the agent's sandbox.

use std::fs;

use serde_json::{Value, json};

use super::served::Stage;
use crate::kill::alive_in;
use crate::support::deadline::Deadline;
use crate::support::wait;

as_each_caller! {
    /// BP-21: the result and its `done` come as one piece, a thousand times in a row.
    fn bp_21_a_thousand_results_each_come_in_one_write(caller) {
        let stage = Stage::new(caller);
        let served = stage.demo();
        let mut client = served.connect();
        let expected = "{\"ev\":\"exec_result\",\"exitCode\":0,\"stdout\":\"x\\n\",\"stderr\":\"\"}\n\
                        {\"ev\":\"done\",\"sessionId\":\"\"}\n";
        let mut buffer = [0; 4096];
        for round in 0..1000 {
            client.send_bytes(b"{\"cmd\":\"exec\",\"command\":\"echo x\"}\n");
            let count = client.receive(&mut buffer);
            assert_eq!(String::from_utf8_lossy(&buffer[..count]), expected, "round {round}");
        }
        served.shut_down(&mut client);
    }

    /// BP-21: exit codes, signals, both streams, bytes that are no UTF-8.
    fn bp_21_exec_result_has_exit_code_signal_and_both_streams(caller) {
        let stage = Stage::new(caller);
        let served = stage.demo();
        let mut client = served.connect();
        let result = client.exec("echo out; echo err >&2; exit 7", 30_000);
        assert_eq!((&result["exitCode"], &result["stdout"], &result["stderr"]), (&7.into(), &"out\n".into(), &"err\n".into()));
        assert_eq!(client.exec("kill -9 $$", 30_000)["exitCode"], 137);
        assert_eq!(client.exec("printf 'a\\377b'", 30_000)["stdout"], "a\u{fffd}b");
        assert_eq!(client.exec("cat", 30_000)["stdout"], "", "its stdin is empty");
        served.shut_down(&mut client);
    }

    /// BP-22: at the timeout the whole tree goes, whatever it did to get away; what it wrote is told.
    fn bp_22_a_timeout_leaves_nothing_alive(caller) {
        let stage = Stage::new(caller);
        let served = stage.demo();
        let mut client = served.connect();
        assert!(client.turn("the agent is up").is_done());
        // None of it ends by itself.
        let command = "echo begun; sleep 1000 & setsid sleep 1000 & (setsid sh -c 'sleep 1000 & exec sleep 1000' &); \
                       trap '' TERM; sleep 1000";
        let result = client.exec(command, 200);
        assert_eq!((&result["exitCode"], &result["stdout"]), (&124.into(), &"begun\n".into()));
        // They are all killed when the result is told; the last of them may still be on its way out.
        let is_of_it = |pid: &u32| fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default().windows(5).any(|part| part == b"sleep");
        let deadline = Deadline::usual();
        while alive_in(&stage.work()).iter().any(is_of_it) {
            assert!(!deadline.remaining().is_zero(), "some of it lives: {:?}", served.process.descendants());
        }
        served.shut_down(&mut client);
    }

    /// BP-22: a command that writes without end is ended at its timeout all the same, and others are served.
    fn bp_22_a_flood_is_ended_in_time(caller) {
        let stage = Stage::new(caller);
        let served = stage.demo();
        let mut client = served.connect();
        let mut other = served.connect();
        // The timeout of the first is a day: the other command and the timeout of the second come while it writes.
        let flood = ": > up; yes & yes >&2 & exec yes";
        client.send(&json!({"cmd": "exec", "command": flood, "timeout": 86_400_000}));
        wait::until_exists(&stage.work().join("up"));
        assert_eq!(other.exec("echo beside", 30_000)["stdout"], "beside\n");
        let result = other.exec(flood, 700);
        assert_eq!(result["exitCode"], 124);
        for stream in ["stdout", "stderr"] {
            assert!(result[stream].as_str().unwrap().len() <= 10 << 20, "{stream}");
        }
        drop(client);
        served.shut_down(&mut other);
    }

    /// BP-21: a daemon that goes on writing, or holds the stream, does not keep the result back.
    fn bp_21_a_daemon_does_not_keep_the_result_back(caller) {
        let stage = Stage::new(caller);
        let served = stage.demo();
        let mut client = served.connect();
        // Kept back, it would be that of the timeout, 124: neither daemon ends by itself.
        let result = client.exec("sleep 1000 & echo last", 30_000);
        assert_eq!((&result["exitCode"], &result["stdout"]), (&0.into(), &"last\n".into()));
        assert_eq!(client.exec("setsid yes & exit 3", 30_000)["exitCode"], 3);
        served.shut_down(&mut client);
    }

    /// BP-23: 12 MB are cut at 10 MiB, and said to be.
    fn bp_23_large_output_is_cut_and_flagged(caller) {
        let stage = Stage::new(caller);
        let served = stage.demo();
        let mut client = served.connect();
        let result = client.exec("head -c 12000000 /dev/zero | tr '\\0' x", 30_000);
        assert_eq!((&result["exitCode"], &result["truncated"]), (&0.into(), &true.into()));
        assert_eq!(result["stdout"].as_str().unwrap().len(), 10 << 20);
        let whole = client.exec("head -c 10485760 /dev/zero | tr '\\0' x", 30_000);
        assert_eq!((whole["stdout"].as_str().unwrap().len(), &whole["truncated"]), (10 << 20, &Value::Null));
        served.shut_down(&mut client);
    }

    /// BP-24: the agent's namespaces, cgroup, filter and capabilities; the workspace as directory.
    fn bp_24_a_command_runs_where_the_agent_runs(caller) {
        let stage = Stage::new(caller);
        let served = stage.demo();
        let mut client = served.connect();
        assert!(client.turn("the agent is up").is_done());
        let agent = served.inside("__demo-agent");
        let of_agent = |name: &str| fs::read_link(format!("/proc/{}/ns/{name}", agent.pid())).unwrap();
        for name in ["cgroup", "ipc", "mnt", "net", "pid", "user", "uts"] {
            let told = client.exec(&format!("readlink /proc/self/ns/{name}"), 30_000);
            assert_eq!(told["stdout"].as_str().unwrap().trim(), of_agent(name).to_str().unwrap());
        }
        let status = fs::read_to_string(format!("/proc/{}/status", agent.pid())).unwrap();
        let told = client.exec("cat /proc/self/status", 30_000);
        let told = told["stdout"].as_str().unwrap();
        for field in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Seccomp_filters"] {
            let line = |text: &str| text.lines().find(|line| line.starts_with(&format!("{field}:"))).map(str::to_owned);
            assert_eq!(line(told), line(&status));
            assert!(line(told).is_some(), "{field}");
        }
        let told = client.exec("pwd; grep ^0: /proc/self/cgroup", 30_000);
        let (directory, cgroup) = told["stdout"].as_str().unwrap().split_once('\n').unwrap();
        assert_eq!(directory, stage.work().to_str().unwrap());
        // The agent's, or a leaf of its own beside that; where the host has no cgroup v2, no line at all.
        let beside = cgroup.trim().strip_prefix("0::/");
        assert!(beside.is_none_or(|path| path.is_empty() || path.starts_with("../exec-")), "{cgroup}");
        served.shut_down(&mut client);
    }
}
