//! Programs that are told of a proxy find one on loopback, by the same rules.

const ENVIRONMENT: &str = "export http_proxy=http://127.0.0.1:3128 https_proxy=http://127.0.0.1:3128\n";

as_each_caller! {
    fn named_hosts_answer_by_every_proxy(caller) {
        let network = network!(caller);
        let script = "curl -sS -m 20 http://four.example/ &&
            curl -sS -m 20 --cacert cert.pem https://four.example/ &&
            curl -sS -m 20 -p http://four.example/ &&
            curl -sS -m 20 --noproxy '' --socks5-hostname 127.0.0.1:1080 http://four.example/ &&
            curl -sS -m 20 --socks5 [::1]:1080 --cacert cert.pem https://four.example/ &&
            curl -sS -m 20 http://10.77.0.1/";
        let ended = network.run(&["four.example", "10.77.0.1"], &format!("{ENVIRONMENT}{script}"));
        let hello = "hello to four.example at 93.184.215.14\n".repeat(5);
        assert_eq!(ended.success(), format!("{hello}hello to 10.77.0.1 at 10.77.0.1\n"));
        assert_eq!(network.refused(), []);
    }

    /// Who asks is told why.
    fn other_hosts_are_refused_by_every_proxy(caller) {
        let network = network!(caller);
        let script = "curl -sS -m 20 -w '%{http_code}\\n' http://other.example/
            curl -sS -m 20 -k https://other.example/ 2>&1
            curl -sS -m 20 --socks5-hostname 127.0.0.1:1080 http://other.example/ 2>&1
            curl -sS -m 20 -w '%{http_code}\\n' http://169.254.169.254/
            curl -sS -m 20 -w '%{http_code}\\n' http://metadata.example/
            curl -sS -m 20 -w '%{http_code}\\n' http://127.0.0.1:3128/";
        let ended = network.run(&["four.example", "metadata.example"], &format!("{ENVIRONMENT}{script}"));
        let said = ended.stdout;
        assert!(said.starts_with("saggar: network: other.example:80 refused: no rule names it with this port\n403\n"), "{said}");
        assert!(said.contains("response 403") && said.contains("SOCKS5"), "{said}");
        assert!(said.contains("saggar: network: 169.254.169.254:80 refused"), "{said}");
        assert!(said.contains("saggar: network: metadata.example:80 refused: 169.254.169.254 is"), "{said}");
        assert_eq!(network.calls(), Vec::<String>::new());
    }

    /// A client that sends on although it is refused gets the answer, and no reset.
    fn refusal_reaches_a_client_that_sends_on(caller) {
        let network = network!(caller);
        let script = "import socket
s = socket.create_connection(('127.0.0.1', 3128))
s.sendall(b'POST http://other.example/ HTTP/1.1\\r\\nHost: other.example\\r\\nContent-Length: 16777216\\r\\n\\r\\n')
for _ in range(256): s.sendall(bytes(65536))
said = b''
while (more := s.recv(4096)): said += more
print(said.split(b' ')[1].decode())";
        for _ in 0..5 {
            let ended = network.run_with(&["--allow-host", "four.example"], &["/usr/bin/python3", "-c", script]);
            assert_eq!(ended.success(), "403\n");
        }
    }

    /// A tunnel to a named host is no way to another one.
    fn a_tunnel_carries_no_other_name(caller) {
        let network = network!(caller);
        let script = "curl -sS -m 20 -k --connect-to other.example:443:four.example:443 https://other.example/ 2>&1; echo $?";
        let ended = network.run(&["four.example", "other.example"], &format!("{ENVIRONMENT}{script}"));
        assert!(!ended.stdout.contains("hello") && !ended.stdout.ends_with("\n0\n"), "{ended:?}");
        network.has_refused("four.example:443", "names another host, other.example");
    }

    /// Two requests in one, by lengths that disagree, or a host that two headers name.
    fn requests_of_two_meanings_are_refused(caller) {
        let network = network!(caller);
        let heads = [
            "CONNECT four.example:443 HTTP/1.1\\r\\nHost: other.example:443\\r\\n\\r\\n",
            "CONNECT four.example:443 HTTP/1.1\\r\\nHost: four.example:443\\r\\nContent-Length: 5\\r\\n\\r\\nabcde",
            "CONNECT four.example:443@other.example:443 HTTP/1.1\\r\\nHost: four.example:443\\r\\n\\r\\n",
            "GET http://four.example/ HTTP/1.1\\r\\nHost: four.example\\r\\nHost: other.example\\r\\n\\r\\n",
            "GET http://four.example/ HTTP/1.1\\r\\nHost: four.example\\r\\nTransfer-Encoding: chunked\\r\\nContent-Length: 3\\r\\n\\r\\nabc",
            "GET / HTTP/1.1\\r\\nHost: four.example\\r\\n\\r\\n",
        ];
        let script = format!("import socket
for head in {heads:?}:
    s = socket.create_connection(('127.0.0.1', 3128))
    s.sendall(head.replace('\\\\r', '\\r').replace('\\\\n', '\\n').encode())
    print(s.recv(1000).split(b' ')[1].decode())");
        let ended = network.run_with(&["--allow-host", "four.example"], &["/usr/bin/python3", "-c", &script]);
        assert_eq!(ended.stdout, "400\n".repeat(heads.len()), "{ended:?}");
        assert_eq!(network.calls(), Vec::<String>::new());
    }
}
