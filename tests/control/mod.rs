//! The control socket of `saggar agent`, as a server that looks after many sandboxes uses it (saggar-control(7)).

mod asking;
mod calls;
pub(crate) mod client;
mod freezing;
mod inside;
mod updating;
mod watching;
