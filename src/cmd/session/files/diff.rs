//! `saggar session diff`: prints a session's changes.

use crate::app::session::files;
use crate::cli::session::files::DiffArgs;
use crate::cmd::{print_raw, print_text};
use crate::error::Result;
use crate::session::diff::{FileChange, WorkspaceTrees, patch};
use crate::session::worker::WorkerOutput;
use crate::session::workspace_origin::WorkspaceOrigin;
use crate::session::{select, tree_workers};
use serde_json::{Value, json};

/// Size of the text to write at a time, in bytes.
const CHUNK: usize = 1 << 16;

pub(super) fn run(args: &DiffArgs) -> Result<u8> {
    let paths = select::relative_paths(&args.paths)?;
    let session = files::directory(&args.id)?;
    let trees = files::open_trees(&session)?;
    if args.json {
        let origin = WorkspaceOrigin::load(&session)?;
        let as_json = |changes: &[FileChange], _: &WorkerOutput| {
            Ok(changes.iter().map(FileChange::to_json).collect::<Vec<Value>>())
        };
        let changes = match &trees {
            Some(trees) => tree_workers::diff_in_worker(trees, &paths, as_json, |_| Ok(()))?,
            None => Vec::new(),
        };
        let report = json!({
            "version": 1, "session": args.id, "folder": origin.folder, "place": origin.storage, "changes": changes,
        });
        print_raw(&format!("{report:#}\n"))?;
    } else if let Some(trees) = &trees {
        tree_workers::diff_in_worker(
            trees,
            &paths,
            |changes, output| as_text(changes, trees, args.patch, output),
            print_text,
        )?;
    }
    Ok(0)
}

fn as_text(
    changes: &[FileChange],
    trees: &WorkspaceTrees,
    patches: bool,
    output: &WorkerOutput,
) -> Result<()> {
    let mut shown = String::new();
    for change in changes {
        shown.push_str(&change.to_line());
        shown.push('\n');
        if patches {
            shown.push_str(&patch::unified_diff(change, trees));
        }
        // Written in parts, because patches can be long.
        if shown.len() > CHUNK {
            output.write(&std::mem::take(&mut shown))?;
        }
    }
    output.write(&shown)
}
