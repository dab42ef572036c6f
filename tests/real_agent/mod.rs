//! Claude Code from npm, against the mock of its API: bare first, so that the mock and the harness are known
//! to be right, then inside saggar, and in a container with a bridge.
//!
//! `.ci/install-agent` puts the program at `target/agent`; `SAGGAR_TEST_CLAUDE` names another one.

/// The agent's program; where there is none the test ends as skipped.
macro_rules! claude {
    () => {
        match $crate::real_agent::program::claude() {
            Ok(program) => program,
            Err(why) => skip!("{why}"),
        }
    };
}

mod bare;
mod bare_agent;
mod boxed;
mod boxed_agent;
mod boxed_asking;
mod contained;
mod keyless;
mod paired;
mod program;
mod sessions;
