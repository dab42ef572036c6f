//! Servers, supervisors and agents are killed at any moment, under load: a client that reconnects misses no event and
//! receives none twice, and what is in the database agrees with what saggar has stored.

use crate::support::cutting_proxy::CuttingProxy;
use crate::support::{Server, deploy_body};
use rustix::process::{Pid, Signal, kill_process};
use saggar_remote::event_stream::EventStream;
use saggar_remote::{ApiKey, Connection, ServerAddress};
use serde_json::{Value, json};
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Sessions with a client that sends and one that follows.
const SESSIONS: usize = 3;

/// Number of kills: 200 with SAGGAR_TEST_LONG=1.
fn kills() -> usize {
    if std::env::var("SAGGAR_TEST_LONG").is_ok_and(|value| value == "1") { 200 } else { 9 }
}

/// A random number below `end`.
fn random(end: usize) -> usize {
    usize::try_from(RandomState::new().hash_one(0) % u64::try_from(end).unwrap()).unwrap()
}

/// What all threads of a session use.
struct Load {
    connection: Connection,
    session: String,
    /// No turn is sent any more.
    is_over: AtomicBool,
    /// All turns are stored.
    is_stored: AtomicBool,
}

impl Load {
    fn new(proxy: &CuttingProxy, key: &str, session: String) -> Self {
        let address = ServerAddress::parse(&proxy.url()).unwrap();
        let connection = Connection::new(address, &ApiKey::parse(key).unwrap(), None).unwrap();
        Load { connection, session, is_over: AtomicBool::new(false), is_stored: AtomicBool::new(false) }
    }

    /// Sends turns with prompts of their own until the load is over and one has ended well, which on a busy machine may be
    /// after all kills; returns the prompts whose turn has ended well.
    fn send_turns(&self) -> Vec<String> {
        let mut done = Vec::new();
        for number in 0.. {
            if self.is_over.load(Ordering::SeqCst) && !done.is_empty() {
                break;
            }
            let prompt = format!("run: echo turn-{number}-; sleep 0.0{}", random(10));
            if self.send_turn(&prompt) {
                done.push(prompt);
            } else {
                // Its sandbox may have been killed.
                let _ = self.connection.post(&["api", "sessions", &self.session, "resume"], &json!({}));
            }
        }
        done
    }

    fn send_turn(&self, prompt: &str) -> bool {
        let body = json!({ "content": prompt });
        let mut events = EventStream::of_turn(&self.connection, &self.session, body).unwrap();
        let (mut is_done, mut has_failed) = (false, false);
        while let Ok(Some(event)) = events.next_event() {
            is_done |= event.name == "done";
            // If its sandbox was killed, `done` follows.
            has_failed |= event.name == "error";
        }
        is_done && !has_failed
    }

    /// Follows the session until all turns are stored; returns id and data of its messages.
    fn follow(&self) -> Vec<(u64, String)> {
        let mut messages: Vec<(u64, String)> = Vec::new();
        loop {
            let is_last = self.is_stored.load(Ordering::SeqCst);
            let after = messages.last().map(|(id, _)| *id);
            let mut events = EventStream::of_session(&self.connection, &self.session, after);
            while let Ok(Some(event)) = events.next_event() {
                assert_ne!(event.name, "gap", "{event:?}");
                if event.name == "message" {
                    messages.push((event.id.unwrap(), event.data));
                }
            }
            if is_last {
                return messages;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// A process of a session below its supervisor whose command line contains this word.
fn descendant(supervisor: Pid, word: &str) -> Option<Pid> {
    let parent = |pid: i32| -> Option<i32> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
    };
    let is_below = |pid: i32| {
        let above = std::iter::successors(Some(pid), |pid| parent(*pid).filter(|pid| *pid > 1));
        above.skip(1).any(|pid| pid == supervisor.as_raw_nonzero().get())
    };
    let pids =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    let found = pids.into_iter().find(|pid: &i32| {
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&command).contains(word) && is_below(*pid)
    });
    Pid::from_raw(found?)
}

/// Kills one of the processes, and starts the server again if it was that.
fn kill_one(server: &mut Server, proxy: &CuttingProxy, sessions: &[String]) {
    let session = &sessions[random(sessions.len())];
    let record = server.session_record(session);
    let supervisor = record["supervisor"]["pid"].as_i64().and_then(|pid| Pid::from_raw(pid.try_into().ok()?));
    let process = match random(3) {
        0 => {
            server.stop(Signal::KILL);
            server.restart();
            proxy.set_server(server.address());
            return;
        }
        1 => supervisor,
        _ => supervisor.and_then(|supervisor| descendant(supervisor, "__demo-agent")),
    };
    if let Some(pid) = process {
        // It may have exited meanwhile.
        let _ = kill_process(pid, Signal::KILL);
    }
}

fn is_of_database(message: &Value) -> bool {
    message["type"] == "assistant" || message["type"] == "result"
}

#[test]
fn no_kill_loses_or_doubles_an_event() {
    let mut server = Server::start();
    server.client().post("/api/agents", &deploy_body("hello")).expect(201);
    let create = || server.client().post("/api/sessions", &json!({ "agent": "hello" })).expect(201);
    let sessions: Vec<String> =
        (0..SESSIONS).map(|_| create()["session"]["id"].as_str().unwrap().to_owned()).collect();
    let proxy = CuttingProxy::start(server.address(), &[]);
    let loads: Vec<Arc<Load>> =
        sessions.iter().map(|session| Arc::new(Load::new(&proxy, &server.key(), session.clone()))).collect();
    let start = |load: &Arc<Load>| {
        let (sends, follows) = (Arc::clone(load), Arc::clone(load));
        (std::thread::spawn(move || sends.send_turns()), std::thread::spawn(move || follows.follow()))
    };
    let threads: Vec<(JoinHandle<Vec<String>>, JoinHandle<_>)> = loads.iter().map(start).collect();

    for _ in 0..kills() {
        std::thread::sleep(Duration::from_millis(u64::try_from(random(300)).unwrap()));
        kill_one(&mut server, &proxy, &sessions);
    }
    loads.iter().for_each(|load| load.is_over.store(true, Ordering::SeqCst));
    let (senders, followers): (Vec<_>, Vec<_>) = threads.into_iter().unzip();
    let done: Vec<Vec<String>> = senders.into_iter().map(|sender| sender.join().unwrap()).collect();
    // Without a sandbox, all that saggar has stored is in the database and in the streams.
    let client = server.client();
    for session in &sessions {
        client.post(&format!("/api/sessions/{session}/resume"), &json!({})).expect(200);
        client.post(&format!("/api/sessions/{session}/stop"), &json!({})).expect(200);
    }
    loads.iter().for_each(|load| load.is_stored.store(true, Ordering::SeqCst));
    for ((session, done), follower) in sessions.iter().zip(done).zip(followers) {
        let followed = follower.join().unwrap();
        check(&server, session, &done, &followed);
    }
    server.stop(Signal::TERM);
    check_database(&server);
}

/// Checks the structure of a SQLite database, and in both databases that each row belongs to a session.
fn check_database(server: &Server) {
    if server.has_sqlite() {
        assert_eq!(server.query_value::<String>("PRAGMA integrity_check"), "ok");
    }
    for table in ["messages", "session_events", "usage_events"] {
        let statement =
            format!("SELECT COUNT(*) FROM {table} WHERE session_id NOT IN (SELECT id FROM sessions)");
        assert_eq!(server.query_value::<i64>(&statement), 0, "{table}");
    }
}

/// Compares what a client has received with what is stored.
fn check(server: &Server, session: &str, done: &[String], followed: &[(u64, String)]) {
    let client = server.client();
    let stored: Vec<(u64, String)> = client
        .stream(session, 0)
        .filter(|frame| frame.event == "message")
        .map(|frame| (frame.id, frame.data))
        .collect();
    assert_eq!(followed, stored, "{session}: what was followed is not what is stored");

    let mut rows: Vec<Value> = Vec::new();
    loop {
        let path = format!("/api/sessions/{session}/messages?limit=1000&after={}", rows.len());
        let mut page = client.get(&path).expect(200)["messages"].as_array().unwrap().clone();
        if page.is_empty() {
            break;
        }
        rows.append(&mut page);
    }
    let sequences: Vec<u64> = rows.iter().map(|row| row["sequence"].as_u64().unwrap()).collect();
    assert!(sequences.iter().copied().eq(1..=rows.len() as u64), "{session}: {sequences:?}");
    let of_agent: Vec<&str> = rows
        .iter()
        .filter(|row| row["role"] == "assistant")
        .map(|row| row["content"].as_str().unwrap())
        .collect();
    let expected: Vec<&str> = stored
        .iter()
        .map(|(_, data)| data.as_str())
        .filter(|data| is_of_database(&serde_json::from_str(data).unwrap()))
        .collect();
    assert_eq!(of_agent, expected, "{session}: the rows are not the stored messages");

    // The agent has received each message of a turn that has ended once.
    let prompts: Vec<Value> = rows
        .iter()
        .filter(|row| row["role"] == "user")
        .map(|row| {
            serde_json::from_str::<Value>(row["content"].as_str().unwrap()).unwrap()["content"].clone()
        })
        .collect();
    assert!(!done.is_empty(), "{session}: no turn has ended");
    for prompt in done {
        let word = prompt.split([' ', ';']).find(|word| word.starts_with("turn-")).unwrap();
        assert_eq!(prompts.iter().filter(|sent| *sent == prompt).count(), 1, "{session}: {prompt}");
        let ran = |message: &&str| message.contains(word) && message.contains("\"tool_use\"");
        assert_eq!(expected.iter().filter(|message| ran(message)).count(), 1, "{session}: {prompt}");
    }
}
