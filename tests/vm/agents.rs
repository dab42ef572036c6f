//! The cgroups of an agent's sandbox in a cgroup that was given to saggar alone: a leaf for each command of a server,
//! who dies for want of memory, and what is told of it.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::inject::{Fault, Tracer};
use super::limits::Given;
use crate::support::bridge_client::BridgeClient;
use crate::support::caller::Caller;
use crate::support::deadline::Deadline;
use crate::support::process::Watch;
use crate::support::wait::until_gone;

/// An agent that has more memory than is left for all others, and runs what it is told to with a shell.
const AGENT: &str = r#"#!/usr/bin/python3
import json, subprocess, sys
memory = bytearray(b"x") * (56 << 20)
def say(**event): print(json.dumps(event), flush=True)
say(ev="ready")
for command in map(json.loads, sys.stdin):
    if command["cmd"] == "query":
        while command["prompt"] == "grow": memory += bytearray(b"x") * (1 << 20)
        status = subprocess.run(command["prompt"], shell=True).returncode
        say(ev="message", data={"type": "assistant", "status": status})
    if command["cmd"] in ("query", "resume"):
        say(ev="done", sessionId=command["sessionId"])
"#;

/// Takes memory in small pieces, so that it is never the largest here before the limit is met.
const ALLOCATOR: &str =
    "exec python3 -c 'memory = []\nwhile True: memory.append(bytearray(b\"x\") * (256 << 10))'";

/// The limit.
const MEMORY: u64 = 96 << 20;

/// A running `saggar agent` in a given cgroup.
pub(crate) struct Served {
    pub(crate) child: Child,
    client: BridgeClient,
    events: PathBuf,
    agent: u32,
}

impl Served {
    fn new(given: &Given) -> Self {
        Served::in_session(given, "first", "")
    }

    /// With more limits than those that it always has, as a policy has them.
    pub(crate) fn with(given: &Given, limits: &str) -> Self {
        Served::in_session(given, "first", limits)
    }

    fn in_session(given: &Given, session: &str, limits: &str) -> Self {
        let place = &given.place;
        place.make_file("work/CLAUDE.md", "The folder of a test.\n");
        let script = place.make_file("work/agent", AGENT);
        fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let (work, socket) = (place.work(), place.join("run/b.sock"));
        let events = place.make_file("events", "");
        let mut command = place.command(Path::new("/bin/sh"));
        command
            .args(["-c", "exec 3>\"$0\"; read go; exec \"$@\""])
            .arg(&events)
            .arg(crate::support::binary::saggar());
        command.arg("agent").arg(&work).arg("--workspace").arg(&work).arg("--agent-cmd").arg(&script);
        command.args(["--adapter", "demo", "--id", &name(given), "--status-fd", "3", "--ready-fd", "1"]);
        command
            .args(["--session", session, "--memory", &MEMORY.to_string(), "--pids", "100"])
            .arg("--bridge-socket")
            .arg(&socket)
            .arg("--control-socket")
            .arg(control(given));
        if !limits.is_empty() {
            let policy = place.make_file("limits.toml", &format!("[limits]\n{limits}\n"));
            command.arg("--policy").arg(policy);
        }
        let stderr = File::create(place.join("stderr")).unwrap();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr).spawn().unwrap();
        fs::write(given.path.join("cgroup.procs"), child.id().to_string()).unwrap();
        child.stdin.take().unwrap().write_all(b"go\n").unwrap();
        let mut ready = [0];
        let heard = child.stdout.as_mut().unwrap().read(&mut ready);
        let said = || fs::read_to_string(place.join("stderr")).unwrap();
        assert!(matches!((&heard, ready), (Ok(1), [b'R'])), "{heard:?}: {}", said());
        let client = BridgeClient::connect(&socket);
        let mut served = Served { child, client, events, agent: 0 };
        served.agent = served.told("started")[0]["pid"].as_u64().unwrap().try_into().unwrap();
        served
    }

    /// The events of this name so far.
    fn told(&self, event: &str) -> Vec<Value> {
        let text = fs::read_to_string(&self.events).unwrap();
        let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        events.filter(|told| told["event"] == event).collect()
    }

    /// A command of the server's: its exit code, and what was told of its end.
    fn exec(&mut self, command: &str) -> (Value, Value) {
        let result = self.client.exec(command, 120_000);
        (result["exitCode"].clone(), self.told("exec").pop().unwrap())
    }

    /// A command that the agent runs itself: its status.
    fn runs(&mut self, command: &str) -> Value {
        let outcome = self.client.turn(command);
        assert!(outcome.is_done(), "{:?}", outcome.end);
        outcome.messages[0]["status"].clone()
    }

    /// It is the first program of the sandbox still.
    #[track_caller]
    pub(crate) fn agent_lives(&mut self) {
        assert_eq!(self.runs("true"), 0);
        assert_eq!(self.told("started").len(), 1);
        let list = fs::read_to_string(format!("/proc/{}/cmdline", self.agent)).unwrap();
        assert!(list.contains("python3"), "{list}");
    }

    pub(crate) fn shut_down(mut self) -> Vec<Value> {
        self.client.send(&json!({"cmd": "shutdown"}));
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        self.told("exited")
    }
}

/// A connection to the control socket (saggar-control(7)).
pub(crate) struct Control(BufReader<UnixStream>);

impl Control {
    pub(crate) fn connect(given: &Given) -> Self {
        let mut it = Control(BufReader::new(UnixStream::connect(control(given)).unwrap()));
        it.call("hello", json!({ "version": 1 }));
        it
    }

    /// Asks; the whole answer.
    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Value {
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        self.0.get_mut().write_all(format!("{call}\n").as_bytes()).unwrap();
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    #[track_caller]
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        let mut answer = self.ask(method, params);
        assert!(answer.get("error").is_none(), "{answer}");
        answer["result"].take()
    }
}

fn control(given: &Given) -> PathBuf {
    given.place.join("run/c.sock")
}

fn name(given: &Given) -> String {
    given.place.path().file_name().unwrap().to_str().unwrap().to_owned()
}

/// Its cgroup.
pub(crate) fn sandbox(given: &Given) -> PathBuf {
    given.path.join(format!("saggar-{}", name(given)))
}

/// The leaves that are there.
fn leaves(given: &Given) -> Vec<PathBuf> {
    let entries = fs::read_dir(sandbox(given)).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("exec-")).collect()
}

/// Waits until no process is left in these leaves.
#[track_caller]
fn until_empty(leaves: &[PathBuf]) {
    let deadline = Deadline::usual();
    // A leaf that is gone is empty.
    let inside = || {
        leaves
            .iter()
            .map(|leaf| fs::read_to_string(leaf.join("cgroup.procs")).unwrap_or_default())
            .collect::<String>()
    };
    while !inside().is_empty() {
        assert!(!deadline.remaining().is_zero(), "{} live on", inside());
        deadline.pause();
    }
}

as_each_caller! {
    /// DECISIONS 10, KC-08: a command that takes all memory dies whole, the larger agent answers, and it is told
    /// from a kill by somebody else and from an exit status that looks like one.
    fn given_a_cgroup_an_allocator_of_a_server_dies_and_the_agent_answers(caller) {
        let given = Given::new(caller);
        let mut served = Served::new(&given);
        let (code, told) = served.exec(&format!("sleep 1000 & {ALLOCATOR}"));
        assert_eq!((&code, &told["reason"], &told["limit"], &told["signal"]),
            (&137.into(), &"oom".into(), &"memory".into(), &9.into()), "{told}");
        assert!(told["memory_peak"].as_u64().unwrap() > 8 << 20, "{told}");
        // Its `sleep` too, which took next to nothing (memory.oom.group).
        until_empty(&leaves(&given));
        served.agent_lives();
        let killed = served.told("oom");
        assert_eq!((&killed[0]["usage"]["memory_max"], killed.is_empty()), (&MEMORY.into(), false), "{killed:?}");
        if caller.is_root() {
            assert_eq!(killed[0]["program"], "python3", "{killed:?}");
        }
        let (code, told) = served.exec("kill -9 $$");
        assert_eq!((&code, &told["reason"], &told["limit"]), (&137.into(), &"signal".into(), &Value::Null), "{told}");
        let (code, told) = served.exec("exit 137");
        assert_eq!((&code, &told["reason"], &told["exit_code"]), (&137.into(), &"exit".into(), &137.into()), "{told}");
        let result = served.client.exec("sleep 1000", 300);
        assert_eq!((&result["exitCode"], &served.told("exec")[3]["reason"]), (&124.into(), &"timeout".into()));
        served.agent_lives();
        let exited = served.shut_down();
        assert_eq!(exited[0]["reason"], "exit", "{exited:?}");
        given.is_as_it_was();
    }

    /// DECISIONS 10: the same of a tool that the agent started itself, whose score nobody could set before.
    fn given_a_cgroup_an_allocator_of_the_agent_dies_and_the_agent_answers(caller) {
        let given = Given::new(caller);
        let mut served = Served::new(&given);
        for round in 1..=2 {
            assert_eq!(served.runs(ALLOCATOR), -9);
            served.agent_lives();
            assert_eq!(served.told("oom").len(), round);
        }
        if caller.is_root() {
            assert_eq!(served.told("oom")[0]["program"], "python3");
        }
        let score = fs::read_to_string(format!("/proc/{}/oom_score_adj", served.agent)).unwrap();
        assert_eq!(score, fs::read_to_string("/proc/self/oom_score_adj").unwrap(), "the agent's own is as it was");
        served.shut_down();
        given.is_as_it_was();
    }

    /// KC-08: the agent that takes all memory dies of it, and is told to have; one that is killed is not.
    fn given_a_cgroup_the_cause_of_a_killed_agent_is_reported(caller) {
        let given = Given::new(caller);
        let mut served = Served::new(&given);
        let error = served.client.turn("grow").end["error"].as_str().unwrap().to_owned();
        assert!(error.contains("memory limit"), "{error}");
        // It is started again for the next query; that one has a tool that dies for want of memory first.
        assert_eq!(served.runs(ALLOCATOR), -9);
        let error = served.client.turn("sleep 1; kill -9 $PPID").end["error"].as_str().unwrap().to_owned();
        assert!(error.contains("signal 9"), "{error}");
        served.shut_down();
        given.is_as_it_was();
    }

    /// KC-07: commands leave no cgroup; what they left running keeps its own as long as it runs.
    fn given_a_cgroup_fifty_commands_leave_no_leaf(caller) {
        let given = Given::new(caller);
        let mut served = Served::new(&given);
        let (_, told) = served.exec("setsid sleep 1000 & echo $! > pid; grep -q exec- /proc/self/cgroup");
        assert_eq!(told["exit_code"], 0);
        let inside = |leaf: &PathBuf| fs::read_to_string(leaf.join("cgroup.procs")).unwrap().lines().count();
        assert_eq!(leaves(&given).iter().map(inside).sum::<usize>(), 1, "it lives in its leaf");
        assert_eq!(served.exec("kill $(cat pid)").0, 0);
        for _ in 0..48 {
            assert_eq!(served.exec("true").0, 0);
        }
        for leaf in leaves(&given) {
            until_gone(&leaf);
        }
        let inside = fs::read_to_string(sandbox(&given).join("main/cgroup.procs")).unwrap();
        assert_eq!(inside.lines().count(), 2, "pid 1 and the agent: {inside}");
        served.shut_down();
        given.is_as_it_was();
    }

    /// DECISIONS 11: whenever the supervisor is killed, the sandbox and its leaves go.
    fn given_a_cgroup_leaves_go_with_a_killed_supervisor(caller) {
        let given = Given::new(caller);
        for round in 0..5 {
            let mut served = Served::in_session(&given, &format!("round-{round}"), "");
            let aside = given.children().into_iter().find(|child| !child.join("main").exists()).unwrap();
            let pids = fs::read_to_string(aside.join("cgroup.procs")).unwrap();
            let aside: Vec<Watch> = pids.lines().filter_map(|pid| Watch::of(pid.parse().unwrap())).collect();
            let agent = Watch::of(served.agent).unwrap();
            for _ in 0..4 {
                served.client.send(&json!({"cmd": "exec", "command": "sleep 1000", "id": 1}));
            }
            // From "asked for" to "all of them run": the moment is what this test is about; nothing is waited for.
            std::thread::sleep(std::time::Duration::from_millis(20 * round));
            served.child.kill().unwrap();
            served.child.wait().unwrap();
            agent.wait_gone("the agent");
            until_gone(&sandbox(&given));
            aside.iter().for_each(|one| one.wait_gone("who had stepped aside"));
            given.is_as_it_was();
        }
    }

    /// KC-34: `stats` shows what the cgroup's files say.
    fn given_a_cgroup_stats_are_those_of_its_files(caller) {
        let given = Given::new(caller);
        let mut served = Served::new(&given);
        assert_eq!(served.runs("cat agent > /dev/null"), 0);
        let own = |args: &[&str]| stats(given.place.saggar(), args);
        let line = own(&["--json", &name(&given)]);
        let read: Value = serde_json::from_str(&line).unwrap();
        let file = |file: &str| fs::read_to_string(sandbox(&given).join(file)).unwrap().trim().to_owned();
        assert_eq!(read["cgroup"], sandbox(&given).to_str().unwrap());
        assert_eq!(read["memory"]["max"].to_string(), file("memory.max"));
        assert_eq!(read["memory"]["peak"].to_string(), file("memory.peak"));
        assert_eq!(read["pids"]["max"].to_string(), file("pids.max"));
        assert_eq!(read["pids"]["current"].to_string(), file("pids.current"));
        let current = read["memory"]["current"].as_u64().unwrap();
        assert!(current.abs_diff(file("memory.current").parse().unwrap()) < 8 << 20, "{read}");
        let used = file("cpu.stat");
        let used: u64 = used.lines().next().unwrap().strip_prefix("usage_usec ").unwrap().parse().unwrap();
        let told = read["cpu"]["usage_usec"].as_u64().unwrap();
        assert!(told <= used && told > used / 2, "{told} of {used}");
        assert_eq!((&read["exceeded"]["oom_kills"], &read["exceeded"]["pids"]), (&0.into(), &0.into()));
        assert!(read["pressure"]["memory"]["some"]["total"].is_u64(), "{read}");
        let table = own(&[]);
        assert!(table.starts_with("ID "), "{table}");
        assert!(table.lines().any(|line| line.starts_with(&name(&given)) && line.contains("/ 96MiB")), "{table}");
        // Root sees those of others too; they do not see root's.
        if let Ok(root) = Caller::root() {
            let mut command = Command::new(crate::support::binary::saggar());
            root.apply(&mut command);
            assert!(stats(command, &[]).contains(&name(&given)));
            if caller.is_root() {
                let mut other = Command::new(crate::support::binary::saggar());
                Caller::ordinary().unwrap().apply(&mut other);
                assert!(!stats(other, &[]).contains(&name(&given)));
            }
        }
        served.shut_down();
        assert!(!own(&[]).contains(&name(&given)));
        given.is_as_it_was();
    }
}

/// DECISIONS 10: who cannot be held together at the limit of memory runs, and the log says so.
#[test]
fn given_a_cgroup_a_leaf_without_group_kill_is_logged() {
    let caller = match Caller::root() {
        Ok(caller) => caller,
        Err(why) => skip!("{why}"),
    };
    let given = Given::new(caller);
    let mut served = Served::new(&given);
    for (leaf, fault) in [("exec-1", Fault::Refused), ("exec-2", Fault::Kept)] {
        let file = sandbox(&given).join(leaf).join("memory.oom.group");
        let tracer = Tracer::attach(&given, served.child.id(), &file, &fault.inject("1"));
        assert_eq!(served.exec("true").0, 0);
        tracer.end();
        let said = fs::read_to_string(given.place.join("stderr")).unwrap();
        let what = match fault {
            Fault::Refused => format!("write \"1\" to {}: Invalid argument", file.display()),
            Fault::Kept => format!("{} reads \"0\" after \"1\" was written", file.display()),
        };
        assert!(said.contains("outlives its end for want of memory") && said.contains(&what), "{said}");
    }
    served.shut_down();
    given.is_as_it_was();
}

fn stats(mut command: Command, args: &[&str]) -> String {
    let output = command.arg("stats").args(args).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
