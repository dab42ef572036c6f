//! Holds a conversation with an agent through the socket of its bridge: one turn for each argument.
//!
//! ```sh
//! saggar agent examples/hello --bridge-socket $HOME/hello.sock &
//! cargo run -p saggar-bridge --example conversation -- $HOME/hello.sock "hi" "run: id"
//! ```
#![allow(clippy::print_stdout, reason = "it prints the conversation")]

use saggar_bridge::client::{BridgeClient, ClientCommand, EventBody};
use saggar_sys::error::{Code, Error, Result};
use serde_json::Value;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let usage = || Error::new(Code::Usage, "usage: conversation SOCKET PROMPT...");
    let mut client = BridgeClient::connect(arguments.next().ok_or_else(usage)?.as_ref())?;
    for prompt in arguments {
        println!("> {prompt}");
        let end = client.run(&ClientCommand::query(prompt, "conversation"), |event| {
            let message: Value = serde_json::from_str(event.message().unwrap_or("null")).unwrap_or_default();
            if message["type"] == "result" {
                println!("{}", message["result"].as_str().unwrap_or_default());
            }
            Ok(())
        })?;
        if let EventBody::Error(why) = end.body() {
            return Err(Error::new(Code::State, why.clone()));
        }
    }
    Ok(())
}
