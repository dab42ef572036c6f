//! `saggar session snapshot` and `restore`: write and read snapshots.

use crate::app::session::snapshot::{self, SnapshotRequest};
use crate::cli::session::files::{SnapshotArgs, SnapshotRestoreArgs};
use crate::cmd::print_text;
use crate::error::Result;
use crate::session::diff::text;
use crate::session::snapshot::SnapshotLimits;
use crate::spec::policy::ByteSize;

fn limits(disk: ByteSize) -> SnapshotLimits {
    SnapshotLimits { bytes: disk.bytes(), ..SnapshotLimits::default() }
}

pub(super) fn run(args: &SnapshotArgs) -> Result<u8> {
    if args.list {
        let names = snapshot::list(&args.id)?;
        let names = names.iter().filter_map(|path| path.file_name());
        print_text(&names.map(|name| text::show_name(name) + "\n").collect::<String>())?;
        return Ok(0);
    }
    if let Some(name) = &args.remove {
        snapshot::remove(&args.id, name)?;
        return Ok(0);
    }
    let request =
        SnapshotRequest { output: args.output.as_deref(), all: args.all, limits: args.disk.map(limits) };
    let (path, summary) = snapshot::take(&args.id, &request)?;
    for note in &summary.notes {
        crate::log::print_line(&format!("not in the snapshot: {note}"));
    }
    print_text(&format!("{}\n", text::show_path(&path)))?;
    Ok(0)
}

pub(super) fn restore(args: &SnapshotRestoreArgs) -> Result<u8> {
    let contents = snapshot::restore(&args.id, &args.snapshot, args.disk.map(limits).unwrap_or_default())?;
    print_text(&format!("{} members, {} bytes\n", contents.entries, contents.bytes))?;
    Ok(0)
}
