//! Whether this user gets a network namespace, found by making one.

use crate::sys::attempt::{Outcome, attempt};
use crate::sys::namespace;

/// Why there is none to be had: asked only where the policy would go on without. What fails otherwise, as the user
/// namespace around it, is no answer: the start says that itself.
pub fn refusal() -> Option<String> {
    let user = u64::from(libc::CLONE_NEWUSER.cast_unsigned());
    match attempt(user, |_| Ok(()), || namespace::unshare(libc::CLONE_NEWNET)) {
        Outcome::Fails(errno) => Some(errno.desc().to_owned()),
        Outcome::Killed(_) => Some("a filter kills who asks for it".to_owned()),
        Outcome::Works | Outcome::NoChild(_) => None,
    }
}
