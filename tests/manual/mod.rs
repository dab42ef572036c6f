//! The manual says what the program does: every option, key, word of the wire and status stands in its page,
//! and no page speaks of one that is not there.
//!
//! The program's side is never copied here: options come from clap, keys from the schema, and lists of words
//! from a `match` that does not compile when a new one is left out.

mod bridge;
mod citations;
mod command;
mod control;
mod names;
mod page;
mod policy;
mod promises;
mod status;
mod system_calls;
mod words;
