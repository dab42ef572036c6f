//! `saggar remote session`.

use super::turn::{self, TurnFormat};
use super::{id, json_line, list, shown};
use crate::cli::remote::{
    RemoteCreateArgs, RemoteDiffArgs, RemoteListArgs, RemotePathsArgs, RemoteSessionCommand,
};
use crate::cmd::{print_raw, print_text, prompt};
use crate::error::{Error, Result};
use saggar_remote::Connection;
use serde_json::{Value, json};
use std::sync::Arc;

/// Number of sessions in one answer of the server.
const PAGE: usize = 1000;

pub(super) fn run(server: Connection, command: RemoteSessionCommand) -> Result<u8> {
    let change = |id: &str, what: &str| server.post(&path(id, what), &json!({})).map(|_| 0);
    match command {
        RemoteSessionCommand::Create(args) => {
            let json = args.json;
            let session = create(&server, args)?;
            match json {
                true => print_raw(&json_line(&session))?,
                false => print_text(&format!("{}\n", id(&session, "id")?))?,
            }
            Ok(0)
        }
        RemoteSessionCommand::List(args) => list_sessions(&server, &args),
        RemoteSessionCommand::Show(args) => {
            let answer = server.get(&["api", "sessions", &args.id], &[])?;
            print_raw(&json_line(&answer["session"]))?;
            Ok(0)
        }
        RemoteSessionCommand::Send(args) => {
            let prompt = prompt::read_required(args.prompt, args.prompt_file.as_deref())?;
            turn::send(&Arc::new(server), &args.id, &prompt, TurnFormat::of(args.json))
        }
        RemoteSessionCommand::Follow(args) => turn::follow(&server, &args.id, args.after),
        RemoteSessionCommand::Interrupt(args) => change(&args.id, "interrupt"),
        RemoteSessionCommand::Pause(args) => change(&args.id, "pause"),
        RemoteSessionCommand::Resume(args) => change(&args.id, "resume"),
        RemoteSessionCommand::Stop(args) => change(&args.id, "stop"),
        RemoteSessionCommand::End(args) => server.delete(&["api", "sessions", &args.id]).map(|_| 0),
        RemoteSessionCommand::Fork(args) => {
            let answer = server.post(&path(&args.id, "fork"), &json!({}))?;
            print_text(&format!("{}\n", id(&answer["session"], "id")?))?;
            Ok(0)
        }
        RemoteSessionCommand::Logs(args) => {
            let answer = server.get(&path(&args.id, "logs"), &[])?;
            let entries = list(&answer, "logs");
            let line = |entry: &Value| {
                format!("{} {:<6} {}\n", shown(entry, "ts"), shown(entry, "level"), shown(entry, "text"))
            };
            print_text(&entries.iter().map(line).collect::<String>())?;
            Ok(0)
        }
        RemoteSessionCommand::Diff(args) => diff(&server, &args),
        RemoteSessionCommand::Apply(args) => change_paths(&server, "apply", &args),
        RemoteSessionCommand::Discard(args) => change_paths(&server, "discard", &args),
    }
}

fn path<'a>(id: &'a str, what: &'a str) -> [&'a str; 4] {
    ["api", "sessions", id, what]
}

/// Creates a session; returns it.
pub(super) fn create(server: &Connection, args: RemoteCreateArgs) -> Result<Value> {
    let mut body = json!({ "agent": args.agent });
    let fields =
        [("model", args.model), ("credentialId", args.credential), ("fromSnapshot", args.from_snapshot)];
    for (name, value) in fields {
        if let Some(value) = value {
            body[name] = value.into();
        }
    }
    if let Some(file) = args.system_prompt_file {
        let prompt = std::fs::read_to_string(&file)
            .map_err(|error| Error::system(format_args!("read {}", file.display()), error))?;
        body["systemPrompt"] = prompt.into();
    }
    let variables = super::variables(args.env);
    if !variables.is_empty() {
        body["extraEnv"] = variables.into();
    }
    Ok(server.post(&["api", "sessions"], &body)?["session"].take())
}

fn list_sessions(server: &Connection, args: &RemoteListArgs) -> Result<u8> {
    let limit = PAGE.to_string();
    for first in (0..).step_by(PAGE) {
        let offset = first.to_string();
        let mut query = vec![("limit", limit.as_str()), ("offset", &offset)];
        query.extend(args.agent.as_deref().map(|agent| ("agent", agent)));
        query.extend(args.status.as_deref().map(|status| ("status", status)));
        let answer = server.get(&["api", "sessions"], &query)?;
        let sessions = list(&answer, "sessions");
        match args.json {
            true => print_raw(&sessions.iter().map(json_line).collect::<String>())?,
            false => {
                let header = format!("{:<36}  {:<8}  {:<24}  AGENT\n", "SESSION", "STATUS", "LAST ACTIVE");
                let rows: String = sessions.iter().map(row).collect();
                print_text(&(if first == 0 { header } else { String::new() } + &rows))?;
            }
        }
        if sessions.len() < PAGE {
            break;
        }
    }
    Ok(0)
}

fn row(session: &Value) -> String {
    let [id, status, active, agent] =
        ["id", "status", "lastActiveAt", "agentName"].map(|field| shown(session, field));
    format!("{id:<36}  {status:<8}  {active:<24}  {agent}\n")
}

fn diff(server: &Connection, args: &RemoteDiffArgs) -> Result<u8> {
    let mut content = Vec::new();
    if args.patch {
        server.download(&path(&args.id, "diff"), &[("format", "patch")], &mut content)?;
        print_text(&String::from_utf8_lossy(&content))?;
        return Ok(0);
    }
    let answer = server.get(&path(&args.id, "diff"), &[])?;
    let changes = list(&answer, "files");
    match changes.is_empty() {
        true => print_text("nothing has changed\n")?,
        false => print_text(&changes.iter().map(change_line).collect::<String>())?,
    }
    Ok(0)
}

/// `M src/main.rs [conflict: …]`, as `saggar session diff`.
fn change_line(change: &Value) -> String {
    let letter = match &*shown(change, "change") {
        "added" => 'A',
        "deleted" => 'D',
        _ => 'M',
    };
    let mut line = format!("{letter} {}", shown(change, "path"));
    let reasons =
        [("refused", "refused"), ("protected", "protected"), ("link", "leadsOut"), ("conflict", "conflict")];
    for (word, field) in reasons {
        let reason = shown(change, field);
        if !reason.is_empty() {
            line += &format!(" [{word}: {reason}]");
        }
    }
    line + "\n"
}

fn change_paths(server: &Connection, what: &str, args: &RemotePathsArgs) -> Result<u8> {
    let body = match args.paths.is_empty() {
        true => json!({}),
        false => json!({ "paths": args.paths }),
    };
    server.post(&path(&args.id, what), &body)?;
    Ok(0)
}
