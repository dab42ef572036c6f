//! The model API with a key that stays outside: requests reach their upstream with that key and no other, the key is
//! nowhere inside, and what has it has little else.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use super::Network;
use crate::isolation::wrapped::Ended;
use crate::support::caller::Caller;
use crate::support::rounds;

const KEY: &str = "sk-saggar-test-0123456789abcdef";
const PLAIN: &str = "http://127.0.0.1:8081";

/// A request as the upstream has heard it: method, target, fields.
type Heard = (String, String, Vec<(String, String)>);

/// Runs saggar, whose words follow, in the foreground.
const FOREGROUND: &str = "\"$@\" 3>events || status=$?";

/// A network with an upstream beside the supervisor.
struct Api {
    network: Network,
    key: String,
}

macro_rules! api {
    ($caller:expr) => {
        match Api::new($caller) {
            Ok(api) => api,
            Err(why) => skip!("{why}"),
        }
    };
}

impl Api {
    fn new(caller: Caller) -> Result<Self, String> {
        let network = Network::new(caller)?;
        network.wrap.place.make_file("work/upstream", include_str!("upstream"));
        let key = secret(&network, "key", &format!("{KEY}\n"));
        Ok(Api { network, key })
    }

    /// Runs a program in a sandbox with these options; `how` is a shell script that runs `"$@"`.
    fn run_so(&self, how: &str, options: &[&str], program: &[&str]) -> Ended {
        let starter = format!(
            "rm -f upstream-ready heard up go-on ../tmp/log; mkfifo upstream-ready heard up go-on
             python3 ./upstream ../tmp/log & upstream=$!
             read -r _ <upstream-ready
             status=0
             {how}
             kill $upstream
             exit $status"
        );
        self.network.run_by(&["/bin/bash", "-c", &starter, "sh"], options, program)
    }

    /// Runs a program in a sandbox that has this upstream.
    fn run_to(&self, upstream: &str, more: &[&str], program: &[&str]) -> Ended {
        let options = [&["--api", upstream, "--api-key-file", &self.key], more].concat();
        self.run_so(FOREGROUND, &options, program)
    }

    fn sh(&self, script: &str) -> Ended {
        self.run_to(PLAIN, &[], &["/bin/sh", "-c", script])
    }

    fn python(&self, script: &str) -> Ended {
        self.run_to(PLAIN, &[], &["/usr/bin/python3", "-c", script])
    }

    /// What the upstream has heard, in order.
    fn heard(&self) -> Vec<Heard> {
        let text = fs::read_to_string(self.network.wrap.place.join("tmp/log")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The events of this kind.
    fn events(&self, kind: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.network.wrap.work().join("events")).unwrap();
        let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        events.filter(|event| event["event"] == kind).collect()
    }

    /// The one event of the API, which says all of `words`.
    fn has_told(&self, words: &[&str]) {
        let told = self.events("api");
        let [event] = &told[..] else { panic!("{told:?}") };
        let why = event["why"].as_str().unwrap();
        assert!(words.iter().all(|word| why.contains(word)), "{why}");
    }
}

/// A file that its owner alone can read.
fn secret(network: &Network, name: &str, text: &str) -> String {
    let path = network.wrap.place.make_file(name, text);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path.to_str().unwrap().to_owned()
}

/// The values of a field.
fn values<'a>(fields: &'a [(String, String)], name: &str) -> Vec<&'a str> {
    let named = fields.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
    named.map(|(_, value)| value.as_str()).collect()
}

as_each_caller! {
    /// By the socket and by the port, without any network; what is said of keys inside is dropped.
    fn the_key_is_added_outside_and_no_other(caller) {
        let api = api!(caller);
        let forged = "-H 'x-api-key: forged' -H 'Authorization: Bearer forged' -H 'Proxy-Authorization: Basic forged' \
                      -H 'Connection: x-api-key, x-hop' -H 'X-Hop: 1' -H 'anthropic-version: 2023-06-01'";
        let ended = api.sh(&format!(
            "env | grep ^ANTHROPIC | sort
             curl -sS -m 20 {forged} -d hello \"$ANTHROPIC_BASE_URL/v1/messages?beta=true\" &&
             curl -sS -m 20 {forged} --unix-socket \"$ANTHROPIC_UNIX_SOCKET\" http://localhost/v1/models"
        ));
        let said = ended.success();
        assert!(said.starts_with(
            "ANTHROPIC_API_KEY=saggar-adds-the-key-outside\nANTHROPIC_BASE_URL=http://127.0.0.1:274\n\
             ANTHROPIC_UNIX_SOCKET=/run/api.sock\n{\"method\": \"POST\", \"target\": \"/v1/messages?beta=true\", \"length\": 5,"
        ), "{said}");
        let heard = api.heard();
        assert_eq!(heard.len(), 2, "{heard:?}");
        for (_, target, fields) in &heard {
            assert_eq!(values(fields, "x-api-key"), [KEY], "{target}");
            assert_eq!(values(fields, "host"), ["127.0.0.1:8081"], "{target}");
            assert_eq!(values(fields, "anthropic-version"), ["2023-06-01"], "{target}");
            for gone in ["authorization", "proxy-authorization", "x-hop", "connection"] {
                assert!(values(fields, gone).is_empty(), "{target} {gone}");
            }
        }
    }

    /// What the caller's environment says of a key stays outside, though the built-in list passes it on otherwise.
    fn a_key_of_the_callers_environment_stays_outside(caller) {
        let api = api!(caller);
        let how = format!(
            "export ANTHROPIC_API_KEY=sk-of-the-host ANTHROPIC_CUSTOM_HEADERS='x-api-key: sk-of-the-host'\n{FOREGROUND}"
        );
        let options = ["--api", PLAIN, "--api-key-file", &api.key];
        let script = "env | grep -e ANTHROPIC_API_KEY -e ANTHROPIC_CUSTOM -e sk-of";
        let ended = api.run_so(&how, &options, &["/bin/sh", "-c", script]);
        assert_eq!(ended.success(), "ANTHROPIC_API_KEY=saggar-adds-the-key-outside\n");
    }

    /// By a name that leads to this machine, which naming it allows, and with the other header.
    fn an_upstream_over_tls_is_held_to_its_certificate(caller) {
        let api = api!(caller);
        let work = api.network.wrap.work();
        let policy = |ca: &str| format!(
            "[api]\nupstream = 'https://loopback.example:8443/base'\nkey_file = '{}'\nheader = 'authorization'\n{ca}", api.key
        );
        let trusting = policy(&format!("ca_file = '{}'", work.join("ca.pem").display()));
        let good = api.network.wrap.place.make_file("good.toml", &trusting);
        let script = "curl -sS -m 20 -i http://127.0.0.1:274/v1";
        let run = |policy: &std::path::Path| {
            api.run_so(FOREGROUND, &["--policy", policy.to_str().unwrap()], &["/bin/sh", "-c", script])
        };
        assert!(run(&good).success().contains("\"target\": \"/base/v1\""));
        let (_, _, fields) = &api.heard()[0];
        assert_eq!(values(fields, "authorization"), [format!("Bearer {KEY}")]);
        assert_eq!(values(fields, "host"), ["loopback.example:8443"]);

        // This host does not trust it.
        let bad = api.network.wrap.place.make_file("bad.toml", &policy(""));
        let said = run(&bad).success();
        assert!(said.starts_with("HTTP/1.1 502 ") && said.contains("UnknownIssuer"), "{said}");
        assert!(said.contains("x-should-retry: false"), "{said}");
        api.has_told(&["https://loopback.example:8443/base", "UnknownIssuer"]);
        assert!(api.heard().is_empty());
    }

    fn unreachable_upstream_is_reported(caller) {
        let api = api!(caller);
        for (upstream, words) in [
            ("http://127.0.0.1:9", &["connect to 127.0.0.1:9", "refused"][..]),
            ("http://unknown.example", &["unknown.example", "the name has no address"]),
            ("http://metadata.example", &["metadata.example", "a metadata service"]),
            ("http://cut.example:8081", &["cannot be looked up: no resolver can be reached"]),
            ("http://stranger.example:8081", &["cannot be looked up: a resolver answers what it was not asked"]),
            ("http://endless.example:8081", &["cannot be looked up: an answer is too long"]),
            ("http://loopback.example:8443", &["loopback.example:8443"]),
        ] {
            let ended = api.run_to(upstream, &[], &["/bin/sh", "-c",
                "curl -sS -m 20 -w '%{http_code}\\n' http://127.0.0.1:274/; curl -sS -m 20 -o /dev/null http://127.0.0.1:274/"]);
            let said = ended.success();
            assert!(said.contains("\"type\":\"api_error\"") && said.ends_with("502\n"), "{said}");
            api.has_told(words);
        }
    }

    /// A name with more addresses than a datagram holds.
    fn a_long_answer_is_asked_for_over_tcp(caller) {
        let api = api!(caller);
        for name in ["long.example", "once.example"] {
            let upstream = format!("http://{name}:8080");
            let ended = api.run_to(&upstream, &[], &["/bin/sh", "-c", "curl -sS -m 20 http://127.0.0.1:274/"]);
            assert_eq!(ended.success(), format!("hello to {name}:8080 at 93.184.215.14\n"));
            let contacts = api.network.contacts();
            assert!(contacts.contains(&format!("name {name} over tcp")), "{contacts:?}");
        }
    }

    /// The way to the API is none to its host, and none to another.
    fn model_api_route_reaches_no_other_host(caller) {
        let api = api!(caller);
        let ended = api.sh("for url in http://127.0.0.1:8081/ http://93.184.215.14/ http://four.example/; do
            curl -sS -m 20 $url; echo $?; done
            curl -sS -m 20 -o /dev/null -w '%{http_code}\\n' --proxy http://127.0.0.1:274 http://four.example/
            curl -sS -m 20 -o /dev/null -w '%{http_connect}\\n' -p --proxy http://127.0.0.1:274 http://four.example/ 2>/dev/null
            curl -sS -m 20 -L -w '%{http_code}\\n' http://127.0.0.1:274/away");
        assert_eq!(ended.stdout, "7\n7\n6\n421\n405\n302\n", "{}", ended.stderr);
        assert_eq!(api.heard().len(), 1, "the redirection alone, which is passed on");
        assert!(!api.network.contacts().iter().any(|contact| contact.starts_with("tcp 93.")));
    }

    /// With a network by policy, too, and beside it.
    fn model_api_works_together_with_a_network_policy(caller) {
        let api = api!(caller);
        let script = "curl -sS -m 20 http://127.0.0.1:274/v1 && curl -sS -m 20 http://four.example/; curl -sS -m 20 http://127.0.0.1:8081/; echo $?";
        let ended = api.run_to(PLAIN, &["--allow-host", "four.example"], &["/bin/sh", "-c", script]);
        assert!(ended.stdout.contains("\"target\": \"/v1\"") && ended.stdout.ends_with("hello to four.example at 93.184.215.14\n7\n"), "{ended:?}");
        let ended = api.run_to(PLAIN, &["--net", "host"], &["/bin/sh", "-c",
            "echo $ANTHROPIC_BASE_URL; curl -sS -m 20 --unix-socket /run/api.sock http://localhost/v1; curl -s http://127.0.0.1:274/; echo $?"]);
        assert!(ended.stdout.starts_with("http://localhost\n{") && ended.stdout.ends_with("7\n"), "{ended:?}");
        let ended = api.run_to(PLAIN, &["--allow-host", "four.example:274"], &["/bin/true"]);
        ended.refused(&["port 274", "the model API is served"]);
    }

    /// Lengths that disagree, folded lines and the like: an upstream hears one request for each that was meant.
    fn ambiguous_requests_are_not_forwarded_to_the_upstream(caller) {
        let api = api!(caller);
        let smuggled = "GET /smuggled HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n";
        let heads = [
            format!("POST /1 HTTP/1.1\\r\\nHost: a\\r\\nContent-Length: 5\\r\\nContent-Length: 6\\r\\n\\r\\nabcde{smuggled}"),
            "GET /2 HTTP/1.1\\r\\nHost: a\\r\\nX-Folded: 1\\r\\n x-api-key: forged\\r\\n\\r\\n".to_owned(),
            "GET /3 HTTP/1.1\\r\\nHost : a\\r\\n\\r\\n".to_owned(),
            format!("POST /4 HTTP/1.1\\r\\nHost: a\\r\\nTransfer-Encoding: identity\\r\\n\\r\\n{smuggled}"),
            format!("POST /5 HTTP/1.1\\r\\nHost: a\\r\\nTransfer-Encoding: chunked, gzip\\r\\n\\r\\n0\\r\\n\\r\\n{smuggled}"),
            format!("POST /6 HTTP/1.1\\r\\nHost: a\\r\\nContent-Length: +5\\r\\n\\r\\nabcde{smuggled}"),
            "GET /7 HTTP/1.1\\r\\nHost: a\\r\\nHost: b\\r\\n\\r\\n".to_owned(),
            "GET /8/../../x HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n".to_owned(),
            "TRACE /9 HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n".to_owned(),
            "GET /10 HTTP/1.1\\r\\nHost: a\\r\\nConnection: upgrade\\r\\nUpgrade: websocket\\r\\n\\r\\n".to_owned(),
            "GET http://four.example/11 HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n".to_owned(),
            "CONNECT four.example:80 HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n".to_owned(),
            "PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n".to_owned(),
            "GET /12 HTTP/1.1\\r\\nHost: a\\r\\nX: \\0\\r\\n\\r\\n".to_owned(),
            format!("GET /13 HTTP/1.1\\r\\nHost: a\\r\\nX: {}\\r\\n\\r\\n", "x".repeat(70_000)),
        ];
        let script = format!("import socket
def say(head):
    s = socket.create_connection(('127.0.0.1', 274)); s.settimeout(20)
    try:
        s.sendall(head.encode('latin-1'))
    except OSError: pass
    said = b''
    try:
        while (more := s.recv(65536)): said += more
    except OSError: pass
    return said
for head in [{}]:
    said = say(head)
    if b' 200 ' in said: print(head[:40], said)
", heads.iter().map(|head| format!("'{head}'")).collect::<Vec<_>>().join(", "));
        assert_eq!(api.python(&script).success(), "");
        assert_eq!(api.heard(), []);

        // A coding stands over a length, whichever comes first; and what comes after it is a request of its own.
        for lengths in ["Content-Length: 4\\r\\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked\\r\\nContent-Length: 4"] {
            let script = format!("import socket
s = socket.create_connection(('127.0.0.1', 274)); s.settimeout(20)
s.sendall(b'POST /both HTTP/1.1\\r\\nHost: a\\r\\nConnection: close\\r\\n{lengths}\\r\\n\\r\\n5\\r\\nabcde\\r\\n0\\r\\n\\r\\n')
said = b''
while (more := s.recv(65536)): said += more
print(said.count(b'HTTP/1.1 200'), b'\"length\": 5' in said)");
            assert_eq!(api.python(&script).success(), "1 True\n");
            let heard = api.heard();
            assert_eq!(heard.len(), 1, "{heard:?}");
            assert!(values(&heard[0].2, "content-length").is_empty());
        }
    }

    fn events_pass_piece_by_piece(caller) {
        let api = api!(caller);
        let ended = api.sh("curl -sSN -m 60 http://127.0.0.1:274/events | while read -r line; do
            echo \"$line\"; [ \"$line\" = 'data: first' ] && echo go >heard; done");
        assert_eq!(ended.stdout.replace('\n', " ").trim(), "data: first  data: second");
    }

    /// In memory that is bounded, by length and in chunks.
    fn much_goes_both_ways_whole(caller) {
        let api = api!(caller);
        let script = "head -c 67108864 /dev/urandom >/tmp/much; sha256sum </tmp/much | cut -d' ' -f1
            curl -sS -m 60 -T /tmp/much http://127.0.0.1:274/in
            curl -sS -m 60 -T - -X POST http://127.0.0.1:274/in </tmp/much
            curl -sS -m 60 http://127.0.0.1:274/bytes/67108864 | sha256sum
            curl -sS -m 60 -o /dev/null -w '%{http_code} %header{x-peak}' --data-binary @/tmp/much http://127.0.0.1:274/early";
        let said = api.sh(script).success();
        let lines: Vec<&str> = said.lines().collect();
        for line in &lines[1..3] {
            assert!(line.contains("\"length\": 67108864") && line.contains(lines[0]), "{said}");
        }
        let heard = api.heard();
        let sent = heard.iter().find(|(kind, ..)| kind == "SENT").expect("it was sent whole");
        assert!(lines[3].starts_with(&sent.1), "{said}");
        let (status, peak) = lines[4].split_once(' ').unwrap();
        assert_eq!(status, "413");
        // A debug build has 20 MiB before it begins.
        assert!(peak.parse::<u32>().unwrap() < 48 << 10, "{peak} KiB");
    }

    /// A client that sends its whole body although the answer has arrived, on both sockets: of the process's own answers and
    /// of the upstream's. A connection that is closed with unread input is reset, and the client fails to send.
    fn early_answer_reaches_a_client_that_sends_on(caller) {
        let api = api!(caller);
        let script = "import socket
for family, address in (socket.AF_INET, ('127.0.0.1', 274)), (socket.AF_UNIX, '/run/api.sock'):
    for head in b'PROPFIND /v1', b'POST /early':
        s = socket.socket(family); s.connect(address)
        s.sendall(head + b' HTTP/1.1\\r\\nHost: a\\r\\nContent-Length: 33554432\\r\\n\\r\\n')
        for _ in range(32): s.sendall(bytes(1 << 20))
        said = b''
        while (more := s.recv(4096)): said += more
        print(said.split(b' ')[1].decode())";
        for _ in 0..rounds(3, 100) {
            assert_eq!(api.python(script).success(), "405\n413\n405\n413\n");
        }
    }

    fn model_api_serves_a_hundred_concurrent_requests(caller) {
        let api = api!(caller);
        let ended = api.python("import threading, urllib.request
said = []
def ask(): said.append(urllib.request.urlopen('http://127.0.0.1:274/many', timeout=60).status)
all = [threading.Thread(target=ask) for _ in range(100)]
for one in all: one.start()
for one in all: one.join()
print(said.count(200))");
        assert_eq!(ended.success(), "100\n");
    }

    /// Who holds connections open has others wait, and no more than so many are there. One place is that of whom the
    /// socket waits for.
    fn model_api_connections_are_limited(caller) {
        let api = api!(caller);
        let ended = api.python("import socket
def call(): return socket.create_connection(('127.0.0.1', 274), 20)
def ask(s): s.sendall(b'GET /v1 HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n')
many = [call() for _ in range(255)]
# They are taken in order: with the last one all are.
ask(many[-1]); print(many[-1].recv(12))
late = call(); ask(late)
ask(many[0]); print(many[0].recv(12))
late.setblocking(False)
try: print(late.recv(12))
except BlockingIOError: print('waits')
many[1].close(); late.settimeout(20)
print(late.recv(12))");
        let answered = "b'HTTP/1.1 200'\n";
        assert_eq!(ended.success(), format!("{answered}{answered}waits\n{answered}"));
    }

    /// An answer that ends in the middle is no whole answer; and the next request finds a new connection.
    fn an_answer_that_is_cut_is_seen_to_be(caller) {
        let api = api!(caller);
        let ended = api.sh("curl -s -m 20 http://127.0.0.1:274/cut http://127.0.0.1:274/next; echo $?; curl -s -m 20 -o /dev/null http://127.0.0.1:274/cut; echo $?");
        assert!(ended.stdout.starts_with("half{\"method\"") && ended.stdout.ends_with("18\n"), "{ended:?}");
    }

    /// While it is used: not in what is readable inside, not with the supervisor, not on any command line.
    fn the_key_is_nowhere_but_in_one_process_that_has_little_else(caller) {
        let api = api!(caller);
        let inside = "curl -sS -m 20 -o /dev/null http://127.0.0.1:274/v1 && echo used >up && read -r _ <go-on
            key=sk-saggar; key=$key-test
            grep -aos $key-0123456789abcdef /proc/[0-9]*/environ /proc/[0-9]*/cmdline /proc/self/maps
            grep -arosI $key-0123456789abcdef /etc /run /tmp /home /dev/shm . && echo found
            ls /proc/[0-9]*/comm | while read -r comm; do grep -sl saggar:api $comm; done; echo looked";
        let outside = "\"$@\" 3>events 9</etc/hostname & saggar=$!
            read -r _ <up
            api=$(pgrep -x -P $saggar saggar:api) || echo there is no process
            tr '\\0' ' ' </proc/$api/cmdline; echo
            ps -o uid=,ppid= -p $api | xargs | sed \"s/^$(id -u) /caller /; s/ $saggar\\$/ child/\"
            grep -E '^(Cap(Inh|Prm|Eff|Amb)|NoNewPrivs|Seccomp):' /proc/$api/status | tr -d '\\t'
            [ $(id -u) != 0 ] || { tr '\\0' '\\n' </proc/$api/environ; ls -l /proc/$api/fd | grep -o 'hostname$'; }
            [ $(id -u) = 0 ] || cat /proc/$api/environ /proc/$api/maps 2>&1 | grep -c denied
            grep -als -f ../key /proc/[0-9]*/cmdline /proc/[0-9]*/environ && echo on a command line
            python3 - $saggar 2>&1 <<'END'
import sys
key = open('../key', 'rb').read().strip()
found = 0
try:
    maps = open(f'/proc/{sys.argv[1]}/maps')
except PermissionError:
    sys.exit('supervisor closed')
for line in maps:
    span, mode = line.split()[:2]
    if not mode.startswith('r') or '[v' in line: continue
    low, high = (int(part, 16) for part in span.split('-'))
    with open(f'/proc/{sys.argv[1]}/mem', 'rb', 0) as memory:
        memory.seek(low)
        found += memory.read(high - low).count(key)
print('supervisor', found)
END
            echo go >go-on
            wait $saggar || status=$?";
        let options = ["--api", PLAIN, "--api-key-file", &api.key];
        let ended = api.run_so(outside, &options, &["/bin/sh", "-c", inside]);
        let user = if caller.is_root() { "65534" } else { "caller" };
        let none = "0000000000000000";
        let expected = format!(
            "saggar __api \n{user} child\nCapInh:{none}\nCapPrm:{none}\nCapEff:{none}\nCapAmb:{none}\nNoNewPrivs:1\nSeccomp:2\n{}\nlooked\n",
            // The memory of the supervisor is open to root alone.
            if caller.is_root() { "supervisor 0" } else { "2\nsupervisor closed" },
        );
        assert_eq!(ended.stdout, expected, "{}", ended.stderr);
        assert_eq!(api.heard().len(), 1);
    }

    fn model_api_process_exits_with_the_supervisor(caller) {
        let api = api!(caller);
        let outside = "\"$@\" 3>events & saggar=$!
            read -r _ <up
            api=$(pgrep -x -P $saggar saggar:api); echo $api | wc -w
            kill -KILL $saggar; wait $saggar 2>/dev/null
            timeout 20 tail --pid=$api -f /dev/null && echo gone";
        let options = ["--api", PLAIN, "--api-key-file", &api.key];
        let script = "curl -sS -m 20 -o /dev/null http://127.0.0.1:274/v1; echo up >up; read -r _ <go-on";
        for _ in 0..rounds(3, 20) {
            let ended = api.run_so(outside, &options, &["/bin/sh", "-c", script]);
            assert_eq!(ended.stdout, "1\ngone\n", "{}", ended.stderr);
        }
    }

    /// It is started again, and that is told; not for ever.
    fn crashed_model_api_process_is_restarted_a_limited_number_of_times(caller) {
        let api = api!(caller);
        let outside = "\"$@\" 3>events & saggar=$!
            for round in 1 2 3 4; do
                read -r _ <up
                # The first is the supervisor's child, those that follow are its launcher's.
                api=$(pgrep -x -P $saggar,$(pgrep -x -P $saggar saggar:launch) saggar:api)
                kill -KILL $api; timeout 20 tail --pid=$api -f /dev/null
                echo go >go-on
            done
            wait $saggar || status=$?";
        let script = "for round in 1 2 3 4; do
                curl -sS -m 20 -o /dev/null -w '%{http_code}\\n' http://127.0.0.1:274/v1; echo up >up; read -r _ <go-on
            done
            curl -s -m 20 http://127.0.0.1:274/; echo $?";
        let options = ["--api", PLAIN, "--api-key-file", &api.key];
        // Root's process is nobody's: only root ends it.
        let ended = api.run_so(outside, &options, &["/bin/sh", "-c", script]);
        // Refused, or reset where the supervisor has not closed the socket yet (curl(1), EXIT CODES).
        let (served, refused) = ended.stdout.split_at_checked("200\n".len() * 4).unwrap_or_default();
        assert_eq!(served, "200\n".repeat(4), "{}", ended.stderr);
        assert!(["7\n", "52\n", "56\n"].contains(&refused), "{refused}: {}", ended.stderr);
        let told = api.events("api");
        assert_eq!(told.len(), 4, "{told:?}");
        assert!(told[0]["why"].as_str().unwrap().contains("is started again"));
        assert!(told[3]["why"].as_str().unwrap().contains("too often; it is no longer served"));
    }

    /// The file is checked as ssh checks its own, and what is in it is never repeated.
    fn invalid_key_file_is_refused_before_the_start(caller) {
        let api = api!(caller);
        let network = &api.network;
        let run = |key: &str| network.run_with(&["--api", PLAIN, "--api-key-file", key], &["/bin/true"]);
        let open = network.wrap.place.make_file("open", KEY).to_str().unwrap().to_owned();
        run(&open).refused(&["open to others (mode 0644)", "chmod 600"]);
        for (text, why) in [("", "it is empty"), ("a\nb\n", "more than one line"), ("Bearer a", "characters that no key has")] {
            run(&secret(network, "bad", text)).refused(&[why, "without Bearer"]);
        }
        if caller.is_root() {
            let of_another = secret(network, "bad", KEY);
            std::os::unix::fs::chown(&of_another, Some(65_534), None).unwrap();
            run(&of_another).refused(&["belongs to user 65534", "chown 0"]);
        }
        run(&secret(network, "bad", &"k".repeat(20_000))).refused(&["longer than 16 KiB"]);
        run("/nonexistent/key").refused(&["/nonexistent/key"]);
        run(network.wrap.place.join("state").to_str().unwrap()).refused(&["state is not a regular file"]);
        run(&secret(network, "work/key", KEY)).refused(&["programs see at", "where no sandbox looks"]);
        run(&secret(network, "home/key", KEY)).success();
        let shown = network.wrap.place.join("home").to_str().unwrap().to_owned();
        let inside = network.run_with(
            &["--api", PLAIN, "--api-key-file", &format!("{shown}/key"), "--ro", &format!("{shown}:/mnt")],
            &["/bin/true"],
        );
        inside.refused(&["programs see at /mnt"]);
        network.run_with(&["--api", PLAIN], &["/bin/true"]).refused(&["api.upstream has no key", "--api-key-file"]);
        network.run_with(
            &["--api", PLAIN, "--api-key-file", &api.key, "--env", "ANTHROPIC_API_KEY"],
            &["/bin/true"],
        ).refused(&["would bring a key inside"]);
    }

    fn a_key_comes_by_a_descriptor(caller) {
        let api = api!(caller);
        let how = format!("printf %s {KEY} | \"$@\" 4<&0 </dev/null 3>events || status=$?");
        let script = "curl -sS -m 20 -o /dev/null -w '%{http_code}\\n' http://127.0.0.1:274/v1; ls /proc/self/fd | wc -l";
        let ended = api.run_so(&how, &["--api", PLAIN, "--api-key-fd", "4"], &["/bin/sh", "-c", script]);
        // Three streams, and the directory itself.
        assert_eq!(ended.success(), "200\n4\n");
        assert_eq!(values(&api.heard()[0].2, "x-api-key"), [KEY]);
        let ended = api.network.run_with(&["--api-key-fd", "3"], &["/bin/true"]);
        assert!(ended.stderr.contains("names a key, and no upstream"), "{ended:?}");
        let locked = format!("locked = ['api']\n[api]\nupstream = '{PLAIN}'\nkey_file = '{}'\n", api.key);
        let policy = api.network.wrap.place.make_file("policy.toml", &locked).to_str().unwrap().to_owned();
        let ended = api.network.run_with(&["--policy", &policy, "--api-key-fd", "3"], &["/bin/true"]);
        ended.refused(&["--api-key-fd", "locks api", "its key is used"]);
        api.network.run_with(&["--policy", &policy], &["/bin/true"]).success();
    }

    /// What the agent can write does not say where the key goes.
    fn folder_policy_cannot_configure_the_model_api(caller) {
        let api = api!(caller);
        let file = api.network.wrap.work().join(".saggar.toml");
        for (text, key) in [
            ("upstream = 'http://127.0.0.1:9'".to_owned(), "api.upstream"),
            (format!("key_file = '{}'", api.key), "api.key_file"),
            ("header = 'authorization'".to_owned(), "api.header"),
        ] {
            fs::write(&file, format!("[api]\n{text}\n")).unwrap();
            let ended = api.network.run_with(&[], &["/bin/true"]);
            ended.refused(&[key, "may only tighten"]);
        }
        fs::remove_file(&file).unwrap();
    }

    /// A key goes nowhere but where its own layer has sent it.
    fn another_upstream_does_not_get_the_key_of_the_first(caller) {
        let api = api!(caller);
        let policy = format!("[api]\nupstream = 'https://api.example'\nkey_file = '{}'", api.key);
        let policy = api.network.wrap.place.make_file("policy.toml", &policy);
        let ended = api.network.run_with(&["--policy", policy.to_str().unwrap(), "--api", PLAIN], &["/bin/true"]);
        ended.refused(&["api.upstream has no key"]);
    }

    /// explain shows where it is, and never what it is.
    fn explain_shows_the_way_and_not_the_key(caller) {
        let api = api!(caller);
        let place = &api.network.wrap.place;
        let explain = |more: &[&str]| {
            let mut command = place.saggar();
            command.args(["explain", "--api", "https://api.example", "--api-key-file", &api.key]).args(more);
            let output = command.output().unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        let text = explain(&[]);
        assert!(text.contains("model API, to which saggar adds the key outside") && text.contains(&api.key), "{text}");
        assert!(text.contains("https://api.example"), "{text}");
        for report in [&text, &explain(&["--json"]), &explain(&["--host", "api.example:443"])] {
            assert!(!report.contains(KEY), "{report}");
        }
        let host = explain(&["--host", "api.example:443"]);
        assert!(host.starts_with("api.example:443: refused\n") && host.contains("by [api]"), "{host}");
    }
}
