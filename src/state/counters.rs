//! What has happened since the machine was booted, counted across processes: how many sandboxes were started, how
//! many starts were refused and why, how many programs ran out of memory (saggar(1), METRICS).
//!
//! The counters are one page of numbers in the runtime directory, which every saggar of a user adds to by itself:
//! no lock, no daemon, nothing that could wait for another process. A start is counted when its program runs, and so
//! costs it nothing. Where the page cannot be had nothing is counted: no command fails for that.
//!
//! ```text
//! <runtime>/.counters   word 0: MARK; then one word for each counter, by its number
//! ```

use crate::error::{Code, Error, Result};
use crate::sys::shared::Shared;
use std::cell::OnceCell;
use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// The name of the file: none that a sandbox can have.
pub const FILE: &str = ".counters";

/// What the file begins with: the order of the counters.
const MARK: u64 = u64::from_le_bytes(*b"saggar\0\x01");

/// What was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// By `agent` or `wrap`.
    Sandbox,
    /// By `create` and `start`, or `run`.
    Container,
}

/// Something that is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counter {
    /// Programs that were killed for want of memory, in sandboxes.
    OomKills,
    /// First programs that ran.
    Starts(Kind),
    /// Starts that came to nothing, by the code of their error.
    Refusals(Kind, Code),
}

impl Kind {
    /// Both.
    pub const ALL: [Kind; 2] = [Kind::Sandbox, Kind::Container];

    /// As it stands in a label.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Sandbox => "sandbox",
            Kind::Container => "container",
        }
    }
}

impl Counter {
    /// Where it stands; what stands there once stays there.
    fn word(self) -> usize {
        let of_kind = |kind| match kind {
            Kind::Sandbox => 0,
            Kind::Container => 1,
        };
        match self {
            Counter::OomKills => 1,
            Counter::Starts(kind) => 2 + of_kind(kind),
            Counter::Refusals(kind, code) => {
                let code = match code {
                    Code::Usage => 0,
                    Code::Invalid => 1,
                    Code::Unsupported => 2,
                    Code::Refused => 3,
                    Code::System => 4,
                    Code::NotFound => 5,
                    Code::NotExecutable => 6,
                    Code::Exists => 7,
                    Code::State => 8,
                    Code::Ended => 9,
                };
                16 + 2 * code + of_kind(kind)
            }
        }
    }
}

/// Something was started by this process.
static STARTED: AtomicBool = AtomicBool::new(false);

/// Counts a start.
pub fn started(kind: Kind) {
    STARTED.store(true, Ordering::Relaxed);
    add(Counter::Starts(kind), 1);
}

/// Counts a start that came to nothing; an error after the start is none.
pub fn refused(kind: Kind, error: &Error) {
    if !STARTED.load(Ordering::Relaxed) {
        add(Counter::Refusals(kind, error.code()), 1);
    }
}

/// Adds to a counter.
pub fn add(counter: Counter, count: u64) {
    if count == 0 {
        return;
    }
    let put = |shared: &Shared| {
        shared.words()[counter.word()].fetch_add(count, Ordering::Relaxed);
    };
    let is_held = HELD.with(|held| {
        let Some(held) = held.get() else { return false };
        held.iter().for_each(put);
        true
    });
    if !is_held {
        of_runtime_dir().iter().for_each(put);
    }
}

thread_local! {
    /// The page of a process that keeps it, or that there is none to be had.
    static HELD: OnceCell<Option<Shared>> = const { OnceCell::new() };
}

/// Keeps the page mapped from now on: for a process that is about to give up the right to open it.
pub fn hold() {
    HELD.with(|held| held.get_or_init(of_runtime_dir).is_some());
}

fn of_runtime_dir() -> Option<Shared> {
    let opened = super::runtime_dir().and_then(|directory| open(&directory, true));
    opened.inspect_err(|error| log::debug!("not counted: {error}")).ok()
}

/// The counters as they are now.
#[derive(Debug)]
pub struct Counters(Option<Shared>);

impl Counters {
    /// Of this user; before anything was counted all are 0.
    ///
    /// # Errors
    /// As [`super::check_own`]; [`Code::Invalid`] for a file that is none of this version; [`Code::System`].
    pub fn read() -> Result<Self> {
        let directory = super::runtime_path();
        if directory.join(FILE).symlink_metadata().is_err() {
            return Ok(Counters(None));
        }
        super::check_own(&directory)?;
        open(&directory, false).map(Some).map(Counters)
    }

    /// One of them.
    pub fn get(&self, counter: Counter) -> u64 {
        self.0.as_ref().map_or(0, |shared| shared.words()[counter.word()].load(Ordering::Relaxed))
    }
}

/// Opens the page of this directory, which is ours alone.
fn open(directory: &Path, make: bool) -> Result<Shared> {
    let path = directory.join(FILE);
    let fail = |what: &str, why: &dyn std::fmt::Display| {
        Error::system(format_args!("{what} the counters {}", path.display()), why)
    };
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(make).mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file: File = options.open(&path).map_err(|e| fail("open", &e))?;
    if !file.metadata().is_ok_and(|meta| meta.is_file()) {
        return Err(fail("open", &"it is not a regular file"));
    }
    let shared = Shared::map(file.as_fd()).map_err(|errno| fail("map", &errno.desc()))?;
    let mark = &shared.words()[0];
    // Whoever comes first marks it; all others find the mark.
    match mark.compare_exchange(0, MARK, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) | Err(MARK) => Ok(shared),
        Err(_) => Err(Error::new(Code::Invalid, format!("{} is not one of this version", path.display()))
            .hint("remove it: counting begins anew")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn all() -> Vec<Counter> {
        let of_kind = Kind::ALL.into_iter().flat_map(|kind| {
            let refusals = Code::ALL.into_iter().map(move |code| Counter::Refusals(kind, code));
            refusals.chain([Counter::Starts(kind)])
        });
        of_kind.chain([Counter::OomKills]).collect()
    }

    #[test]
    fn every_counter_has_a_word_of_its_own() {
        let words: BTreeSet<usize> = all().into_iter().map(Counter::word).collect();
        assert_eq!(words.len(), all().len());
        assert!(!words.contains(&0) && words.iter().all(|word| *word < crate::sys::shared::WORDS));
    }

    #[test]
    fn many_add_at_once_and_nothing_is_lost() {
        let scratch = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let shared = open(scratch.path(), true).unwrap();
                        shared.words()[1].fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        let counters = Counters(Some(open(scratch.path(), false).unwrap()));
        assert_eq!(counters.get(Counter::OomKills), 4000);
    }

    #[test]
    fn what_is_not_the_page_is_refused_by_name() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join(FILE);
        let refusal = || open(scratch.path(), false).unwrap_err().to_string();
        std::fs::write(&path, "something else").unwrap();
        assert!(refusal().ends_with("/.counters is not one of this version"), "{}", refusal());
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/null", &path).unwrap();
        assert!(refusal().starts_with("open the counters "), "{}", refusal());
        std::fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(refusal().ends_with("it is not a regular file"), "{}", refusal());
    }
}
