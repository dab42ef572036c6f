//! A connection to a message bus, or directly to systemd, without threads. Every call has a timeout.

use super::wire::{DbusMessage, DbusValue, ERROR, METHOD_CALL, METHOD_RETURN, SIGNAL};
use crate::host::bus_address::BusAddress;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, setsockopt, socket, sockopt};
use nix::sys::time::{TimeVal, TimeValLike};
use saggar_sys::error::{Code, Error, Result};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Timeout of one call: the default of libdbus.
const CALL_TIMEOUT: Duration = Duration::from_secs(25);

/// A connection.
#[derive(Debug)]
pub(crate) struct SystemdBus {
    stream: UnixStream,
    bus: bool,
    unread: Vec<u8>,
    signals: VecDeque<DbusMessage>,
    serial: u32,
}

/// Maximum number of unrelated signals that are kept while a call waits for its reply.
const MAX_QUEUED_SIGNALS: usize = 1024;

fn bus_error(what: &str, why: impl std::fmt::Display) -> Error {
    Error::system(format_args!("systemd over D-Bus: {what}"), why)
}

/// The reason why a call failed.
#[derive(Debug)]
pub(crate) enum BusCallError {
    /// The peer sent an error: its name and its text.
    Refused(String, String),
    /// The connection ended without a reply.
    Disconnected(Error),
}

impl From<BusCallError> for Error {
    fn from(failure: BusCallError) -> Self {
        match failure {
            BusCallError::Refused(name, text) => {
                let text = if text.is_empty() { &name } else { &text };
                Error::new(Code::System, format!("systemd refuses: {text} ({name})"))
            }
            BusCallError::Disconnected(error) => error,
        }
    }
}

impl SystemdBus {
    /// Connects and authenticates: the peer reads our uid from the socket.
    pub(crate) fn connect(address: &BusAddress) -> Result<Self> {
        let at = address.socket.to_string_lossy().replace('\0', "@");
        let name = address.socket.as_os_str().as_encoded_bytes();
        let to = match name.strip_prefix(b"\0") {
            Some(name) => UnixAddr::new_abstract(name),
            None => UnixAddr::new(&address.socket),
        };
        let to = to.map_err(|errno| bus_error(&format!("connect to {at}"), errno.desc()))?;
        let socket = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)
            .and_then(|socket| {
                let patience = TimeVal::seconds(i64::try_from(CALL_TIMEOUT.as_secs()).unwrap_or(i64::MAX));
                // This timeout also limits connect (socket(7)).
                setsockopt(&socket, sockopt::SendTimeout, &patience)?;
                connect(socket.as_raw_fd(), &to)?;
                Ok(socket)
            })
            .map_err(|errno| bus_error(&format!("connect to {at}"), errno.desc()))?;
        let stream = UnixStream::from(socket);
        let mut bus = SystemdBus {
            stream,
            bus: address.is_message_bus,
            unread: Vec::new(),
            signals: VecDeque::new(),
            serial: 0,
        };
        bus.authenticate().map_err(|error| error.context(format_args!("connect to {at}")))?;
        Ok(bus)
    }

    /// The socket, and the received bytes that were not parsed yet.
    #[cfg(test)]
    pub(super) fn into_parts(self) -> (UnixStream, Vec<u8>) {
        // A fake service waits for calls without a timeout.
        self.stream.set_read_timeout(None).unwrap();
        (self.stream, self.unread)
    }

    /// AUTH EXTERNAL without a name: the peer takes the uid of the socket, also from within a user namespace.
    fn authenticate(&mut self) -> Result<()> {
        let end = Instant::now() + CALL_TIMEOUT;
        self.send(b"\0AUTH EXTERNAL\r\nDATA\r\n")?;
        loop {
            let line = self.read_line(end)?;
            if line.starts_with("OK ") {
                break;
            }
            if line != "DATA" {
                return Err(bus_error("authentication", line)
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
        self.stream.write_all(bytes).map_err(|e| bus_error("write", e))
    }

    /// Reads more bytes, until `end` at the latest.
    fn read_more(&mut self, end: Instant) -> Result<()> {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(bus_error("read", format_args!("no answer within {CALL_TIMEOUT:?}"))
                .hint("see whether systemd hangs: systemctl status, journalctl -b -u init.scope"));
        }
        self.stream.set_read_timeout(Some(left)).map_err(|e| bus_error("read", e))?;
        let mut bytes = [0; 8192];
        match self.stream.read(&mut bytes) {
            Ok(0) => Err(bus_error("read", "the connection was closed")),
            Ok(n) => {
                self.unread.extend(&bytes[..n]);
                Ok(())
            }
            Err(e)
                if matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted) =>
            {
                Ok(())
            }
            Err(e) => Err(bus_error("read", e)),
        }
    }

    fn read_line(&mut self, end: Instant) -> Result<String> {
        loop {
            if let Some(at) = self.unread.windows(2).position(|two| two == b"\r\n") {
                let line: Vec<u8> = self.unread.drain(..at + 2).collect();
                return Ok(String::from_utf8_lossy(&line[..at]).into_owned());
            }
            if self.unread.len() > 4096 {
                return Err(bus_error("authentication", "a line without an end"));
            }
            self.read_more(end)?;
        }
    }

    fn read_message(&mut self, end: Instant) -> Result<DbusMessage> {
        loop {
            if let Some((message, len)) =
                DbusMessage::parse(&self.unread).map_err(|why| bus_error("a message", why))?
            {
                self.unread.drain(..len);
                return Ok(message);
            }
            self.read_more(end)?;
        }
    }

    /// Calls a method of systemd's manager and waits for the reply.
    pub(crate) fn call(
        &mut self,
        interface: &str,
        member: &str,
        body: Vec<DbusValue>,
    ) -> Result<Vec<DbusValue>, BusCallError> {
        self.call_at("org.freedesktop.systemd1", "/org/freedesktop/systemd1", interface, member, body)
    }

    /// Calls a method of the message bus itself, if there is one.
    pub(crate) fn call_bus(&mut self, member: &str, body: Vec<DbusValue>) -> Result<(), BusCallError> {
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
        body: Vec<DbusValue>,
    ) -> Result<Vec<DbusValue>, BusCallError> {
        self.serial += 1;
        let serial = self.serial;
        let message = DbusMessage {
            kind: METHOD_CALL,
            serial,
            path: Some(path.to_owned()),
            interface: Some(interface.to_owned()),
            member: Some(member.to_owned()),
            destination: self.bus.then(|| destination.to_owned()),
            body,
            ..DbusMessage::default()
        };
        self.send(&message.encode()).map_err(BusCallError::Disconnected)?;
        let end = Instant::now() + CALL_TIMEOUT;
        loop {
            let message =
                self.read_message(end).map_err(|error| BusCallError::Disconnected(error.context(member)))?;
            match message.kind {
                METHOD_RETURN if message.reply_to == Some(serial) => return Ok(message.body),
                ERROR if message.reply_to == Some(serial) => {
                    let text =
                        message.body.first().and_then(DbusValue::as_text).unwrap_or_default().to_owned();
                    return Err(BusCallError::Refused(message.error.unwrap_or_default(), text));
                }
                SIGNAL if self.signals.len() < MAX_QUEUED_SIGNALS => self.signals.push_back(message),
                _ => {}
            }
        }
    }

    /// Waits for a signal of this name for which `matches` returns true.
    pub(crate) fn wait_signal(
        &mut self,
        member: &str,
        matches: impl Fn(&[DbusValue]) -> bool,
    ) -> Result<Vec<DbusValue>> {
        let end = Instant::now() + CALL_TIMEOUT;
        loop {
            let message = match self.signals.pop_front() {
                Some(message) => message,
                None => self.read_message(end).map_err(|error| error.context(member))?,
            };
            if message.kind == SIGNAL && message.member.as_deref() == Some(member) && matches(&message.body) {
                return Ok(message.body);
            }
        }
    }
}
