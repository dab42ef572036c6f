//! The maximum number of running sandboxes. Starts that exceed it wait for a slot.
//!
//! A free slot goes to the waiting tenant that has the fewest, so that a tenant with many starts does not delay the
//! others; starts of one tenant are served in order.

use crate::mutex::lock;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::oneshot;

/// The slots of a server.
#[derive(Debug, Clone)]
pub struct Capacity {
    max: usize,
    slots: Arc<Mutex<Slots>>,
}

#[derive(Debug, Default)]
struct Slots {
    /// Slots in use by tenant; no entry is 0.
    used: HashMap<String, usize>,
    waiting: VecDeque<(String, oneshot::Sender<SandboxSlot>)>,
}

impl Slots {
    fn total(&self) -> usize {
        self.used.values().sum()
    }

    /// The position of the waiting start that is served next.
    fn next_waiting(&self) -> Option<usize> {
        let used = |tenant: &String| self.used.get(tenant).copied().unwrap_or_default();
        // `min_by_key` returns the first of equals.
        let waiting = self.waiting.iter().enumerate();
        waiting.min_by_key(|(_, (tenant, _))| used(tenant)).map(|(position, _)| position)
    }
}

/// The right to run one sandbox. Dropping it frees the slot.
#[derive(Debug)]
pub struct SandboxSlot {
    capacity: Capacity,
    tenant: String,
}

impl Drop for SandboxSlot {
    fn drop(&mut self) {
        self.capacity.release(&self.tenant);
    }
}

/// A start that waits for a slot. Dropping it gives up.
pub type WaitingForSlot = oneshot::Receiver<SandboxSlot>;

impl Capacity {
    /// Creates free slots.
    pub fn new(max: usize) -> Self {
        Capacity { max, slots: Arc::default() }
    }

    /// Maximum number of running sandboxes.
    pub fn max(&self) -> usize {
        self.max
    }

    /// Number of slots in use. It can exceed the maximum after a restart of the server with a lower one.
    pub fn used(&self) -> usize {
        self.slots().total()
    }

    /// Returns a slot if one is free and no other start waits for it.
    pub fn try_acquire(&self, tenant: &str) -> Option<SandboxSlot> {
        let mut slots = self.slots();
        let is_free = slots.waiting.is_empty() && slots.total() < self.max;
        is_free.then(|| self.take(&mut slots, tenant))
    }

    /// Waits for a slot.
    pub fn wait(&self, tenant: &str) -> WaitingForSlot {
        let (sender, receiver) = oneshot::channel();
        self.slots().waiting.push_back((tenant.to_owned(), sender));
        self.serve_waiting();
        receiver
    }

    /// Returns a slot for a sandbox that is running already, also beyond the maximum.
    pub fn acquire_for_running(&self, tenant: &str) -> SandboxSlot {
        self.take(&mut self.slots(), tenant)
    }

    fn take(&self, slots: &mut Slots, tenant: &str) -> SandboxSlot {
        *slots.used.entry(tenant.to_owned()).or_default() += 1;
        SandboxSlot { capacity: self.clone(), tenant: tenant.to_owned() }
    }

    fn release(&self, tenant: &str) {
        let mut slots = self.slots();
        if let Some(used) = slots.used.get_mut(tenant) {
            *used -= 1;
            if *used == 0 {
                slots.used.remove(tenant);
            }
        }
        drop(slots);
        self.serve_waiting();
    }

    /// Forgets starts that gave up, and hands free slots to the others.
    fn serve_waiting(&self) {
        loop {
            let mut slots = self.slots();
            slots.waiting.retain(|(_, sender)| !sender.is_closed());
            if slots.total() >= self.max {
                return;
            }
            let Some(position) = slots.next_waiting() else { return };
            let Some((tenant, sender)) = slots.waiting.remove(position) else { return };
            let slot = self.take(&mut slots, &tenant);
            // Unlocked: a slot that the start no longer waits for is dropped here, and served to the next one.
            drop(slots);
            let _ = sender.send(slot);
        }
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        lock(&self.slots)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_limited_and_freed() {
        let capacity = Capacity::new(1);
        let slot = capacity.try_acquire("a").unwrap();
        assert!(capacity.try_acquire("a").is_none() && capacity.try_acquire("b").is_none());
        let beyond = capacity.acquire_for_running("a");
        assert_eq!(capacity.used(), 2);
        drop(slot);
        assert!(capacity.try_acquire("a").is_none());
        drop(beyond);
        assert_eq!(capacity.used(), 0);
        assert!(capacity.try_acquire("b").is_some());
    }

    #[test]
    fn starts_are_served_in_order_and_those_that_gave_up_are_skipped() {
        let capacity = Capacity::new(1);
        let slot = capacity.try_acquire("a").unwrap();
        let [mut first, gave_up, mut second] = [(); 3].map(|()| capacity.wait("a"));
        drop(gave_up);
        assert!(first.try_recv().is_err());
        drop(slot);
        let slot = first.try_recv().unwrap();
        assert!(second.try_recv().is_err() && capacity.try_acquire("a").is_none());
        drop(slot);
        let slot = second.try_recv().unwrap();
        // Received by nobody.
        let unreceived = capacity.wait("a");
        drop(slot);
        drop(unreceived);
        assert_eq!(capacity.used(), 0);
        let _slot = capacity.try_acquire("a").unwrap();
        for _ in 0..10 {
            drop(capacity.wait("a"));
        }
        assert_eq!(capacity.slots().waiting.len(), 1);
    }

    #[test]
    fn tenant_with_fewest_slots_is_served_first() {
        let capacity = Capacity::new(2);
        let [one, two] = [(); 2].map(|()| capacity.try_acquire("many").unwrap());
        let mut of_many = capacity.wait("many");
        let mut of_other = capacity.wait("other");
        drop(one);
        let other = of_other.try_recv().unwrap();
        assert!(of_many.try_recv().is_err());
        // Each has one now.
        let mut again = capacity.wait("other");
        drop(two);
        let many = of_many.try_recv().unwrap();
        assert!(again.try_recv().is_err());
        drop(other);
        assert!(again.try_recv().is_ok());
        drop(many);
    }
}
