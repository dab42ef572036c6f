//! A blocking connection.

use super::{ClientCommand, EventBody, EventDecoder, ReceivedEvent};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use saggar_sys::error::{Code, Error, Result};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Sends commands on a connection of which another thread receives.
#[derive(Debug)]
pub struct CommandSender {
    stream: UnixStream,
}

/// A connection to a bridge, in the command dialect.
#[derive(Debug)]
pub struct BridgeClient {
    stream: UnixStream,
    decoder: EventDecoder,
    /// Events that were received together with earlier ones.
    received: VecDeque<Result<ReceivedEvent>>,
    last_number: Option<u64>,
}

impl BridgeClient {
    /// Connects, and waits until the bridge is ready.
    ///
    /// # Errors
    /// [`Code::System`]: nothing listens there. [`Code::Invalid`]: what does is no bridge. [`Code::Ended`]: it closes the
    /// connection.
    pub fn connect(socket: &Path) -> Result<Self> {
        BridgeClient::over(open(socket)?)
    }

    /// As [`BridgeClient::connect`], with a timeout for this and for each later send and receive.
    ///
    /// # Errors
    /// As [`BridgeClient::connect`]; [`Code::System`] when the timeout is over.
    pub fn connect_with_timeout(socket: &Path, timeout: Duration) -> Result<Self> {
        let stream = open(socket)?;
        set_timeout(&stream, Some(timeout))?;
        BridgeClient::over(stream)
    }

    /// Connects, and has all events after this number sent, then all new ones: what a client does that has lost its
    /// connection. [`BridgeClient::replay`] does the same on a connection that was made otherwise.
    ///
    /// # Errors
    /// As [`BridgeClient::connect`].
    pub fn connect_after(socket: &Path, number: u64) -> Result<Self> {
        let mut client = BridgeClient::connect(socket)?;
        client.replay(number)?;
        Ok(client)
    }

    /// As [`BridgeClient::connect`], on a connection that was made otherwise.
    ///
    /// # Errors
    /// As [`BridgeClient::connect`].
    pub fn over(stream: UnixStream) -> Result<Self> {
        let mut client = BridgeClient {
            stream,
            decoder: EventDecoder::default(),
            received: VecDeque::new(),
            last_number: None,
        };
        match client.receive()? {
            Some(event) if *event.body() == EventBody::Ready => Ok(client),
            Some(event) => Err(Error::new(
                Code::Invalid,
                format!("the first event of a bridge is ready, and not {}", event.line()),
            )),
            None => Err(closed()),
        }
    }

    /// Sets how long one send and one receive may wait; without, they wait for ever.
    ///
    /// # Errors
    /// [`Code::Invalid`]: it is zero. [`Code::System`].
    pub fn set_timeout(&self, timeout: Option<Duration>) -> Result<()> {
        set_timeout(&self.stream, timeout)
    }

    /// Sends a command. While the agent writes and nothing is received, the bridge may read nothing either: receive the
    /// events of a turn before a long command, or in another thread.
    ///
    /// # Errors
    /// [`Code::System`]: it was not sent, or in part, and the connection is of no more use.
    pub fn send(&mut self, command: &ClientCommand) -> Result<()> {
        send(&self.stream, command)
    }

    /// What sends on this connection in another thread, such as an answer or an interrupt while this one waits.
    ///
    /// # Errors
    /// [`Code::System`]: there is no descriptor for it.
    pub fn sender(&self) -> Result<CommandSender> {
        let stream =
            self.stream.try_clone().map_err(|e| Error::system("share the connection to the bridge", e))?;
        Ok(CommandSender { stream })
    }

    /// Has all events after this number sent, 0 for all, then all new ones with their numbers. The `done` of the replay
    /// comes among them.
    ///
    /// # Errors
    /// As [`BridgeClient::send`].
    pub fn replay(&mut self, after: u64) -> Result<()> {
        self.last_number = Some(after);
        self.send(&ClientCommand::replay(after))
    }

    /// Waits for at most this time until [`BridgeClient::receive`] has something to read; false when there is nothing. A long
    /// event may still take it longer.
    ///
    /// # Errors
    /// [`Code::System`].
    pub fn wait(&self, timeout: Duration) -> Result<bool> {
        if !self.received.is_empty() {
            return Ok(true);
        }
        let timeout = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(self.stream.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(count) => Ok(count > 0),
            Err(Errno::EINTR) => Ok(false),
            Err(errno) => Err(Error::system("wait for the bridge", errno.desc())),
        }
    }

    /// The next event; `None` when the bridge has closed the connection.
    ///
    /// # Errors
    /// [`Code::System`], also when the timeout is over; [`BridgeClient::wait`] waits without an error. [`Code::Invalid`]: a
    /// line is no event; the next call goes on after it.
    pub fn receive(&mut self) -> Result<Option<ReceivedEvent>> {
        loop {
            if let Some(event) = self.received.pop_front() {
                let event = event?;
                self.last_number = event.number().or(self.last_number);
                return Ok(Some(event));
            }
            let mut chunk = [0; 64 << 10];
            let count = match self.stream.read(&mut chunk) {
                Ok(0) => return Ok(None),
                Ok(count) => count,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    return Err(Error::new(Code::System, "the bridge sent nothing before the timeout"));
                }
                Err(e) => return Err(Error::system("receive from the bridge", e)),
            };
            let mut bytes = chunk.get(..count).unwrap_or_default();
            while let Some(event) = self.decoder.next(&mut bytes) {
                self.received.push_back(event);
            }
        }
    }

    /// Sends a command and receives to its end: `each` gets the events before the terminal one, which is returned. For a
    /// connection with one command at a time.
    ///
    /// # Errors
    /// As [`BridgeClient::send`] and [`BridgeClient::receive`]; those of `each`; [`Code::Ended`]: the connection was closed.
    pub fn run(
        &mut self,
        command: &ClientCommand,
        mut each: impl FnMut(ReceivedEvent) -> Result<()>,
    ) -> Result<ReceivedEvent> {
        self.send(command)?;
        while let Some(event) = self.receive()? {
            if event.is_terminal() {
                return Ok(event);
            }
            each(event)?;
        }
        Err(closed())
    }

    /// The number of the last event that has one; for [`BridgeClient::connect_after`].
    pub fn last_number(&self) -> Option<u64> {
        self.last_number
    }
}

impl CommandSender {
    /// Sends a command.
    ///
    /// # Errors
    /// As [`BridgeClient::send`].
    pub fn send(&mut self, command: &ClientCommand) -> Result<()> {
        send(&self.stream, command)
    }
}

impl AsFd for BridgeClient {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn open(socket: &Path) -> Result<UnixStream> {
    UnixStream::connect(socket)
        .map_err(|e| Error::system(format_args!("connect to the bridge {}", socket.display()), e))
}

fn set_timeout(stream: &UnixStream, timeout: Option<Duration>) -> Result<()> {
    let set = stream.set_read_timeout(timeout).and_then(|()| stream.set_write_timeout(timeout));
    set.map_err(|e| match e.kind() {
        ErrorKind::InvalidInput => Error::new(Code::Invalid, "a timeout of a bridge client cannot be 0"),
        _ => Error::system("set the timeout of a bridge client", e),
    })
}

fn send(mut stream: &UnixStream, command: &ClientCommand) -> Result<()> {
    stream.write_all(&command.encode()).map_err(|e| Error::system("send to the bridge", e))
}

fn closed() -> Error {
    Error::new(Code::Ended, "the bridge closed the connection")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bridge that sends this and closes.
    fn sending(text: &str) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (&theirs).write_all(text.as_bytes()).unwrap();
        ours
    }

    #[test]
    fn what_is_no_bridge_is_an_error() {
        let code = |text: &str| BridgeClient::over(sending(text)).unwrap_err().code();
        assert_eq!(code(""), Code::Ended);
        assert_eq!(code("HTTP/1.1 400 Bad Request\r\n"), Code::Invalid);
        assert_eq!(code("{\"ev\":\"done\",\"sessionId\":\"\"}\n"), Code::Invalid);
        let missing = BridgeClient::connect("/nonexistent/socket".as_ref()).unwrap_err();
        assert!(missing.to_string().contains("connect to the bridge /nonexistent/socket"), "{missing}");
    }

    #[test]
    fn waiting_and_timeouts_are_told_apart_from_the_end() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (&theirs).write_all(b"{\"ev\":\"ready\"}\n").unwrap();
        let mut client = BridgeClient::over(ours).unwrap();
        assert!(!client.wait(Duration::from_millis(1)).unwrap());
        assert_eq!(client.set_timeout(Some(Duration::ZERO)).unwrap_err().code(), Code::Invalid);
        client.set_timeout(Some(Duration::from_millis(1))).unwrap();
        assert!(client.receive().unwrap_err().to_string().contains("before the timeout"));
        let mut sender = client.sender().unwrap();
        std::thread::spawn(move || sender.send(&ClientCommand::interrupt()).unwrap()).join().unwrap();
        let mut command = [0; 100];
        let count = (&theirs).read(&mut command).unwrap();
        assert_eq!(&command[..count], ClientCommand::interrupt().encode());
        drop(theirs);
        assert!(client.wait(Duration::from_secs(60)).unwrap());
        assert_eq!(client.receive().unwrap(), None);
    }

    #[test]
    fn events_come_in_order_and_numbers_are_kept() {
        let text = "{\"ev\":\"ready\"}\n{\"ev\":\"message\",\"data\":1,\"seq\":41}\nnonsense\n\
                    {\"ev\":\"log\",\"level\":\"info\",\"text\":\"t\",\"ts\":1}\n{\"ev\":\"message\",\"data\":2,\"seq\":42}\n";
        let mut client = BridgeClient::over(sending(text)).unwrap();
        assert_eq!(client.last_number(), None);
        assert_eq!(client.receive().unwrap().unwrap().message(), Some("1"));
        assert_eq!(client.last_number(), Some(41));
        assert_eq!(client.receive().unwrap_err().code(), Code::Invalid);
        assert!(matches!(client.receive().unwrap().unwrap().body(), EventBody::Log { .. }));
        assert_eq!(
            (client.receive().unwrap().unwrap().message(), client.last_number()),
            (Some("2"), Some(42))
        );
        assert_eq!(client.receive().unwrap(), None);
    }
}
