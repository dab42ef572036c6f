//! Reserves a part of the resource limits of the user that starts a sandbox. The kernel also counts queued signals,
//! message queues, locked memory and processes of a user namespace for the user that created it, and denies them in the
//! namespace when that user's total exceeds the limit that the creating process had at the time (Linux 5.14,
//! `inc_rlimit_ucounts`). So the limits of the starting process are lowered during the clone: whatever all its
//! sandboxes use together, the rest of its limits remains available to the user.
//!
//! Resources without such a limit are limited in the namespace, for each sandbox (the step `NamespaceLimit`).

use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};

/// Computes the share of a limit for sandboxes.
type ShareFn = fn(rlim_t) -> rlim_t;

/// The limits that are shared.
const LIMITS: [(Resource, ShareFn); 4] = [
    (Resource::RLIMIT_SIGPENDING, half),
    (Resource::RLIMIT_MSGQUEUE, half),
    (Resource::RLIMIT_MEMLOCK, half),
    (Resource::RLIMIT_NPROC, most),
];
/// Processes that are reserved for the user.
const PROCESSES: rlim_t = 512;

fn half(limit: rlim_t) -> rlim_t {
    limit / 2
}

/// Half of all processes would be too few for sandboxes on a desktop.
fn most(limit: rlim_t) -> rlim_t {
    limit - (limit / 8).min(PROCESSES)
}

/// The lowered limits of this process; dropping it restores them.
#[derive(Debug)]
pub(super) struct RlimitReserve([Option<(Resource, rlim_t, rlim_t)>; LIMITS.len()]);

impl RlimitReserve {
    /// Lowers the limits. A limit that cannot be read or set is left unchanged, because it is not a security boundary.
    pub(super) fn lower() -> Self {
        RlimitReserve(LIMITS.map(|(resource, share)| {
            let (soft, hard) = getrlimit(resource).ok()?;
            if soft == libc::RLIM_INFINITY {
                return None;
            }
            setrlimit(resource, share(soft), hard).ok()?;
            Some((resource, soft, hard))
        }))
    }
}

impl Drop for RlimitReserve {
    fn drop(&mut self) {
        for (resource, soft, hard) in self.0.into_iter().flatten() {
            let _ = setrlimit(resource, soft, hard);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_what_they_were_afterwards() {
        let now = || LIMITS.map(|(resource, _)| getrlimit(resource).unwrap());
        let before = now();
        let reserve = RlimitReserve::lower();
        for (at, (soft, hard)) in now().into_iter().enumerate() {
            assert!(soft == libc::RLIM_INFINITY || soft < before[at].0 || soft == 0);
            assert_eq!(hard, before[at].1);
        }
        drop(reserve);
        assert_eq!(now(), before);
    }
}
