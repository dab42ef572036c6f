//! A snapshot beside the supervisor of the session: a process of its own takes it, since it is as long at work as the
//! session is large, and the supervisor has one thread.
//!
//! The supervisor executes this program again with [`ENTRY`] and three words, and reads one JSON object, the result or
//! the failure, from its standard output. It holds the session's lock for as long as this runs: should it end, the
//! kernel ends this too.

use super::{Label, Limits, take};
use crate::error::{Code, Error, Result};
use crate::session::agent_session;
use crate::session::image::Image;
use crate::session::workspace::Origin;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::getppid;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;

/// The first word of the command line.
pub const ENTRY: &str = "__snapshot";
/// How many notes a result has; the last says how many there are more.
const NOTES: usize = 100;

/// What came of it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Answer {
    /// It is on disk, under this name.
    Taken {
        /// Where.
        file: String,
        /// Its members.
        entries: u64,
        /// Bytes of its files.
        bytes: u64,
        /// What is not in it, and why.
        notes: Vec<String>,
    },
    /// There is none.
    Failed(Error),
}

/// The words after [`ENTRY`]: the session's directory, the supervisor, and whether nothing is left out.
pub fn words(session: &Path, all: bool) -> [OsString; 3] {
    [session.into(), std::process::id().to_string().into(), all.to_string().into()]
}

/// Takes the snapshot that these words ask for, and says so on `output`; the exit status.
pub fn run(words: &[OsString], mut output: impl Write) -> u8 {
    let answer = asked(words).unwrap_or_else(Answer::Failed);
    let said = serde_json::to_vec(&answer).unwrap_or_default();
    if output.write_all(&said).and_then(|()| output.flush()).is_ok() { 0 } else { 1 }
}

fn asked(words: &[OsString]) -> Result<Answer> {
    let [session, supervisor, all] = words else {
        return Err(Error::new(Code::Usage, "a snapshot beside its supervisor is asked for by that alone"));
    };
    set_pdeathsig(Signal::SIGKILL).map_err(|e| Error::system("follow the supervisor", e))?;
    if supervisor.to_str() != Some(&getppid().to_string()) {
        return Err(Error::new(Code::State, "the supervisor is gone"));
    }
    let session = Path::new(session);
    Image::of(session).refuse()?;
    let label = Label {
        version: 1,
        session: session.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        place: Origin::load(session).ok().map(|origin| origin.place),
        agent_session: agent_session(session),
    };
    let (file, summary) = take(session, &label, None, all == "true", Limits::default())?;
    let mut notes = summary.notes;
    if notes.len() > NOTES {
        let more = notes.len() - NOTES;
        notes.truncate(NOTES);
        notes.push(format!("and {more} more"));
    }
    let file = file.to_string_lossy().into_owned();
    Ok(Answer::Taken { file, entries: summary.entries, bytes: summary.bytes, notes })
}
