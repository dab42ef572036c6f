//! HTTP connections that stay open for several requests: each of them names the host that the connection is for.

/// `talk` sends parts over one connection, whole or in pieces of a size, and returns what comes back.
const CLIENT: &str = "import socket
def talk(*parts, size=None, proxy=False):
    s = socket.create_connection(('127.0.0.1', 3128) if proxy else ('good.example', 8081))
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    s.settimeout(60)
    said = b''
    try:
        for part in parts:
            for at in range(0, len(part), size or len(part)): s.sendall(part[at:at + (size or len(part))])
        s.shutdown(socket.SHUT_WR)
        while more := s.recv(65536): said += more
    except OSError: said += b'cut'
    return said
def get(host, path='/', more=''): return f'GET {path} HTTP/1.1\\r\\nHost: {host}\\r\\n{more}\\r\\n'.encode()
def post(path, body, more=''): return f'POST {path} HTTP/1.1\\r\\nHost: good.example:8081\\r\\n{more}Content-Length: {len(body)}\\r\\n\\r\\n'.encode() + body
def chunked(path, *chunks, trailer=''):
    body = b''.join(b'%x;a=b\\r\\n%s\\r\\n' % (len(chunk), chunk) for chunk in chunks) + b'0\\r\\n' + trailer.encode() + b'\\r\\n'
    return f'PUT {path} HTTP/1.1\\r\\nHost: good.example\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n'.encode() + body
other = get('other.example', '/other')
";

fn run(network: &super::Network, script: &str) -> super::Ended {
    let options = ["--allow-host", "good.example:8081", "--allow-host", "other.example:8081"];
    network.run_with(&options, &["/usr/bin/python3", "-c", &format!("{CLIENT}{script}")])
}

as_each_caller! {
    fn a_connection_carries_many_requests_to_its_host(caller) {
        let network = network!(caller);
        // Bodies may have anything in them, and a host has more than one spelling.
        let script = "
for size, big in (None, 100000), (1000, 100000), (1, 100):
    requests = [get('good.example'), post('/1', b'x' * big), chunked('/2', other, b'y' * big, trailer='X: y\\r\\n'),
        b'\\r\\n' + get('GOOD.example.:8081', '/3'), post('/4', b'', 'Expect: 100-continue\\r\\n'), post('/5', other), get('good.example', '/6')]
    for parts in requests, [b''.join(requests)]:
        said = talk(*parts, size=size)
        print(*[line for line in said.decode().splitlines() if ' of ' in line], said.count(b'200 OK'), sep=', ')";
        let ended = run(&network, script);
        let line = |big: usize| {
            let bodies = [("/", "good.example", 0), ("/1", "good.example:8081", big), ("/2", "good.example", big + 44),
                ("/3", "GOOD.example.:8081", 0), ("/4", "good.example:8081", 0), ("/5", "good.example:8081", 44), ("/6", "good.example", 0)];
            let all: Vec<String> = bodies.iter().map(|(path, host, size)| format!("{path} of {host} with {size}")).collect();
            format!("{}, 7\n", all.join(", ")).repeat(2)
        };
        assert_eq!(ended.success(), [line(100_000), line(100_000), line(100)].concat());
        assert_eq!(network.refused(), []);
    }

    /// The first host's server never sees it whole.
    fn a_later_request_that_names_another_host_is_cut(caller) {
        let network = network!(caller);
        let script = "
before = [get('good.example'), post('/1', b'x' * 1000), chunked('/2', b'y' * 1000, trailer='X: y\\r\\n')]
absolute = b'GET http://other.example/other HTTP/1.1\\r\\nHost: good.example\\r\\n\\r\\n'
old = b'GET /other HTTP/1.0\\r\\nHost: other.example\\r\\n\\r\\n'
for first in before:
    for second in other, post('/3', b'z') + other, absolute, old, b'\\r\\n\\r\\n' + other, b'GET /other FOO/1\\r\\nHost: other.example\\r\\n\\r\\n', other[:-4]:
        for size in None, 1:
            for parts in [first, second], [first + second]:
                assert talk(*parts, size=size).endswith(b'cut'), (first[:20], second, size, parts)";
        assert_eq!(run(&network, script).success(), "");
        let asked: Vec<String> = network.contacts().into_iter().filter(|line| line.starts_with("request")).collect();
        assert!(!asked.is_empty() && asked.iter().all(|line| !line.contains("/other")), "{asked:?}");
        let refused = network.refused();
        assert!(refused.iter().all(|(whom, _)| whom == "good.example:8081"), "{refused:?}");
        assert!(refused.iter().any(|(_, why)| why.contains("names another host, other.example")), "{refused:?}");
    }

    /// Where two servers could see the end of a request in two places, a second one could hide.
    fn a_request_with_two_ends_is_cut(caller) {
        let network = network!(caller);
        let script = "
head = 'POST /x HTTP/1.1\\r\\nHost: good.example\\r\\n'
for rest in ['Content-Length: 1\\r\\nContent-Length: 2\\r\\n\\r\\nab', 'Content-Length: 1, 1\\r\\n\\r\\na', 'Content-Length: +1\\r\\n\\r\\na',
    'Content-Length: 5\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\n', 'Transfer-Encoding: gzip, chunked\\r\\n\\r\\n0\\r\\n\\r\\n',
    'Transfer-Encoding: xchunked\\r\\n\\r\\n0\\r\\n\\r\\n', 'Transfer-Encoding: chunked\\r\\n\\r\\n0\\n\\n', 'Transfer-Encoding: chunked\\r\\n\\r\\n0x0\\r\\n\\r\\n',
    'Transfer-Encoding: chunked\\r\\n\\r\\n1\\r\\naa\\r\\n0\\r\\n\\r\\n']:
    for before in b'', get('good.example'):
        assert talk(before + (head + rest).encode() + other).endswith(b'cut'), rest";
        assert_eq!(run(&network, script).success(), "");
        assert!(network.contacts().iter().all(|line| !line.contains("/other")), "{:?}", network.contacts());
    }

    fn another_protocol_follows_an_upgrade(caller) {
        let network = network!(caller);
        let script = "
up = get('good.example', '/up', 'Connection: upgrade\\r\\nUpgrade: echo\\r\\n')
frames = b'\\x81\\x05hello\\n\\x88\\x00 GET / HTTP/1.1\\n\\n' + bytes(range(256)) + b'x' * 100000
for first in up, get('good.example') + up:
    for size in None, 100:
        assert talk(first, frames, size=size).endswith(b'\\r\\n\\r\\n' + frames)
# What looks like a request is one, as the server may not have agreed to the upgrade.
assert talk(up, other).endswith(b'cut')
assert talk(up, b'hello\\nHost: other.example\\n\\n').endswith(b'cut')";
        assert_eq!(run(&network, script).success(), "");
    }

    /// The answer to a request by the proxy is the last one of its connection; its server could go on.
    fn a_proxy_passes_one_request_and_no_other_host(caller) {
        let network = network!(caller);
        let script = "
def asked(host, path, more=''): return get(f'{host}:8081', f'http://{host}:8081{path}', more)
print(talk(asked('good.example', '/', 'Content-Length: 3\\r\\n') + b'abc', proxy=True).decode().splitlines()[-1])
for first in asked('good.example', '/1'), asked('good.example', '/1', 'Content-Length: 3\\r\\n') + b'abc':
    for second in asked('other.example', '/other'), other:
        for size in None, 1: assert talk(first, second, size=size, proxy=True).endswith(b'cut')";
        assert_eq!(run(&network, script).success(), "/ of good.example:8081 with 3\n");
        assert!(network.contacts().iter().all(|line| !line.contains("/other")), "{:?}", network.contacts());
    }

    fn clients_use_their_connections_again(caller) {
        let network = network!(caller);
        let script = "curl -sS -m 60 http://good.example:8081/1 -d abc --next -sS -m 60 -T hosts http://good.example:8081/2 --next -sS -m 60 http://good.example:8081/3";
        let ended = network.run_with(&["--allow-host", "good.example:8081"], &["/bin/sh", "-c", script]);
        let length = include_str!("hosts").len();
        assert_eq!(ended.success(), format!("/1 of good.example:8081 with 3\n/2 of good.example:8081 with {length}\n/3 of good.example:8081 with 0\n"));
        assert_eq!(network.calls(), ["93.184.215.14 8081"]);
    }
}
