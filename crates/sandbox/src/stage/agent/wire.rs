//! What the supervisor and pid 1 send to each other, in the frame of [`crate::stage::wire`].

use crate::plan::agent::step::SandboxService;
use crate::stage::wire::{LEN, pack, unpack};
use saggar_sys::net::IpFamily;
use saggar_sys::redirect::SocketProtocol;
use saggar_sys::reject_sniffer::RejectKind;

/// From the supervisor to pid 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InitRequest {
    /// The id maps are written.
    Go,
    /// Some of the trees that the steps wait for; the descriptors come beside it.
    Trees,
    /// Run a program. Beside it come five descriptors: the block ([`super::program_args`]), standard input,
    /// output and error, and the gate.
    Exec {
        /// The supervisor's number for it.
        id: u32,
        /// [`ExecFlags`] bits.
        flags: u32,
    },
    /// Make a socket for connections of this family: it belongs to the sandbox's network, wherever it is used.
    Socket(IpFamily),
    /// Send a signal to a program that was started by [`InitRequest::Exec`].
    Signal {
        /// Its number.
        id: u32,
        /// The signal.
        signal: i32,
        /// To its process group, not to it alone.
        group: bool,
    },
}

/// Bits of [`InitRequest::Exec`].
#[derive(Debug)]
pub struct ExecFlags;

impl ExecFlags {
    /// The sandbox ends when this program ends.
    pub const MAIN: u32 = 1 << 0;
    /// What it starts stays below it, also when its parent ends (PR_SET_CHILD_SUBREAPER).
    pub const SUBREAPER: u32 = 1 << 1;
    /// The gate is open already, or about to be: pid 1 may stand still until the program is one.
    pub(crate) const IMMEDIATE: u32 = 1 << 5;
    const TERMINAL: [u32; 3] = [1 << 2, 1 << 3, 1 << 4];

    /// The bit that makes a standard stream, by its number, the program's controlling terminal: input where
    /// it can be, but a program whose input is a pipe and whose output is a terminal needs one too.
    pub fn controlling_terminal(stream: usize) -> u32 {
        Self::TERMINAL.get(stream).copied().unwrap_or(0)
    }

    /// Which standard stream becomes the controlling terminal.
    pub(crate) fn terminal_stream(flags: u32) -> Option<usize> {
        Self::TERMINAL.iter().position(|bit| flags & bit != 0)
    }
}

/// From pid 1 to the supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InitReport {
    /// Every step is done.
    Ready,
    /// The master of the sandbox's terminal comes beside this.
    Terminal,
    /// The work tree comes beside this, as the programs see it.
    Workspace,
    /// A socket comes beside this that hears whoever calls a port of any address.
    CapturedListener {
        /// What it hears.
        protocol: SocketProtocol,
        /// The port.
        port: u16,
    },
    /// A socket comes beside this that sees how the kernel answers calls that nobody hears.
    RejectSniffer {
        /// Of which family.
        family: IpFamily,
        /// Which answers.
        kind: RejectKind,
    },
    /// The listener of pid 1's filter comes beside this.
    Listener,
    /// The socket of [`InitRequest::Socket`] comes beside this.
    Socket(IpFamily),
    /// It could not be made.
    SocketFailed {
        /// Of which family.
        family: IpFamily,
        /// Error number.
        errno: i32,
    },
    /// A socket comes beside this on which a service of saggar is offered.
    ServiceListener(SandboxService),
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
        is_last_process: bool,
    },
}

impl InitRequest {
    /// The message as bytes.
    pub fn encode(self) -> [u8; LEN] {
        match self {
            InitRequest::Go => pack(1, 0, 0, 0),
            InitRequest::Trees => pack(4, 0, 0, 0),
            InitRequest::Exec { id, flags } => pack(2, id, flags, 0),
            InitRequest::Signal { id, signal, group } => pack(3, id, signal.cast_unsigned(), group.into()),
            InitRequest::Socket(family) => pack(5, family.into(), 0, 0),
        }
    }

    /// The message in `bytes`, if it is one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        match unpack(bytes)? {
            [1, ..] => Some(InitRequest::Go),
            [4, ..] => Some(InitRequest::Trees),
            [2, id, flags, _] => Some(InitRequest::Exec { id, flags }),
            [3, id, signal, group] => {
                Some(InitRequest::Signal { id, signal: signal.cast_signed(), group: group != 0 })
            }
            [5, family, ..] => Some(InitRequest::Socket(IpFamily::from(family))),
            _ => None,
        }
    }
}

impl InitReport {
    /// The message as bytes.
    pub fn encode(self) -> [u8; LEN] {
        match self {
            InitReport::Ready => pack(1, 0, 0, 0),
            InitReport::Terminal => pack(2, 0, 0, 0),
            InitReport::Workspace => pack(6, 0, 0, 0),
            InitReport::CapturedListener { protocol: SocketProtocol::Tcp, port } => {
                pack(7, 0, port.into(), 0)
            }
            InitReport::CapturedListener { protocol: SocketProtocol::Udp, port } => {
                pack(7, 1, port.into(), 0)
            }
            InitReport::Socket(family) => pack(8, family.into(), 0, 0),
            InitReport::SocketFailed { family, errno } => pack(9, family.into(), errno.cast_unsigned(), 0),
            InitReport::ServiceListener(service) => pack(10, service.number(), 0, 0),
            InitReport::RejectSniffer { family, kind: answer } => pack(11, family.into(), answer.into(), 0),
            InitReport::Listener => pack(12, 0, 0, 0),
            InitReport::StepFailed { step, errno } => pack(3, step, errno.cast_unsigned(), 0),
            InitReport::ForkFailed { id, errno } => pack(4, id, errno.cast_unsigned(), 0),
            InitReport::Exited { id, status, is_last_process: alone } => {
                pack(5, id, status.cast_unsigned(), alone.into())
            }
        }
    }

    /// The message in `bytes`, if it is one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        match unpack(bytes)? {
            [1, ..] => Some(InitReport::Ready),
            [2, ..] => Some(InitReport::Terminal),
            [6, ..] => Some(InitReport::Workspace),
            [7, kind, port, _] => {
                let kind = if kind == 0 { SocketProtocol::Tcp } else { SocketProtocol::Udp };
                Some(InitReport::CapturedListener { protocol: kind, port: port.try_into().ok()? })
            }
            [8, family, ..] => Some(InitReport::Socket(IpFamily::from(family))),
            [9, family, errno, _] => {
                Some(InitReport::SocketFailed { family: IpFamily::from(family), errno: errno.cast_signed() })
            }
            [10, service, ..] => SandboxService::from_number(service).map(InitReport::ServiceListener),
            [11, family, answer, _] => Some(InitReport::RejectSniffer {
                family: IpFamily::from(family),
                kind: RejectKind::from(answer),
            }),
            [12, ..] => Some(InitReport::Listener),
            [3, step, errno, _] => Some(InitReport::StepFailed { step, errno: errno.cast_signed() }),
            [4, id, errno, _] => Some(InitReport::ForkFailed { id, errno: errno.cast_signed() }),
            [5, id, status, alone] => {
                Some(InitReport::Exited { id, status: status.cast_signed(), is_last_process: alone != 0 })
            }
            _ => None,
        }
    }
}

/// What a program that has not yet become one says at its gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BarrierReport {
    /// It waits; its credentials beside this say its pid.
    Waiting,
    /// It failed, and ends.
    Failed {
        /// At which point.
        point: ExecFailurePoint,
        /// Error number.
        errno: i32,
    },
}

/// Where a program can fail before it is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExecFailurePoint {
    /// Its arguments could not be read.
    Arguments,
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

impl ExecFailurePoint {
    const ALL: [ExecFailurePoint; 7] = [
        ExecFailurePoint::Arguments,
        ExecFailurePoint::Session,
        ExecFailurePoint::Streams,
        ExecFailurePoint::WorkingDirectory,
        ExecFailurePoint::Filter,
        ExecFailurePoint::NotFound,
        ExecFailurePoint::NotExecutable,
    ];
}

impl BarrierReport {
    /// The message as bytes.
    pub(crate) fn encode(self) -> [u8; LEN] {
        match self {
            BarrierReport::Waiting => pack(1, 0, 0, 0),
            BarrierReport::Failed { point, errno } => pack(2, point as u32, errno.cast_unsigned(), 0),
        }
    }

    /// The message in `bytes`, if it is one.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        match unpack(bytes)? {
            [1, ..] => Some(BarrierReport::Waiting),
            [2, point, errno, _] => {
                let point = *ExecFailurePoint::ALL.get(usize::try_from(point).ok()?)?;
                Some(BarrierReport::Failed { point, errno: errno.cast_signed() })
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
            let flags = ExecFlags::MAIN | ExecFlags::controlling_terminal(stream);
            assert_eq!(ExecFlags::terminal_stream(flags), Some(stream));
        }
        assert_eq!(ExecFlags::terminal_stream(ExecFlags::MAIN), None);
    }

    #[test]
    fn messages_survive_the_wire() {
        for request in [
            InitRequest::Go,
            InitRequest::Trees,
            InitRequest::Exec { id: 7, flags: ExecFlags::MAIN | ExecFlags::controlling_terminal(2) },
            InitRequest::Signal { id: u32::MAX, signal: 15, group: true },
        ] {
            assert_eq!(InitRequest::decode(&request.encode()), Some(request));
        }
        for report in [
            InitReport::Ready,
            InitReport::Terminal,
            InitReport::Workspace,
            InitReport::CapturedListener { protocol: SocketProtocol::Tcp, port: 443 },
            InitReport::CapturedListener { protocol: SocketProtocol::Udp, port: u16::MAX },
            InitReport::ServiceListener(SandboxService::ModelApi),
            InitReport::ServiceListener(SandboxService::Mailbox),
            InitReport::Listener,
            InitReport::RejectSniffer { family: IpFamily::V6, kind: RejectKind::Reset },
            InitReport::RejectSniffer { family: IpFamily::V4, kind: RejectKind::Unreachable },
            InitReport::StepFailed { step: 3, errno: 22 },
            InitReport::ForkFailed { id: 1, errno: 11 },
            InitReport::Exited { id: 2, status: -1, is_last_process: true },
        ] {
            assert_eq!(InitReport::decode(&report.encode()), Some(report));
        }
        for point in ExecFailurePoint::ALL {
            let report = BarrierReport::Failed { point, errno: 2 };
            assert_eq!(BarrierReport::decode(&report.encode()), Some(report));
        }
        assert_eq!(InitRequest::decode(b"short"), None);
    }
}
