//! A client of the HTTP API of saggar-server (saggar-server(8)), for `saggar remote`.
//!
//! | module | what it is |
//! |---|---|
//! | [`address`] | the address of a server |
//! | [`login`] | the server and the key that a user has saved |
//! | [`connection`] | requests and their responses |
//! | [`sse`] | the parser of server-sent events |
//! | [`event_stream`] | the events of a turn or of a session, across lost connections |
//! | [`agent_folder`] | the files of a folder that is deployed |
//!
//! It blocks, and starts no thread.

pub mod address;
pub mod agent_folder;
pub mod connection;
pub mod event_stream;
pub mod login;
mod response_error;
pub mod sse;

pub use address::ServerAddress;
pub use connection::{Connection, Query};
pub use login::{ApiKey, Login};
