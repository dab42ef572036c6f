//! The mailbox through which AI agents in separate sandboxes exchange messages.
//!
//! A mailbox is an append-only file of one run, with one JSON message a line (seed 001). The crate has no sandbox, no
//! clock, no threads and no asynchronous code; `saggar pair`, `saggar mcp` and the server are its shells.
//!
//! | module | what it is |
//! |---|---|
//! | [`message`] | messages, their ids, their lines of JSON and what is valid; pure |
//! | [`member`] | members of a run and what they may send; pure |
//! | [`pair`] | the loop of a worker and a reviewer: messages in, effects out; pure |
//! | [`store`] | the trait of a store of messages, pages and statistics |
//! | [`file_store`] | the store on disk |
//! | [`runs`] | the directories of runs, and the record of each |
//! | [`mailbox`] | sending and receiving as a member: the rules of roles, on any store |

#![cfg_attr(not(test), warn(clippy::indexing_slicing), deny(clippy::disallowed_methods))]

pub mod error;
pub mod file_store;
pub mod mailbox;
pub mod member;
pub mod message;
pub mod pair;
pub mod runs;
pub mod store;

mod directory;
mod hash;
mod lock;

pub use error::{Error, ErrorKind, Result};
pub use file_store::{FileStore, Limits};
pub use mailbox::Mailbox;
pub use member::{Member, Roles};
pub use message::{Draft, Message, MessageType, Signal};
pub use store::{Appended, Page, Position, Statistics, Store};
