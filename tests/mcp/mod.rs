//! Sessions as tools of an agent or an editor outside: `saggar mcp control` (saggar-mcp(1)).

mod apply;
mod clients;
mod policy;
mod rights;
mod stage;
mod tools;
