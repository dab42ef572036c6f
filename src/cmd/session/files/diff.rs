//! `saggar session diff`.

use crate::cli::session::files::DiffArgs;
use crate::cmd::{say, say_exactly};
use crate::error::Result;
use crate::session::diff::{Change, Trees, patch};
use crate::session::worker::Output;
use crate::session::workspace::Origin;
use crate::session::{choose, trees};
use serde_json::{Value, json};

/// How much text is passed on at once.
const PIECE: usize = 1 << 16;

pub(super) fn run(args: &DiffArgs) -> Result<u8> {
    let paths = choose::relative(&args.paths)?;
    let session = super::directory(&args.id)?;
    let trees = super::trees(&session)?;
    if args.json {
        let origin = Origin::load(&session)?;
        let as_json =
            |changes: &[Change], _: &Output| Ok(changes.iter().map(Change::json).collect::<Vec<Value>>());
        let changes = match &trees {
            Some(trees) => trees::diff(trees, &paths, as_json, |_| Ok(()))?,
            None => Vec::new(),
        };
        let report = json!({
            "version": 1, "session": args.id, "folder": origin.folder, "place": origin.place, "changes": changes,
        });
        say_exactly(&format!("{report:#}\n"))?;
    } else if let Some(trees) = &trees {
        trees::diff(trees, &paths, |changes, output| as_text(changes, trees, args.patch, output), say)?;
    }
    Ok(0)
}

fn as_text(changes: &[Change], trees: &Trees, patches: bool, output: &Output) -> Result<()> {
    let mut shown = String::new();
    for change in changes {
        shown.push_str(&change.line());
        shown.push('\n');
        if patches {
            shown.push_str(&patch::of(change, trees));
        }
        // Not all at once: patches can be long.
        if shown.len() > PIECE {
            output.write(&std::mem::take(&mut shown))?;
        }
    }
    output.write(&shown)
}
