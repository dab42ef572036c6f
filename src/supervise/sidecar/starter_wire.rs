//! The requests of a container's keeper to the starter of commands, and its reports. Every message has a fixed form and
//! a checked length: the starter has no seccomp filter, and therefore no parser.
//!
//! ```text
//! request: length u32 │ text of the command                 passed: standard output, standard error, report socket
//! report:  kind u32   │ value i32 │ text of a failure        passed with `Started`: a pidfd
//! ```
//! Numbers are in the byte order of the host. A message is one record of a socketpair.

use super::keeper_wire::ProcessExit;
use std::os::fd::OwnedFd;

/// Longest command in bytes: an argument of a program has at most 128 KiB with its NUL (execve(2), MAX_ARG_STRLEN with
/// pages of 4 KiB).
pub(super) const MAX_COMMAND: usize = (128 << 10) - 1;
/// Longest text of a failure in bytes.
pub(super) const MAX_FAILURE: usize = 60 << 10;

const LENGTH: usize = size_of::<u32>();
const HEAD: usize = 2 * size_of::<u32>();

/// Buffer for a request, with one byte more, so that a longer one is detected.
pub(super) const REQUEST_BUFFER: usize = LENGTH + MAX_COMMAND + 1;
/// Buffer for a report, with one byte more.
pub(super) const REPORT_BUFFER: usize = HEAD + MAX_FAILURE + 1;

const STARTED: u32 = 1;
const FAILED: u32 = 2;
const EXITED: u32 = 3;
const KILLED: u32 = 4;

/// The request for this command; `None` when it is longer than an argument of a program can be.
pub(super) fn encode_request(command: &[u8]) -> Option<Vec<u8>> {
    let length = u32::try_from(command.len()).ok().filter(|_| command.len() <= MAX_COMMAND)?;
    Some([&length.to_ne_bytes(), command].concat())
}

/// The command of a request, whose length must be exact.
pub(super) fn decode_request(request: &[u8]) -> Option<&[u8]> {
    let (length, command) = request.split_first_chunk::<LENGTH>()?;
    let is_whole = usize::try_from(u32::from_ne_bytes(*length)).ok() == Some(command.len());
    (is_whole && command.len() <= MAX_COMMAND).then_some(command)
}

/// A report about a command, on its report socket.
#[derive(Debug)]
pub(super) enum ExecReport<'a> {
    /// It runs, with this pid; its pidfd is passed with the report.
    Started(i32),
    /// It could not be started: a [`super::keeper_wire::CommandStatus`], which the keeper forwards unchanged.
    Failed(&'a [u8]),
    /// It has ended.
    Ended(ProcessExit),
}

impl<'a> ExecReport<'a> {
    /// Encodes the report as a record.
    pub(super) fn encode(&self) -> Vec<u8> {
        let (kind, value, text): (_, _, &[u8]) = match *self {
            ExecReport::Started(pid) => (STARTED, pid, &[]),
            ExecReport::Failed(text) => (FAILED, 0, text),
            ExecReport::Ended(ProcessExit::Exited(code)) => (EXITED, code, &[]),
            ExecReport::Ended(ProcessExit::Killed(signal)) => (KILLED, signal, &[]),
        };
        [&kind.to_ne_bytes(), &value.to_ne_bytes(), text].concat()
    }

    /// Decodes a record.
    pub(super) fn decode(record: &'a [u8]) -> Option<Self> {
        let (kind, rest) = record.split_first_chunk::<4>()?;
        let (value, text) = rest.split_first_chunk::<4>()?;
        let value = i32::from_ne_bytes(*value);
        match (u32::from_ne_bytes(*kind), text.len()) {
            (STARTED, 0) if value > 0 => Some(ExecReport::Started(value)),
            (EXITED, 0) => Some(ExecReport::Ended(ProcessExit::Exited(value))),
            (KILLED, 0) => Some(ExecReport::Ended(ProcessExit::Killed(value))),
            (FAILED, 1..=MAX_FAILURE) if value == 0 => Some(ExecReport::Failed(text)),
            _ => None,
        }
    }
}

/// The descriptors that are passed with a request.
#[derive(Debug)]
pub(super) struct ExecStreams {
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
    /// The starter's end of the socket for reports. When the keeper shuts down its end, a command that does not run yet
    /// is killed.
    pub(super) reports: OwnedFd,
}

impl ExecStreams {
    /// Exactly three descriptors.
    pub(super) fn from_fds(fds: impl IntoIterator<Item = Option<OwnedFd>>) -> Option<Self> {
        let mut fds = fds.into_iter().flatten();
        let streams = ExecStreams { stdout: fds.next()?, stderr: fds.next()?, reports: fds.next()? };
        fds.next().is_none().then_some(streams)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_another_length_than_they_say_are_none() {
        for text in [b"".as_slice(), b"true", &[b'x'; MAX_COMMAND]] {
            let record = encode_request(text).unwrap();
            assert!(record.len() < REQUEST_BUFFER);
            assert_eq!(decode_request(&record), Some(text));
            assert_eq!(decode_request(&[&record, b"x".as_slice()].concat()), None);
            assert_eq!(decode_request(&record[..record.len() - 1]), None);
        }
        assert_eq!(encode_request(&[b'x'; MAX_COMMAND + 1]), None);
        let long = [b'x'; MAX_COMMAND + 1];
        let length = u32::try_from(long.len()).unwrap().to_ne_bytes();
        assert_eq!(decode_request(&[length.as_slice(), &long].concat()), None);
    }

    #[test]
    fn reports_survive_the_wire_and_nothing_else_is_one() {
        let long = [b'x'; MAX_FAILURE + 1];
        let some = [
            ExecReport::Started(1),
            ExecReport::Failed(&long[1..]),
            ExecReport::Ended(ProcessExit::Exited(255)),
            ExecReport::Ended(ProcessExit::Killed(9)),
        ];
        for report in some {
            let record = report.encode();
            assert!(record.len() < REPORT_BUFFER);
            assert_eq!(format!("{:?}", ExecReport::decode(&record).unwrap()), format!("{report:?}"));
            assert!(ExecReport::decode(&record[..7]).is_none());
        }
        for none in [
            ExecReport::Started(0),
            ExecReport::Started(-1),
            ExecReport::Failed(b""),
            ExecReport::Failed(&long),
        ] {
            assert!(ExecReport::decode(&none.encode()).is_none(), "{none:?}");
        }
        let longer = [ExecReport::Started(1).encode(), vec![0]].concat();
        assert!(ExecReport::decode(&longer).is_none());
        assert!(ExecReport::decode(&[0; HEAD]).is_none());
    }
}
