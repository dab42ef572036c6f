//! The network of a sandbox by policy: nothing, or exactly what was named.
//!
//! | module | what it is |
//! |---|---|
//! | [`dns`] | messages of the resolver that programs inside see, and of the one that we ask (pure) |
//! | [`sniff`] | the name in the first bytes of a connection (pure) |
//! | [`socks`] [`connect`] | what clients of an explicit proxy say, and what they are told (pure) |
//! | [`names`] | the addresses that stand for names inside (pure) |
//! | [`address`] | which addresses may be dialled (pure) |
//! | [`hosts`] | resolv.conf(5) and hosts(5) (pure) |
//! | [`io`] | the sockets: who calls is heard, judged and relayed |

pub mod address;
mod authority;
pub mod connect;
pub mod dns;
mod head;
pub mod hosts;
pub mod io;
pub mod names;
pub mod sniff;
pub mod socks;
