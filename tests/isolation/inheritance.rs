//! What a program has of the process that started saggar, attribute by attribute (saggar(1), INHERITANCE). The caller has a
//! value of its own of each, and a program tells what it finds; the same program tells the host's.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use super::wrapped::Wrap;
use crate::bridge::served::{Served, Stage};
use crate::support::caller::Caller;
use crate::support::place::Place;

/// Executes its arguments as a process that differs from others in every attribute.
const CALLER: &str = r#"
import ctypes, os, resource, signal, sys
libc = ctypes.CDLL(None)
os.umask(0o027)
os.nice(5)
libc.syscall(251, 1, 0, (2 << 13) | 6)
os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
libc.prctl(29, 123456)
libc.personality(0x0040000)
libc.prctl(41, 1, 0, 0, 0)
open("/proc/self/oom_score_adj", "w").write("300")
open("/proc/self/coredump_filter", "w").write("0x1")
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))
resource.setrlimit(resource.RLIMIT_CPU, (1000, 1000))
resource.setrlimit(resource.RLIMIT_STACK, (8 << 20, 16 << 20))
for number, value in {2: 1 << 40, 5: 1 << 41, 8: 1 << 16, 9: 1 << 42, 10: 1000, 15: 1 << 24}.items():
    resource.setrlimit(number, (value, value))
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
libc.prctl(1, 15)
libc.prctl(36, 1)
os.set_inheritable(os.dup2(0, 77), True)
os.execv(sys.argv[1], sys.argv[1:])
"#;

/// Says what it has, in lines of a name and a value.
const TELLS: &str = r#"
import ctypes, os, resource
libc = ctypes.CDLL(None)
status = dict(line.rstrip("\n").split(":\t", 1) for line in open("/proc/self/status") if ":\t" in line)
def told(option):
    number = ctypes.c_int()
    libc.prctl(option, ctypes.byref(number))
    return number.value
user1, user2 = 1 << 9, 1 << 11
for name, value in {
    "umask": status["Umask"],
    "nice": os.nice(0),
    "ioprio": libc.syscall(252, 1, 0),
    "scheduling": (os.sched_getscheduler(0), os.sched_getparam(0).sched_priority),
    "affinity": sorted(os.sched_getaffinity(0)),
    "nodes": status["Mems_allowed_list"],
    "timer slack": libc.prctl(30),
    "personality": libc.personality(0xffffffff),
    "oom score": open("/proc/self/oom_score_adj").read().strip(),
    "huge pages": libc.prctl(42, 0, 0, 0, 0),
    "core filter": open("/proc/self/coredump_filter").read().strip(),
    "limits": [resource.getrlimit(number) for number in (5, 8, 9, 10, 13, 14, 15)],
    "data": resource.getrlimit(resource.RLIMIT_DATA),
    "file size": resource.getrlimit(resource.RLIMIT_FSIZE),
    "cpu": resource.getrlimit(resource.RLIMIT_CPU),
    "stack": resource.getrlimit(resource.RLIMIT_STACK),
    "ignores": int(status["SigIgn"], 16) & user1 != 0,
    "blocks": int(status["SigBlk"], 16) & user2 != 0,
    "leads": (os.getsid(0), os.getpgrp()) == (os.getpid(), os.getpid()),
    "terminal": int(open("/proc/self/stat").read().rsplit(")")[1].split()[4]),
    "directory": os.getcwd(),
    "keyring": libc.syscall(250, 0, -3, 0) >= 0,
    "descriptors": sorted(int(fd) for fd in os.listdir("/proc/self/fd"))[:-1],
    "no new privileges": libc.prctl(39, 0, 0, 0, 0),
    "capabilities": [int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")],
    "dumpable": libc.prctl(3, 0, 0, 0, 0),
    "parent death": told(2),
    "subreaper": told(37),
}.items():
    print(f"{name}={value}")
"#;

/// Attributes that are the caller's.
const INHERITED: [(&str, &str); 15] = [
    ("umask", "0027"),
    ("nice", ""),
    ("ioprio", "16390"),
    ("scheduling", "(3, 0)"),
    ("affinity", ""),
    ("nodes", ""),
    ("timer slack", "123456"),
    ("personality", "262144"),
    ("oom score", "300"),
    ("huge pages", "1"),
    ("core filter", "00000001"),
    ("limits", ""),
    ("file size", "(1073741824, 1073741824)"),
    ("cpu", "(1000, 1000)"),
    ("stack", "(8388608, 16777216)"),
];

/// Attributes that saggar sets. Apart from them, what runs in the sandbox of an agent is a subreaper, and commands are the first
/// that are killed when memory is short.
const SET: [(&str, &str); 10] = [
    ("ignores", "False"),
    ("blocks", "False"),
    ("leads", "True"),
    ("terminal", "0"),
    ("keyring", "False"),
    ("descriptors", "[0, 1, 2]"),
    ("no new privileges", "1"),
    ("capabilities", "[0, 0, 0, 0, 0]"),
    ("dumpable", "1"),
    ("parent death", "0"),
];

const PYTHON: &str = "/usr/bin/python3";

/// An agent that tells this in a file, and waits.
const AGENT: &str = "
import contextlib, io, os, sys
text = io.StringIO()
with contextlib.redirect_stdout(text):
    exec(open('tells.py').read())
with open('told.new', 'w') as file:
    file.write(text.getvalue())
os.rename('told.new', 'told')
sys.stdin.read()
";

/// The command, started by a process with attributes of its own.
fn by_the_caller(place: &Place, command: &Command) -> Command {
    let caller: PathBuf = place.make_file("caller.py", CALLER);
    let mut started = place.command(PYTHON.as_ref());
    started.arg(caller).arg(command.get_program()).args(command.get_args());
    started
}

fn values(told: &str) -> BTreeMap<&str, &str> {
    told.lines().filter_map(|line| line.split_once('=')).collect()
}

/// Compares what a program inside told with what one outside did.
fn check(inside: &str, outside: &str, work: &str, has_agent: bool) {
    let (inside, outside) = (values(inside), values(outside));
    let data = inside["data"];
    // Where no cgroup holds the memory limit of 2 GiB, each process has it.
    assert!(data == outside["data"] || data == "(2147483648, 2147483648)", "{data}");
    assert_eq!(inside["subreaper"], if has_agent { "1" } else { "0" });
    for (name, value) in INHERITED {
        if name == "oom score" && has_agent && inside[name] == "1000" {
            continue;
        }
        assert_eq!(inside.get(name), outside.get(name), "{name}");
        assert!(value.is_empty() || inside[name] == value, "{name}: {} and not {value}", inside[name]);
    }
    for (name, value) in SET {
        assert_eq!(inside.get(name), Some(&value), "{name}");
    }
    assert_eq!(inside["directory"], work);
}

as_each_caller! {
    fn a_program_has_the_attributes_of_the_table(caller) {
        let wrap = Wrap::new(caller);
        let mut host = Command::new(PYTHON);
        host.args(["-c", TELLS]);
        let outside = wrap.finish(by_the_caller(&wrap.place, &host)).success();
        assert_eq!((values(&outside)["ignores"], values(&outside)["blocks"]), ("True", "True"), "the caller differs");
        let inside = wrap.finish(by_the_caller(&wrap.place, &wrap.command(&[], &[PYTHON, "-c", TELLS]))).success();
        check(&inside, &outside, wrap.work().to_str().unwrap(), false);
    }

    /// The agent itself, its scripts, and a command beside it.
    fn an_agent_and_its_commands_have_the_attributes_of_the_table(caller) {
        let stage = Stage::new(caller);
        stage.place.make_file("work/tells.py", TELLS);
        let tells = format!("exec {PYTHON} tells.py");
        stage.place.make_file("work/startup.sh", &format!("{tells} >script"));
        let agent = stage.script("agent", &format!("#!{PYTHON}\n{AGENT}"));
        let mut host = Command::new(PYTHON);
        host.args(["-c", TELLS]);
        let outside = stage.run(by_the_caller(&stage.place, &host)).stdout;
        let mut command = stage.command(&["--adapter", "stream-json", "--agent-cmd", &agent]);
        command.arg("--bridge-socket").arg(stage.socket()).args(["--ready-fd", "1"]);
        let served = Served::start(&stage.place, by_the_caller(&stage.place, &command), &stage.socket());
        let mut client = served.connect();
        let told = client.exec(&tells, 30_000);
        client.query("x");
        crate::support::wait::until_exists(&stage.work().join("told"));
        let read = |name: &str| std::fs::read_to_string(stage.work().join(name)).unwrap();
        let work = stage.work();
        let told = told["stdout"].as_str().unwrap();
        for inside in [told, &read("script"), &read("told")] {
            check(inside, &outside, work.to_str().unwrap(), true);
        }
        drop(served);
    }

    /// Neither a mask that forbids everything nor one that forbids nothing changes what saggar makes for a sandbox.
    fn any_umask_gives_the_same_root(caller) {
        let wrap = Wrap::new(caller);
        let looks = ["/bin/sh", "-c", "umask; stat -c '%a %n' / /etc /etc/passwd /var /home /home/agent /tmp"];
        let usual = wrap.started_by_shell("umask 022; exec \"$@\"", &[], &looks).success();
        for mask in ["000", "077", "777"] {
            let told = wrap.started_by_shell(&format!("umask {mask}; exec \"$@\""), &[], &looks).success();
            assert_eq!(told, usual.replacen("0022", &format!("0{mask}"), 1));
        }
    }
}

/// A cgroup of version 1 may take no process with such a policy; then a CPU limit that is not required is left out.
#[test]
fn a_program_has_the_real_time_policy_of_the_caller() {
    let Ok(caller) = Caller::root() else { skip!("this test needs to be started as root") };
    let wrap = Wrap::new(caller);
    let started = wrap.started_by_shell("chrt -f -p 3 $$ && exec \"$@\"", &[], &["/usr/bin/chrt", "-p", "0"]);
    let said = started.success();
    assert!(said.contains("SCHED_FIFO") && said.contains("priority: 3"), "{said}");
    // What a start reports as missing, explain does not report as held.
    let real_time = |arguments: &[&str]| {
        let mut command = wrap.place.command("/usr/bin/chrt".as_ref());
        command.args(["-f", "3"]).arg(wrap.place.saggar().get_program()).args(arguments);
        wrap.finish(command)
    };
    let started = real_time(&["wrap", "--", "/bin/true"]);
    let explained: serde_json::Value =
        serde_json::from_str(&real_time(&["explain", "--json"]).success()).unwrap();
    let cpu = explained["limits"].as_array().unwrap().iter().find(|row| row["name"] == "cpu").unwrap();
    assert_eq!(cpu["holds"] == false, started.stderr.contains("no cgroup enforces"), "{cpu} {started:?}");
}
