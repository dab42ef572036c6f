//! When connections have waited long enough. A thousand of them may stand, and each round of the loop asks: so they are
//! kept in the order of their times.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// Connections, each due at a time or never.
#[derive(Debug, Default)]
pub(super) struct Due {
    at: BTreeMap<usize, Instant>,
    order: BTreeSet<(Instant, usize)>,
}

impl Due {
    /// This one is due then; or never.
    pub(super) fn set(&mut self, id: usize, at: Option<Instant>) {
        let before = match at {
            Some(at) => self.at.insert(id, at),
            None => self.at.remove(&id),
        };
        if before == at {
            return;
        }
        if let Some(before) = before {
            self.order.remove(&(before, id));
        }
        self.order.extend(at.map(|at| (at, id)));
    }

    /// Who is due by now.
    pub(super) fn by(&self, now: Instant) -> Vec<usize> {
        self.order.iter().take_while(|(at, _)| *at <= now).map(|(_, id)| *id).collect()
    }

    /// When the next one is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.order.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn each_has_one_time_and_they_come_in_order() {
        let (mut due, begin) = (Due::default(), Instant::now());
        let after = |seconds| begin + Duration::from_secs(seconds);
        for (id, seconds) in [(1, 3), (2, 1), (3, 2), (2, 4)] {
            due.set(id, Some(after(seconds)));
        }
        assert_eq!((due.next(), due.by(after(3))), (Some(after(2)), vec![3, 1]));
        due.set(3, None);
        due.set(9, None);
        assert_eq!((due.next(), due.by(after(2))), (Some(after(3)), vec![]));
        [1, 2].into_iter().for_each(|id| due.set(id, None));
        assert_eq!((due.next(), due.at.len(), due.order.len()), (None, 0, 0));
    }
}
