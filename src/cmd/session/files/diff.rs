//! `saggar session diff`.

use crate::cli::session::files::DiffArgs;
use crate::cmd::say;
use crate::error::Result;
use crate::session::choose;
use crate::session::diff::patch;
use crate::session::workspace::Origin;
use serde_json::{Value, json};

pub(super) fn run(args: &DiffArgs) -> Result<u8> {
    let paths = choose::relative(&args.paths)?;
    let session = super::directory(&args.id)?;
    let found = super::differences(&session)?;
    let (trees, changes) = match found {
        Some((trees, changes)) => (Some(trees), choose::chosen(changes, &paths)?),
        None => (None, Vec::new()),
    };
    if args.json {
        let origin = Origin::load(&session)?;
        let changes: Vec<Value> = changes.iter().map(|change| change.json()).collect();
        let report = json!({
            "version": 1, "session": args.id, "folder": origin.folder, "place": origin.place, "changes": changes,
        });
        say(&format!("{report:#}\n"))?;
        return Ok(0);
    }
    let mut shown = String::new();
    for change in &changes {
        shown.push_str(&change.line());
        shown.push('\n');
        if let Some(trees) = trees.as_ref().filter(|_| args.patch) {
            shown.push_str(&patch::of(change, trees));
        }
        // Not all at once: patches can be long.
        if shown.len() > 1 << 16 {
            say(&std::mem::take(&mut shown))?;
        }
    }
    say(&shown)?;
    Ok(0)
}
