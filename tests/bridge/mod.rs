//! The bridge through the built `saggar agent` and its socket, with agents that are scripts: what a server
//! may rely on, whatever the agent and other servers do.

mod adapter;
mod commands;
mod death;
mod end;
mod exec;
mod interrupt;
mod killed;
mod lines;
mod pressure;
mod prompt;
mod ready;
mod served;
mod session;
mod socket;
