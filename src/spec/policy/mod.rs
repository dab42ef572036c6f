//! The policy: what a sandbox permits, and which file said so.
//!
//! A [`Document`] is what one file may say. Documents are stacked in layers ([`Layer`]), each checked by
//! itself, and merged into one [`Effective`] policy in which every value remembers its layer:
//!
//! ```text
//! built-in < /usr/share/saggar/defaults.toml < /etc/saggar/config.toml < /etc/saggar/conf.d/*.toml
//!          < ~/.config/saggar/config.toml < agent folder < workspace < --policy FILE < command line
//! ```
//!
//! The later layer wins, with one exception that carries the security of the whole: the two layers that
//! come from folders which the agent can write ([`Layer::AgentFolder`], [`Layer::Workspace`]) may only
//! tighten what the layers before them left open. What widens is refused by name, never ignored.
//!
//! | file | its one job |
//! |---|---|
//! | `document` | the keys of a file |
//! | `api` `hosts` `names` `paths` `permission` `program` `publish` `resources` `sockets` `units` | the values of a file, each checked where it is parsed |
//! | `parse` | bytes to a document, with errors that name file, line and key |
//! | `validate` `validate_limits` | what is wrong between values |
//! | `effective` `merge` | the result, and how a document goes into it |
//! | `provenance` | where a value comes from, as types: what a folder chose shows nothing of the host |
//! | `tighten` | what a document from the agent's folder may not ask for |
//! | `change` | limits that change while a sandbox runs |
//! | `environment` | which variables the program gets |
//! | `command_line` | the last layer |
//! | `load` | the only I/O: finds the files and reads them safely |
//! | `schema` `check` `show` | for people and editors |

pub mod api;
mod change;
pub mod check;
pub mod command_line;
pub mod document;
pub mod effective;
pub mod environment;
pub mod hosts;
pub mod layer;
pub mod load;
mod merge;
pub mod names;
pub mod parse;
pub mod paths;
pub mod permission;
pub mod program;
pub mod provenance;
pub mod publish;
pub mod resources;
pub mod schema;
pub mod show;
pub mod sockets;
mod suggest;
mod tighten;
pub mod units;
mod validate;
mod validate_limits;
mod value;

#[cfg(test)]
mod tests;

pub use api::{KeyFile, KeyHeader, Scheme, Upstream};
pub use change::{change, change_network};
pub use check::{Report, check};
pub use command_line::{CommandLine, EnvArgument};
pub use document::Document;
pub use effective::{Effective, Hosts, Permissions};
pub use environment::environment;
pub use hosts::{Destination, HostRule};
pub use layer::{Layer, Setting};
pub use load::{Places, Policy, load};
pub use names::{Adapter, AtTimeout, EnvName, Missing, Network, Part, Profile, Protection, Strength};
pub use paths::{Access, Bind, BindSpec, Home, HostPath, Template, WorkspacePath};
pub use permission::{Modes, PermissionMode, Rule, Ruling};
pub use program::{AgentCommand, IdRange};
pub use provenance::{FromFolder, Provenance, SYSTEM_TREES, Trusted};
pub use publish::Publish;
pub use resources::{Disk, NumberSet, PageSize, Rates};
pub use schema::schema;
pub use units::{Cpus, Size, TimeSpan};
pub use value::BadValue;
