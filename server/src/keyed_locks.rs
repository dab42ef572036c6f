//! Asynchronous read-write locks by key.

use crate::mutex::lock;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex};
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

/// Locks by key. A lock without a holder or a waiter is removed.
#[derive(Debug, Clone)]
pub struct KeyedLocks<K> {
    locks: Arc<Mutex<HashMap<K, Arc<RwLock<()>>>>>,
}

impl<K> Default for KeyedLocks<K> {
    fn default() -> Self {
        KeyedLocks { locks: Arc::default() }
    }
}

impl<K: Eq + Hash> KeyedLocks<K> {
    /// Waits for the shared lock of this key.
    pub async fn read(&self, key: K) -> OwnedRwLockReadGuard<()> {
        self.get(key).read_owned().await
    }

    /// Waits for the exclusive lock of this key.
    pub async fn write(&self, key: K) -> OwnedRwLockWriteGuard<()> {
        self.get(key).write_owned().await
    }

    /// Returns the shared lock of this key if no one holds the exclusive one, or waits for it.
    pub fn try_read(&self, key: K) -> Option<OwnedRwLockReadGuard<()>> {
        self.get(key).try_read_owned().ok()
    }

    /// Returns the exclusive lock of this key if it has no holder and no waiter.
    pub fn try_write(&self, key: K) -> Option<OwnedRwLockWriteGuard<()>> {
        self.get(key).try_write_owned().ok()
    }

    fn get(&self, key: K) -> Arc<RwLock<()>> {
        let mut locks = lock(&self.locks);
        locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        Arc::clone(locks.entry(key).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[tokio::test]
    async fn keys_are_locked_independently() {
        let locks = KeyedLocks::default();
        let held = locks.write("a").await;
        assert!(locks.write("b").now_or_never().is_some());
        assert!(locks.write("a").now_or_never().is_none() && locks.read("a").now_or_never().is_none());
        assert!(locks.try_write("b").is_some() && locks.try_write("a").is_none());
        assert!(locks.try_read("b").is_some() && locks.try_read("a").is_none());
        drop(held);
        let _shared = locks.read("a").await;
        assert!(locks.read("a").now_or_never().is_some());
        assert!(locks.write("a").now_or_never().is_none());
    }

    #[tokio::test]
    async fn unused_locks_are_removed() {
        let locks = KeyedLocks::default();
        for key in 0..10 {
            drop(locks.write(key).await);
        }
        assert_eq!(locks.locks.lock().unwrap().len(), 1);
    }
}
