//! A mock of the Anthropic Messages API, so that a real agent can be driven without a network or an account.
//!
//! ```text
//! agent ── HTTP/1.1 on a unix socket or loopback ──> server ──> script: what the prompt asks for ──> reply
//!                                                      └──> record: every request, for the test to look at
//! ```
//!
//! A prompt says what the model shall do (`script`): `mock:say WORDS`, `mock:stream`, `mock:run COMMAND`,
//! `mock:write PATH TEXT`. The result of a tool is answered with its text.

mod http;
mod record;
mod reply;
mod script;
mod server;

mod tests;

pub(crate) use server::MockApi;
