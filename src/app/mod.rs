//! The use cases: what a program does with saggar as a library, and what the commands do once arguments are read.
//! Plain values in and out; nothing here reads a command line or prints.
//!
//! ```text
//!  request ── prepare ──> Prepared… ── start ──> Started… ── supervise ──> RunOutcome
//!             policy, plan           cgroup, pid 1        event loop, until the program ends
//! ```
//! Each state is consumed by the step to the next, so that steps in a wrong order do not compile.

pub mod agent;
pub mod options;
pub mod outcome;
pub mod pair;
pub mod session;
pub mod subprocess;
pub mod wrap;

pub(crate) mod degraded;
pub(crate) mod disk;
pub(crate) mod folder_files;
pub(crate) mod mailbox;
pub(crate) mod mcp;
mod model_api;
mod overrides;
pub(crate) mod prepare;
pub(crate) mod program_lookup;
pub(crate) mod scripts;
mod shared_directories;
pub(crate) mod sockets;
mod start;
mod start_report;

pub use options::SandboxOptions;
pub use outcome::RunOutcome;
pub use subprocess::run_subprocess;
