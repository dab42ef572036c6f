//! The limit on open files (getrlimit(2)).

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit on open files to the hard limit, and returns the limit that is then in effect. Service managers
/// start programs with a soft limit of 1024, for those that use select(2); a running session alone has two open sockets.
/// Sandboxes have limits of their own (saggar-policy(5)).
pub fn raise_open_file_limit() -> u64 {
    let limits = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limits.maximum, maximum: limits.maximum };
    let in_effect = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limits.maximum,
        // A hard limit above the maximum of the kernel. The server works with what it has.
        Err(_) => limits.current,
    };
    // `None` is no limit.
    in_effect.unwrap_or(u64::MAX)
}
