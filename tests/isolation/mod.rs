//! The walls of the default sandbox, felt from inside `saggar wrap`, as root and as an ordinary user.
//!
//! [`wrapped`] starts programs in it; [`probe`] is a C program that tries what must not work. Every table of
//! answers says what the kernel answered, not only that something failed: a wall that is gone answers
//! differently.

mod capabilities;
mod cgroup_parent;
mod container_profile;
mod cve;
mod descriptors;
mod disk;
mod environment;
mod executable;
mod exit;
mod files;
mod git;
mod group_only;
mod hidden;
mod image;
mod inheritance;
mod init;
mod kernel;
mod limit_reports;
mod modes;
mod named_streams;
mod network;
mod options;
mod owners;
mod patterns;
mod policy;
mod privileges;
mod probe;
mod repositories;
mod resources;
mod runtime_directory;
mod second_view;
mod set_group_id;
mod signals;
mod streams;
mod terminal;
mod without_cgroup;
mod works;
mod workspace;
pub(crate) mod wrapped;
