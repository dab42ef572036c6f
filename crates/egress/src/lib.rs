//! The network access of a sandbox, by policy: none, or exactly the named hosts; and the model API, whose key a sandbox
//! never has.
//!
//! The supervisor of a sandbox runs it, in processes with few rights: a relay, its helper for descriptors, the API
//! process. The crate makes no sandbox and no namespace, and knows a sandbox by its sockets alone.
//!
//! | module | contents |
//! |---|---|
//! | [`dns`] | messages of the name server in the sandbox and of the resolvers of the host (pure) |
//! | [`sniff`] | the name in the first bytes of a connection (pure) |
//! | [`request_body`] | the end of an HTTP request, after which another one may follow (pure) |
//! | [`socks`] [`http_proxy`] | requests of proxy clients, and the replies (pure) |
//! | [`stand_in_table`] | the stand-in addresses of names in the sandbox (pure) |
//! | [`address`] | classes of addresses that may be connected to (pure) |
//! | [`resolver_files`] | resolv.conf(5) and hosts(5) (pure) |
//! | [`io`] | sockets: accepts, checks and relays connections |
//! | [`relay`] | the process that relays, and its helper, which finds the program of a socket |
//! | [`api`] | the process that passes requests to the model API, with the key |
//! | [`service`] | how a process that serves sockets of a sandbox starts, and its messages to the supervisor |

#![forbid(unsafe_code)]

pub mod address;
pub mod api;
mod authority;
pub mod dns;
pub mod http_proxy;
pub mod io;
pub mod relay;
pub mod request_body;
mod request_head;
pub mod resolver_files;
pub mod service;
pub mod sniff;
pub mod socks;
pub mod stand_in_table;
