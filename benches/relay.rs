//! What the relay of a network by policy costs: throughput of one connection, the time of a round trip, the time until a
//! connection stands, and a thousand connections at once. Each against a direct connection over loopback, and against
//! socat in the usual shape, in which one socat inside and one outside meet at a unix socket. Medians and ratios; there
//! are no absolute bounds.
//!
//! `cargo bench --bench relay [-- ROUNDS]`: ROUNDS rounds (default 5). It runs in namespaces that it makes, with no way
//! out: iproute2, util-linux and socat have to be there.
//!
//! ```text
//! client (sandbox) ── saggar's relay ──> cable ──> server (a namespace of its own)
//! client (namespace) ── socat ── unix socket ── socat ──> cable ──> server
//! client ── loopback ──> server
//! ```

// A bench that cannot go on may say so and stop.
#![allow(clippy::expect_used, clippy::print_stdout)]

use nix::sys::socket::{Backlog, listen};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const SAGGAR: &str = env!("CARGO_BIN_EXE_saggar");
/// The server, at the other end of a cable; and where socat listens.
const SERVER: &str = "93.184.215.14:5000";
const PORT: u16 = 5000;
/// Bytes of one measurement of throughput, and how often one byte goes there and back.
const BYTES: usize = 512 << 20;
const TRIPS: usize = 2000;
const MANY: usize = 1000;

/// The networks: this bench's own, the server's, and one for the client of socat. `$0` is the bench, `$1` its rounds.
const WORLD: &str = r#"
set -e
ip link set lo up
unshare --net setpriv --pdeathsig KILL "$0" serve & far=$!
unshare --net setpriv --pdeathsig KILL sleep infinity & inner=$!
"$0" serve & near=$!
until [ "$(readlink /proc/$far/ns/net)" != "$(readlink /proc/$$/ns/net)" ] && [ "$(readlink /proc/$inner/ns/net)" != "$(readlink /proc/$$/ns/net)" ]; do :; done
ip link add name cable type veth peer name cable netns $far
ip addr add 93.184.215.1/24 dev cable
ip link set cable up
in_far() { nsenter --net=/proc/$far/ns/net "$@"; }
in_inner() { nsenter --net=/proc/$inner/ns/net "$@"; }
in_far ip link set lo up
in_far ip addr add 93.184.215.14/24 dev cable
in_far ip link set cable up
in_inner ip link set lo up
socat UNIX-LISTEN:socket,fork,backlog=1024 TCP:93.184.215.14:5000,nodelay & outer_socat=$!
in_inner setpriv --pdeathsig KILL socat TCP-LISTEN:5000,fork,reuseaddr,nodelay,backlog=1024 UNIX-CONNECT:socket & inner_socat=$!
until in_inner "$0" client reach 127.0.0.1:5000 2>/dev/null; do sleep 0.05; done
export BENCH_INNER=$inner
status=0
"$0" rounds "$1" || status=$?
kill $far $inner $near $outer_socat $inner_socat
exit $status
"#;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let is_bench = std::env::args().any(|word| word == "--bench");
    match words.first().map(String::as_str) {
        Some("serve") => serve(),
        Some("client") => client(&words[1], &words[2]),
        Some("rounds") => rounds(words[1].parse().expect("a number")),
        other => {
            let rounds = other.and_then(|word| word.parse().ok()).unwrap_or(if is_bench { 5 } else { 1 });
            begin(rounds);
        }
    }
}

/// Goes into networks of its own.
fn begin(rounds: usize) {
    let scratch =
        tempfile::Builder::new().prefix("saggar-bench").tempdir_in("/var/tmp").expect("a directory");
    let mut command = Command::new("unshare");
    if !nix::unistd::geteuid().is_root() {
        command.args(["--user", "--map-current-user", "--keep-caps"]);
    }
    command.args(["--net", "--mount", "sh", "-c", WORLD]).arg(own()).arg(rounds.to_string());
    let status = command.current_dir(scratch.path()).stdin(Stdio::null()).status();
    assert!(status.is_ok_and(|status| status.success()), "the networks of the bench cannot be made");
}

fn own() -> std::path::PathBuf {
    std::env::current_exe().expect("a path of its own")
}

/// Serves: `d` sends [`BYTES`], `u` takes them and says so, and `e` says back what it hears.
fn serve() {
    let listener = TcpListener::bind(("0.0.0.0", PORT)).expect("the port is free");
    // With the 128 of the standard library a thousand callers wait for one another's second try, and not for the relay.
    listen(&listener, Backlog::MAXCONN).expect("it listens already");
    for stream in listener.incoming().flatten() {
        std::thread::spawn(move || speak(stream));
    }
}

fn speak(mut stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    let mut kind = [0];
    if stream.read_exact(&mut kind).is_err() {
        return;
    }
    let mut chunk = vec![0; 256 << 10];
    match &kind {
        b"d" => {
            let mut left = BYTES;
            while left > 0 && stream.write_all(&chunk[..left.min(chunk.len())]).is_ok() {
                left -= left.min(chunk.len());
            }
        }
        b"u" => {
            let mut left = BYTES;
            while left > 0 {
                match stream.read(&mut chunk) {
                    Ok(count) if count > 0 => left -= count.min(left),
                    _ => return,
                }
            }
            let _ = stream.write_all(b"!");
        }
        _ => {
            while let Ok(count) = stream.read(&mut chunk) {
                if count == 0 || stream.write_all(&chunk[..count]).is_err() {
                    return;
                }
            }
        }
    }
}

/// Measures from where it is; prints one number: MB/s, or microseconds.
fn client(what: &str, to: &str) {
    let connect = |kind: &[u8]| {
        let mut stream = TcpStream::connect(to).expect("the server is there");
        stream.set_nodelay(true).expect("a socket");
        stream.write_all(kind).expect("it listens");
        stream
    };
    let mut chunk = vec![0; 256 << 10];
    let figure = match what {
        "reach" => {
            TcpStream::connect(to).expect("somebody listens");
            return;
        }
        "down" => {
            let begun = Instant::now();
            let mut stream = connect(b"d");
            let mut left = BYTES;
            while left > 0 {
                let count = stream.read(&mut chunk).expect("it goes on");
                assert!(count > 0, "all of it comes");
                left -= count;
            }
            rate(begun.elapsed())
        }
        "up" => {
            let begun = Instant::now();
            let mut stream = connect(b"u");
            let mut left = BYTES;
            while left > 0 {
                stream.write_all(&chunk[..left.min(chunk.len())]).expect("it goes on");
                left -= left.min(chunk.len());
            }
            stream.read_exact(&mut chunk[..1]).expect("it has all");
            rate(begun.elapsed())
        }
        "trip" => {
            let mut stream = connect(b"e");
            median((0..TRIPS).map(|_| {
                let begun = Instant::now();
                stream.write_all(b"x").expect("it listens");
                stream.read_exact(&mut chunk[..1]).expect("it answers");
                micros(begun.elapsed())
            }))
        }
        "connect" => median((0..200).map(|_| {
            let begun = Instant::now();
            connect(b"ex").read_exact(&mut chunk[..1]).expect("it answers");
            micros(begun.elapsed())
        })),
        "many" => {
            let begun = Instant::now();
            let mut streams: Vec<TcpStream> = (0..MANY).map(|_| connect(b"e")).collect();
            for stream in &mut streams {
                stream.write_all(b"x").expect("it listens");
            }
            for stream in &mut streams {
                stream.read_exact(&mut chunk[..1]).expect("it answers");
            }
            micros(begun.elapsed()) / 1000.0
        }
        other => panic!("no such measurement: {other}"),
    };
    println!("{figure}");
}

fn rate(time: Duration) -> f64 {
    BYTES as f64 / 1e6 / time.as_secs_f64()
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// How a client is started, and whom it calls.
fn way(name: &str, what: &str) -> Command {
    let own = own();
    match name {
        "direct" => {
            let mut command = Command::new(&own);
            command.args(["client", what, "127.0.0.1:5000"]);
            command
        }
        "socat" => {
            let inner = std::env::var("BENCH_INNER").expect("the world has made it");
            let mut command = Command::new("nsenter");
            command.arg(format!("--net=/proc/{inner}/ns/net")).arg(&own);
            command.args(["client", what, "127.0.0.1:5000"]);
            command
        }
        _ => {
            let mut command = Command::new(SAGGAR);
            let directory = own.parent().map_or_else(|| Path::new("/").to_owned(), Path::to_owned);
            command.args(["wrap", "--allow-host", SERVER, "--ro"]).arg(directory).arg("--").arg(&own);
            command.args(["client", what, SERVER]);
            command
        }
    }
}

fn rounds(rounds: usize) {
    let ways = ["direct", "socat", "saggar"];
    let measured = [
        ("down", "MB/s, one connection, to the program"),
        ("up", "MB/s, one connection, from the program"),
        ("trip", "µs, one byte there and back"),
        ("connect", "µs, until a connection has answered"),
        ("many", "ms, a thousand connections at once"),
    ];
    println!("{:40}{:>12}{:>12}{:>12}{:>12}{:>12}", "", "direct", "socat", "saggar", "of direct", "of socat");
    for (what, words) in measured {
        let mut figures = [const { Vec::new() }; 3];
        for _ in 0..rounds {
            for (way_of, figures) in ways.iter().zip(&mut figures) {
                let output = way(way_of, what).stderr(Stdio::inherit()).output().expect("it runs");
                assert!(output.status.success(), "{way_of} {what}: {}", output.status);
                let text = String::from_utf8(output.stdout).expect("text");
                figures.push(text.trim().parse::<f64>().expect("a number"));
            }
        }
        let [direct, socat, saggar] = figures.map(|figures| median(figures.into_iter()));
        let (of_direct, of_socat) = (saggar / direct, saggar / socat);
        println!("{words:40}{direct:12.1}{socat:12.1}{saggar:12.1}{of_direct:12.2}{of_socat:12.2}");
    }
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}
