//! `saggar remote chat`: a conversation, one message per line of standard input.

use super::interrupt::InterruptWatch;
use super::turn::{self, TurnFormat};
use super::{id, sessions};
use crate::cli::remote::{ChatArgs, RemoteCreateArgs};
use crate::cmd::print_notices;
use crate::error::{Code, Error, Result};
use saggar_remote::Connection;
use std::io::{IsTerminal, Write};
use std::sync::Arc;

/// Ends the conversation.
const EXIT_COMMAND: &str = "/exit";

pub(super) fn run(server: Connection, args: ChatArgs) -> Result<u8> {
    let session = match (args.id, args.agent) {
        (Some(id), _) => id,
        (None, Some(agent)) => id(&sessions::create(&server, RemoteCreateArgs::of(agent))?, "id")?.to_owned(),
        (None, None) => return Err(Error::new(Code::Usage, "name a session, or an agent by --agent")),
    };
    let server = Arc::new(server);
    let watch = InterruptWatch::start(Arc::clone(&server), session.clone())?;
    let is_terminal = std::io::stdin().is_terminal();
    print_notices(&[format!("session {session}; {EXIT_COMMAND} ends the conversation")]);
    let mut status = 0;
    loop {
        if is_terminal {
            write_stderr("> ");
        }
        let mut line = String::new();
        let count = std::io::stdin().read_line(&mut line);
        if count.map_err(|error| Error::system("read standard input", error))? == 0 {
            break;
        }
        match line.trim() {
            "" => {}
            EXIT_COMMAND => break,
            prompt => status = turn::run(&server, &session, prompt, TurnFormat::Text, &watch)?,
        }
    }
    if is_terminal {
        print_notices(&[format!("the session continues: saggar remote chat {session}")]);
    }
    Ok(status)
}

/// Writes to standard error. Errors are ignored: it may be closed.
fn write_stderr(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}
