//! saggar with its status events in a file, and what it moved away.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::time::ClockId;
use serde_json::Value;

use crate::support::place::Place;

/// The file of status events.
pub(super) const EVENTS: &str = "events";

/// The name of the sandbox in `place`, which no other test has.
pub(super) fn id(place: &Place) -> String {
    format!("quar-{}", place.path().file_name().unwrap().display())
}

/// `command`, a saggar, with its status events in a file of `place`.
pub(super) fn telling(place: &Place, saggar: &Command) -> Command {
    let mut command = place.command("/bin/sh".as_ref());
    place.make_file(EVENTS, "");
    until_older();
    command.arg("-c").arg(format!("exec \"$@\" 7>>../{EVENTS}")).arg("sh").arg(saggar.get_program());
    let mut arguments = saggar.get_args();
    command
        .arg(arguments.next().expect("a command"))
        .args(["--status-fd", "7", "--id", &id(place)])
        .args(arguments);
    command
}

/// Waits until what was made so far is older than what comes by its time stamps: they have the ticks of a clock
/// that stands still for milliseconds, longer on a busy machine, and what is of the start's own tick counts as new.
fn until_older() {
    let made = ClockId::CLOCK_REALTIME.now().unwrap();
    while ClockId::CLOCK_REALTIME_COARSE.now().unwrap() <= made {
        std::thread::yield_now();
    }
}

/// The events so far, of this kind.
pub(super) fn events(place: &Place, kind: &str) -> Vec<Value> {
    let text = fs::read_to_string(place.join(EVENTS)).unwrap();
    let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events.filter(|event| event["event"] == kind).collect()
}

/// What was moved: the path in the workspace, and where it is.
pub(super) fn moved(place: &Place) -> Vec<(String, PathBuf)> {
    let work = place.work();
    let one = |event: &Value| {
        let path = Path::new(event["path"].as_str().unwrap()).strip_prefix(&work).unwrap();
        let to = PathBuf::from(event["to"].as_str().unwrap());
        assert!(
            work.join(path).symlink_metadata().is_err()
                || path.ends_with("config")
                || path.ends_with("hooks"),
            "{event}: still there"
        );
        assert!(to.symlink_metadata().is_ok(), "{event}: not there");
        assert!(event["why"].as_str().is_some_and(|why| !why.is_empty()));
        (path.to_str().unwrap().to_owned(), to)
    };
    events(place, "quarantined").iter().map(one).collect()
}

/// The paths alone, sorted.
pub(super) fn names(place: &Place) -> Vec<String> {
    let mut names: Vec<String> = moved(place).into_iter().map(|(path, _)| path).collect();
    names.sort();
    names
}

/// The directory of the session, or of the sandbox without one; removed in the end, since root's lies outside
/// of the place.
#[derive(Debug)]
pub(super) struct Session(pub(super) PathBuf);

impl Session {
    pub(super) fn of(place: &Place) -> Self {
        Session(place.join("state/saggar/sessions").join(id(place)))
    }
}

/// A name in a path.
pub(super) fn ends_with(path: &Path, name: &str) -> bool {
    path.file_name().and_then(OsStr::to_str).is_some_and(|last| last.ends_with(&format!("-{name}")))
}
