//! Sockets of kinds that no sandbox gives are refused as ever, and that is told.

use std::collections::BTreeSet;

use serde_json::Value;

use super::served::Served;
use super::{FLOOD, are_told_in_bounds, counted};
use crate::support::wait::until;

const PYTHON: &str = "/usr/bin/python3";
const WHY: &str = "no sandbox gives sockets of this kind";

/// Asks for sockets of every kind that is refused, one of them from a thread, and says what it hears.
const ASK: &str = "import errno, socket, threading
def ask(*kind):
    try: socket.socket(*kind); print(kind, 'given')
    except OSError as error: print(kind, errno.errorcode[error.errno])
ask(40, socket.SOCK_STREAM, 0)
ask(socket.AF_INET, socket.SOCK_STREAM, 262)
ask(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
ask(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_TCP)
ask(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)
ask(socket.AF_INET6, socket.SOCK_DGRAM, socket.IPPROTO_ICMPV6)
ask(socket.AF_INET, socket.SOCK_SEQPACKET, 132)
ask(socket.AF_NETLINK, socket.SOCK_RAW, 9)
thread = threading.Thread(target=ask, args=(socket.AF_PACKET, socket.SOCK_RAW, 0))
thread.start(); thread.join()
try: socket.socketpair(socket.AF_INET)
except OSError as error: print(errno.errorcode[error.errno])
for given in (socket.AF_INET, 1, 0), (socket.AF_INET6, 2, 0), (socket.AF_UNIX, 1, 0), (socket.AF_NETLINK, 3, 0): socket.socket(*given).close()
";

const TOLD: [&str; 10] = [
    "a vsock socket",
    "an MPTCP socket",
    "a raw IPv4 socket",
    "a raw IPv6 socket",
    "an ICMP socket",
    "an ICMPv6 socket",
    "an SCTP socket",
    "a netlink socket of protocol 9",
    "a packet socket",
    "an IPv4 pair of sockets of type 1 and protocol 0",
];

fn kinds(events: &[Value]) -> BTreeSet<&str> {
    events.iter().filter_map(|event| event["socket"].as_str()).collect()
}

as_each_caller! {
    /// With the very errors that they get where nobody is asked.
    fn denied_socket_families_are_reported(caller) {
        let network = network!(caller);
        let program = [PYTHON, "-c", ASK];
        let plain = network.wrap.run(&[], &program).success();
        assert!(plain.lines().count() == TOLD.len() && !plain.contains("given"), "{plain}");
        let ended = network.run_with(&["--allow-host", "good.example"], &program);
        for socket in TOLD {
            let line = format!("network: {socket} refused: {WHY}, by python3 (pid ");
            assert!(ended.stderr.contains(&line), "{socket}: {}", ended.stderr);
        }
        assert_eq!(ended.success(), plain);
        let events = network.events("refused");
        assert_eq!(kinds(&events), TOLD.into());
        // Its thread is of the same process.
        let pids: BTreeSet<u64> = events.iter().map(|event| event["program"]["pid"].as_u64().unwrap()).collect();
        assert_eq!(pids.len(), 1, "{events:?}");
        assert!(events.iter().all(|event| event["why"] == WHY && event["program"]["name"] == "python3"));
    }

    fn denied_socket_families_of_exec_commands_are_reported(caller) {
        let network = network!(caller);
        let mut served = Served::new(&network, &["--allow-host", "good.example"]);
        let said = served.run("python3 -c 'import socket; socket.socket(40, 1)' 2>&1");
        assert!(said.contains("Address family not supported"), "{said}");
        until(&network.wrap.work().join("events"), "have the refusal", |_| !network.events("refused").is_empty());
        let events = network.events("refused");
        assert_eq!(kinds(&events), ["a vsock socket"].into());
        assert_eq!(events[0]["program"]["name"], "python3");
        served.end();
    }

    /// Each is answered, and who asks is killed when it is to be; the others go on meanwhile.
    fn flood_of_denied_sockets_is_rate_limited(caller) {
        let network = network!(caller);
        let script = format!("import socket
def ask():
    try: socket.socket(40, socket.SOCK_STREAM)
    except OSError: return 1
{FLOOD}");
        let ended = network.run_with(&["--allow-host", "four.example"], &[PYTHON, "-c", &script]);
        let counted = counted(&ended.success());
        let events = network.events("refused");
        assert_eq!(kinds(&events), ["a vsock socket"].into());
        are_told_in_bounds(&events, counted);
    }
}
