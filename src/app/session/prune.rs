//! Removes sessions that are no longer needed.

use super::remove::remove;
use crate::error::{Code, Result};
use crate::session::record::SessionRecord;
use crate::session::session_state::SessionState;
use jiff::Timestamp;
use std::time::Duration;

/// Which sessions to remove. None that is served is among them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PruneSelection {
    /// Their states.
    pub states: Vec<SessionState>,
    /// How long ago the state changed last, at least.
    pub older_than: Duration,
    /// How many of them remain: those that changed last.
    pub keep: usize,
}

/// What becomes of a selected session.
#[derive(Debug)]
pub struct PrunedSession {
    /// The session.
    pub record: SessionRecord,
    /// Whether it was removed; `Ok` without a removal.
    pub outcome: Result<()>,
}

/// Removes the selected sessions, or finds them only, in the order of their last changes. A session that cannot be
/// removed leaves the others alone.
///
/// # Errors
/// [`Code::System`] if the sessions cannot be listed.
pub fn prune(selection: &PruneSelection, removes: bool) -> Result<Vec<PrunedSession>> {
    let selected = select(SessionRecord::list()?, selection, Timestamp::now());
    let outcome = |record: &SessionRecord| match removes.then(|| remove(&record.id, false)) {
        // Another command has removed it.
        Some(Err(error)) if error.code() == Code::NotFound => Ok(()),
        outcome => outcome.unwrap_or(Ok(())),
    };
    Ok(selected.into_iter().map(|record| PrunedSession { outcome: outcome(&record), record }).collect())
}

fn select(all: Vec<SessionRecord>, selection: &PruneSelection, now: Timestamp) -> Vec<SessionRecord> {
    let PruneSelection { states, older_than, keep } = selection;
    // A time that cannot be read is that of no old session.
    let changed = |record: &SessionRecord| record.changed.parse::<Timestamp>().unwrap_or(now);
    let mut selected: Vec<SessionRecord> =
        all.into_iter().filter(|record| !record.is_served() && states.contains(&record.state)).collect();
    selected.sort_by_key(&changed);
    selected.truncate(selected.len().saturating_sub(*keep));
    selected.retain(|record| {
        let age = now.duration_since(changed(record));
        Duration::try_from(age).unwrap_or_default() >= *older_than
    });
    selected
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::SandboxId;
    use std::path::Path;

    /// A session whose state changed at this hour.
    fn record(id: &str, state: SessionState, hour: u8) -> SessionRecord {
        let mut record = SessionRecord::new(&SandboxId::parse(id).unwrap(), Path::new("/f"), None);
        (record.state, record.supervisor) = (state, None);
        record.changed = format!("2026-01-01T{hour:02}:00:00Z");
        record
    }

    fn selected(selection: &PruneSelection) -> Vec<String> {
        use SessionState::{Ended, Error, Paused};
        let all = vec![
            record("b", Ended, 5),
            record("a", Ended, 3),
            record("c", Error, 1),
            record("d", Paused, 1),
            record("e", Ended, 9),
        ];
        let now = "2026-01-01T10:00:00Z".parse().unwrap();
        select(all, selection, now).into_iter().map(|record| record.id).collect()
    }

    #[test]
    fn sessions_are_selected_by_state_age_and_number() {
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        let all = PruneSelection {
            states: vec![SessionState::Ended, SessionState::Error],
            older_than: Duration::ZERO,
            keep: 0,
        };
        assert_eq!(selected(&all), ["c", "a", "b", "e"]);
        assert_eq!(selected(&PruneSelection { older_than: hours(5), ..all.clone() }), ["c", "a", "b"]);
        assert_eq!(selected(&PruneSelection { keep: 3, ..all.clone() }), ["c"]);
        assert_eq!(selected(&PruneSelection { keep: 9, ..all.clone() }), [""; 0]);
        // Of the two that remain, one is old.
        assert_eq!(selected(&PruneSelection { keep: 2, older_than: hours(8), ..all.clone() }), ["c"]);
        assert_eq!(selected(&PruneSelection { states: vec![SessionState::Paused], ..all }), ["d"]);
    }

    #[test]
    fn session_that_is_served_is_never_selected() {
        let mut served = record("a", SessionState::Error, 1);
        served.supervisor = crate::state::process::ProcessId::current();
        let any = PruneSelection { states: SessionState::ALL.to_vec(), older_than: Duration::ZERO, keep: 0 };
        assert!(select(vec![served], &any, Timestamp::now()).is_empty());
    }
}
