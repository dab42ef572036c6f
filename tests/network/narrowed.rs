//! Where no network namespace is to be had and the policy goes on all the same: of the host's network, the ports of
//! what is allowed, and nothing else.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::Network;
use crate::isolation::wrapped::Ended;
use crate::support::caller::Caller;

/// Says of each way into the network whether it is open.
const TRY: &str = "import errno, os, socket
def say(name, does):
    try: does(); print(name, 'open')
    except OSError as error: print(name, errno.errorcode[error.errno])
def tcp(address, port, family=socket.AF_INET):
    s = socket.socket(family); s.settimeout(10); s.connect((address, port)); s.close()
say('named', lambda: tcp('93.184.215.14', 80))
say('other host', lambda: tcp('93.184.215.15', 80))
say('six', lambda: tcp('2606:2800:21f:cb07::14', 80, socket.AF_INET6))
say('other port', lambda: tcp('93.184.215.14', 8080))
say('dns', lambda: tcp('93.184.215.53', 53))
say('bind', lambda: socket.socket().bind(('127.0.0.1', 0)))
say('listen', lambda: socket.socket().listen())
say('unix listen', lambda: (lambda s: (s.bind('s'), os.unlink('s'), s.listen()))(socket.socket(socket.AF_UNIX)))
say('udp', lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
say('udp six', lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM))
say('ping', lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP))
say('raw', lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP))
say('mptcp', lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262))
say('sctp', lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132))
say('fast open', lambda: socket.socket().sendto(b'x', 0x20000000, ('93.184.215.14', 8080)))
say('fast open to named', lambda: socket.socket().sendmsg([b'x'], [], 0x20000000, ('93.184.215.14', 80)))
say('abstract', lambda: socket.socket(socket.AF_UNIX).connect('\\0saggar-test'))
say('pair', lambda: socket.socketpair())
";

impl Network {
    /// Runs a program in a sandbox that gets no network namespace.
    fn run_without(&self, caller: Caller, options: &[&str], program: &[&str]) -> Ended {
        let path = self.wrap.place.make_file("work/without_namespace", include_str!("without_namespace"));
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        // Root's sandboxes map a block of ids, which a user namespace of the test's own would not let them.
        let how = if caller.is_root() { "filter" } else { "limit" };
        let starter = format!("exec ./without_namespace {how} /bin/sh -c 'exec \"$@\" 3>events' sh \"$@\"");
        self.run_by(&["/bin/sh", "-c", &starter, "sh"], options, program)
    }

    /// Why the sandbox says that its network is degraded.
    fn degraded(&self) -> String {
        let started = self.events("started");
        let missing = started[0]["degraded"].as_array().unwrap();
        let network = missing.iter().find(|one| one["what"] == "network");
        network.map_or_else(String::new, |one| one["why"].as_str().unwrap().to_owned())
    }
}

as_each_caller! {
    /// Whoever is called there, since nobody sees names.
    fn the_named_ports_are_open_and_nothing_else(caller) {
        let network = network!(caller);
        let options = ["--prefer", "network", "--allow-host", "93.184.215.14:80"];
        let program = ["/usr/bin/python3", "-c", TRY];
        let said = network.run_without(caller, &options, &program).success();
        assert_eq!(said, "named open\nother host open\nsix open\nother port EACCES\ndns EACCES\nbind EACCES\n\
            listen EACCES\nunix listen EACCES\nudp EACCES\nudp six EACCES\nping EPROTONOSUPPORT\nraw EPERM\nmptcp EPROTONOSUPPORT\n\
            sctp EPROTONOSUPPORT\nfast open ENOTSUP\nfast open to named ENOTSUP\nabstract EPERM\npair open\n");
        let why = network.degraded();
        assert!(why.contains("No space left on device") && why.contains("TCP to port 80 of any host is open"), "{why}");
    }

    /// Not even loopback is there; unix sockets are.
    fn without_hosts_there_are_no_internet_sockets(caller) {
        let network = network!(caller);
        network.wrap.place.close();
        let program = ["/usr/bin/python3", "-c", TRY];
        for profile in ["strict", "nesting"] {
            let options = ["--prefer", "network", "--profile", profile];
            let said = network.run_without(caller, &options, &program).success();
            for line in said.lines() {
                let open = line.starts_with("pair ") || line.starts_with("unix listen ");
                assert_eq!(line.ends_with(" open"), open, "{profile}: {said}");
            }
            let why = network.degraded();
            assert!(why.contains("a filter refuses internet sockets instead"), "{why}");
            assert_eq!(network.contacts(), Vec::<String>::new());
        }
    }

    fn host_network_filter_applies_to_the_nesting_profile(caller) {
        let network = network!(caller);
        network.wrap.place.close();
        let options = ["--prefer", "network", "--profile", "nesting", "--allow-host", "93.184.215.14:80"];
        let program = ["/usr/bin/python3", "-c", TRY];
        let said = network.run_without(caller, &options, &program).success();
        let open = ["named", "other host", "six", "pair"];
        for line in said.lines() {
            let is_open = open.iter().any(|name| line == format!("{name} open"));
            assert_eq!(line.ends_with(" open"), is_open, "{said}");
        }
    }

    /// With a namespace the preference changes nothing, and without one the start is refused unless it is said.
    fn host_network_filter_is_used_only_without_a_network_namespace(caller) {
        let network = network!(caller);
        let refused = network.run_without(caller, &["--allow-host", "93.184.215.14"], &["/bin/true"]);
        refused.refused(&["join the network namespace", "No space left on device", "--prefer network"]);
        let options = ["--prefer", "network", "--allow-host", "93.184.215.14"];
        let script = "curl -sS -m 20 http://93.184.215.15/ 2>&1; ls /sys/class/net 2>/dev/null; true";
        let said = network.run_with(&options, &["/bin/sh", "-c", script]).success();
        assert!(!said.contains("hello"), "{said}");
        assert_eq!(network.degraded(), "");
    }

    /// A name is looked up over TCP, by the resolvers of the host.
    fn names_are_looked_up_without_datagrams(caller) {
        let network = network!(caller);
        let options = ["--prefer", "network", "--allow-host", "four.example"];
        let script = "curl -sS -m 20 http://four.example/; cat /etc/resolv.conf";
        let said = network.run_without(caller, &options, &["/bin/sh", "-c", script]).success();
        assert!(said.starts_with("hello to four.example at 93.184.215.14\noptions use-vc\nnameserver "), "{said}");
        let why = network.degraded();
        assert!(why.contains("TCP to ports 53, 80, 443 of any host"), "{why}");
    }

    /// Ports that lead inside, and whatever else takes a namespace, are refused with the reason.
    fn options_that_need_a_network_namespace_are_refused_without_one(caller) {
        let network = network!(caller);
        let options = ["--prefer", "network", "--publish", "127.0.0.1:0:80"];
        let ended = network.run_without(caller, &options, &["/bin/true"]);
        ended.refused(&["publish 127.0.0.1:0:80", "needs a network namespace", "No space left on device"]);
    }
}
