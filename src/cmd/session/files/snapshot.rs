//! `saggar session snapshot` and `restore`.

use crate::cli::session::files::{RestoreArgs, SnapshotArgs};
use crate::cmd::say;
use crate::error::Result;
use crate::session;
use crate::session::diff::text;
use crate::session::snapshot::{self, Label, Limits};
use crate::session::workspace::Origin;
use crate::spec::policy::Size;

fn limits(disk: Option<Size>) -> Limits {
    let limits = Limits::default();
    Limits { bytes: disk.map_or(limits.bytes, |disk| disk.bytes()), ..limits }
}

pub(super) fn run(args: &SnapshotArgs) -> Result<u8> {
    if args.list {
        let names = snapshot::list(&super::directory(&args.id)?);
        let names = names.iter().filter_map(|path| path.file_name());
        say(&names.map(|name| text::name(name) + "\n").collect::<String>())?;
        return Ok(0);
    }
    let (session, _held) = super::held(&args.id)?;
    let label = Label {
        version: 1,
        session: args.id.clone(),
        place: Origin::load(&session).ok().map(|origin| origin.place),
        agent_session: session::agent_session(&session),
    };
    let (path, summary) =
        snapshot::take(&session, &label, args.output.as_deref(), args.all, limits(args.disk))?;
    for note in &summary.notes {
        crate::log::tell(&format!("not in the snapshot: {note}"));
    }
    say(&format!("{}\n", text::path(&path)))?;
    Ok(0)
}

pub(super) fn restore(args: &RestoreArgs) -> Result<u8> {
    let (session, _held) = super::held(&args.id)?;
    let file = snapshot::find(&session, &args.snapshot)?;
    let contents = snapshot::restore(&session, &file, limits(args.disk))?;
    say(&format!("{} members, {} bytes\n", contents.entries, contents.bytes))?;
    Ok(0)
}
