//! Variables and descriptors of who started the sandbox.

use super::super::scene::{SECRET_VARIABLE, Scene};
use super::super::{Attempt, Boundary, No, Tried};
use crate::sys::throwaway::Throwaway;
use std::env;

/// The variables that each attempt looks for.
const VARIABLES: &[(&str, &[&str])] = &[
    ("secret-variable", &[SECRET_VARIABLE]),
    ("loader-variables", &["LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT"]),
    ("program-variables", &["BASH_ENV", "PERL5OPT", "NODE_OPTIONS"]),
    ("agent-sockets", &["SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "WAYLAND_DISPLAY"]),
];

/// The attempts.
pub(super) const ATTEMPTS: &[Attempt] = &[
    new("secret-variable", "Read a secret in the caller's environment", |_, _| given("secret-variable")),
    new("loader-variables", "Get variables that the loader obeys", |_, _| given("loader-variables")),
    new("program-variables", "Get variables that programs obey", |_, _| given("program-variables")),
    new("agent-sockets", "Get the sockets of the caller's agents", |_, _| given("agent-sockets")),
    Attempt::new("descriptors", Boundary::Descriptors, "Inherit a descriptor", |child, _| {
        let open = |number: &u64| child.call(libc::SYS_fcntl, &[*number, 1, 0]).is_ok();
        if (3..4096).any(|number| open(&number)) { Ok(()) } else { Err(No::Nothing) }
    }),
];

const fn new(name: &'static str, does: &'static str, run: fn(&Throwaway, &Scene) -> Tried) -> Attempt {
    Attempt::new(name, Boundary::Environment, does, run)
}

/// The variables that this attempt looks for.
pub(in crate::prove) fn variables(attempt: &str) -> Option<&'static [&'static str]> {
    VARIABLES.iter().find(|(name, _)| *name == attempt).map(|(_, variables)| *variables)
}

fn given(attempt: &str) -> Tried {
    let names = variables(attempt).unwrap_or_default();
    if names.iter().any(|name| env::var_os(name).is_some()) { Ok(()) } else { Err(No::Nothing) }
}
