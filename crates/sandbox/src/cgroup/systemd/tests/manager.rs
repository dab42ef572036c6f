//! A fake systemd without units: it sends replies and records the calls.

use super::super::bus::SystemdBus;
use super::super::wire::{DbusMessage, DbusValue, ERROR, METHOD_CALL, METHOD_RETURN, SIGNAL};
use crate::host::bus_address::BusAddress;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

/// The behavior of the fake manager.
#[derive(Debug, Clone)]
pub(super) struct FakeBehavior {
    pub(super) version: String,
    /// A failed unit already has this name.
    pub(super) unit_exists: bool,
    /// The unit does not exist.
    pub(super) no_such_unit: bool,
    /// It closes the connection instead of replying.
    pub(super) disconnects: bool,
    /// The result of jobs.
    pub(super) result: String,
    /// A property that it rejects.
    pub(super) rejected_property: Option<String>,
}

impl Default for FakeBehavior {
    fn default() -> Self {
        let (version, result) = ("252.22-1~deb12u1".to_owned(), "done".to_owned());
        FakeBehavior {
            version,
            unit_exists: false,
            no_such_unit: false,
            disconnects: false,
            result,
            rejected_property: None,
        }
    }
}

type RecordedCalls = Arc<Mutex<Vec<(String, Vec<DbusValue>)>>>;

/// The fake manager, in a thread of the test.
pub(super) struct FakeManager {
    pub(super) address: BusAddress,
    calls: RecordedCalls,
    _directory: Option<tempfile::TempDir>,
}

/// A dbus-daemon(1) process with its own bus.
pub(super) struct BusDaemon {
    child: Child,
    directory: tempfile::TempDir,
}

impl BusDaemon {
    /// Starts the daemon; `None` if it is not installed.
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
        // The daemon listens once it has printed its address.
        let mut address = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut address).unwrap();
        assert!(address.starts_with("unix:path="), "{address}");
        Some(BusDaemon { child, directory })
    }

    fn address(&self) -> BusAddress {
        BusAddress { socket: self.directory.path().join("bus"), is_message_bus: true }
    }
}

impl Drop for BusDaemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl FakeManager {
    /// Starts a manager on a bus, under systemd's name.
    pub(super) fn on(daemon: &BusDaemon, behavior: FakeBehavior) -> Self {
        let address = daemon.address();
        let mut bus = SystemdBus::connect(&address).unwrap();
        let name = vec![DbusValue::text("org.freedesktop.systemd1"), DbusValue::U32(0)];
        bus.call_bus("RequestName", name).unwrap();
        let calls = RecordedCalls::default();
        let (stream, unread) = bus.into_parts();
        let recorded = Arc::clone(&calls);
        std::thread::spawn(move || serve(stream, unread, &behavior, &recorded));
        FakeManager { address, calls, _directory: None }
    }

    /// Starts a manager on its own socket.
    pub(super) fn direct(behavior: FakeBehavior) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket: PathBuf = directory.path().join("private");
        let listener = UnixListener::bind(&socket).unwrap();
        let calls = RecordedCalls::default();
        let recorded = Arc::clone(&calls);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut stream = stream;
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                // The server's side of D-Bus authentication.
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
                serve(stream, unread, &behavior, &recorded);
            }
        });
        FakeManager {
            address: BusAddress { socket, is_message_bus: false },
            calls,
            _directory: Some(directory),
        }
    }

    /// Unit and properties of the last call that had properties.
    pub(super) fn started(&self) -> (String, Vec<(String, DbusValue)>) {
        let calls = self.calls.lock().unwrap();
        let (_, body) = calls.iter().rev().find(|(name, _)| has_properties(name)).unwrap();
        (body[0].as_text().unwrap().to_owned(), properties(&body[2]))
    }

    /// The arguments of the first call of this name.
    pub(super) fn body_of(&self, call: &str) -> Option<Vec<DbusValue>> {
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

fn properties(list: &DbusValue) -> Vec<(String, DbusValue)> {
    let DbusValue::Array(_, list) = list else { panic!("{list:?}") };
    let one = |property: &DbusValue| match property {
        DbusValue::Struct(pair) => match &pair[..] {
            [DbusValue::Text(name), DbusValue::Variant(value)] => (name.clone(), (**value).clone()),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    list.iter().map(one).collect()
}

fn serve(mut stream: UnixStream, mut unread: Vec<u8>, behavior: &FakeBehavior, calls: &RecordedCalls) {
    let mut serial = 100;
    loop {
        while let Some((message, len)) = DbusMessage::parse(&unread).unwrap() {
            unread.drain(..len);
            if message.kind != METHOD_CALL {
                continue;
            }
            let member = message.member.clone().unwrap_or_default();
            if behavior.disconnects && member == "StartTransientUnit" {
                return;
            }
            let first = calls.lock().unwrap().iter().all(|(name, _)| *name != member);
            calls.lock().unwrap().push((member.clone(), message.body.clone()));
            for answer in replies(&message, &member, first, behavior) {
                serial += 1;
                let answer = DbusMessage { serial, ..answer };
                if stream.write_all(&answer.encode()).is_err() {
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

fn replies(call: &DbusMessage, member: &str, first: bool, behavior: &FakeBehavior) -> Vec<DbusMessage> {
    let to = |kind: u8, error: Option<&str>, body: Vec<DbusValue>| DbusMessage {
        kind,
        reply_to: Some(call.serial),
        // The sender's name is not parsed: on the bus the first client after us is ":1.1".
        destination: Some(":1.1".to_owned()),
        error: error.map(|name| format!("org.freedesktop.systemd1.{name}")),
        body,
        ..DbusMessage::default()
    };
    let refuse = |name: &str, text: &str| vec![to(ERROR, Some(name), vec![DbusValue::text(text)])];
    if has_properties(member)
        && let Some(refused) = &behavior.rejected_property
        && properties(&call.body[2]).iter().any(|(name, _)| name == refused)
    {
        return refuse("PropertyReadOnly", &format!("Cannot set property {refused}, or unknown property."));
    }
    match member {
        "StartTransientUnit" if behavior.unit_exists && first => refuse("UnitExists", "Unit exists."),
        "StopUnit" if behavior.no_such_unit => refuse("NoSuchUnit", "Unit not loaded."),
        "StartTransientUnit" | "StopUnit" => {
            let job = DbusValue::Path("/org/freedesktop/systemd1/job/7".to_owned());
            let removed = |job: &str, result: &str| DbusMessage {
                kind: SIGNAL,
                path: Some("/org/freedesktop/systemd1".to_owned()),
                interface: Some("org.freedesktop.systemd1.Manager".to_owned()),
                member: Some("JobRemoved".to_owned()),
                body: vec![
                    DbusValue::U32(7),
                    DbusValue::Path(job.to_owned()),
                    call.body[0].clone(),
                    DbusValue::text(result),
                ],
                ..DbusMessage::default()
            };
            // Another job ends first, and ours before the reply: both can happen with systemd.
            let other = removed("/org/freedesktop/systemd1/job/6", "canceled");
            let ours = removed("/org/freedesktop/systemd1/job/7", &behavior.result);
            vec![other, ours, to(METHOD_RETURN, None, vec![job])]
        }
        "Get" => vec![to(
            METHOD_RETURN,
            None,
            vec![DbusValue::Variant(Box::new(DbusValue::text(behavior.version.as_str())))],
        )],
        _ => vec![to(METHOD_RETURN, None, Vec::new())],
    }
}
