//! Claude Code from npm, against the mock of its API: bare first, so that the mock and the harness are known
//! to be right, then inside saggar.
//!
//! `.ci/install-agent` puts the program at `target/agent`; `SAGGAR_TEST_CLAUDE` names another one.

mod bare;
mod bare_agent;
mod boxed;
mod boxed_agent;
mod program;
