//! A bounded set of uuids, first in, first out (RB-10, RB-11). The bridge owns it, not a connection, so that it
//! survives a reconnect (RB-39).

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

/// Default number of remembered uuids.
pub const DEFAULT_REMEMBERED: usize = 2000;

/// Maximum length of a remembered text, in bytes; a uuid has 36. A longer text never counts as a repetition. Otherwise
/// a server with ids of megabytes would fill the memory.
pub const MAX_UUID_LENGTH: usize = 256;

/// The newest of the added uuids.
#[derive(Debug)]
pub struct SeenUuids {
    members: HashSet<Arc<str>>,
    order: VecDeque<Arc<str>>,
    limit: usize,
}

impl SeenUuids {
    /// Creates a set of at most `limit` members.
    pub fn new(limit: usize) -> Self {
        SeenUuids { members: HashSet::new(), order: VecDeque::new(), limit }
    }

    /// Whether the set contains this uuid.
    pub fn contains(&self, uuid: &str) -> bool {
        self.members.contains(uuid)
    }

    /// Adds a uuid and returns whether it is new. A known member keeps its age. The oldest member is removed when the
    /// set is full.
    pub fn insert(&mut self, uuid: &str) -> bool {
        if self.limit == 0 || uuid.len() > MAX_UUID_LENGTH || self.contains(uuid) {
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

    /// Removes the newest member if it is this uuid: it was added for a message that was then rejected.
    pub(crate) fn remove_newest(&mut self, uuid: &str) {
        if self.order.back().is_some_and(|newest| **newest == *uuid) {
            self.order.pop_back();
            self.members.remove(uuid);
        }
    }

    /// Number of members.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}
