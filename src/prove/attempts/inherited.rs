//! Variables and descriptors of the sandbox's caller.

use super::super::context::{ProbeContext, SECRET_VARIABLE};
use super::super::{Attempt, AttemptFailure, AttemptResult, Boundary};
use crate::sys::disposable_child::DisposableChild;
use std::env;

/// The variables that each attempt searches for.
const VARIABLES: &[(&str, &[&str])] = &[
    ("secret-variable", &[SECRET_VARIABLE]),
    ("loader-variables", &["LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT"]),
    ("program-variables", &["BASH_ENV", "PERL5OPT", "NODE_OPTIONS"]),
    ("agent-sockets", &["SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "WAYLAND_DISPLAY"]),
];

/// The attempts of this class.
pub(super) const ATTEMPTS: &[Attempt] = &[
    new("secret-variable", "Read a secret in the caller's environment", |_, _| {
        has_variables("secret-variable")
    }),
    new("loader-variables", "Get variables that the loader obeys", |_, _| has_variables("loader-variables")),
    new("program-variables", "Get variables that programs obey", |_, _| has_variables("program-variables")),
    new("agent-sockets", "Get the sockets of the caller's agents", |_, _| has_variables("agent-sockets")),
    Attempt::new("descriptors", Boundary::Descriptors, "Inherit a descriptor", |child, _| {
        let open = |number: &u64| child.call(libc::SYS_fcntl, &[*number, 1, 0]).is_ok();
        if (3..4096).any(|number| open(&number)) { Ok(()) } else { Err(AttemptFailure::NoEffect) }
    }),
];

const fn new(
    name: &'static str,
    does: &'static str,
    run: fn(&DisposableChild, &ProbeContext) -> AttemptResult,
) -> Attempt {
    Attempt::new(name, Boundary::Environment, does, run)
}

/// The variables that this attempt searches for.
pub(in crate::prove) fn variables(attempt: &str) -> Option<&'static [&'static str]> {
    VARIABLES.iter().find(|(name, _)| *name == attempt).map(|(_, variables)| *variables)
}

fn has_variables(attempt: &str) -> AttemptResult {
    let names = variables(attempt).unwrap_or_default();
    if names.iter().any(|name| env::var_os(name).is_some()) { Ok(()) } else { Err(AttemptFailure::NoEffect) }
}
