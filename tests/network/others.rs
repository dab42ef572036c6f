//! What was not named is not reached, however it is asked for; and is told.

use super::ended_cut;

as_each_caller! {
    fn another_name_is_unknown(caller) {
        let network = network!(caller);
        let ended = network.run(&["good.example"], "curl -sS -m 20 http://other.example/ 2>&1; echo $?");
        assert!(ended.stdout.contains("Could not resolve host") && ended.stdout.ends_with("\n6\n"), "{ended:?}");
        network.has_refused("other.example", "no rule names it");
        assert_eq!(network.contacts(), Vec::<String>::new());
        assert!(ended.stderr.contains("network: other.example refused: no rule names it"), "{}", ended.stderr);
    }

    /// A secret in a name goes nowhere.
    fn names_carry_nothing_out(caller) {
        let network = network!(caller);
        let script = "for i in 1 2 3; do getent hosts secret$i.other.example; getent hosts secret$i.good.example; done; true";
        assert_eq!(network.run(&["good.example"], script).success(), "");
        assert_eq!(network.contacts(), Vec::<String>::new());
        assert_eq!(network.refused().len(), 6);
    }

    fn another_port_of_a_named_host_is_refused_at_once(caller) {
        let network = network!(caller);
        let ended = network.run(&["good.example:443"], "curl -sS -m 20 http://good.example:8080/ 2>&1; echo $?");
        assert!(ended.stdout.ends_with("\n7\n"), "{ended:?}");
        assert_eq!(network.contacts(), Vec::<String>::new());
        // The port is one that another host has: then saggar hears of it.
        let script = "curl -sS -m 20 http://good.example:8080/ 2>&1; echo $?";
        let ended = network.run(&["good.example:443", "other.example:8080"], script);
        assert!(ended_cut(&ended), "{ended:?}");
        network.has_refused("good.example:8080", "no rule names it with this port");
        assert_eq!(network.contacts(), Vec::<String>::new());
    }

    fn an_address_without_a_rule_and_a_name_is_refused(caller) {
        let network = network!(caller);
        let script = "curl -sS -m 20 http://93.184.215.15/ 2>&1; echo $?";
        let ended = network.run(&["*"], script);
        assert!(ended_cut(&ended), "{ended:?}");
        network.has_refused("93.184.215.15:80", "no rule names this address");
        assert_eq!(network.contacts(), Vec::<String>::new());
    }

    /// The name that was asked for, and the one that the connection then says.
    fn a_connection_that_names_another_host_is_cut(caller) {
        let network = network!(caller);
        let script = "curl -sS -m 20 -H 'Host: other.example' http://good.example/ 2>&1; echo $?
            curl -sS -m 20 -k --connect-to other.example:443:good.example:443 https://other.example/ 2>&1; echo $?";
        let ended = network.run(&["good.example", "other.example"], script);
        assert!(!ended.stdout.contains("hello"), "{ended:?}");
        let refused = network.refused();
        let whom: Vec<&str> = refused.iter().map(|(whom, _)| whom.as_str()).collect();
        assert_eq!(whom, ["good.example:80", "good.example:443"], "{refused:?}");
        assert!(refused.iter().all(|(_, why)| why.contains("names another host, other.example")), "{refused:?}");
    }

    /// Two names in one head, or one in a place where another host would read another.
    fn a_head_of_two_meanings_is_refused(caller) {
        let network = network!(caller);
        let heads = [
            "GET / HTTP/1.1\\r\\nHost: good.example\\r\\nHost: other.example\\r\\n\\r\\n",
            "GET http://other.example/ HTTP/1.1\\r\\nHost: good.example\\r\\n\\r\\n",
            "GET / HTTP/1.1\\r\\nHost: good.example\\r\\n Host: other.example\\r\\n\\r\\n",
            "GET / HTTP/1.1\\r\\nHost: good.example@other.example\\r\\n\\r\\n",
            "CONNECT other.example:80 HTTP/1.1\\r\\nHost: good.example\\r\\n\\r\\n",
            "GET / FOO/1.0\\r\\nHost: other.example\\r\\n\\r\\n",
            "GET / HTTP/1.1\\nHost: good.example\\n\\nfoo\\r\\nHost: other.example\\r\\n\\r\\n",
            // To its end alone, which is told at once.
            "GET / HTTP/1.0\\r\\nHost: other.example",
        ];
        let script = format!("import socket
for head in {heads:?}:
    head = head.replace('\\\\r', '\\r').replace('\\\\n', '\\n').encode()
    # At once, and byte by byte.
    for size in len(head), 1:
        s = socket.create_connection(('good.example', 80))
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            for at in range(0, len(head), size): s.sendall(head[at:at + size])
            s.shutdown(socket.SHUT_WR)
            print(s.recv(1000))
        except OSError: print('cut')");
        let ended = network.run_with(&["--allow-host", "good.example"], &["/usr/bin/python3", "-c", &script]);
        assert_eq!(ended.stdout, "cut\n".repeat(2 * heads.len()), "{ended:?}");
    }

    fn a_denied_name_is_denied_by_every_way(caller) {
        let network = network!(caller);
        let script = "curl -sS -m 20 http://good.example/ 2>&1; curl -sS -m 20 --resolve good.example:80:93.184.215.14 http://good.example/ 2>&1; true";
        let options = ["--allow-host", "*.example", "--allow-host", "93.184.215.14", "--deny-host", "good.example"];
        let ended = network.run_with(&options, &["/bin/sh", "-c", script]);
        assert!(!ended.stdout.contains("hello"), "{ended:?}");
        let refused = network.refused();
        assert!(refused.iter().all(|(whom, why)| whom.starts_with("good.example") && why == "it is denied"), "{refused:?}");
        assert_eq!(refused.len(), 2, "{refused:?}");
    }

    /// Whatever is no connection to a named port: it fails at once, and there is nothing else to speak with.
    fn other_protocols_reach_no_host(caller) {
        let network = network!(caller);
        // Told by no error, a datagram would wait for an answer until the timeout, which is another error.
        let script = "import socket
def tried(what, call):
    try: print(what, call())
    except OSError as error: print(what, error.strerror or error)
def datagram():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(60)
    s.connect(('93.184.215.14', 443))
    s.send(b'x'); return s.recv(10)
tried('udp', datagram)
tried('raw', lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP))
tried('ping', lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP))
tried('mptcp', lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262))
tried('vsock', lambda: socket.socket(40, socket.SOCK_STREAM))
tried('packet', lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))";
        let ended = network.run_with(&["--allow-host", "*"], &["/usr/bin/python3", "-c", script]);
        let said: Vec<&str> = ended.stdout.lines().collect();
        assert_eq!(said.first(), Some(&"udp Connection refused"), "{ended:?}");
        assert_eq!(said.len(), 6, "{ended:?}");
        for line in &said[1..] {
            assert!(["not permitted", "not supported", "denied"].iter().any(|why| line.contains(why)), "{line}");
        }
        assert_eq!(network.contacts(), Vec::<String>::new());
    }
}
