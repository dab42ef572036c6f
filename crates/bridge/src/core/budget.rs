//! The memory budget of all line buffers of one supervisor (DECISIONS 20).

/// Limit of all buffers together: 256 MiB.
pub(super) const BUFFER_LIMIT: usize = 256 << 20;

/// Counts reserved bytes. Every reservation must be released with the matching function.
#[derive(Debug)]
pub(super) struct BufferBudget {
    limit: usize,
    used: usize,
    inbound: usize,
}

impl BufferBudget {
    /// An unused budget of `limit` bytes.
    pub(super) fn new(limit: usize) -> BufferBudget {
        BufferBudget { limit, used: 0, inbound: 0 }
    }

    /// Limit of unfinished lines and queued commands of servers: half of all. The rest is reserved for the agent's line and
    /// for output, so that servers cannot starve the agent.
    fn inbound_limit(&self) -> usize {
        self.limit / 2
    }

    /// The bytes that are left for replays, which may fill half of all buffers. The rest is for live events.
    pub(super) fn free_for_replays(&self) -> usize {
        (self.limit / 2).saturating_sub(self.used)
    }

    /// Reserves bytes for output of the agent or for a server; returns false if the budget is exhausted.
    #[must_use]
    pub(super) fn reserve(&mut self, bytes: usize) -> bool {
        let fits = self.has_room(bytes);
        if fits {
            self.used += bytes;
        }
        fits
    }

    /// Whether this many bytes can be reserved.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        bytes <= self.limit.saturating_sub(self.used)
    }

    /// Reserves bytes for input of a server; returns false if the budget is exhausted.
    #[must_use]
    pub(super) fn reserve_inbound(&mut self, bytes: usize) -> bool {
        let fits = self.has_inbound_room(bytes) && self.reserve(bytes);
        if fits {
            self.inbound += bytes;
        }
        fits
    }

    /// Whether the inbound limit allows this many bytes, regardless of the total.
    pub(super) fn has_inbound_room(&self, bytes: usize) -> bool {
        bytes <= self.inbound_limit().saturating_sub(self.inbound)
    }

    /// Releases bytes reserved with [`BufferBudget::reserve`].
    pub(super) fn release(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.used, "more given back than taken");
        self.used = self.used.saturating_sub(bytes);
    }

    /// Releases bytes reserved with [`BufferBudget::reserve_inbound`].
    pub(super) fn release_inbound(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.inbound, "more given back than taken");
        self.inbound = self.inbound.saturating_sub(bytes);
        self.release(bytes);
    }

    /// Number of reserved bytes.
    pub(super) fn used(&self) -> usize {
        self.used
    }
}
