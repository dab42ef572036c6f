//! Asynchronous locks by session id.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::OwnedMutexGuard;
use uuid::Uuid;

/// Locks by id. A lock without a holder or a waiter is removed.
#[derive(Debug, Clone, Default)]
pub(super) struct KeyedLocks {
    locks: Arc<Mutex<HashMap<Uuid, Arc<tokio::sync::Mutex<()>>>>>,
}

impl KeyedLocks {
    /// Waits for the lock of this id.
    pub(super) async fn lock(&self, id: Uuid) -> OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
            locks.retain(|_, lock| Arc::strong_count(lock) > 1);
            Arc::clone(locks.entry(id).or_default())
        };
        lock.lock_owned().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[tokio::test]
    async fn ids_are_locked_independently() {
        let locks = KeyedLocks::default();
        let (one, other) = (Uuid::new_v4(), Uuid::new_v4());
        let held = locks.lock(one).await;
        drop(locks.lock(other).await);
        let mut second = Box::pin(locks.lock(one));
        assert!((&mut second).now_or_never().is_none());
        drop(held);
        drop(second.await);
        drop(locks.lock(other).await);
        assert_eq!(locks.locks.lock().unwrap().len(), 1);
    }
}
