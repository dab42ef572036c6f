//! `saggar remote deploy` and `saggar remote agent`.

use super::{json_line, list, shown};
use crate::cli::remote::{DeployArgs, RemoteAgentCommand};
use crate::cmd::{print_notices, print_raw, print_text};
use crate::error::{Code, Error, Result};
use saggar_remote::{Connection, agent_folder};
use serde_json::{Value, json};

pub(super) fn deploy(server: &Connection, args: DeployArgs) -> Result<u8> {
    let name = match args.name {
        Some(name) => name,
        None => folder_name(&args.dir)?,
    };
    let folder = agent_folder::read_folder(&args.dir)?;
    print_notices(&folder.skipped.iter().map(|path| format!("not deployed: {path}")).collect::<Vec<_>>());
    let mut body = json!({ "name": name, "files": folder.files });
    let variables = super::variables(args.env);
    if !variables.is_empty() {
        body["env"] = variables.into();
    }
    let agent = &server.post(&["api", "agents"], &body)?["agent"];
    if args.json {
        print_raw(&json_line(agent))?;
    } else {
        print_text(&format!("deployed {}, version {}\n", shown(agent, "name"), agent["version"]))?;
    }
    Ok(0)
}

/// The name of a folder, as that of an agent.
fn folder_name(folder: &std::path::Path) -> Result<String> {
    let absolute = folder
        .canonicalize()
        .map_err(|error| Error::system(format_args!("find {}", folder.display()), error))?;
    let name = absolute.file_name().and_then(|name| name.to_str()).map(str::to_owned);
    name.ok_or_else(|| {
        Error::new(Code::Usage, "the folder has no name for an agent").hint("set one by --name")
    })
}

pub(super) fn run(server: &Connection, command: &RemoteAgentCommand) -> Result<u8> {
    match command {
        RemoteAgentCommand::List(args) => {
            let answer = server.get(&["api", "agents"], &[])?;
            let agents = list(&answer, "agents");
            match args.json {
                true => print_raw(&agents.iter().map(json_line).collect::<String>())?,
                false => print_text(&table(agents))?,
            }
        }
        RemoteAgentCommand::Show(args) => {
            print_raw(&json_line(&server.get(&["api", "agents", &args.name], &[])?["agent"]))?;
        }
        RemoteAgentCommand::Delete(args) => drop(server.delete(&["api", "agents", &args.name])?),
    }
    Ok(0)
}

fn table(agents: &[Value]) -> String {
    let width = agents.iter().map(|agent| shown(agent, "name").len()).max().unwrap_or(0).max(5);
    let mut lines = format!("{:<width$}  {:<7}  DEPLOYED\n", "AGENT", "VERSION");
    for agent in agents {
        let (name, deployed) = (shown(agent, "name"), shown(agent, "updatedAt"));
        lines += &format!("{name:<width$}  {:<7}  {deployed}\n", agent["version"].to_string());
    }
    lines
}
