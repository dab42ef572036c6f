//! What the supervisor and pid 1 say to each other: fixed-size messages on a seqpacket socketpair, with
//! descriptors beside them. No allocation, no parsing that could fail half-way.

use crate::sys::catch::Kind;
use crate::sys::net::Family;
use crate::sys::unheard::Answer;

/// Bytes of one message.
pub const LEN: usize = 16;

/// From the supervisor to pid 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// The id maps are written.
    Go,
    /// Some of the trees that the steps wait for; the descriptors come beside it.
    Trees,
    /// Run a program. Beside it come five descriptors: the block ([`super::block`]), standard input,
    /// output and error, and the gate.
    Exec {
        /// The supervisor's number for it.
        id: u32,
        /// [`ExecFlags`] bits.
        flags: u32,
    },
    /// Make a socket for connections of this family: it belongs to the sandbox's network, wherever it is used.
    Socket(Family),
    /// Send a signal to a program that was started by [`Request::Exec`].
    Signal {
        /// Its number.
        id: u32,
        /// The signal.
        signal: i32,
        /// To its process group, not to it alone.
        group: bool,
    },
}

/// Bits of [`Request::Exec`].
#[derive(Debug)]
pub struct ExecFlags;

impl ExecFlags {
    /// The sandbox ends when this program ends.
    pub const LAST: u32 = 1 << 0;
    /// What it starts stays below it, also when its parent ends (PR_SET_CHILD_SUBREAPER).
    pub const SUBREAPER: u32 = 1 << 1;
    /// The gate is open already, or about to be: pid 1 may stand still until the program is one.
    pub const AT_ONCE: u32 = 1 << 5;
    const TERMINAL: [u32; 3] = [1 << 2, 1 << 3, 1 << 4];

    /// The bit that makes a standard stream, by its number, the program's controlling terminal: input where
    /// it can be, but a program whose input is a pipe and whose output is a terminal needs one too.
    pub fn controlling_terminal(stream: usize) -> u32 {
        Self::TERMINAL.get(stream).copied().unwrap_or(0)
    }

    /// Which standard stream becomes the controlling terminal.
    pub fn terminal_stream(flags: u32) -> Option<usize> {
        Self::TERMINAL.iter().position(|bit| flags & bit != 0)
    }
}

/// From pid 1 to the supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report {
    /// Every step is done.
    Ready,
    /// The master of the sandbox's terminal comes beside this.
    Terminal,
    /// The work tree comes beside this, as the programs see it.
    Workspace,
    /// A socket comes beside this that hears whoever calls a port of any address.
    Caught {
        /// What it hears.
        kind: Kind,
        /// The port.
        port: u16,
    },
    /// A socket comes beside this that sees how the kernel answers calls that nobody hears.
    Witness {
        /// Of which family.
        family: Family,
        /// Which answers.
        answer: Answer,
    },
    /// The listener of pid 1's filter comes beside this.
    Listener,
    /// The socket of [`Request::Socket`] comes beside this.
    Socket(Family),
    /// It could not be made.
    NoSocket {
        /// Of which family.
        family: Family,
        /// Error number.
        errno: i32,
    },
    /// A socket comes beside this on which the model API is offered.
    Offered,
    /// A step failed, and the sandbox is gone.
    StepFailed {
        /// Index in the plan.
        step: u32,
        /// Error number.
        errno: i32,
    },
    /// A program could not even be forked.
    ForkFailed {
        /// Its number.
        id: u32,
        /// Error number.
        errno: i32,
    },
    /// A program has ended.
    Exited {
        /// Its number.
        id: u32,
        /// As wait(2) gives it.
        status: i32,
        /// Whether it was the last process of the sandbox, but for pid 1.
        alone: bool,
    },
}

fn pack(kind: u32, a: u32, b: u32, c: u32) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    for (slot, word) in bytes.chunks_exact_mut(4).zip([kind, a, b, c]) {
        slot.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

fn unpack(bytes: &[u8]) -> Option<[u32; 4]> {
    let bytes: &[u8; LEN] = bytes.try_into().ok()?;
    let mut words = [0; 4];
    for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(4)) {
        *word = u32::from_ne_bytes(chunk.try_into().ok()?);
    }
    Some(words)
}

impl Request {
    /// The message as bytes.
    pub fn encode(self) -> [u8; LEN] {
        match self {
            Request::Go => pack(1, 0, 0, 0),
            Request::Trees => pack(4, 0, 0, 0),
            Request::Exec { id, flags } => pack(2, id, flags, 0),
            Request::Signal { id, signal, group } => pack(3, id, signal.cast_unsigned(), group.into()),
            Request::Socket(family) => pack(5, family.into(), 0, 0),
        }
    }

    /// The message in `bytes`, if it is one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        match unpack(bytes)? {
            [1, ..] => Some(Request::Go),
            [4, ..] => Some(Request::Trees),
            [2, id, flags, _] => Some(Request::Exec { id, flags }),
            [3, id, signal, group] => {
                Some(Request::Signal { id, signal: signal.cast_signed(), group: group != 0 })
            }
            [5, family, ..] => Some(Request::Socket(Family::from(family))),
            _ => None,
        }
    }
}

impl Report {
    /// The message as bytes.
    pub fn encode(self) -> [u8; LEN] {
        match self {
            Report::Ready => pack(1, 0, 0, 0),
            Report::Terminal => pack(2, 0, 0, 0),
            Report::Workspace => pack(6, 0, 0, 0),
            Report::Caught { kind: Kind::Tcp, port } => pack(7, 0, port.into(), 0),
            Report::Caught { kind: Kind::Udp, port } => pack(7, 1, port.into(), 0),
            Report::Socket(family) => pack(8, family.into(), 0, 0),
            Report::NoSocket { family, errno } => pack(9, family.into(), errno.cast_unsigned(), 0),
            Report::Offered => pack(10, 0, 0, 0),
            Report::Witness { family, answer } => pack(11, family.into(), answer.into(), 0),
            Report::Listener => pack(12, 0, 0, 0),
            Report::StepFailed { step, errno } => pack(3, step, errno.cast_unsigned(), 0),
            Report::ForkFailed { id, errno } => pack(4, id, errno.cast_unsigned(), 0),
            Report::Exited { id, status, alone } => pack(5, id, status.cast_unsigned(), alone.into()),
        }
    }

    /// The message in `bytes`, if it is one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        match unpack(bytes)? {
            [1, ..] => Some(Report::Ready),
            [2, ..] => Some(Report::Terminal),
            [6, ..] => Some(Report::Workspace),
            [7, kind, port, _] => {
                let kind = if kind == 0 { Kind::Tcp } else { Kind::Udp };
                Some(Report::Caught { kind, port: port.try_into().ok()? })
            }
            [8, family, ..] => Some(Report::Socket(Family::from(family))),
            [9, family, errno, _] => {
                Some(Report::NoSocket { family: Family::from(family), errno: errno.cast_signed() })
            }
            [10, ..] => Some(Report::Offered),
            [11, family, answer, _] => {
                Some(Report::Witness { family: Family::from(family), answer: Answer::from(answer) })
            }
            [12, ..] => Some(Report::Listener),
            [3, step, errno, _] => Some(Report::StepFailed { step, errno: errno.cast_signed() }),
            [4, id, errno, _] => Some(Report::ForkFailed { id, errno: errno.cast_signed() }),
            [5, id, status, alone] => {
                Some(Report::Exited { id, status: status.cast_signed(), alone: alone != 0 })
            }
            _ => None,
        }
    }
}

/// What a program that has not yet become one says at its gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateReport {
    /// It waits; its credentials beside this say its pid.
    Waiting,
    /// It failed, and ends.
    Failed {
        /// At which point.
        point: Point,
        /// Error number.
        errno: i32,
    },
}

/// Where a program can fail before it is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// Its arguments could not be read.
    Block,
    /// A session of its own, or the terminal.
    Session,
    /// Its standard streams.
    Streams,
    /// Its working directory.
    WorkingDirectory,
    /// The seccomp filter.
    Filter,
    /// There is no such program.
    NotFound,
    /// There is one, and it cannot be executed.
    NotExecutable,
}

impl Point {
    const ALL: [Point; 7] = [
        Point::Block,
        Point::Session,
        Point::Streams,
        Point::WorkingDirectory,
        Point::Filter,
        Point::NotFound,
        Point::NotExecutable,
    ];
}

impl GateReport {
    /// The message as bytes.
    pub fn encode(self) -> [u8; LEN] {
        match self {
            GateReport::Waiting => pack(1, 0, 0, 0),
            GateReport::Failed { point, errno } => pack(2, point as u32, errno.cast_unsigned(), 0),
        }
    }

    /// The message in `bytes`, if it is one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        match unpack(bytes)? {
            [1, ..] => Some(GateReport::Waiting),
            [2, point, errno, _] => {
                let point = *Point::ALL.get(usize::try_from(point).ok()?)?;
                Some(GateReport::Failed { point, errno: errno.cast_signed() })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_names_the_stream_that_is_the_terminal() {
        for stream in 0..3 {
            let flags = ExecFlags::LAST | ExecFlags::controlling_terminal(stream);
            assert_eq!(ExecFlags::terminal_stream(flags), Some(stream));
        }
        assert_eq!(ExecFlags::terminal_stream(ExecFlags::LAST), None);
    }

    #[test]
    fn messages_survive_the_wire() {
        for request in [
            Request::Go,
            Request::Trees,
            Request::Exec { id: 7, flags: ExecFlags::LAST | ExecFlags::controlling_terminal(2) },
            Request::Signal { id: u32::MAX, signal: 15, group: true },
        ] {
            assert_eq!(Request::decode(&request.encode()), Some(request));
        }
        for report in [
            Report::Ready,
            Report::Terminal,
            Report::Workspace,
            Report::Caught { kind: Kind::Tcp, port: 443 },
            Report::Caught { kind: Kind::Udp, port: u16::MAX },
            Report::Offered,
            Report::Listener,
            Report::Witness { family: Family::Six, answer: Answer::Reset },
            Report::Witness { family: Family::Four, answer: Answer::Unreachable },
            Report::StepFailed { step: 3, errno: 22 },
            Report::ForkFailed { id: 1, errno: 11 },
            Report::Exited { id: 2, status: -1, alone: true },
        ] {
            assert_eq!(Report::decode(&report.encode()), Some(report));
        }
        for point in Point::ALL {
            let report = GateReport::Failed { point, errno: 2 };
            assert_eq!(GateReport::decode(&report.encode()), Some(report));
        }
        assert_eq!(Request::decode(b"short"), None);
    }
}
