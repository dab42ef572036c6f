//! What became of permission requests of a session, as far as this server knows.

use crate::mutex::lock;
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard};

/// Maximum number of requests that are remembered.
const MAX_REQUESTS: usize = 1000;

/// The requests that clients were told about.
#[derive(Debug, Default)]
pub struct PermissionLog(Mutex<LoggedRequests>);

#[derive(Debug, Default)]
struct LoggedRequests {
    /// The answers of clients by the ids of the requests; `None` without one.
    answers: HashMap<String, Option<&'static str>>,
    /// The ids, the oldest first.
    order: VecDeque<String>,
}

impl PermissionLog {
    /// Remembers that clients were told about a request.
    pub fn announce(&self, id: &str) {
        self.log().add(id);
    }

    /// Remembers the answer of a client, `allow` or `deny`, to a request that clients were told about. Returns false if
    /// they were not, or if there is an answer already.
    pub fn set_answer(&self, id: &str, behavior: &'static str) -> bool {
        match self.log().answers.get_mut(id) {
            Some(answer @ None) => {
                *answer = Some(behavior);
                true
            }
            _ => false,
        }
    }

    /// Forgets an answer that was not accepted.
    pub fn remove_answer(&self, id: &str) {
        if let Some(answer) = self.log().answers.get_mut(id) {
            *answer = None;
        }
    }

    /// Returns the answer of a client.
    pub fn answer(&self, id: &str) -> Option<&'static str> {
        self.log().answers.get(id).copied().flatten()
    }

    /// Whether clients were told about a request.
    pub fn is_known(&self, id: &str) -> bool {
        self.log().answers.contains_key(id)
    }

    fn log(&self) -> MutexGuard<'_, LoggedRequests> {
        lock(&self.0)
    }
}

impl LoggedRequests {
    fn add(&mut self, id: &str) {
        if self.answers.contains_key(id) {
            return;
        }
        if self.order.len() == MAX_REQUESTS
            && let Some(oldest) = self.order.pop_front()
        {
            self.answers.remove(&oldest);
        }
        self.answers.insert(id.to_owned(), None);
        self.order.push_back(id.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_request_is_forgotten_first() {
        let log = PermissionLog::default();
        assert!(!log.set_answer("first", "deny"));
        log.announce("first");
        assert!(log.set_answer("first", "deny") && !log.set_answer("first", "allow"));
        assert_eq!((log.answer("first"), log.is_known("first")), (Some("deny"), true));
        log.remove_answer("first");
        log.announce("first");
        assert_eq!((log.answer("first"), log.is_known("first")), (None, true));
        (0..MAX_REQUESTS).for_each(|number| log.announce(&number.to_string()));
        assert!(!log.is_known("first") && log.is_known("0"));
    }
}
