//! What was named is reached, by programs that know nothing of it.

const HELLO: &str = "hello to good.example at 93.184.215.14\n";

as_each_caller! {
    /// Over both families, in the clear and over TLS, without a variable that names a proxy.
    fn a_named_host_answers(caller) {
        let network = network!(caller);
        let script = "env | grep -i proxy; curl -sS -m 20 http://four.example/ &&
            curl -sS -m 20 --cacert cert.pem https://four.example/ && curl -sS -6 -m 20 http://six.example/";
        let ended = network.run(&["four.example", "six.example"], script);
        let four = "hello to four.example at 93.184.215.14\n";
        let six = "hello to six.example at 2606:2800:21f:cb07::14\n";
        assert_eq!(ended.success(), format!("{four}{four}{six}"));
        assert_eq!(network.refused(), []);
    }

    fn programs_of_all_kinds_reach_a_named_host(caller) {
        let network = network!(caller);
        let python = "import urllib.request as u; print(u.urlopen('http://four.example/').read().decode(), end='')";
        let node = "fetch('http://four.example/').then(r => r.text()).then(t => process.stdout.write(t))";
        let script = format!("/usr/bin/python3 -c \"{python}\" && node -e \"{node}\"");
        let ended = network.run(&["four.example"], &script);
        let hello = "hello to four.example at 93.184.215.14\n";
        assert_eq!(ended.success(), hello.repeat(2));
    }

    /// A rule below a name holds for what is below it, on its ports alone.
    fn names_below_a_named_one_answer(caller) {
        let network = network!(caller);
        let ended = network.run(&["*.below.example:8080"], "curl -sS -m 20 http://a.below.example:8080/");
        assert_eq!(ended.success(), "hello to a.below.example:8080 at 93.184.215.14\n");
    }

    /// The host may speak first, and either side may end its half first.
    fn host_that_sends_first_is_relayed(caller) {
        let network = network!(caller);
        let script = "import socket
s = socket.create_connection(('four.example', 5432))
print(s.recv(100).decode(), end='')
s.sendall(b'and more\\n' * 3)
s.shutdown(socket.SHUT_WR)
while (more := s.recv(100)): print(more.decode(), end='')";
        let ended = network.run_with(&["--allow-host", "four.example:5432"], &["/usr/bin/python3", "-c", script]);
        assert_eq!(ended.success(), "welcome\nand more\nand more\nand more\n");
    }

    /// The address that the program calls is not asked: the name that it says is.
    fn a_hard_coded_address_is_taken_by_its_name(caller) {
        let network = network!(caller);
        let script = "curl -sS -m 20 --resolve good.example:80:8.8.8.8 http://good.example/ &&
            curl -sS -m 20 --cacert cert.pem --resolve good.example:443:[2001:4860::8] https://good.example/";
        let ended = network.run(&["good.example"], script);
        assert_eq!(ended.success().replace("2606:2800:21f:cb07::14", "93.184.215.14"), HELLO.repeat(2));
        assert!(network.calls().iter().all(|call| call.starts_with("93.184.215.14 ") || call.starts_with("2606:2800:21f:cb07::14 ")), "{:?}", network.calls());
    }

    /// Whatever resolver a program asks, by datagram or by connection.
    fn any_resolver_answers(caller) {
        let network = network!(caller);
        let script = "import socket, struct
query = bytes([7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0]) + b'\\x04FOUR\\x07example\\0' + bytes([0, 1, 0, 1])
for family, address in (socket.AF_INET, '127.0.0.1'), (socket.AF_INET, '8.8.8.8'), (socket.AF_INET, '10.1.2.3'), (socket.AF_INET6, '2001:4860:4860::8888'):
    s = socket.socket(family, socket.SOCK_DGRAM)
    s.settimeout(10)
    s.connect((address, 53))
    s.send(query)
    said = s.recv(4096)
    t = socket.create_connection((address, 53))
    t.sendall(struct.pack('!H', len(query)) * 1 + query)
    over = t.recv(4096)[2:]
    print(said[:2] == b'\\x07\\x09', said[3] & 15, said[7], socket.inet_ntoa(said[-4:]) if len(said) else '', over == said)";
        let ended = network.run_with(&["--allow-host", "four.example"], &["/usr/bin/python3", "-c", script]);
        let said = ended.success();
        assert_eq!(said.lines().count(), 4);
        for line in said.lines() {
            assert!(line.starts_with("True 0 1 198.1") && line.ends_with(" True"), "{said}");
        }
        assert_eq!(network.contacts(), Vec::<String>::new(), "no question leaves before a call");
    }

    /// By a resolver that gives several addresses, some of them forbidden or dead, or an alias.
    fn the_first_good_address_is_called(caller) {
        let network = network!(caller);
        let script = "for name in several chain; do curl -sS -m 20 http://$name.example/; done";
        let ended = network.run(&["several.example", "chain.example"], script);
        let hello = |name: &str| format!("hello to {name}.example at 93.184.215.14\n");
        assert_eq!(ended.success(), hello("several") + &hello("chain"));
    }

    fn a_range_of_addresses_is_reached_by_address(caller) {
        let network = network!(caller);
        let script = "curl -sS -m 20 http://10.77.0.1:8080/ && curl -sS -m 20 http://private.example:8080/";
        let ended = network.run(&["10.77.0.0/16:8080", "private.example:8080"], script);
        let hello = |host: &str| format!("hello to {host}:8080 at 10.77.0.1\n");
        assert_eq!(ended.success(), hello("10.77.0.1") + &hello("private.example"));
    }
}
