//! A bounded set of uuids, first in, first out (RB-10, RB-11). It belongs to the bridge and not to a
//! connection, so that it survives a reconnect (RB-39).

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

/// How many are remembered when nobody says otherwise.
pub const SEEN: usize = 2000;

/// The longest text that is remembered, in bytes; a uuid has 36. A longer one is never taken for a repetition:
/// else a server that calls its messages by megabytes would fill the memory.
pub const LONGEST: usize = 256;

/// The newest of the uuids that were added.
#[derive(Debug)]
pub struct Seen {
    members: HashSet<Arc<str>>,
    order: VecDeque<Arc<str>>,
    limit: usize,
}

impl Seen {
    /// A set of at most `limit` members.
    pub fn new(limit: usize) -> Self {
        Seen { members: HashSet::new(), order: VecDeque::new(), limit }
    }

    /// Whether this uuid is remembered.
    pub fn has(&self, uuid: &str) -> bool {
        self.members.contains(uuid)
    }

    /// Remembers a uuid; whether it is new. A member stays as old as it is. The oldest goes when there is no
    /// room.
    pub fn add(&mut self, uuid: &str) -> bool {
        if self.limit == 0 || uuid.len() > LONGEST || self.has(uuid) {
            return false;
        }
        if self.order.len() == self.limit
            && let Some(oldest) = self.order.pop_front()
        {
            self.members.remove(&oldest);
        }
        let uuid: Arc<str> = uuid.into();
        self.order.push_back(uuid.clone());
        self.members.insert(uuid)
    }

    /// Forgets the newest member, if it is this one: what was added for a message that found no place.
    pub fn forget_newest(&mut self, uuid: &str) {
        if self.order.back().is_some_and(|newest| **newest == *uuid) {
            self.order.pop_back();
            self.members.remove(uuid);
        }
    }

    /// How many are remembered.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}
