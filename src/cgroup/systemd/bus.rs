//! A connection to a message bus, or to systemd itself, without threads: every call has an end.

use super::wire::{CALL, ERROR, Message, REPLY, SIGNAL, Value};
use crate::error::{Code, Error, Result};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, setsockopt, socket, sockopt};
use nix::sys::time::{TimeVal, TimeValLike};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long one call may take: libdbus's own default.
const PATIENCE: Duration = Duration::from_secs(25);

/// Where to connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    /// A path; of an abstract socket when it begins with a NUL.
    pub socket: PathBuf,
    /// Whether a bus is in between, which wants a greeting and names.
    pub bus: bool,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Bus {
    stream: UnixStream,
    bus: bool,
    unread: Vec<u8>,
    signals: VecDeque<Message>,
    serial: u32,
}

/// The signals that nobody asked for that are kept while an answer is waited for.
const SIGNALS: usize = 1024;

fn failed(what: &str, why: impl std::fmt::Display) -> Error {
    Error::system(format_args!("systemd over D-Bus: {what}"), why)
}

/// Why a call failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The other side says so: the error's name, and its text.
    Refused(String, String),
    /// No answer came.
    Broken(Error),
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused(name, text) => {
                let text = if text.is_empty() { &name } else { &text };
                Error::new(Code::System, format!("systemd refuses: {text} ({name})"))
            }
            Failure::Broken(error) => error,
        }
    }
}

impl Bus {
    /// Connects, and says who we are: the socket's other side sees our user id.
    pub(crate) fn connect(address: &Address) -> Result<Self> {
        let at = address.socket.to_string_lossy().replace('\0', "@");
        let name = address.socket.as_os_str().as_encoded_bytes();
        let to = match name.strip_prefix(b"\0") {
            Some(name) => UnixAddr::new_abstract(name),
            None => UnixAddr::new(&address.socket),
        };
        let to = to.map_err(|errno| failed(&format!("connect to {at}"), errno.desc()))?;
        let socket = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)
            .and_then(|socket| {
                let patience = TimeVal::seconds(i64::try_from(PATIENCE.as_secs()).unwrap_or(i64::MAX));
                // It also bounds connect (socket(7)).
                setsockopt(&socket, sockopt::SendTimeout, &patience)?;
                connect(socket.as_raw_fd(), &to)?;
                Ok(socket)
            })
            .map_err(|errno| failed(&format!("connect to {at}"), errno.desc()))?;
        let stream = UnixStream::from(socket);
        let mut bus =
            Bus { stream, bus: address.bus, unread: Vec::new(), signals: VecDeque::new(), serial: 0 };
        bus.greet().map_err(|error| error.context(format_args!("connect to {at}")))?;
        Ok(bus)
    }

    /// The socket, and what was read of it and not looked at.
    #[cfg(test)]
    pub(super) fn into_parts(self) -> (UnixStream, Vec<u8>) {
        // Whoever plays a service waits for calls as long as it takes.
        self.stream.set_read_timeout(None).unwrap();
        (self.stream, self.unread)
    }

    /// AUTH EXTERNAL without a name: the other side takes the user id of the socket, also from within a user
    /// namespace.
    fn greet(&mut self) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        self.send(b"\0AUTH EXTERNAL\r\nDATA\r\n")?;
        loop {
            let line = self.line(end)?;
            if line.starts_with("OK ") {
                break;
            }
            if line != "DATA" {
                return Err(failed("authentication", line)
                    .hint("the bus takes connections of its own user and of root only"));
            }
        }
        self.send(b"BEGIN\r\n")?;
        if self.bus {
            self.call_at(
                "org.freedesktop.DBus",
                "/org/freedesktop/DBus",
                "org.freedesktop.DBus",
                "Hello",
                vec![],
            )?;
        }
        Ok(())
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).map_err(|e| failed("write", e))
    }

    /// Reads something more, until `end` at the latest.
    fn fill(&mut self, end: Instant) -> Result<()> {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(failed("read", format_args!("no answer within {PATIENCE:?}"))
                .hint("see whether systemd hangs: systemctl status, journalctl -b -u init.scope"));
        }
        self.stream.set_read_timeout(Some(left)).map_err(|e| failed("read", e))?;
        let mut bytes = [0; 8192];
        match self.stream.read(&mut bytes) {
            Ok(0) => Err(failed("read", "the connection was closed")),
            Ok(n) => {
                self.unread.extend(&bytes[..n]);
                Ok(())
            }
            Err(e)
                if matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted) =>
            {
                Ok(())
            }
            Err(e) => Err(failed("read", e)),
        }
    }

    fn line(&mut self, end: Instant) -> Result<String> {
        loop {
            if let Some(at) = self.unread.windows(2).position(|two| two == b"\r\n") {
                let line: Vec<u8> = self.unread.drain(..at + 2).collect();
                return Ok(String::from_utf8_lossy(&line[..at]).into_owned());
            }
            if self.unread.len() > 4096 {
                return Err(failed("authentication", "a line without an end"));
            }
            self.fill(end)?;
        }
    }

    fn message(&mut self, end: Instant) -> Result<Message> {
        loop {
            if let Some((message, len)) =
                Message::parse(&self.unread).map_err(|why| failed("a message", why))?
            {
                self.unread.drain(..len);
                return Ok(message);
            }
            self.fill(end)?;
        }
    }

    /// Calls a method of systemd's manager and waits for the answer.
    pub(crate) fn call(
        &mut self,
        interface: &str,
        member: &str,
        body: Vec<Value>,
    ) -> Result<Vec<Value>, Failure> {
        self.call_at("org.freedesktop.systemd1", "/org/freedesktop/systemd1", interface, member, body)
    }

    /// Calls a method of the bus itself, where there is one.
    pub(crate) fn call_bus(&mut self, member: &str, body: Vec<Value>) -> Result<(), Failure> {
        if self.bus {
            let name = "org.freedesktop.DBus";
            self.call_at(name, "/org/freedesktop/DBus", name, member, body)?;
        }
        Ok(())
    }

    fn call_at(
        &mut self,
        destination: &str,
        path: &str,
        interface: &str,
        member: &str,
        body: Vec<Value>,
    ) -> Result<Vec<Value>, Failure> {
        self.serial += 1;
        let serial = self.serial;
        let message = Message {
            kind: CALL,
            serial,
            path: Some(path.to_owned()),
            interface: Some(interface.to_owned()),
            member: Some(member.to_owned()),
            destination: self.bus.then(|| destination.to_owned()),
            body,
            ..Message::default()
        };
        self.send(&message.bytes()).map_err(Failure::Broken)?;
        let end = Instant::now() + PATIENCE;
        loop {
            let message = self.message(end).map_err(|error| Failure::Broken(error.context(member)))?;
            match message.kind {
                REPLY if message.reply_to == Some(serial) => return Ok(message.body),
                ERROR if message.reply_to == Some(serial) => {
                    let text = message.body.first().and_then(Value::as_text).unwrap_or_default().to_owned();
                    return Err(Failure::Refused(message.error.unwrap_or_default(), text));
                }
                SIGNAL if self.signals.len() < SIGNALS => self.signals.push_back(message),
                _ => {}
            }
        }
    }

    /// Waits for a signal of this name that `is_it`.
    pub(crate) fn wait_signal(
        &mut self,
        member: &str,
        is_it: impl Fn(&[Value]) -> bool,
    ) -> Result<Vec<Value>> {
        let end = Instant::now() + PATIENCE;
        loop {
            let message = match self.signals.pop_front() {
                Some(message) => message,
                None => self.message(end).map_err(|error| error.context(member))?,
            };
            if message.kind == SIGNAL && message.member.as_deref() == Some(member) && is_it(&message.body) {
                return Ok(message.body);
            }
        }
    }
}

/// The unix sockets of a list of server addresses (D-Bus Specification, "Server Addresses").
pub(crate) fn parse_addresses(text: &str) -> Vec<Address> {
    let one = |address: &str| {
        let pairs = address.strip_prefix("unix:")?;
        pairs.split(',').find_map(|pair| {
            let (key, value) = pair.split_once('=')?;
            let value = unescape(value)?;
            match key {
                "path" => Some(PathBuf::from(value)),
                "abstract" => Some(PathBuf::from(format!("\0{value}"))),
                _ => None,
            }
        })
    };
    text.split(';').filter_map(one).map(|socket| Address { socket, bus: true }).collect()
}

/// Undoes `%HH`.
fn unescape(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
        bytes.extend(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok()
}

/// Where systemd may be asked, the best first: over the bus, or directly where no bus runs.
pub(crate) fn addresses(user: bool) -> Vec<Address> {
    let variable = if user { "DBUS_SESSION_BUS_ADDRESS" } else { "DBUS_SYSTEM_BUS_ADDRESS" };
    let given = std::env::var(variable).map(|text| parse_addresses(&text)).unwrap_or_default();
    let run = match std::env::var_os("XDG_RUNTIME_DIR").filter(|_| user) {
        Some(directory) => PathBuf::from(directory),
        None if user => PathBuf::from(format!("/run/user/{}", nix::unistd::geteuid())),
        None => PathBuf::from("/run"),
    };
    let bus = run.join(if user { "bus" } else { "dbus/system_bus_socket" });
    let usual =
        [Address { socket: bus, bus: true }, Address { socket: run.join("systemd/private"), bus: false }];
    let exists = |address: &Address| address.socket.starts_with("\0") || Path::new(&address.socket).exists();
    match given.is_empty() {
        true => usual.into_iter().filter(exists).collect(),
        false => given,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_paths_and_abstract_names() {
        let sockets =
            |text: &str| parse_addresses(text).into_iter().map(|one| one.socket).collect::<Vec<_>>();
        assert_eq!(
            sockets("unix:path=/run/a%20b,guid=1;tcp:host=x;unix:abstract=/tmp/y"),
            [PathBuf::from("/run/a b"), PathBuf::from("\0/tmp/y")]
        );
        assert_eq!(sockets("unix:path=/a%2"), Vec::<PathBuf>::new());
        assert_eq!(sockets(""), Vec::<PathBuf>::new());
    }
}
