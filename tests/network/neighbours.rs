//! Unix sockets of the host that nobody named are not there, and calls to them are told.

use serde_json::Value;

use super::{FLOOD, Network, are_told_in_bounds, counted};

const PYTHON: &str = "/usr/bin/python3";
const PATH: &str = "it is the host's, and not inside (network.sockets)";
const ABSTRACT: &str = "it is the host's, and no sandbox has abstract names in common with it";

/// Starts saggar beside servers of the host, and says whether anybody called them. Its arguments are a directory for
/// them, and saggar's command.
const BESIDE: &str = "import os, socket, subprocess, sys
events = os.open('events', os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
assert events == 3
os.set_inheritable(events, True)
servers = []
os.umask(0)
for kind, name in (1, 'stream'), (2, 'datagrams'):
    for address in f'{sys.argv[1]}/{name}', f'\\0saggar-{name}':
        servers.append(socket.socket(socket.AF_UNIX, kind))
        servers[-1].bind(address)
        if kind == 1: servers[-1].listen()
shown = socket.socket(socket.AF_UNIX)
shown.bind(os.path.abspath('shown.sock'))
shown.listen()
status = subprocess.call(sys.argv[2:], close_fds=False)
for server in servers:
    server.setblocking(False)
    try:
        server.accept() if server.type == 1 else server.recv(1)
        print('called')
    except BlockingIOError: pass
sys.exit(status)";

/// Calls `stream:ADDRESS` or `datagrams:ADDRESS`, where an `@` stands for a zero, and says how it went.
const CALL: &str = "import socket, sys
def call(kind, address):
    address = '\\0' + address[1:] if address[0] == '@' else address
    s = socket.socket(socket.AF_UNIX, 1 if kind == 'stream' else 2)
    try: s.connect(address) if kind == 'stream' else s.sendto(b'x', address)
    except OSError as error: return error.strerror
    return 'called'
for argument in sys.argv[1:]: print(call(*argument.split(':', 1)))
";

/// Runs a Python script in a sandbox beside the servers of the directory `served`; gives what it said, and what
/// standard error had.
fn beside(network: &Network, script: &str, arguments: &[&str]) -> (String, String) {
    let directory = network.wrap.place.join("served");
    let starter = [PYTHON, "-c", BESIDE, directory.to_str().unwrap()];
    let program = [&[PYTHON, "-c", script], arguments].concat();
    let ended = network.run_by(&starter, &["--allow-host", "four.example"], &program);
    let stderr = ended.stderr.clone();
    (ended.success(), stderr)
}

/// What was told of sockets, and why.
fn told(events: &[Value]) -> Vec<(&str, &str)> {
    events.iter().map(|event| (event["socket"].as_str().unwrap(), event["why"].as_str().unwrap())).collect()
}

as_each_caller! {
    fn connections_to_host_unix_sockets_are_reported(caller) {
        let network = network!(caller);
        let served = network.wrap.place.make_dir("served", 0o777);
        let (stream, datagrams) = (served.join("stream"), served.join("datagrams"));
        let (stream, datagrams) = (stream.to_str().unwrap(), datagrams.to_str().unwrap());
        let calls = [
            format!("stream:{stream}"),
            format!("datagrams:{datagrams}"),
            "stream:@saggar-stream".into(),
            "datagrams:@saggar-datagrams".into(),
            // Spelled in another way, it is the same one.
            format!("stream:/..//{stream}"),
        ];
        let calls: Vec<&str> = calls.iter().map(String::as_str).collect();
        let plain = network.wrap.run(&[], &[&[PYTHON, "-c", CALL], &calls[..]].concat()).success();
        let (none, nobody) = ("No such file or directory\n", "Connection refused\n");
        assert_eq!(plain, [none, none, nobody, nobody, none].concat());
        let (said, stderr) = beside(&network, CALL, &calls);
        assert_eq!(said, plain, "the same errors as where nobody is asked");
        let sockets = [
            (format!("the unix socket {stream}"), PATH),
            (format!("the unix socket {datagrams}"), PATH),
            ("the abstract socket @saggar-stream".into(), ABSTRACT),
            ("the abstract socket @saggar-datagrams".into(), ABSTRACT),
        ];
        let events = network.events("refused");
        for (socket, why) in &sockets {
            assert!(told(&events).contains(&(socket, why)), "{socket}: {events:?}");
            let line = format!("network: {socket} refused: {why}, by python3 (pid ");
            assert!(stderr.contains(&line), "{socket}: {stderr}");
        }
        let known = |socket: &str| sockets.iter().any(|(known, _)| known == socket);
        assert!(told(&events).iter().all(|(socket, _)| known(socket)), "{events:?}");
    }

    /// Its own, those that it is shown, and those that nobody has.
    fn other_unix_connections_are_not_reported(caller) {
        let network = network!(caller);
        network.wrap.place.make_dir("served", 0o777);
        let script = format!("{CALL}
import os, tempfile
servers = []
for address in '/tmp/own.sock', '\\0own', '\\0saggar-stream':
    servers.append(socket.socket(socket.AF_UNIX))
    servers[-1].bind(address)
    servers[-1].listen()
for address in '/tmp/own.sock', '@own', '@saggar-stream', os.path.abspath('shown.sock'): print(call('stream', address))
for address in '/run/none.sock', 'none.sock', '@none', '/tmp': print(call('stream', address))
for bad in b'', b'x' * 3, b'\\1\\0' + b'x' * 200:
    import ctypes
    print(ctypes.CDLL(None).connect(socket.socket(socket.AF_UNIX).fileno(), bad, len(bad)))
print(ctypes.CDLL(None).connect(socket.socket(socket.AF_UNIX).fileno(), ctypes.c_void_p(8), 110))
left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
left.send(b'a'); print(right.recv(1))
");
        let (said, stderr) = beside(&network, &script, &[]);
        let nobody = ["No such file or directory", "No such file or directory", "Connection refused", "Connection refused"];
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines[..4], ["called"; 4]);
        assert_eq!(lines[4..8], nobody);
        assert_eq!(lines[8..], ["-1", "-1", "-1", "-1", "b'a'"]);
        assert_eq!(network.events("refused"), [] as [Value; 0]);
        assert!(!stderr.contains("refused"), "{stderr}");
    }

    /// The relay has its turns meanwhile.
    fn flood_of_unix_connections_is_reported_with_a_limit(caller) {
        let network = network!(caller);
        network.wrap.place.make_dir("served", 0o777);
        let script = format!("{CALL}
def ask(): return 1 if call('stream', '@saggar-stream') == 'Connection refused' else None
{FLOOD}");
        let (said, _) = beside(&network, &script, &[]);
        let counted = counted(&said);
        let events = network.events("refused");
        assert!(told(&events).iter().all(|event| *event == ("the abstract socket @saggar-stream", ABSTRACT)));
        are_told_in_bounds(&events, counted);
    }
}
