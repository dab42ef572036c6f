//! The bytes that all line buffers of one supervisor hold together (DECISIONS 20).

/// The ceiling over everything: 256 MiB.
pub(super) const TOTAL: usize = 256 << 20;

/// What is kept free for the agent's own line and its way out, so that servers cannot starve it.
const AGENT_SHARE: usize = 128 << 20;

/// Counts what is held. Whoever takes gives back exactly as much.
#[derive(Debug, Default)]
pub(super) struct Budget {
    used: usize,
}

impl Budget {
    /// Takes room for bytes from a server: an unfinished line, a command that waits.
    #[must_use]
    pub(super) fn take_inbound(&mut self, bytes: usize) -> bool {
        self.take_below(bytes, TOTAL - AGENT_SHARE)
    }

    /// Takes room for bytes from the agent or for a server.
    #[must_use]
    pub(super) fn take(&mut self, bytes: usize) -> bool {
        self.take_below(bytes, TOTAL)
    }

    /// Gives back.
    pub(super) fn give(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.used, "more given back than taken");
        self.used = self.used.saturating_sub(bytes);
    }

    /// How many bytes are held.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    fn take_below(&mut self, bytes: usize, ceiling: usize) -> bool {
        let fits = self.used.checked_add(bytes).is_some_and(|sum| sum <= ceiling);
        if fits {
            self.used += bytes;
        }
        fits
    }
}
