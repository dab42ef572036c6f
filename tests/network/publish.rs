//! Published ports: who calls a port of the host reaches a server inside, and nothing else becomes possible.

use super::Network;
use crate::isolation::wrapped::Ended;

/// A server inside that says who calls, to each; it runs until it is killed.
const NAMING: &str = "import socket, sys
hears = socket.create_server((sys.argv[1], int(sys.argv[2])), family=socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET, backlog=512)
open('listens', 'w').close()
while True:
    stream, whom = hears.accept()
    stream.sendall(f'you are {whom[0]}\\n'.encode())
    stream.close()";

/// A server inside that says back all it hears, to many at once, and ends its half when the other has.
const ECHO: &str = "import socket, sys, threading
hears = socket.create_server(('127.0.0.1', int(sys.argv[1])), backlog=512)
open('listens', 'w').close()
def one(stream):
    while (more := stream.recv(1 << 18)): stream.sendall(more)
    stream.shutdown(socket.SHUT_WR)
while True:
    threading.Thread(target=one, args=(hears.accept()[0],), daemon=True).start()";

/// Starts the sandbox and waits for the server in it.
const UP: &str = "start(); event('started'); listens()\n";
/// Ends it.
const DOWN: &str = "\nsandbox.terminate(); sandbox.wait()";

impl Network {
    /// Runs a sandbox with a script beside it, on its host.
    fn front(&self, script: &str, options: &[&str], program: &[&str]) -> Ended {
        let work = self.wrap.work();
        std::fs::write(work.join("front"), include_str!("front")).unwrap();
        self.run_by(&["/usr/bin/python3", "./front", script], options, program)
    }

    /// The same with a server in python, which is there when the script begins.
    fn served(&self, script: &str, options: &[&str], server: &[&str]) -> Ended {
        let program = [&["/usr/bin/python3", "-c"], server].concat();
        self.front(&format!("{UP}{script}{DOWN}"), options, &program)
    }
}

as_each_caller! {
    /// On both addresses of the loopback; the server sees its own loopback, whoever calls.
    fn a_server_inside_is_reached_from_the_host(caller) {
        let network = network!(caller);
        let script = "print(said(8080), end=''); print(said(8080, '::1'), end='')";
        let ended = network.served(script, &["--publish", "8080:3000"], &[NAMING, "127.0.0.1", "3000"]);
        assert_eq!(ended.success(), "you are 127.0.0.1\n".repeat(2));
        let ended = network.served(script, &["--publish", "8080:3000"], &[NAMING, "0.0.0.0", "3000"]);
        assert_eq!(ended.success(), "you are 127.0.0.1\n".repeat(2));
    }

    fn a_server_of_ipv6_alone_is_reached(caller) {
        let network = network!(caller);
        let script = "print(said(8080), end=''); print(said(8080, '::1'), end='')";
        let ended = network.served(script, &["--publish", "8080:3000"], &[NAMING, "::1", "3000"]);
        assert_eq!(ended.success(), "you are ::1\n".repeat(2));
    }

    /// By a client that knows nothing of it, and from a policy.
    fn curl_reaches_a_web_server(caller) {
        let network = network!(caller);
        let work = network.wrap.work();
        std::fs::write(work.join("page"), "a page\n").unwrap();
        std::fs::write(work.join("policy.toml"), "[network]\npublish = ['127.0.0.1:8080:3000']\n").unwrap();
        let server = "import http.server
server = http.server.ThreadingHTTPServer(('127.0.0.1', 3000), http.server.SimpleHTTPRequestHandler)
open('listens', 'w').close()
server.serve_forever()";
        let script = "subprocess.run(['curl', '-sS', '-m', '20', 'http://127.0.0.1:8080/page'])
print(said(8080, '::1'))";
        let ended = network.served(script, &["--policy", "policy.toml"], &[server]);
        assert_eq!(ended.success(), "a page\nConnectionRefusedError\n");
    }

    /// A network by policy is no hindrance, and the way out works beside it.
    fn published_port_works_together_with_a_network_policy(caller) {
        let network = network!(caller);
        let server = format!(
            "import subprocess\nsubprocess.run(['curl', '-sS', '-m', '20', 'http://four.example/'])\n{NAMING}"
        );
        let script = "print(said(8080), end='')";
        let options = ["--publish", "8080:3000", "--allow-host", "four.example"];
        let ended = network.served(script, &options, &[&server, "127.0.0.1", "3000"]);
        assert_eq!(ended.success(), "hello to four.example at 93.184.215.14\nyou are 127.0.0.1\n");
    }

    /// By an event and a line of the log; both addresses get one port.
    fn automatically_chosen_published_port_is_reported(caller) {
        let network = network!(caller);
        let script = "ports = [e for e in log if e['event'] == 'published']
assert [e['to'] for e in ports] == [3000, 3000] and log[-1]['event'] == 'started', log
addresses = [e['address'] for e in ports]
port = int(addresses[0].rpartition(':')[2])
assert addresses == [f'127.0.0.1:{port}', f'[::1]:{port}'] and port >= 1024, addresses
print(said(port), end=''); print('port', port)";
        let ended = network.served(script, &["--publish", "0:3000"], &[NAMING, "127.0.0.1", "3000"]);
        let told = ended.stderr.clone();
        let said = ended.success();
        let port = said.strip_prefix("you are 127.0.0.1\nport ").unwrap().trim();
        assert!(told.contains(&format!("published: 127.0.0.1:{port} leads to port 3000 inside")), "{told}");
    }

    fn explain_says_what_is_published_and_by_whom(caller) {
        let network = network!(caller);
        let mut explain = network.wrap.place.saggar();
        explain.args(["explain", "--publish", "8080:3000", "--publish", "0.0.0.0:9090:4000"]);
        let said = network.wrap.finish(explain).success();
        for publish in ["8080:3000", "0.0.0.0:9090:4000"] {
            assert!(said.contains(&format!("  publish  {publish} (command line)")), "{said}");
        }
    }

    /// Before anything runs.
    fn a_port_in_use_is_an_error_that_names_it(caller) {
        let network = network!(caller);
        let script = "taken = socket.create_server(('127.0.0.1', 8080)); start(); sys.exit(sandbox.wait())";
        let ended = network.front(script, &["--publish", "8080:3000"], &["/bin/echo", "it ran"]);
        ended.refused(&["publish 8080:3000: port 8080 of 127.0.0.1 is in use", "hint: choose another HOSTPORT"]);
    }

    fn much_goes_both_ways_whole(caller) {
        let network = network!(caller);
        let script = "s = call(8080)
out, back, count = hashlib.sha256(), hashlib.sha256(), 0
def speak():
    for _ in range(512):
        piece = os.urandom(131072)
        out.update(piece)
        s.sendall(piece)
    s.shutdown(socket.SHUT_WR)
speaker = threading.Thread(target=speak); speaker.start()
while more := s.recv(1 << 18): back.update(more); count += len(more)
speaker.join()
print(count, out.digest() == back.digest())";
        let ended = network.served(script, &["--publish", "8080:3000"], &[ECHO, "3000"]);
        assert_eq!(ended.success(), format!("{} True\n", 64 << 20));
    }

    fn many_speak_at_once(caller) {
        let network = network!(caller);
        let script = "many = [call(8080) for _ in range(200)]
for number, s in enumerate(many): s.sendall(str(number).encode())
print(all(s.recv(10) == str(number).encode() for number, s in enumerate(many)))";
        let ended = network.served(script, &["--publish", "8080:3000"], &[ECHO, "3000"]);
        assert_eq!(ended.success(), "True\n");
    }

    /// More than so many wait until one of them is gone.
    fn connections_to_a_published_port_are_limited(caller) {
        let network = network!(caller);
        let script = "many = [call(8080) for _ in range(512)]
def said(s): s.sendall(b'x'); return s.recv(1)
print(all(said(s) == b'x' for s in many))
late = call(8080); late.sendall(b'x')
# They are taken in turn: it would have its answer by now.
print(said(many[0]), said(many[511]))
late.setblocking(False)
try: print(late.recv(1))
except BlockingIOError: print('waits')
late.setblocking(True); many[7].close()
print(late.recv(1))";
        // Its server has a thread for each, with a stack of 8 MiB.
        let ended = network.served(script, &["--publish", "8080:3000", "--pids", "1024", "--memory", "8G", "--prefer", "limits"], &[ECHO, "3000"]);
        assert_eq!(ended.success(), "True\nb'x' b'x'\nwaits\nb'x'\n");
    }

    /// Either side may end its half first, and the other goes on.
    fn either_half_may_end_first(caller) {
        let network = network!(caller);
        let script = "s = call(8080); s.sendall(b'asked'); s.shutdown(socket.SHUT_WR); print(whole(s).decode())";
        let ended = network.served(script, &["--publish", "8080:3000"], &[ECHO, "3000"]);
        assert_eq!(ended.success(), "asked\n");
        let server = "import socket
hears = socket.create_server(('127.0.0.1', 3000))
open('listens', 'w').close()
stream = hears.accept()[0]
stream.sendall(b'all I say'); stream.shutdown(socket.SHUT_WR)
heard = b''
while (more := stream.recv(100)): heard += more
print('heard', heard.decode(), flush=True)";
        let script = "s = call(8080); print(whole(s).decode(), flush=True); s.sendall(b'still'); s.sendall(b' speaking'); s.close()
sandbox.wait()";
        let ended = network.served(script, &["--publish", "8080:3000"], &[server]);
        assert_eq!(ended.success(), "all I say\nheard still speaking\n");
    }

    /// What a server has said last arrives, though its sandbox is gone.
    fn last_output_of_an_exiting_server_arrives(caller) {
        let network = network!(caller);
        // It says as much as all buffers on the way hold (of which no event tells: they take no more for a while), and
        // ends; who has called hears nothing of it before.
        let server = "import os, select, socket
os.mkfifo('sent')
hears = socket.create_server(('127.0.0.1', 3000))
open('listens', 'w').close()
stream, count = hears.accept()[0], 0
stream.setblocking(False)
while select.select([], [stream], [], 0.5)[1]: count += stream.send(bytes(65536))
open('sent', 'w').write(str(count))";
        let script = "import select
[program] = [os.pidfd_open(one['pid']) for one in log if one['event'] == 'started']
s = call(8080); count = int(open('sent').read())
select.select([program], [], [])
print(count > 1000000, len(whole(s)) == count)";
        let ended = network.served(script, &["--publish", "8080:3000"], &[server]);
        assert_eq!(ended.success(), "True True\n");
    }

    /// Who calls a port that nobody listens at is reset, and that is told, once in a second; a server that comes later
    /// is reached.
    fn a_server_may_come_late(caller) {
        let network = network!(caller);
        let script = "start(); event('started')
print(*{said(8080) for _ in range(20)})
unanswered = event('port_unreachable')
print(unanswered['to'], unanswered['why'], unanswered['times'])
open('begin', 'w').close(); listens(); print(said(8080), end='')";
        let server = format!("open('begin').read()\n{NAMING}");
        let program = ["/usr/bin/python3", "-c", &server, "127.0.0.1", "3000"];
        let script = format!("os.mkfifo('begin')\n{script}{DOWN}\nfor line in events: log.append(json.loads(line))
print(sum(e['event'] == 'port_unreachable' for e in log) < 20, any(e['event'] == 'unreachable' for e in log))");
        // With a network by policy it is no call of a program's.
        let options = ["--publish", "8080:3000", "--allow-host", "good.example"];
        let ended = network.front(&script, &options, &program);
        let told = "published: 127.0.0.1:8080: no process answers on port 3000 inside";
        assert!(ended.stderr.contains(told), "{}", ended.stderr);
        assert_eq!(ended.success(), "ConnectionResetError\n3000 Connection refused 1\nyou are 127.0.0.1\nTrue False\n");
    }

    /// A connection to a port that nobody has is sometimes given that very port to come from, and then hears itself:
    /// where ports are given out in order, once in some ten thousand.
    fn self_connection_to_a_published_port_is_not_relayed(caller) {
        let network = network!(caller);
        let script = "start(); event('started')
for _ in range(20000):
    try:
        s = call(8080); s.sendall(b'x'); heard = s.recv(1)
        assert not heard, 'an echo'
    except ConnectionError: pass
print('none')";
        let program = ["/bin/sleep", "1000"];
        let ended = network.front(&format!("{script}{DOWN}"), &["--publish", "127.0.0.1:8080:40000"], &program);
        assert_eq!(ended.success(), "none\n");
    }

    /// Programs that stand still take nothing: the others are served.
    fn server_that_does_not_accept_blocks_no_other_port(caller) {
        let network = network!(caller);
        let server = format!(
            "import os, socket, subprocess, sys
still = socket.create_server(('127.0.0.1', 4000), backlog=4)
{NAMING}"
        );
        let script = "many = [call(8081) for _ in range(40)]
for s in many: s.setblocking(False)
for s in many:
    try:
        for _ in range(100): s.send(bytes(65536))
    except BlockingIOError: pass
print(said(8080), end='')";
        let options = ["--publish", "8080:3000", "--publish", "8081:4000"];
        let ended = network.served(script, &options, &[&server, "127.0.0.1", "3000"]);
        assert_eq!(ended.success(), "you are 127.0.0.1\n");
    }

    fn a_killed_supervisor_leaves_the_port_free(caller) {
        let network = network!(caller);
        // What relays follows its supervisor a moment later.
        let script = "import errno, time
sandbox.kill(); sandbox.wait()
until = time.monotonic() + 60
for host, family in ('127.0.0.1', socket.AF_INET), ('::1', socket.AF_INET6):
    s = socket.socket(family)
    while True:
        try: s.bind((host, 8080)); break
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > until: raise
    s.listen()
print('free')";
        let ended = network.served(script, &["--publish", "8080:3000"], &[NAMING, "127.0.0.1", "3000"]);
        assert_eq!(ended.success(), "free\n");
    }

    /// By the kernel's account; other addresses of the host have no such port.
    fn the_loopback_alone_is_bound(caller) {
        let network = network!(caller);
        let script = "for table in 'tcp', 'tcp6':
    rows = [line.split() for line in open(f'/proc/net/{table}')][1:]
    print(*[row[1] for row in rows if row[3] == '0A'])
print(said(8080, '198.51.100.1'), said(8080, '2001:db8:1::1'))";
        let ended = network.served(script, &["--publish", "8080:3000"], &[NAMING, "127.0.0.1", "3000"]);
        let own = "0100007F:1F90\n00000000000000000000000001000000:1F90\n";
        assert_eq!(ended.success(), format!("{own}ConnectionRefusedError ConnectionRefusedError\n"));
        let script = "print(said(8080, '198.51.100.1'), said(8080, '2001:db8:1::1'))";
        let every = ["--publish", "0.0.0.0:8080:3000", "--publish", "[::]:8080:3000"];
        let ended = network.served(script, &every, &[NAMING, "127.0.0.1", "3000"]);
        assert_eq!(ended.success(), "you are 127.0.0.1\n you are 127.0.0.1\n\n");
    }

    /// It is a way in: the port of the host is not one inside, by whatever address.
    fn the_sandbox_does_not_reach_the_port_of_the_host(caller) {
        let network = network!(caller);
        let server = format!(
            "import socket
for host in '127.0.0.1', '::1', '198.51.100.1', '93.184.214.1':
    try: print(socket.create_connection((host, 8080), 20).recv(100))
    except OSError as error: print(type(error).__name__, flush=True)
{NAMING}"
        );
        let script = "print(said(8080), end='')";
        let none = network.served(script, &["--publish", "0.0.0.0:8080:3000"], &[&server, "127.0.0.1", "3000"]);
        let refused = "ConnectionRefusedError\n".repeat(2);
        assert_eq!(none.success(), format!("{refused}{}you are 127.0.0.1\n", "OSError\n".repeat(2)));
        let options =
            ["--publish", "0.0.0.0:8080:3000", "--allow-host", "198.51.100.1:8080", "--allow-host", "93.184.214.1:8080"];
        let policy = network.served(script, &options, &[&server, "127.0.0.1", "3000"]);
        assert_eq!(policy.success(), format!("{}you are 127.0.0.1\n", "ConnectionResetError\n".repeat(4)));
        assert_eq!(network.calls(), Vec::<String>::new());
    }

    /// A session says at its control socket which port it has got, and its log does. Who calls while it is paused (an
    /// ordinary user's here has no cgroup) is answered when it goes on.
    fn a_session_publishes_while_it_runs(caller) {
        let network = network!(caller);
        let folder = network.wrap.place.make_dir("work/folder", 0o755);
        std::fs::write(folder.join("CLAUDE.md"), "Be brief.\n").unwrap();
        let server = format!("cat > server.py <<'END'\n{NAMING}\nEND\nmkfifo listens\n/usr/bin/python3 server.py 127.0.0.1 3000 >/dev/null 2>&1 & read -r _ < listens; echo up");
        std::fs::write(network.wrap.work().join("server"), server).unwrap();
        let script = "def run(*words):
    return subprocess.run([saggar, 'session', *words], check=True, stdout=subprocess.PIPE).stdout.decode()
def asked(method, **params):
    control = socket.socket(socket.AF_UNIX)
    control.connect(json.loads(run('show', '--json', 'front'))['controlSocket'])
    lines = control.makefile('rw')
    for number, (what, how) in enumerate((('hello', {'version': 1}), (method, params))):
        lines.write(json.dumps({'jsonrpc': '2.0', 'id': number, 'method': what, 'params': how}) + '\\n'); lines.flush()
        answer = json.loads(lines.readline())
    return answer['result']
def served():
    published = asked('state')['published']
    port = int(published[0]['address'].rpartition(':')[2])
    assert {p['to'] for p in published} == {3000}, published
    assert f'published: 127.0.0.1:{port} leads to port 3000 inside' in run('logs', 'front')
    said = asked('exec', command='rm -f listens; ' + open('server').read())
    assert said['stdout'] == 'up\\n', said
    return port
run('create', '--session', 'front', '--adapter', 'demo', '--publish', '0:3000', 'folder')
try:
    port = served(); print(said(port), end='')
    if os.geteuid() == 0:
        run('pause', 'front')
        many = [call(port) for _ in range(30)]
        assert asked('state')['status'] == 'paused'
        run('resume', 'front')
        assert {whole(one) for one in many} == {b'you are 127.0.0.1\\n'}
    print(said(port), end='')
finally:
    run('end', 'front')
print(said(port))";
        let ended = network.front(script, &[], &["/bin/true"]);
        assert_eq!(ended.success(), "you are 127.0.0.1\nyou are 127.0.0.1\nConnectionRefusedError\n");
    }

    /// Ports at which saggar itself hears calls inside, and what is no port of a sandbox of its own network.
    fn invalid_published_port_is_refused_with_the_reason(caller) {
        let network = network!(caller);
        for port in ["443", "3128", "1080", "53"] {
            let publish = format!("8080:{port}");
            let options = ["--publish", &publish, "--allow-host", "four.example"];
            let why = format!("publish {publish}: the network by policy takes the calls to port {port} inside itself");
            network.wrap.run(&options, &["/bin/true"]).refused(&[&why, "hint: let the server inside listen"]);
        }
        network.wrap.run(&["--publish", "8080:1", "--publish", "127.0.0.1:8080:2"], &["/bin/true"]).refused(&[
            "publish 127.0.0.1:8080:2: 8080:1 has this port of the host already",
        ]);
        let policy = network.wrap.work().join("policy.toml");
        std::fs::write(&policy, "[network]\npublish = ['8080:3000']\n").unwrap();
        let options = ["--policy", policy.to_str().unwrap(), "--net", "host"];
        network.wrap.run(&options, &["/bin/true"]).refused(&["it is not needed with the network of the host"]);
    }
}
