//! The bridge through the built `saggar agent` and its socket, with agents that are scripts: what a server
//! may rely on, whatever the agent and other servers do.

mod adapter;
mod asking;
mod client;
mod commands;
mod death;
mod end;
mod exec;
mod idle_agent;
mod interrupt;
mod killed;
mod last_words;
mod leaves;
mod lines;
mod overrides;
mod pressure;
mod prompt;
mod prompt_sources;
mod ready;
mod replay;
mod replay_killed;
mod scripts;
mod second;
pub(crate) mod served;
mod server_child;
mod session;
mod socket;
