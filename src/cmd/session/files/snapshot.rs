//! `saggar session snapshot` and `restore`: write and read snapshots.

use crate::app::session::{files, snapshot};
use crate::cli::session::files::{SnapshotArgs, SnapshotRestoreArgs};
use crate::cmd::print_text;
use crate::error::Result;
use crate::session::diff::text;
use crate::session::snapshot::{SnapshotLimits, list_snapshots};
use crate::spec::policy::ByteSize;

fn limits(disk: Option<ByteSize>) -> SnapshotLimits {
    let limits = SnapshotLimits::default();
    SnapshotLimits { bytes: disk.map_or(limits.bytes, |disk| disk.bytes()), ..limits }
}

pub(super) fn run(args: &SnapshotArgs) -> Result<u8> {
    if args.list {
        let names = list_snapshots(&files::directory(&args.id)?);
        let names = names.iter().filter_map(|path| path.file_name());
        print_text(&names.map(|name| text::show_name(name) + "\n").collect::<String>())?;
        return Ok(0);
    }
    let (path, summary) = snapshot::take(&args.id, args.output.as_deref(), args.all, limits(args.disk))?;
    for note in &summary.notes {
        crate::log::print_line(&format!("not in the snapshot: {note}"));
    }
    print_text(&format!("{}\n", text::show_path(&path)))?;
    Ok(0)
}

pub(super) fn restore(args: &SnapshotRestoreArgs) -> Result<u8> {
    let contents = snapshot::restore(&args.id, &args.snapshot, limits(args.disk))?;
    print_text(&format!("{} members, {} bytes\n", contents.entries, contents.bytes))?;
    Ok(0)
}
