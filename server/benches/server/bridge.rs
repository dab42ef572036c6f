//! Turns on the socket of a bridge, without the server.

use saggar_bridge::client::{BridgeClient, ClientCommand, EventBody};
use std::path::Path;
use std::time::{Duration, Instant};

/// Runs one turn on a connection of its own. Returns the time from its begin to the first event, which is a message.
pub(crate) fn run_turn(socket: &Path, session: &str) -> Duration {
    let start = Instant::now();
    let mut client = BridgeClient::connect(socket).expect("the bridge listens");
    client.send(&ClientCommand::query("hi", session).with_id(1)).expect("the bridge takes commands");
    let mut first = None;
    loop {
        let event = client.receive().expect("the bridge answers").expect("the turn ends");
        let first = *first.get_or_insert_with(|| start.elapsed());
        match event.body() {
            EventBody::Done(_) => return first,
            EventBody::Error(error) => panic!("the turn fails: {error}"),
            _ => {}
        }
    }
}
