//! The deadlines of connections. Each iteration of the event loop needs the earliest of up to a thousand, so they are
//! kept in order of time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// Connections, each with a deadline or none.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    by_connection: BTreeMap<usize, Instant>,
    by_time: BTreeSet<(Instant, usize)>,
}

impl Deadlines {
    /// Sets or removes the deadline of a connection.
    pub(super) fn set(&mut self, id: usize, at: Option<Instant>) {
        let before = match at {
            Some(at) => self.by_connection.insert(id, at),
            None => self.by_connection.remove(&id),
        };
        if before == at {
            return;
        }
        if let Some(before) = before {
            self.by_time.remove(&(before, id));
        }
        self.by_time.extend(at.map(|at| (at, id)));
    }

    /// The connections whose deadline has passed.
    pub(super) fn expired(&self, now: Instant) -> Vec<usize> {
        self.by_time.iter().take_while(|(at, _)| *at <= now).map(|(_, id)| *id).collect()
    }

    /// The earliest deadline.
    pub(super) fn next(&self) -> Option<Instant> {
        self.by_time.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn each_has_one_time_and_they_come_in_order() {
        let (mut due, begin) = (Deadlines::default(), Instant::now());
        let after = |seconds| begin + Duration::from_secs(seconds);
        for (id, seconds) in [(1, 3), (2, 1), (3, 2), (2, 4)] {
            due.set(id, Some(after(seconds)));
        }
        assert_eq!((due.next(), due.expired(after(3))), (Some(after(2)), vec![3, 1]));
        due.set(3, None);
        due.set(9, None);
        assert_eq!((due.next(), due.expired(after(2))), (Some(after(3)), vec![]));
        [1, 2].into_iter().for_each(|id| due.set(id, None));
        assert_eq!((due.next(), due.by_connection.len(), due.by_time.len()), (None, 0, 0));
    }
}
