//! What the child of a container's start and the runtime send to each other, in the frame of [`crate::stage::wire`].

use crate::stage::wire::{LEN, pack, unpack};

/// From the child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChildReport {
    /// It was made by the intermediate process and waits; its credentials beside this say its pid.
    Waiting,
    /// It waits until the runtime has done something for it.
    Needs(ChildNeed),
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
    TimeNamespaceFailed {
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
pub(crate) enum ChildNeed {
    /// The offsets of its new time namespace.
    TimeOffsets,
    /// Network devices; beside this comes a route socket of its network namespace.
    NetDevices,
    /// Trees: they come beside [`ChildRequest::Trees`].
    Trees,
    /// The hooks of `create`, or those of `start` after [`ChildRequest::SendNamespaces`]. Beside this come the files of its
    /// namespaces, in the order of [`crate::plan::container::NAMESPACES`]: it is not dumpable, and nobody else may
    /// open them.
    Hooks,
}

/// From the runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChildRequest {
    /// Go on.
    Go,
    /// Some of the trees; the descriptors come beside it.
    Trees,
    /// Tell your namespaces.
    SendNamespaces,
}

impl ChildNeed {
    const ALL: [ChildNeed; 4] =
        [ChildNeed::TimeOffsets, ChildNeed::NetDevices, ChildNeed::Trees, ChildNeed::Hooks];
}

impl ChildReport {
    /// The message as bytes.
    pub(crate) fn encode(self) -> [u8; LEN] {
        let (kind, a, errno) = match self {
            ChildReport::Waiting => (1, 0, 0),
            ChildReport::Needs(need) => (2, need as u32, 0),
            ChildReport::Terminal { number } => (3, number, 0),
            ChildReport::Failed { step, errno } => (4, step, errno),
            ChildReport::JoinFailed { join, errno } => (5, join, errno),
            ChildReport::CloneFailed { errno } => (6, 0, errno),
            ChildReport::Created => (7, 0, 0),
            ChildReport::Listener => (8, 0, 0),
            ChildReport::TimeNamespaceFailed { errno } => (9, 0, errno),
        };
        pack(kind, a, errno.cast_unsigned(), 0)
    }

    /// The message in `bytes`, if it is one.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let [kind, a, errno, _] = unpack(bytes)?;
        let errno = errno.cast_signed();
        Some(match kind {
            1 => ChildReport::Waiting,
            2 => ChildReport::Needs(*ChildNeed::ALL.get(usize::try_from(a).ok()?)?),
            3 => ChildReport::Terminal { number: a },
            4 => ChildReport::Failed { step: a, errno },
            5 => ChildReport::JoinFailed { join: a, errno },
            6 => ChildReport::CloneFailed { errno },
            7 => ChildReport::Created,
            8 => ChildReport::Listener,
            9 => ChildReport::TimeNamespaceFailed { errno },
            _ => return None,
        })
    }
}

impl ChildRequest {
    /// The message as bytes.
    pub(crate) fn encode(self) -> [u8; LEN] {
        let kind = match self {
            ChildRequest::Go => 1,
            ChildRequest::Trees => 2,
            ChildRequest::SendNamespaces => 3,
        };
        pack(kind, 0, 0, 0)
    }

    /// The message in `bytes`, if it is one.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        match unpack(bytes)? {
            [1, ..] => Some(ChildRequest::Go),
            [2, ..] => Some(ChildRequest::Trees),
            [3, ..] => Some(ChildRequest::SendNamespaces),
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
            ChildReport::Waiting,
            ChildReport::Terminal { number: 7 },
            ChildReport::Failed { step: u32::MAX, errno: -1 },
            ChildReport::JoinFailed { join: 3, errno: 1 },
            ChildReport::CloneFailed { errno: 28 },
            ChildReport::TimeNamespaceFailed { errno: 34 },
            ChildReport::Created,
            ChildReport::Listener,
        ];
        for report in plain.into_iter().chain(ChildNeed::ALL.map(ChildReport::Needs)) {
            assert_eq!(ChildReport::decode(&report.encode()), Some(report));
        }
        for answer in [ChildRequest::Go, ChildRequest::Trees, ChildRequest::SendNamespaces] {
            assert_eq!(ChildRequest::decode(&answer.encode()), Some(answer));
        }
        assert_eq!(ChildReport::decode(b"short"), None);
    }
}
