//! The bytes that all line buffers of one supervisor hold together (DECISIONS 20).

/// The ceiling over everything: 256 MiB.
pub(super) const TOTAL: usize = 256 << 20;

/// The part of it that unfinished lines and waiting commands of servers may have: the rest is for the agent's
/// own line and its way out, so that servers cannot starve it.
const INBOUND: usize = 128 << 20;

/// Counts what is held. Whoever takes gives back exactly as much, the same way.
#[derive(Debug, Default)]
pub(super) struct Budget {
    used: usize,
    inbound: usize,
}

impl Budget {
    /// Takes room for bytes from the agent or for a server.
    #[must_use]
    pub(super) fn take(&mut self, bytes: usize) -> bool {
        let fits = self.has_room(bytes);
        if fits {
            self.used += bytes;
        }
        fits
    }

    /// Whether so many bytes could be taken.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        bytes <= TOTAL.saturating_sub(self.used)
    }

    /// Takes room for bytes from a server.
    #[must_use]
    pub(super) fn take_inbound(&mut self, bytes: usize) -> bool {
        let fits = self.allows_inbound(bytes) && self.take(bytes);
        if fits {
            self.inbound += bytes;
        }
        fits
    }

    /// Whether the servers' part has room, whatever the rest holds.
    pub(super) fn allows_inbound(&self, bytes: usize) -> bool {
        bytes <= INBOUND.saturating_sub(self.inbound)
    }

    /// Gives back what was taken with [`Budget::take`].
    pub(super) fn give(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.used, "more given back than taken");
        self.used = self.used.saturating_sub(bytes);
    }

    /// Gives back what was taken with [`Budget::take_inbound`].
    pub(super) fn give_inbound(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.inbound, "more given back than taken");
        self.inbound = self.inbound.saturating_sub(bytes);
        self.give(bytes);
    }

    /// How many bytes are held.
    pub(super) fn used(&self) -> usize {
        self.used
    }
}
