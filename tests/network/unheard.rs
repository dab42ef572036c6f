//! What nobody hears is told all the same: other ports, datagrams, and the loopback of the host.

use std::fs;

use serde_json::Value;

use super::served::Served;
use super::{Network, counted, times, told};
use crate::support::wait::until;

const PYTHON: &str = "/usr/bin/python3";
const NO_PORT: &str = "no rule names this port";
const NO_UDP: &str = "of UDP only DNS is served";
const INSIDE: &str = "nothing inside listens there, and the loopback of the host is not reached";

/// Calls each `NETWORK:HOST:PORT` (with `tcp` or `udp`), and says how it went.
const CALL: &str = "import socket, sys
for call in sys.argv[1:]:
    network, address = call.split(':', 1)
    host, port = address.rsplit(':', 1)
    kind = socket.SOCK_STREAM if network == 'tcp' else socket.SOCK_DGRAM
    family, _, _, _, at = socket.getaddrinfo(host.strip('[]'), port, type=kind)[0]
    s = socket.socket(family, kind)
    s.settimeout(10)
    try:
        s.connect(at)
        if network == 'udp': s.send(b'x'); s.recv(1)
        print('answered')
    except OSError as error: print(error.strerror)
";

/// Starts saggar while a server of the host listens on its loopback, and says whether anybody called it.
const WITH_SERVER: &str = "import os, socket, subprocess, sys
events = os.open('events', os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
servers = [socket.create_server((host, 5432), family=family) for host, family in (('127.0.0.1', socket.AF_INET), ('::1', socket.AF_INET6))]
assert events == 3
os.set_inheritable(events, True)
status = subprocess.call(sys.argv[1:], close_fds=False)
for server in servers:
    server.setblocking(False)
    try: server.accept(); print('called')
    except BlockingIOError: pass
sys.exit(status)";

/// What these calls came to: each was refused at once.
fn refused(network: &Network, options: &[&str], calls: &[&str]) -> String {
    let ended = network.run_with(options, &[&[PYTHON, "-c", CALL], calls].concat());
    let stderr = ended.stderr.clone();
    assert_eq!(ended.success(), "Connection refused\n".repeat(calls.len()), "{stderr}");
    stderr
}

/// The events of this kind as HOST:PORT and why, in order of the former.
fn sorted(network: &Network, kind: &str) -> Vec<(String, String)> {
    let mut events: Vec<_> = network.events(kind).iter().map(told).collect();
    events.sort();
    events
}

fn each(whom: &[&str], why: &str) -> Vec<(String, String)> {
    whom.iter().map(|whom| ((*whom).to_owned(), why.to_owned())).collect()
}

as_each_caller! {
    /// By name where there is one, over both families, with the program.
    fn connection_to_another_port_is_reported(caller) {
        let network = network!(caller);
        let calls = ["tcp:good.example:8443", "tcp:93.184.215.15:5432", "tcp:[2001:db8::5]:22"];
        let stderr = refused(&network, &["--allow-host", "good.example"], &calls);
        let whom = ["93.184.215.15:5432", "[2001:db8::5]:22", "good.example:8443"];
        assert_eq!(sorted(&network, "refused"), each(&whom, NO_PORT));
        for line in ["93.184.215.15:5432", "[2001:db8::5]:22", "good.example:8443"] {
            assert!(stderr.contains(&format!("network: {line} refused: {NO_PORT}, by python3 (pid ")), "{stderr}");
        }
        assert_eq!(network.contacts(), Vec::<String>::new());
    }

    fn rejected_connection_to_a_stand_in_address_is_reported_by_name(caller) {
        let network = network!(caller);
        let script = "for family in 4 6; do curl -$family -sS -m 20 http://good.example:844$family/ 2>/dev/null; echo $?; done";
        assert_eq!(network.run(&["good.example"], script).success(), "7\n7\n");
        assert_eq!(sorted(&network, "refused"), each(&["good.example:8444", "good.example:8446"], NO_PORT));
        let events = network.events("refused");
        assert!(events.iter().all(|event| event.get("address").is_none()));
        assert!(events.iter().all(|event| event["program"]["name"] == "curl"), "{events:?}");
    }

    fn report_of_a_rejected_connection_names_the_denying_rule(caller) {
        let network = network!(caller);
        let options = ["--allow-host", "good.example", "--deny-host", "good.example:8443", "--deny-host", "203.0.113.0/24:22"];
        refused(&network, &options, &["tcp:good.example:8443", "tcp:203.0.113.9:22"]);
        assert_eq!(sorted(&network, "refused"), each(&["203.0.113.9:22", "good.example:8443"], "it is denied"));
        let rules: Vec<Value> = network.events("refused").iter().map(|event| event["rule"].clone()).collect();
        assert_eq!(rules, ["good.example:8443", "203.0.113.0/24:22"]);
    }

    fn rejected_datagrams_are_reported(caller) {
        let network = network!(caller);
        let calls = ["udp:good.example:443", "udp:93.184.215.15:123", "udp:[2001:db8::5]:443"];
        let stderr = refused(&network, &["--allow-host", "good.example"], &calls);
        let whom = ["93.184.215.15:123", "[2001:db8::5]:443", "good.example:443"];
        assert_eq!(sorted(&network, "refused"), each(&whom, NO_UDP));
        assert!(stderr.contains(&format!("network: good.example:443 refused: {NO_UDP}")), "{stderr}");
    }

    /// A server that listens there on the host hears nothing. That nobody listens inside is no matter for a log:
    /// programs look for their own servers until these are up.
    fn rejected_loopback_connections_are_reported_only_as_events(caller) {
        let network = network!(caller);
        let calls = ["tcp:127.0.0.1:5432", "tcp:[::1]:5432", "udp:127.0.0.1:5433", "udp:[::1]:5433"];
        let program = [&[PYTHON, "-c", CALL], &calls[..]].concat();
        let ended = network.run_by(&["python3", "-c", WITH_SERVER], &["--allow-host", "good.example"], &program);
        assert!(!ended.stderr.contains("network:"), "{}", ended.stderr);
        assert_eq!(ended.success(), "Connection refused\n".repeat(4));
        let whom = ["127.0.0.1:5432", "127.0.0.1:5433", "[::1]:5432", "[::1]:5433"];
        assert_eq!(sorted(&network, "unreachable"), each(&whom, INSIDE));
        assert_eq!(network.refused(), []);
    }

    /// What saggar answers somebody who no longer waits is refused by the kernel too.
    fn replies_of_saggar_itself_are_not_reported(caller) {
        let network = network!(caller);
        let script = "import socket
query = bytes([7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0]) + b'\\x04GOOD\\x07example\\0' + bytes([0, 1, 0, 1])
for at in ('8.8.8.8', '127.0.0.1', '2001:db8::53') * 20:
    s = socket.socket(socket.AF_INET6 if ':' in at else socket.AF_INET, socket.SOCK_DGRAM)
    s.sendto(query, (at, 53))
    s.close()
# Answered after all of those.
socket.getaddrinfo('good.example', 80)
try: socket.create_connection(('good.example', 8443), 10)
except OSError: pass";
        network.run_with(&["--allow-host", "good.example"], &[PYTHON, "-c", script]).success();
        network.has_refused("good.example:8443", NO_PORT);
        assert_eq!(network.events("unreachable"), Vec::<Value>::new());
    }

    /// The agent and what runs beside it, with the pid that the host knows it by; also of a socket that was never
    /// connected.
    fn report_of_a_rejected_datagram_names_the_program(caller) {
        let network = network!(caller);
        let mut served = Served::new(&network, &["--allow-host", "good.example"]);
        for (family, address) in [("AF_INET", "203.0.113.9"), ("AF_INET6", "2001:db8::9")] {
            let work = network.wrap.work();
            let (inside, go) = (work.join("inside"), work.join("told"));
            let script = format!("import os, socket
s = socket.socket(socket.{family}, socket.SOCK_DGRAM)
os.mkfifo('told')
open('inside', 'w').write(str(os.getpid()))
s.sendto(b'x', ('{address}', 9000))
open('told').read()");
            served.begin(&format!("exec python3 -c \"{script}\""));
            let told = || network.events("refused").into_iter().find(|event| event["address"] == address);
            until(&work.join("events"), "have the refusal", |_| told().is_some());
            let event = told().unwrap();
            assert_eq!((&event["why"], &event["port"]), (&Value::from(NO_UDP), &Value::from(9000)));
            assert_eq!(event["program"]["name"], "python3", "{event}");
            let status = fs::read_to_string(format!("/proc/{}/status", event["program"]["pid"])).unwrap();
            let pids = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap();
            assert_eq!(pids.split_whitespace().last(), Some(fs::read_to_string(&inside).unwrap().as_str()));
            fs::write(&go, "").unwrap();
            served.ran();
            fs::remove_file(&go).unwrap();
        }
        served.run("curl -m 20 http://good.example:8443/ 2>&1");
        // It may be told a moment after the end of who wanted it.
        let told = || network.events("refused").into_iter().find(|event| event["host"] == "good.example");
        until(&network.wrap.work().join("events"), "have the refusal", |_| told().is_some());
        assert_eq!(told().unwrap()["why"], NO_PORT);
        served.end();
    }

    /// It is told once in a second with its count, whatever else goes on does go on, and there is an end to what is
    /// told apart.
    fn a_flood_is_bounded(caller) {
        let network = network!(caller);
        let script = "import socket, time, urllib.request
begin = time.monotonic()
def call(port):
    s = socket.socket()
    try: s.connect(('203.0.113.9', port))
    except ConnectionRefusedError: s.close()
calls = 0
while time.monotonic() < begin + 2.5:
    call(1999 if calls % 2 else 2000 + calls % 1000)
    calls += 1
print(urllib.request.urlopen('http://four.example/', timeout=20).read().decode(), end='')
print(calls, int(time.monotonic() - begin))";
        let ended = network.run_with(&["--allow-host", "four.example"], &[PYTHON, "-c", script]);
        let stderr = ended.stderr.clone();
        let said = ended.success();
        let (calls, seconds) = counted(&said);
        let events = network.events("refused");
        let same: Vec<Value> = events.iter().filter(|event| event["port"] == 1999).cloned().collect();
        assert!((2..=seconds + 2).contains(&same.len()), "{} in {seconds} s", same.len());
        // 256 are told apart, and the rest together.
        assert!(events.len() <= 257 * (seconds + 2), "{} in {seconds} s", events.len());
        // Of so many some are lost, and those of the last second are not told any more.
        assert!((calls / 20..=calls).contains(&times(&events)), "{} of {calls}", times(&events));
        assert!(times(&same) > 100, "{same:?}");
        // A person sees some, and how many there were.
        let lines = stderr.matches("network:").count();
        assert!((32..=32 + 2 * (seconds + 3)).contains(&lines), "{lines} in {seconds} s");
        assert!(stderr.contains("more lines left out"), "{stderr}");
    }
}
