//! `saggar remote files`: files of the workspace of a session.

use super::{json_line, list, shown};
use crate::cli::remote::{RemoteFileArgs, RemoteFilesCommand};
use crate::cmd::{lock_stdout, print_raw, print_text};
use crate::error::{Code, Error, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use saggar_remote::Connection;
use serde_json::{Value, json};
use std::io::Read;

/// Maximum size of a file that is written, in bytes (saggar-server(8), Files).
const MAX_SIZE: usize = 50 << 20;

pub(super) fn run(server: &Connection, command: &RemoteFilesCommand) -> Result<u8> {
    match command {
        RemoteFilesCommand::List(args) => {
            let answer = server.get(&["api", "sessions", &args.id, "files"], &[])?;
            let files = list(&answer, "files");
            let line = |file: &Value| {
                format!(
                    "{:>12}  {}  {}\n",
                    file["size"].to_string(),
                    shown(file, "modifiedAt"),
                    shown(file, "path")
                )
            };
            match args.json {
                true => print_raw(&files.iter().map(json_line).collect::<String>())?,
                false => print_text(&files.iter().map(line).collect::<String>())?,
            }
        }
        RemoteFilesCommand::Read(args) => server.download(&path(args), &[], lock_stdout()?)?,
        RemoteFilesCommand::Write(args) => write(server, args)?,
        RemoteFilesCommand::Remove(args) => drop(server.delete(&path(args))?),
    }
    Ok(0)
}

fn path(args: &RemoteFileArgs) -> Vec<&str> {
    let mut path = vec!["api", "sessions", &args.id, "files"];
    // Each name is a segment of its own.
    path.extend(args.path.split('/'));
    path
}

fn write(server: &Connection, args: &RemoteFileArgs) -> Result<()> {
    let mut content = Vec::new();
    let limit = u64::try_from(MAX_SIZE + 1).unwrap_or(u64::MAX);
    let read = std::io::stdin().lock().take(limit).read_to_end(&mut content);
    read.map_err(|error| Error::system("read standard input", error))?;
    if content.len() > MAX_SIZE {
        return Err(Error::new(
            Code::Invalid,
            "standard input has more than 50 MiB, the largest file that is written",
        ));
    }
    let file = json!({ "path": args.path, "content": STANDARD.encode(content) });
    let answer = server.post(&["api", "sessions", &args.id, "files"], &json!({ "files": [file] }))?;
    let result = &answer["files"][0];
    match result["written"] == true {
        true => Ok(()),
        false => {
            let reason = result["error"].as_str().unwrap_or("the server did not write it");
            Err(Error::new(Code::Invalid, format!("cannot write {}: {reason}", args.path)))
        }
    }
}
