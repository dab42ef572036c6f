//! The policy: what a sandbox permits, and which file set each value. Commands and the server load it; it starts nothing and
//! asks nothing of the kernel.
//!
//! A [`PolicyDocument`] is the content of one file. Documents form layers ([`PolicyLayer`]). Each is
//! validated separately, then merged into one [`EffectivePolicy`], in which every value records its layer:
//!
//! ```text
//! built-in < /usr/share/saggar/defaults.toml < /etc/saggar/config.toml < /etc/saggar/conf.d/*.toml
//!          < ~/.config/saggar/config.toml < agent folder < workspace < --policy FILE < command line
//! ```
//!
//! A later layer overrides an earlier one, with one exception on which the security of the sandbox depends:
//! the two layers from folders that the agent can write ([`PolicyLayer::AgentFolder`],
//! [`PolicyLayer::Workspace`]) may only tighten what the layers before them set. A document that widens them
//! is refused by key, never ignored.
//!
//! | file | its one job |
//! |---|---|
//! | `document` | the keys of a file |
//! | `api` `hosts` `mailbox` `mcp` `names` `paths` `permission` `program` `publish` `resources` `sockets` `units` | the values of a file, each validated where it is parsed |
//! | `parse` | bytes to a document, with errors that name file, line and key |
//! | `folder` | the text of a folder's policy, which is parsed with fewer privileges than the caller's |
//! | `validate` `validate_limits` | rules between values |
//! | `effective` `merge` | the effective policy, and how a document is merged into it |
//! | `provenance` | the source of a value, as types: a value from a folder gives no access to the host |
//! | `tighten` | what a document from a folder may not ask for |
//! | `update` | limits that change while a sandbox runs |
//! | `environment` | the environment of the program |
//! | `command_line` | the last layer |
//! | `load` | the only I/O: finds and reads the files |
//! | `protect` | the names that are protected in a workspace |
//! | `schema` `check` `rows` | for people and editors: JSON Schema, `policy check`, `explain` |

#![forbid(unsafe_code)]

pub mod api;
pub mod cgroup_name;
pub mod check;
pub mod command_line;
pub mod document;
pub mod effective;
pub mod environment;
mod faults;
pub mod folder;
pub mod hosts;
pub mod layer;
pub mod load;
pub mod mailbox;
pub mod mcp;
mod merge;
pub mod names;
pub mod parse;
mod parse_fault;
pub mod paths;
pub mod permission;
mod policy_format;
pub mod program;
pub mod protect;
pub mod provenance;
pub mod publish;
pub mod resources;
pub mod rows;
pub mod schema;
pub mod sockets;
mod suggest;
mod tighten;
pub mod units;
mod update;
mod validate;
mod validate_limits;
mod value;
mod value_line;
mod value_message;
mod workspace_pattern;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

pub use api::{ApiUpstream, KeyHeader, UpstreamScheme};
pub use cgroup_name::CgroupName;
pub use check::{PolicyCheckReport, check_policy_files};
pub use command_line::{EnvArgument, PolicyOptions};
pub use document::PolicyDocument;
pub use effective::{EffectivePolicy, HostPolicy, PermissionPolicy};
pub use environment::program_environment;
pub use folder::{FolderParser, FolderText};
pub use hosts::{Destination, HostRule};
pub use layer::{PolicyLayer, Setting};
pub use load::{FOLDER_FILE_NAMES, LoadedPolicy, PolicySources, load_policy, user_directory};
pub use mailbox::{MailboxName, RunNumber};
pub use mcp::SessionPattern;
pub use names::{
    AdapterKind, EnvName, MissingPathAction, NetworkMode, PolicyPart, Protection, ProtectionStrength,
    SandboxCgroupDriver, SandboxProfile, TimeoutAction,
};
pub use paths::{BindAccess, BindMount, BindSpec, HomeSource, HostPath, SocketPathTemplate, UserPath};
pub use permission::{PermissionMode, PermissionModes, PermissionRule, PermissionRuling};
pub use program::{AgentCommand, IdRange};
pub use provenance::{FolderValue, Provenance, SYSTEM_TREES, TrustedValue};
pub use publish::PublishedPort;
pub use resources::{CpusetList, DiskName, DiskRates, HugePageSize};
pub use schema::schema;
pub use units::{ByteSize, CpuCount, TimeSpan};
pub use update::{update_limits, update_network};
pub use value::BadValue;
pub use workspace_pattern::{PatternSet, WorkspacePattern};
