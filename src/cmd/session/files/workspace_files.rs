//! `saggar session files`: list, show, read, write and remove files of the workspace.

use crate::app::session::workspace_files::{self, WorkspaceEntry};
use crate::cli::session::files::{FilesListArgs, WorkspaceFilesCommand};
use crate::cmd::{lock_stdout, print_raw, print_text};
use crate::error::Result;
use crate::session::diff::text;
use serde_json::json;
use std::path::Path;

pub(super) fn run(command: &WorkspaceFilesCommand) -> Result<u8> {
    match command {
        WorkspaceFilesCommand::List(args) => list(args)?,
        WorkspaceFilesCommand::Show(args) => {
            let (size, mtime) = workspace_files::show(&args.id, &args.path)?;
            print_raw(&format!("{}\n", json!({ "size": size, "mtime": mtime })))?;
        }
        WorkspaceFilesCommand::Read(args) => {
            workspace_files::read(&args.id, &args.path, lock_stdout()?)?;
        }
        WorkspaceFilesCommand::Write(args) => {
            workspace_files::write(&args.id, &args.path, std::io::stdin().lock())?;
        }
        WorkspaceFilesCommand::Remove(args) => {
            workspace_files::remove(&args.id, &args.path, args.recursive)?;
        }
    }
    Ok(0)
}

fn list(args: &FilesListArgs) -> Result<()> {
    workspace_files::list(&args.id, &args.path, &args.exclude, |entry| match args.json {
        true => {
            let WorkspaceEntry { name, kind, size, mode, mtime } = entry;
            let line = json!({ "name": name, "kind": kind, "size": size, "mode": mode, "mtime": mtime });
            print_raw(&format!("{line}\n"))
        }
        false => {
            let suffix = if entry.kind == "directory" { "/" } else { "" };
            print_text(&format!("{}{suffix}\n", text::show_path(Path::new(&entry.name))))
        }
    })
}
