//! `saggar session list`: lists the caller's sessions.

use super::show::{as_json, reason};
use crate::cli::session::SessionListArgs;
use crate::cmd::{print_raw, print_text};
use crate::error::Result;
use crate::session::record::SessionRecord;
use crate::state;
use crate::text::DisplayEscaped;

pub(super) fn run(args: &SessionListArgs) -> Result<u8> {
    let sessions = state::sessions_path()?;
    let all = match args.ids.is_empty() {
        true => SessionRecord::list()?,
        false => SessionRecord::list_named(&args.ids)?,
    };
    if args.json {
        let line = |record: &SessionRecord| format!("{}\n", as_json(record, &sessions.join(&record.id)));
        print_raw(&all.iter().map(line).collect::<String>())?;
        return Ok(0);
    }
    let width = all.iter().map(|record| record.id.len()).max().unwrap_or(0).max(7);
    let mut text =
        format!("{:<width$}  {:<8}  {:<8}  {:<20}  FOLDER\n", "SESSION", "STATE", "REASON", "CHANGED");
    for record in &all {
        let (reason, changed) = (reason(record).unwrap_or_else(|| "-".into()), seconds(&record.changed));
        let SessionRecord { id, state, folder, .. } = record;
        text += &format!("{id:<width$}  {state:<8}  {reason:<8}  {changed:<20}  {}\n", folder.escaped());
    }
    print_text(&text)?;
    Ok(0)
}

/// Returns a time without the fraction of the second.
fn seconds(time: &str) -> String {
    time.split_once('.').map_or_else(|| time.to_owned(), |(seconds, _)| format!("{seconds}Z"))
}
