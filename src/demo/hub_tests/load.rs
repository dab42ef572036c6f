//! Many connections, large lines and slow clients.

use super::*;
use crate::bridge::adapter::StreamJsonAdapter;

const MIB: usize = 1 << 20;

/// Resident memory of this process, in bytes.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn bp_29_a_reader_that_stops_holds_up_one_gib_in_bounded_memory() {
    if !alone("load::bp_29_a_reader_that_stops_holds_up_one_gib_in_bounded_memory") {
        return;
    }
    let mut rig = Rig::new(Box::new(StreamJsonAdapter::new()), None);
    let mut client = rig.connect();
    let mut other = rig.connect();
    client.query("go");
    rig.until(|rig| !rig.told.is_empty());
    let line = format!("{{\"type\":\"assistant\",\"text\":\"{}\"}}\n", "x".repeat(256 << 10));
    let lines = (1 << 30) / line.len() + 1;
    // It reads nothing until it gets a signal.
    let (go, wait) = channel::<()>();
    let reading = std::thread::spawn(move || {
        wait.recv().unwrap();
        let (mut bytes, mut chunk) = (0usize, vec![0; MIB]);
        loop {
            let count = client.reader.read(&mut chunk).unwrap();
            bytes += count;
            if count == 0 || chunk[..count].ends_with(b"\"sessionId\":\"s\"}\n") {
                return bytes;
            }
        }
    });
    let before = resident();
    let (mut sent, mut most, mut told) = (0, 0, false);
    rig.until(|rig| {
        while rig.hub.core().wants_agent_output() && sent < lines {
            rig.hub.with_bridge(|bridge| bridge.agent_output(line.as_bytes()));
            sent += 1;
            if sent == lines {
                rig.hub.with_bridge(|bridge| bridge.agent_output(b"{\"type\":\"result\"}\n"));
            }
        }
        most = most.max(rig.hub.core().held_bytes());
        if !told && !rig.hub.core().wants_agent_output() {
            // The agent is paused; other connections are not affected.
            assert!(sent < 20, "{sent} lines went into a reader that does not read");
            other.say(r#"{"cmd":"exec","command":"x"}"#);
            for _ in 0..100 {
                rig.turn();
            }
            assert_eq!(other.turn().last().unwrap()["ev"], "done");
            told = true;
            go.send(()).unwrap();
        }
        reading.is_finished()
    });
    assert!(told && reading.join().unwrap() > 1 << 30);
    assert!(most < 2 * MIB, "{most} bytes were held");
    let grown = resident().saturating_sub(before);
    assert!(grown < 16 * MIB, "memory grew by {grown} bytes");
}

#[test]
fn bp_30_a_thousand_connections_come_and_go_and_leave_nothing() {
    if !alone("load::bp_30_a_thousand_connections_come_and_go_and_leave_nothing") {
        return;
    }
    let mut rig = Rig::demo();
    let cycle = |rig: &mut Rig, round: usize| {
        let mut client = rig.connect();
        client.query("count: 1000000");
        if round.is_multiple_of(2) {
            rig.until(|rig| rig.hub.core().is_busy());
        }
        if round.is_multiple_of(3) {
            client.say(r#"{"cmd":"exec","command":"x"}{"#);
        }
        drop(client);
        rig.until(|rig| rig.hub.connection_count() == 0 && !rig.hub.core().is_busy());
    };
    cycle(&mut rig, 0);
    let before = descriptors();
    for round in 1..=1000 {
        cycle(&mut rig, round);
    }
    assert_eq!(descriptors(), before);
    assert_eq!(rig.hub.core().held_bytes(), 0);
}

#[test]
fn a_thousand_connections_at_once_are_served_and_more_wait_their_turn() {
    if !alone("load::a_thousand_connections_at_once_are_served_and_more_wait_their_turn") {
        return;
    }
    let limit = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE).unwrap();
    nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE, limit.1.min(8192), limit.1)
        .unwrap();
    let mut rig = Rig::demo();
    let mut clients: Vec<Client> = Vec::new();
    for _ in 0..1100 {
        clients.push(rig.connect());
        rig.turn();
    }
    assert_eq!(rig.hub.connection_count(), 1024);
    for client in &mut clients[..1024] {
        assert_eq!(client.hear().unwrap()["ev"], "ready");
    }
    clients.drain(..100);
    rig.until(|rig| rig.hub.connection_count() == 1000);
    assert_eq!(clients.last_mut().unwrap().hear().unwrap()["ev"], "ready");
}

#[test]
fn bp_19_49_mib_pass_and_65_mib_cost_their_connection_only() {
    let mut rig = Rig::demo();
    let (mut long, mut longer, mut other) = (rig.connect(), rig.connect(), rig.connect());
    rig.while_client(move || {
        long.hear();
        long.say(&format!(r#"{{"cmd":"fly","x":"{}"}}"#, "x".repeat(49 * MIB)));
        assert_eq!(long.hear().unwrap()["error"], "unknown command \"fly\"");
        longer.hear();
        let chunk = vec![b'x'; MIB];
        // The bridge closes the connection after 64 MiB, and discards the rest: the client reads the error, and then the end.
        for _ in 0..70 {
            longer.reader.get_mut().write_all(&chunk).unwrap();
        }
        assert_eq!(longer.hear().unwrap()["ev"], "error");
        assert_eq!(longer.hear(), None);
        other.query("hi");
        assert_eq!(other.turn().last().unwrap()["ev"], "done");
    });
    assert_eq!(rig.hub.core().held_bytes(), 0);
}

#[test]
fn a_million_empty_lines_and_one_byte_writes_are_nothing_special() {
    let mut rig = Rig::demo();
    let mut client = rig.connect();
    rig.while_client(move || {
        client.hear();
        client.reader.get_mut().write_all(&vec![b'\n'; 1_000_000]).unwrap();
        for byte in "{\"cmd\":\"query\",\"prompt\":\"€𝄞\",\"sessionId\":\"s\"}\r\n".as_bytes() {
            client.reader.get_mut().write_all(&[*byte]).unwrap();
        }
        let events = client.turn();
        assert_eq!(events[1]["data"]["message"]["content"][0]["text"], "You said: €𝄞");
    });
}

#[test]
fn a_server_that_sends_bad_lines_and_never_reads_is_not_read_either() {
    let mut rig = Rig::demo();
    let mut client = rig.connect();
    client.reader.get_mut().set_nonblocking(true).unwrap();
    let lines = "x\n".repeat(10_000);
    let mut most = 0;
    for _ in 0..2000 {
        let _ = client.reader.get_mut().write(lines.as_bytes());
        rig.turn();
        most = most.max(rig.hub.core().held_bytes());
    }
    assert!(most < 8 * MIB, "{most}");
}
