//! `saggar session diff`: prints a session's changes.

use crate::app::session::files;
use crate::cli::session::files::DiffArgs;
use crate::cmd::{print_raw, print_text};
use crate::error::Result;
use crate::session::diff::FileChange;
use crate::session::workspace_origin::WorkspaceOrigin;
use crate::session::{select, tree_workers};
use crate::sys::file_worker::WorkerOutput;
use serde_json::{Value, json};

pub(super) fn run(args: &DiffArgs) -> Result<u8> {
    if !args.json {
        return files::diff_as_text(&args.id, &args.paths, args.patch, print_text).map(|()| 0);
    }
    let paths = select::relative_paths(&args.paths)?;
    let session = files::directory(&args.id)?;
    let trees = files::open_trees(&session)?;
    let origin = WorkspaceOrigin::load(&session)?;
    let as_json = |changes: &[FileChange], _: &WorkerOutput| {
        Ok(changes.iter().map(FileChange::to_json).collect::<Vec<Value>>())
    };
    let changes = match &trees {
        Some(trees) => tree_workers::diff_in_worker(trees, &paths, as_json, |_| Ok(()))?,
        None => Vec::new(),
    };
    let report = json!({
        "version": 1, "session": args.id, "folder": origin.folder.to_string_lossy(), "place": origin.storage, "changes": changes,
    });
    print_raw(&format!("{report:#}\n"))?;
    Ok(0)
}
