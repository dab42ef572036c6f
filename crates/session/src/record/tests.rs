//! Writers of one record that do not know of each other.

use super::*;
use tempfile::TempDir;

/// A session whose supervisor is this process.
fn served() -> (TempDir, SessionRecord) {
    let directory = tempfile::tempdir().unwrap();
    let fresh = SessionRecord::new(&SandboxId::parse("one").unwrap(), Path::new("/folder"), None);
    let mut writer = RecordWriter::create(directory.path(), fresh).unwrap();
    writer.set_fields(|record| record.bridge_socket = Some("/run/bridge.sock".into()));
    writer.replace_file().unwrap();
    let record = SessionRecord::read(directory.path()).unwrap();
    (directory, record)
}

fn submit(directory: &Path, supervisor: &ProcessId, record: SessionRecord) -> Result<()> {
    let mut written = None;
    RecordWriter::write_delegated(directory, Some(supervisor), record, |done| written = Some(done))?;
    written.unwrap()
}

#[test]
fn a_supervisor_changes_the_state_and_no_more() {
    let (directory, record) = served();
    let own = record.supervisor.clone().unwrap();
    let submitted = SessionRecord { state: SessionState::Active, bridge_socket: None, ..record };
    submit(directory.path(), &own, submitted).unwrap();
    let now = SessionRecord::read(directory.path()).unwrap();
    assert_eq!((now.state, now.bridge_socket.as_deref()), (SessionState::Active, Some("/run/bridge.sock")));
}

/// A worker of a killed supervisor may come late: the session has been resumed.
#[test]
fn a_supervisor_that_was_replaced_changes_nothing() {
    let (directory, record) = served();
    let own = record.supervisor.clone().unwrap();
    let before = fs::read(directory.path().join(FILE_NAME)).unwrap();
    let replaced = ProcessId { start_time: own.start_time - 1, ..own };
    for supervisor in [Some(replaced.clone()), None] {
        let late = SessionRecord { state: SessionState::Active, supervisor, ..record.clone() };
        assert_eq!(submit(directory.path(), &replaced, late).unwrap_err().code(), Code::State);
    }
    assert_eq!(fs::read(directory.path().join(FILE_NAME)).unwrap(), before);
}

/// A worker that was killed before it could answer is started again.
#[test]
fn the_last_record_can_be_written_twice() {
    let (directory, record) = served();
    let own = record.supervisor.clone().unwrap();
    let last = SessionRecord {
        state: SessionState::Paused,
        supervisor: None,
        changed: "2026-01-01T00:00:00.000Z".into(),
        ..record
    };
    for _ in 0..2 {
        submit(directory.path(), &own, last.clone()).unwrap();
    }
    let now = SessionRecord::read(directory.path()).unwrap();
    assert_eq!((now.state, now.supervisor), (SessionState::Paused, None));
    let other = SessionRecord { changed: "2026-01-01T00:00:00.001Z".into(), ..last };
    assert_eq!(submit(directory.path(), &own, other).unwrap_err().code(), Code::State);
}
