//! A systemd that keeps no units: it answers, and remembers what it was asked.

use super::super::bus::{Address, Bus};
use super::super::wire::{CALL, ERROR, Message, REPLY, SIGNAL, Value};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

/// How it answers.
#[derive(Debug, Clone)]
pub(super) struct Plays {
    pub(super) version: String,
    /// The unit's name is that of a failed one.
    pub(super) taken: bool,
    /// There is no such unit.
    pub(super) gone: bool,
    /// It ends the connection instead of an answer.
    pub(super) hangs_up: bool,
    /// How jobs end.
    pub(super) result: String,
    /// A property that it does not take.
    pub(super) refuses: Option<String>,
}

impl Default for Plays {
    fn default() -> Self {
        let (version, result) = ("252.22-1~deb12u1".to_owned(), "done".to_owned());
        Plays { version, taken: false, gone: false, hangs_up: false, result, refuses: None }
    }
}

type Calls = Arc<Mutex<Vec<(String, Vec<Value>)>>>;

/// The manager, in a thread of the test.
pub(super) struct Manager {
    pub(super) address: Address,
    calls: Calls,
    _directory: Option<tempfile::TempDir>,
}

/// dbus-daemon(1), with a bus of its own.
pub(super) struct Daemon {
    child: Child,
    directory: tempfile::TempDir,
}

impl Daemon {
    /// `None` where it is not installed.
    pub(super) fn start() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let config = directory.path().join("config");
        let text = format!(
            "<busconfig><listen>unix:path={}</listen><auth>EXTERNAL</auth><policy context='default'>\
             <allow send_destination='*' eavesdrop='true'/><allow eavesdrop='true'/><allow own='*'/></policy></busconfig>",
            directory.path().join("bus").display()
        );
        std::fs::write(&config, text).unwrap();
        let mut command = Command::new("dbus-daemon");
        command.arg(format!("--config-file={}", config.display())).args(["--nofork", "--print-address"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
        // It listens when it has said where.
        let mut address = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut address).unwrap();
        assert!(address.starts_with("unix:path="), "{address}");
        Some(Daemon { child, directory })
    }

    fn address(&self) -> Address {
        Address { socket: self.directory.path().join("bus"), bus: true }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Manager {
    /// On a bus, under systemd's name.
    pub(super) fn on(daemon: &Daemon, plays: Plays) -> Self {
        let address = daemon.address();
        let mut bus = Bus::connect(&address).unwrap();
        let name = vec![Value::text("org.freedesktop.systemd1"), Value::U32(0)];
        bus.call_bus("RequestName", name).unwrap();
        let calls = Calls::default();
        let (stream, unread) = bus.into_parts();
        let theirs = Arc::clone(&calls);
        std::thread::spawn(move || serve(stream, unread, &plays, &theirs));
        Manager { address, calls, _directory: None }
    }

    /// On a socket of its own.
    pub(super) fn direct(plays: Plays) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket: PathBuf = directory.path().join("private");
        let listener = UnixListener::bind(&socket).unwrap();
        let calls = Calls::default();
        let theirs = Arc::clone(&calls);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut stream = stream;
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                // The protocol of D-Bus's authentication, from the server's side.
                let mut line = String::new();
                while reader.read_line(&mut line).is_ok_and(|n| n > 0) {
                    let answer = match line.trim_start_matches('\0').trim_end() {
                        "AUTH EXTERNAL" => "DATA\r\n",
                        "DATA" => "OK 1234deadbeef\r\n",
                        "BEGIN" => break,
                        other => panic!("{other}"),
                    };
                    stream.write_all(answer.as_bytes()).unwrap();
                    line.clear();
                }
                let unread = reader.buffer().to_vec();
                serve(stream, unread, &plays, &theirs);
            }
        });
        Manager { address: Address { socket, bus: false }, calls, _directory: Some(directory) }
    }

    /// Unit and properties of the last call that had some.
    pub(super) fn started(&self) -> (String, Vec<(String, Value)>) {
        let calls = self.calls.lock().unwrap();
        let (_, body) = calls.iter().rev().find(|(name, _)| has_properties(name)).unwrap();
        (body[0].as_text().unwrap().to_owned(), properties(&body[2]))
    }

    /// What the first call of this name was given.
    pub(super) fn body_of(&self, call: &str) -> Option<Vec<Value>> {
        let calls = self.calls.lock().unwrap();
        calls.iter().find(|(name, _)| name == call).map(|(_, body)| body.clone())
    }

    pub(super) fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().iter().map(|(name, _)| name.clone()).collect()
    }
}

fn has_properties(call: &str) -> bool {
    ["StartTransientUnit", "SetUnitProperties"].contains(&call)
}

fn properties(list: &Value) -> Vec<(String, Value)> {
    let Value::Array(_, list) = list else { panic!("{list:?}") };
    let one = |property: &Value| match property {
        Value::Struct(pair) => match &pair[..] {
            [Value::Text(name), Value::Variant(value)] => (name.clone(), (**value).clone()),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    list.iter().map(one).collect()
}

fn serve(mut stream: UnixStream, mut unread: Vec<u8>, plays: &Plays, calls: &Calls) {
    let mut serial = 100;
    loop {
        while let Some((message, len)) = Message::parse(&unread).unwrap() {
            unread.drain(..len);
            if message.kind != CALL {
                continue;
            }
            let member = message.member.clone().unwrap_or_default();
            if plays.hangs_up && member == "StartTransientUnit" {
                return;
            }
            let first = calls.lock().unwrap().iter().all(|(name, _)| *name != member);
            calls.lock().unwrap().push((member.clone(), message.body.clone()));
            for answer in answers(&message, &member, first, plays) {
                serial += 1;
                let answer = Message { serial, ..answer };
                if stream.write_all(&answer.bytes()).is_err() {
                    return;
                }
            }
        }
        let mut bytes = [0; 4096];
        match stream.read(&mut bytes) {
            Ok(0) | Err(_) => return,
            Ok(n) => unread.extend(&bytes[..n]),
        }
    }
}

fn answers(call: &Message, member: &str, first: bool, plays: &Plays) -> Vec<Message> {
    let to = |kind: u8, error: Option<&str>, body: Vec<Value>| Message {
        kind,
        reply_to: Some(call.serial),
        // The sender's name is not parsed: on the bus the first client after us is ":1.1".
        destination: Some(":1.1".to_owned()),
        error: error.map(|name| format!("org.freedesktop.systemd1.{name}")),
        body,
        ..Message::default()
    };
    let refuse = |name: &str, text: &str| vec![to(ERROR, Some(name), vec![Value::text(text)])];
    if has_properties(member)
        && let Some(refused) = &plays.refuses
        && properties(&call.body[2]).iter().any(|(name, _)| name == refused)
    {
        return refuse("PropertyReadOnly", &format!("Cannot set property {refused}, or unknown property."));
    }
    match member {
        "StartTransientUnit" if plays.taken && first => refuse("UnitExists", "Unit exists."),
        "StopUnit" if plays.gone => refuse("NoSuchUnit", "Unit not loaded."),
        "StartTransientUnit" | "StopUnit" => {
            let job = Value::Path("/org/freedesktop/systemd1/job/7".to_owned());
            let removed = |job: &str, result: &str| Message {
                kind: SIGNAL,
                path: Some("/org/freedesktop/systemd1".to_owned()),
                interface: Some("org.freedesktop.systemd1.Manager".to_owned()),
                member: Some("JobRemoved".to_owned()),
                body: vec![
                    Value::U32(7),
                    Value::Path(job.to_owned()),
                    call.body[0].clone(),
                    Value::text(result),
                ],
                ..Message::default()
            };
            // Another's job ends first, and ours before the answer: as systemd may do it.
            let other = removed("/org/freedesktop/systemd1/job/6", "canceled");
            let ours = removed("/org/freedesktop/systemd1/job/7", &plays.result);
            vec![other, ours, to(REPLY, None, vec![job])]
        }
        "Get" => vec![to(REPLY, None, vec![Value::Variant(Box::new(Value::text(plays.version.as_str())))])],
        _ => vec![to(REPLY, None, Vec::new())],
    }
}
