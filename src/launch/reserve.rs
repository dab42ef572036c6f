//! What stays free for whoever starts a sandbox. The kernel counts queued signals, message queues, locked memory and
//! processes of a user namespace to the user who made it as well, and refuses them in it when all that this user has
//! is more than the limit that the maker had when it made the namespace (Linux 5.14, `inc_rlimit_ucounts`). So the
//! launcher has lower ones for the moment of the clone: whatever runs in all its sandboxes together, the rest of its
//! limits stays its own.
//!
//! What has no such limit is bounded in the namespace, each sandbox by itself ([`crate::plan::quotas`]).

use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};

/// What sandboxes may have of a limit.
type Share = fn(rlim_t) -> rlim_t;

/// Which limits are shared.
const LIMITS: [(Resource, Share); 4] = [
    (Resource::RLIMIT_SIGPENDING, half),
    (Resource::RLIMIT_MSGQUEUE, half),
    (Resource::RLIMIT_MEMLOCK, half),
    (Resource::RLIMIT_NPROC, most),
];
/// Processes that stay free.
const PROCESSES: rlim_t = 512;

fn half(limit: rlim_t) -> rlim_t {
    limit / 2
}

/// Half of all processes would be few where a desktop runs beside the sandbox.
fn most(limit: rlim_t) -> rlim_t {
    limit - (limit / 8).min(PROCESSES)
}

/// The lowered limits of this process; they are what they were when it is dropped.
#[derive(Debug)]
pub(super) struct Reserve([Option<(Resource, rlim_t, rlim_t)>; LIMITS.len()]);

impl Reserve {
    /// Lowers them. A limit that cannot be read or set is left as it is: it is not one of the walls.
    pub(super) fn take() -> Self {
        Reserve(LIMITS.map(|(resource, share)| {
            let (soft, hard) = getrlimit(resource).ok()?;
            if soft == libc::RLIM_INFINITY {
                return None;
            }
            setrlimit(resource, share(soft), hard).ok()?;
            Some((resource, soft, hard))
        }))
    }
}

impl Drop for Reserve {
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
        let reserve = Reserve::take();
        for (at, (soft, hard)) in now().into_iter().enumerate() {
            assert!(soft == libc::RLIM_INFINITY || soft < before[at].0 || soft == 0);
            assert_eq!(hard, before[at].1);
        }
        drop(reserve);
        assert_eq!(now(), before);
    }
}
