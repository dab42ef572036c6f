//! `saggar session list`.

use super::show::{as_json, reason};
use crate::cli::session::ListArgs;
use crate::cmd::{say, say_exactly};
use crate::error::Result;
use crate::session::record::Record;
use crate::state;
use crate::text::Show;

pub(super) fn run(args: &ListArgs) -> Result<u8> {
    let sessions = state::sessions_path()?;
    let all = Record::all()?;
    if args.json {
        let line = |record: &Record| format!("{}\n", as_json(record, &sessions.join(&record.id)));
        say_exactly(&all.iter().map(line).collect::<String>())?;
        return Ok(0);
    }
    let width = all.iter().map(|record| record.id.len()).max().unwrap_or(0).max(7);
    let mut text =
        format!("{:<width$}  {:<8}  {:<8}  {:<20}  FOLDER\n", "SESSION", "STATE", "REASON", "CHANGED");
    for record in &all {
        let (reason, changed) = (reason(record).unwrap_or_else(|| "-".into()), seconds(&record.changed));
        let Record { id, state, folder, .. } = record;
        text += &format!("{id:<width$}  {state:<8}  {reason:<8}  {changed:<20}  {}\n", folder.shown());
    }
    say(&text)?;
    Ok(0)
}

/// A time without its fraction.
fn seconds(time: &str) -> String {
    time.split_once('.').map_or_else(|| time.to_owned(), |(seconds, _)| format!("{seconds}Z"))
}
