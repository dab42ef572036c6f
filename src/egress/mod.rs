//! The network of a sandbox by policy: nothing, or exactly what was named.
//!
//! | module | what it is |
//! |---|---|
//! | [`names`] | the addresses that stand for names inside (pure) |
//! | [`address`] | which addresses may be dialled (pure) |
//! | [`hosts`] | resolv.conf(5) and hosts(5) (pure) |

pub mod address;
pub mod hosts;
pub mod names;
