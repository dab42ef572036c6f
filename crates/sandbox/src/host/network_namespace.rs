//! Tests whether this user can create a network namespace.

use saggar_sys::attempt::{AttemptOutcome, attempt};
use saggar_sys::namespace;

/// The reason why the user cannot create a network namespace, or `None`. Called only if the policy permits
/// a start without one. Other failures, such as that of the user namespace around it, are ignored: the
/// start reports them.
pub fn network_namespace_obstacle() -> Option<String> {
    let user = u64::from(libc::CLONE_NEWUSER.cast_unsigned());
    match attempt(user, |_| Ok(()), || namespace::unshare(libc::CLONE_NEWNET)) {
        AttemptOutcome::Fails(errno) => Some(errno.desc().to_owned()),
        AttemptOutcome::Killed(_) => Some("a filter kills who asks for it".to_owned()),
        AttemptOutcome::Works | AttemptOutcome::NoChild(_) => None,
    }
}
