//! `saggar session`: sessions that outlive their creator, seen from outside and by the kernel's account.

mod apart;
mod cold;
mod events;
mod exec;
mod files;
mod from;
mod hidden;
mod hidden_processes;
mod killed;
mod life;
mod limits;
mod logs;
mod many;
mod names;
mod prune;
mod snapshot;
pub(crate) mod stage;
mod unnamed;
mod walk;
mod workspace_files;
mod worktrees;
