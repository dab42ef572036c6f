//! What the child of a container's start and the runtime say to each other: fixed-size messages on a seqpacket
//! socket, with descriptors beside them.

/// Bytes of one message.
pub const LEN: usize = 16;

/// From the child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report {
    /// It was made by the intermediate process and waits; its credentials beside this say its pid.
    Waiting,
    /// It waits until the runtime has done something for it.
    Needs(Need),
    /// The master of its terminal comes beside this.
    Terminal {
        /// Its number in the container's devpts.
        number: u32,
    },
    /// A step failed, and the process is gone.
    Failed {
        /// Steps of the plan from this one to the end.
        step: u32,
        /// Error number.
        errno: i32,
    },
    /// The intermediate process could not join a namespace.
    JoinFailed {
        /// Index in the list of those that are joined.
        join: u32,
        /// Error number.
        errno: i32,
    },
    /// The intermediate process could not clone.
    CloneFailed {
        /// Error number.
        errno: i32,
    },
    /// The intermediate process could not make the time namespace.
    ClocksFailed {
        /// Error number.
        errno: i32,
    },
    /// Everything but the program is applied.
    Created,
    /// The descriptor that a listener answers a filter's notifications on comes beside this.
    Listener,
}

/// What the runtime does for the child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// The offsets of its new time namespace.
    TimeOffsets,
    /// Network devices; beside this comes a route socket of its network namespace.
    NetDevices,
    /// Trees: they come beside [`Answer::Trees`].
    Trees,
    /// The hooks of `create`, or those of `start` after [`Answer::Namespaces`]. Beside this come the files of its
    /// namespaces, in the order of [`crate::plan::container::NAMESPACES`]: it is not dumpable, and nobody else may
    /// open them.
    Hooks,
}

/// From the runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Go on.
    Go,
    /// Some of the trees; the descriptors come beside it.
    Trees,
    /// Tell your namespaces.
    Namespaces,
}

fn pack(kind: u32, a: u32, b: i32) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    for (slot, word) in bytes.chunks_exact_mut(4).zip([kind, a, b.cast_unsigned(), 0]) {
        slot.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

fn unpack(bytes: &[u8]) -> Option<(u32, u32, i32)> {
    let bytes: &[u8; LEN] = bytes.try_into().ok()?;
    let word = |at: usize| Some(u32::from_ne_bytes(bytes[at..at + 4].try_into().ok()?));
    Some((word(0)?, word(4)?, word(8)?.cast_signed()))
}

impl Need {
    const ALL: [Need; 4] = [Need::TimeOffsets, Need::NetDevices, Need::Trees, Need::Hooks];
}

impl Report {
    /// The message as bytes.
    pub fn encode(self) -> [u8; LEN] {
        match self {
            Report::Waiting => pack(1, 0, 0),
            Report::Needs(need) => pack(2, need as u32, 0),
            Report::Terminal { number } => pack(3, number, 0),
            Report::Failed { step, errno } => pack(4, step, errno),
            Report::JoinFailed { join, errno } => pack(5, join, errno),
            Report::CloneFailed { errno } => pack(6, 0, errno),
            Report::Created => pack(7, 0, 0),
            Report::Listener => pack(8, 0, 0),
            Report::ClocksFailed { errno } => pack(9, 0, errno),
        }
    }

    /// The message in `bytes`, if it is one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, a, errno) = unpack(bytes)?;
        Some(match kind {
            1 => Report::Waiting,
            2 => Report::Needs(*Need::ALL.get(usize::try_from(a).ok()?)?),
            3 => Report::Terminal { number: a },
            4 => Report::Failed { step: a, errno },
            5 => Report::JoinFailed { join: a, errno },
            6 => Report::CloneFailed { errno },
            7 => Report::Created,
            8 => Report::Listener,
            9 => Report::ClocksFailed { errno },
            _ => return None,
        })
    }
}

impl Answer {
    /// The message as bytes.
    pub fn encode(self) -> [u8; LEN] {
        let kind = match self {
            Answer::Go => 1,
            Answer::Trees => 2,
            Answer::Namespaces => 3,
        };
        pack(kind, 0, 0)
    }

    /// The message in `bytes`, if it is one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        match unpack(bytes)?.0 {
            1 => Some(Answer::Go),
            2 => Some(Answer::Trees),
            3 => Some(Answer::Namespaces),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_wire() {
        let plain = [
            Report::Waiting,
            Report::Terminal { number: 7 },
            Report::Failed { step: u32::MAX, errno: -1 },
            Report::JoinFailed { join: 3, errno: 1 },
            Report::CloneFailed { errno: 28 },
            Report::ClocksFailed { errno: 34 },
            Report::Created,
            Report::Listener,
        ];
        for report in plain.into_iter().chain(Need::ALL.map(Report::Needs)) {
            assert_eq!(Report::decode(&report.encode()), Some(report));
        }
        for answer in [Answer::Go, Answer::Trees, Answer::Namespaces] {
            assert_eq!(Answer::decode(&answer.encode()), Some(answer));
        }
        assert_eq!(Report::decode(b"short"), None);
    }
}
