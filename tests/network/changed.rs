//! Rules for hosts that change while a sandbox runs (`update` of the control socket), and its account of them.

use std::fs;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::served::Served;
use crate::support::caller::Caller;
use crate::support::deadline::Deadline;

fn network(lists: Value) -> Value {
    json!({ "network": lists })
}

/// Holds two connections, and says what becomes of each.
const TWO: &str = "python3 -c '
import socket
one, other = [socket.create_connection((host, 5432)) for host in (\"good.example\", \"four.example\")]
for s in one, other:
    s.recv(8); s.sendall(b\"one\"); print(s.recv(9), flush=True)
open(\"stands\", \"w\").close()
try: print(one.recv(9) or \"ended\", flush=True)
except ConnectionError: print(\"cut\", flush=True)
other.sendall(b\"two\"); print(other.recv(9))
' 2>&1";

/// Waits until a child of pid 1 is at its exec barrier, where it receives from a socket; none may have been executed.
fn await_barrier(init: u32) {
    let exe = |pid: &str| fs::read_link(format!("/proc/{pid}/exe"));
    let (own, receives) = (exe(&init.to_string()).unwrap(), format!("{} ", libc::SYS_recvmsg));
    let deadline = Deadline::usual();
    loop {
        let children = fs::read_to_string(format!("/proc/{init}/task/{init}/children")).unwrap();
        for child in children.split_whitespace() {
            // One that has ended has none.
            exe(child).into_iter().for_each(|exe| assert_eq!(exe, own, "it has been executed"));
            if fs::read_to_string(format!("/proc/{child}/syscall"))
                .is_ok_and(|call| call.starts_with(&receives))
            {
                return;
            }
        }
        assert!(!deadline.remaining().is_zero(), "nothing is at its barrier: {children}");
        deadline.pause();
    }
}

as_each_caller! {
    /// Rules come and go, with a number; ports that nobody had named before are heard from then on, below 1024 too.
    fn host_rules_can_be_added_and_removed_at_run_time(caller) {
        let network_of_test = network!(caller);
        let mut served = Served::new(&network_of_test, &["--allow-host", "four.example:443"]);
        let mut control = served.control(&network_of_test);
        let get = "curl -sS -m 20 http://good.example/ 2>&1; echo $?; curl -sS -m 20 http://good.example:8080/ 2>&1; echo $?";
        assert!(!served.run(get).contains("hello"));
        let lists = network(json!({ "allow": ["good.example:80,8080"] }));
        assert_eq!(control.call("update", &lists), json!({ "generation": 2 }));
        let said = served.run(get);
        assert_eq!(said.matches("hello").count(), 2, "{said}");
        let state = control.get("state");
        let rules = json!({ "allow": ["good.example:80,8080"], "deny": [], "ask": [], "consented": [] });
        assert_eq!((&state["network"], &state["networkMode"]), (&rules, &json!("policy")));
        assert_eq!(control.call("update", &network(json!({ "deny": ["good.example:8080"] }))), json!({ "generation": 3 }));
        let said = served.run(get);
        assert_eq!(said.matches("hello").count(), 1, "{said}");
        assert_eq!(control.call("update", &network(json!({ "allow": [] }))), json!({ "generation": 4 }));
        assert!(!served.run(get).contains("hello"));
        served.end();
    }

    /// A server that connects to the sockets finds them before the sandbox is ready. What it has run then waits at its exec
    /// barrier until the rules that came before it are in force, however late the supervisor is.
    fn rules_that_arrive_during_the_setup_are_in_force_after_it(caller) {
        // Nobody but root sees what a process of a sandbox executes before its program.
        if !Caller::current().is_root() {
            skip!("this test needs to be started as root");
        }
        let network_of_test = network!(caller);
        // A setup that takes its time.
        const MOUNTS: usize = 200;
        let mounts: Vec<String> = (0..MOUNTS).map(|number| format!("/usr/share:/opt/{number}")).collect();
        let mounts = mounts.iter().flat_map(|mount| ["--ro", mount]);
        let options: Vec<&str> = ["--allow-host", "four.example:443"].into_iter().chain(mounts).collect();
        let deadline = Deadline::usual();
        let (served, [supervisor, init]) = loop {
            let (served, [supervisor, init]) = Served::stopped(&network_of_test, &options);
            let mounted = fs::read_to_string(format!("/proc/{}/mountinfo", init.pid())).unwrap();
            if mounted.matches("/opt/").count() < MOUNTS {
                break (served, [supervisor, init]);
            }
            assert!(!deadline.remaining().is_zero(), "the setup is always over");
            init.signal(Signal::SIGCONT);
            served.end();
        };
        let mut control = served.control(&network_of_test);
        let lists = network(json!({ "allow": ["good.example:80,8080"] }));
        assert_eq!(control.call("update", &lists), json!({ "generation": 2 }));
        let command = "for port in 80 8080; do curl -sS -m 20 http://good.example:$port/ 2>&1; done";
        let run = control.ask("exec", &json!({ "command": command }));
        // One is answered after the other: by then the command has been passed on.
        control.get("state");
        supervisor.stop();
        init.signal(Signal::SIGCONT);
        await_barrier(init.pid());
        supervisor.signal(Signal::SIGCONT);
        let said = control.answer(run)["result"]["stdout"].take();
        assert_eq!(said.as_str().unwrap().matches("hello").count(), 2, "{said}");
        served.end();
    }

    /// A connection that no longer may be ends at once; one that still may goes on.
    fn live_connections_are_cut(caller) {
        // What is to be asked about is no longer allowed either: nobody has said yes to it.
        for lists in [json!({ "allow": ["four.example:5432"] }), json!({ "allow": ["four.example:5432"], "ask": ["good.example:5432"] })] {
            let network_of_test = network!(caller);
            let mut served = Served::new(&network_of_test, &["--allow-host", "good.example:5432", "--allow-host", "four.example:5432"]);
            let mut control = served.control(&network_of_test);
            served.begin(TWO);
            let stands = network_of_test.wrap.work().join("stands");
            crate::support::wait::until_exists(&stands);
            let account = control.get("stats")["network"].take();
            assert_eq!(account["open"], 2, "{account}");
            assert_eq!(control.call("update", &network(lists))["generation"], 2);
            assert_eq!(served.ran(), "b'one'\nb'one'\ncut\nb'two'\n");
            // The program sees the end of its connection a moment before the supervisor has the report of the relay.
            served.end();
            let refused = network_of_test.refused();
            assert!(refused[0].0 == "good.example:5432" && refused[0].1.contains("policy has changed"), "{refused:?}");
        }
    }

    /// What waits for an answer is judged by the new rules.
    fn waiting_connections_are_judged_by_the_new_rules(caller) {
        let network_of_test = network!(caller);
        let mut served = Served::new(&network_of_test, &["--ask-host", "*"]);
        let mut control = served.control(&network_of_test);
        for (lists, reached) in [(json!({ "allow": ["good.example"] }), true), (json!({ "allow": [], "deny": ["good.example"] }), false)] {
            control.call("update", &network(json!({ "allow": [], "deny": [], "ask": ["*"] })));
            served.begin("curl -sS -m 20 http://good.example/ 2>&1; echo $?");
            served.question();
            control.call("update", &network(lists));
            let said = served.ran();
            assert_eq!(said.contains("hello"), reached, "{said}");
            // The relay answers the connection, and the supervisor hears of it a moment later.
            let deadline = Deadline::usual();
            while control.get("permission.list") != json!({ "open": [] }) {
                assert!(!deadline.remaining().is_zero(), "the question is still open");
                deadline.pause();
            }
        }
        served.end();
    }

    /// All of a change holds or nothing; who has seen an older state is told so.
    fn network_update_is_applied_whole_or_not_at_all(caller) {
        let network_of_test = network!(caller);
        let mut served = Served::new(&network_of_test, &["--allow-host", "good.example"]);
        let mut control = served.control(&network_of_test);
        let held = |state: Value| (state["network"].clone(), state["generation"].clone());
        let before = held(control.get("state"));
        for (lists, kind) in [
            (json!({}), "params"),
            (json!({ "allow": ["good.example", "http://bad"] }), "params"),
            (json!({ "allow": ["good.example:53"] }), "params"),
            (json!({ "mode": "host" }), "params"),
            (json!({ "allow": [format!("good.example:{}", (1000..1200).map(|p| p.to_string()).collect::<Vec<_>>().join(","))] }), "params"),
        ] {
            let (refused, why) = control.refused("update", &network(lists.clone()));
            assert_eq!(refused, kind, "{lists}: {why}");
        }
        let stale = json!({ "network": { "allow": [] }, "generation": 7 });
        assert_eq!(control.refused("update", &stale).0, "state");
        // A port that a program inside has.
        served.begin("python3 -c '
import socket
s = socket.create_server((\"0.0.0.0\", 8081)); open(\"stands\", \"w\").close(); s.accept()' 2>&1");
        let stands = network_of_test.wrap.work().join("stands");
        crate::support::wait::until_exists(&stands);
        let (refused, why) = control.refused("update", &network(json!({ "allow": ["other.example:80,8081"] })));
        assert!(refused == "state" && why.contains("listens on one of the ports"), "{refused}: {why}");
        assert_eq!(held(control.get("state")), before);
        served.end();
    }

    /// A sandbox without a network by policy cannot be given one.
    fn a_sandbox_without_a_policy_keeps_none(caller) {
        let network_of_test = network!(caller);
        let served = Served::new(&network_of_test, &[]);
        let mut control = served.control(&network_of_test);
        let (kind, why) = control.refused("update", &network(json!({ "allow": ["good.example"] })));
        assert!(kind == "unsupported" && why.contains("network.mode is none"), "{kind}: {why}");
        assert_eq!(control.get("state")["network"], Value::Null);
        served.end();
    }

    /// What was done for each host is counted, and shown with what else the sandbox uses.
    fn hosts_are_counted(caller) {
        let network_of_test = network!(caller);
        let place = &network_of_test.wrap.place;
        let name = place.path().file_name().unwrap().to_str().unwrap();
        let mut served = Served::new(&network_of_test, &["--id", name, "--allow-host", "good.example"]);
        let mut control = served.control(&network_of_test);
        served.run("curl -sS http://good.example/; curl -sS http://good.example/; curl -sS http://other.example/; true");
        let account = control.get("stats")["network"].take();
        let of = |host: &str| account["hosts"].as_array().unwrap().iter().find(|row| row["host"] == host).cloned().unwrap();
        let good = of("good.example");
        assert_eq!((&good["port"], &good["connections"], &good["refused"]), (&json!(80), &json!(2), &json!(0)));
        assert!(good["sent"].as_u64().unwrap() > 100 && good["received"].as_u64().unwrap() > 100, "{good}");
        let other = of("other.example");
        assert!(other["connections"] == 0 && other["refused"].as_u64().unwrap() >= 1, "{other}");

        let stats = |options: &[&str]| {
            let shown = place.saggar().arg("stats").args(options).output().unwrap();
            assert!(shown.status.success(), "{shown:?}");
            String::from_utf8(shown.stdout).unwrap()
        };
        let shown: Value = serde_json::from_str(&stats(&["--json", name])).unwrap();
        assert_eq!(shown["network"], account);
        let table = stats(&[name]);
        let words = |host: &str| {
            let line = table.lines().find(|line| line.starts_with(host)).unwrap_or_else(|| panic!("{table}"));
            line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(words("good.example:80 ")[1..4], ["2", "0", "0"], "{table}");
        assert_eq!(words("other.example ")[1..4], ["0".to_owned(), other["refused"].to_string(), "0".into()], "{table}");
        let sent_and_received = words(name)[words(name).len() - 3..].join(" ");
        assert!(sent_and_received.ends_with('B') && sent_and_received.contains(" / "), "{table}");
        // Beside others, only the sums.
        assert!(!stats(&[]).contains("good.example"));
        served.end();
    }
}
