//! Sessions on disk (DECISIONS 23, 24, 27): a directory for each, with the agent's home, its workspace, and its own id
//! of the conversation. And what a sandbox may not leave in a workspace (DECISIONS 34), with a session or without.
//!
//! The program uses it, for the supervisor of an agent and for the commands that show, compare and change what a session
//! left. It starts no sandbox and serves no socket; what an agent could have changed it opens beneath descriptors, and walks
//! in workers with few rights.
//!
//! ```text
//! <sessions>/<id>/{lock, session.json, agent.json, audit.jsonl, installed, mcp.json, logs/, home/, workspace/, upper/,
//!                  spool/, quarantine/, snapshots/, workspace.json, workspace.manifest}
//! <sessions>/<id>/{..., disk.img, disk/{home/, workspace/, upper/}} with a disk limit by a file system of its own
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `directory` | a session's directory and its lock |
//! | [`session_state`] | the states of a session and the transitions between them (pure) |
//! | [`record`] | session.json: the supervisor, the sandbox, and the data of a later start |
//! | [`logs`] | the log entries, a ring on disk |
//! | [`protect`] [`workspace_scan`] | the protected paths of a workspace at a start, and what appeared under such names |
//! | [`named_paths`] | the paths of a workspace that the policy names, and the search for its patterns |
//! | [`repository`] | the work tree of a directory, and a git directory that is outside of it |
//! | [`files`] | files of a workspace for a server (KC-31) |
//! | [`results`] | whether anything of a session would be missed |
//! | [`remove`] | removes a directory that an agent has filled |
//! | [`tree_workers`] | compare, apply and discard, in workers |
//! | [`policy_parser`] | parses a folder's policy in a worker |

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod apply;
pub mod copy;
mod create;
pub mod diff;
mod directory;
pub mod discard;
pub mod disk_usage;
pub mod files;
pub mod image;
pub mod logs;
pub mod manifest;
pub mod named_paths;
pub mod policy_parser;
pub mod protect;
pub mod quarantine;
pub mod record;
pub mod remove;
pub mod repository;
pub mod results;
pub mod retained_changes;
pub mod select;
pub mod session_project;
pub mod session_state;
pub mod snapshot;
pub mod spool;
pub mod tree_workers;
pub mod unfinished_scan;
pub mod workspace_origin;
pub mod workspace_scan;

pub use directory::{
    OpenMode, Session, SessionLock, at_work_error, is_served, lock_session, read_agent_session,
    session_directory,
};
