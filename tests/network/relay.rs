//! The relay carries what it is given: all of it, for many at once, and in bounded memory.

use super::served::Served;
use crate::support::rounds;

as_each_caller! {
    fn much_goes_both_ways_whole(caller) {
        let network = network!(caller);
        let script = "import hashlib, os, socket, threading
s = socket.create_connection(('four.example', 5432))
assert s.recv(8) == b'welcome\\n'
out, back = hashlib.sha256(), hashlib.sha256()
def speak():
    for _ in range(512):
        piece = os.urandom(131072)
        out.update(piece)
        s.sendall(piece)
    s.shutdown(socket.SHUT_WR)
speaker = threading.Thread(target=speak); speaker.start()
count = 0
while (more := s.recv(262144)):
    back.update(more); count += len(more)
speaker.join()
print(count, out.digest() == back.digest())";
        let ended = network.run_with(&["--allow-host", "four.example:5432"], &["/usr/bin/python3", "-c", script]);
        assert_eq!(ended.success(), format!("{} True\n", 64 << 20));
    }

    fn many_speak_at_once(caller) {
        let network = network!(caller);
        let script = "import socket
many = [socket.create_connection(('four.example', 5432)) for _ in range(400)]
for number, s in enumerate(many):
    assert s.recv(8) == b'welcome\\n'
    s.sendall(str(number).encode())
print(all(s.recv(10) == str(number).encode() for number, s in enumerate(many)))";
        let ended = network.run_with(&["--allow-host", "four.example:5432"], &["/usr/bin/python3", "-c", script]);
        assert_eq!(ended.success(), "True\n");
    }

    /// A host that answers and takes no more: the answer comes, whatever the program goes on to send.
    fn early_reply_of_a_host_reaches_a_sending_program(caller) {
        let network = network!(caller);
        let script = "import socket
s = socket.create_connection(('four.example', 8080))
for _ in range(256): s.sendall(bytes(65536))
print(s.recv(100).split(b' ')[1].decode())";
        for _ in 0..5 {
            let ended = network.run_with(&["--allow-host", "four.example:8080"], &["/usr/bin/python3", "-c", script]);
            assert_eq!(ended.success(), "413\n");
        }
    }

    /// A host that answers and resets the connection while the program is between two writes.
    fn reply_before_a_reset_reaches_a_program_that_sends_on(caller) {
        let network = network!(caller);
        let script = "import select, socket
s = socket.create_connection(('four.example', 8080))
s.sendall(bytes(999) + b'!')
select.select([s], [], [])
for _ in range(256): s.sendall(bytes(65536))
said = b''
while (more := s.recv(100)): said += more
print(said.split(b' ')[1].decode())";
        for _ in 0..5 {
            let ended = network.run_with(&["--allow-host", "four.example:8080"], &["/usr/bin/python3", "-c", script]);
            assert_eq!(ended.success(), "413\n");
        }
    }

    /// Half a reply is not taken for a whole one: who awaits the rest gets the reset, too.
    fn reset_in_a_reply_reaches_the_program_that_awaits_the_rest(caller) {
        let network = network!(caller);
        let script = "import socket
for ends in False, True:
    s = socket.create_connection(('four.example', 8080))
    s.sendall(b'GET /broken HTTP/1.1\\r\\nHost: four.example\\r\\n\\r\\n')
    if ends: s.shutdown(socket.SHUT_WR)
    said = b''
    try:
        while (more := s.recv(100)): said += more
    except ConnectionResetError: said += b'reset'
    print(said[-9:].decode())";
        let ended = network.run_with(&["--allow-host", "four.example:8080"], &["/usr/bin/python3", "-c", script]);
        assert_eq!(ended.success(), "halfreset\nhalfreset\n");
    }

    /// The last bytes of a program that is gone reach their host.
    fn last_bytes_of_an_exited_program_arrive(caller) {
        let network = network!(caller);
        let script = "import socket; s = socket.create_connection(('four.example', 5432)); s.sendall(b'last')";
        for _ in 0..5 {
            // The host writes it down in its own time, and tells nobody: a look now and then, for a minute.
            let starter = "\"$@\" 3>events; for i in $(seq 1200); do grep -q 'heard last' contacts && exit 0; sleep 0.05; done; exit 1";
            let starter = ["/bin/sh", "-c", starter, "sh"];
            network.run_by(&starter, &["--allow-host", "four.example:5432"], &["/usr/bin/python3", "-c", script]).success();
        }
    }

    /// The way to the relay is never crowded: what the host has for that (bbr paces) would only hold back.
    fn connections_to_the_relay_use_no_pacing(caller) {
        let network = network!(caller);
        let script = "import socket
for family, address in (socket.AF_INET, '93.184.215.14'), (socket.AF_INET6, '2606:2800:21f:cb07::14'):
    s = socket.socket(family); s.connect((address, 80))
    print(s.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b'\\0').decode())";
        let options = ["--allow-host", "four.example", "--allow-host", "six.example"];
        let ended = network.run_with(&options, &["/usr/bin/python3", "-c", script]);
        assert_eq!(ended.success(), "reno\nreno\n");
    }

    /// More than the host takes at once, beside an agent that ends.
    fn bytes_sent_by_a_command_arrive_after_the_agent_exits(caller) {
        let network = network!(caller);
        // As above.
        let starter = "\"$@\" 3>events; status=$?; for i in $(seq 1200); do grep -q 'heard .* bytes' contacts && exit $status; sleep 0.05; done; exit 1";
        let mut served = Served::started_by(&network, starter, &["--allow-host", "four.example:5433"]);
        let script = "import socket; s = socket.create_connection((\"four.example\", 5433)); s.sendall(bytes(2000000))";
        assert_eq!(served.run(&format!("python3 -c '{script}' 2>&1")), "");
        served.end();
        let contacts = network.contacts();
        assert!(contacts.contains(&"heard 2000000 bytes".to_owned()), "{contacts:?}");
    }

    /// A program that asks for much and reads nothing: the host waits, and saggar keeps a little.
    fn a_reader_that_stops_costs_no_memory(caller) {
        let network = network!(caller);
        let script = "import socket, sys
many = []
for _ in range(40):
    s = socket.create_connection(('four.example', 80))
    s.sendall(b'GET /bytes/1000000000 HTTP/1.1\\r\\nHost: four.example\\r\\n\\r\\n')
    assert s.recv(10)
    many.append(s)
print('stopped', flush=True)
sys.stdin.read()";
        // When nothing moves any more, what the relay had at most. No event tells of that: it is at rest when it has used
        // no processor time for a while.
        let starter = "import os, subprocess, sys, time
events = os.open('events', os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC)
os.dup2(events, 3)
saggar = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[3])
assert saggar.stdout.readline() == b'stopped\\n'
children = open(f'/proc/{saggar.pid}/task/{saggar.pid}/children').read().split()
[relay] = [child for child in children if open(f'/proc/{child}/comm').read() == 'saggar:relay\\n']
def read(what): return open(f'/proc/{relay}/{what}').read()
still, last = 0, None
while still < 5:
    now = read('stat').split(')')[1].split()[11:13]
    still, last = (still + 1 if now == last else 0), now
    time.sleep(0.1)
print(read('status').split('VmHWM:')[1].split()[0])
saggar.stdin.close()
sys.exit(saggar.wait())";
        let starter = ["/usr/bin/python3", "-c", starter];
        let ended = network.run_by(&starter, &["--allow-host", "four.example"], &["/usr/bin/python3", "-c", script]);
        let kib: u64 = ended.success().trim().parse().unwrap();
        assert!(kib < 32 << 10, "{kib} KiB");
    }

    /// The sockets are there before the program is.
    fn the_first_instruction_may_connect(caller) {
        let network = network!(caller);
        network.wrap.place.make_file("work/first.c", CONNECTS);
        network.wrap.outside("gcc -static -o first first.c");
        let starter = format!("for i in $(seq {}); do \"$@\" 3>events || exit 1; done", rounds(20, 1000));
        let ended = network.run_by(&["/bin/sh", "-c", &starter, "sh"], &["--allow-host", "93.184.215.14:5432"], &["./first"]);
        assert_eq!(ended.success(), "welcome\n".repeat(rounds(20, 1000)));
    }
}

const CONNECTS: &str = "#include <arpa/inet.h>\n#include <unistd.h>
int main(void) {
    struct sockaddr_in host = { .sin_family = AF_INET, .sin_port = htons(5432) };
    inet_pton(AF_INET, \"93.184.215.14\", &host.sin_addr);
    int s = socket(AF_INET, SOCK_STREAM, 0);
    char said[8];
    if (connect(s, (struct sockaddr *)&host, sizeof host) || read(s, said, 8) != 8) return 1;
    return write(1, said, 8) != 8;
}
";
