//! Counters since boot, shared by all processes of a user: sandboxes started, starts that failed by error code, and
//! programs killed for lack of memory (saggar(1), METRICS).
//!
//! The counters are one page of numbers in the runtime directory. Every saggar process of the user adds to it directly:
//! no lock, no daemon, no wait for another process. A start is counted after its program runs, so it costs the start no
//! time. If the page cannot be opened, nothing is counted and no command fails.
//!
//! ```text
//! <runtime>/.counters   word 0: MAGIC; then one word for each counter, by its index
//! ```

use saggar_sys::error::{Code, Error, Result};
use saggar_sys::shared_words::SharedWords;
use std::cell::OnceCell;
use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Name of the file; not a valid sandbox name.
pub const FILE_NAME: &str = ".counters";

/// First word of the file; it also identifies the order of the counters.
const MAGIC: u64 = u64::from_le_bytes(*b"saggar\0\x01");

/// Kind of a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartKind {
    /// A sandbox started by `agent` or `wrap`.
    Sandbox,
    /// A container started by `create` and `start`, or by `run`.
    Container,
}

/// A counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counter {
    /// Number of programs in sandboxes that were killed for lack of memory.
    OomKills,
    /// Number of first programs that ran.
    Starts(StartKind),
    /// Number of starts that failed, by the code of their error.
    StartFailures(StartKind, Code),
}

impl StartKind {
    /// All kinds of starts.
    pub const ALL: [StartKind; 2] = [StartKind::Sandbox, StartKind::Container];

    /// Value of the label in metrics.
    pub fn name(self) -> &'static str {
        match self {
            StartKind::Sandbox => "sandbox",
            StartKind::Container => "container",
        }
    }
}

impl Counter {
    /// Index of the word in the page; it never changes.
    fn index(self) -> usize {
        let of_kind = |kind| match kind {
            StartKind::Sandbox => 0,
            StartKind::Container => 1,
        };
        match self {
            Counter::OomKills => 1,
            Counter::Starts(kind) => 2 + of_kind(kind),
            Counter::StartFailures(kind, code) => {
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

/// This process has counted a start.
static HAS_STARTED: AtomicBool = AtomicBool::new(false);

/// Counts a successful start.
pub fn count_start(kind: StartKind) {
    HAS_STARTED.store(true, Ordering::Relaxed);
    add(Counter::Starts(kind), 1);
}

/// Counts a failed start; an error after a successful start is not counted.
pub fn count_start_failure(kind: StartKind, error: &Error) {
    if !HAS_STARTED.load(Ordering::Relaxed) {
        add(Counter::StartFailures(kind, error.code()), 1);
    }
}

/// Adds to a counter.
pub fn add(counter: Counter, count: u64) {
    if count == 0 {
        return;
    }
    let put = |shared: &SharedWords| {
        shared.words()[counter.index()].fetch_add(count, Ordering::Relaxed);
    };
    let is_held = PAGE.with(|held| {
        let Some(held) = held.get() else { return false };
        held.iter().for_each(put);
        true
    });
    if !is_held {
        open_in_runtime_dir().iter().for_each(put);
    }
}

thread_local! {
    /// The page, opened once per process; `None` inside if it cannot be opened.
    static PAGE: OnceCell<Option<SharedWords>> = const { OnceCell::new() };
}

/// Maps the page and keeps it mapped, for a process that is about to drop the right to open it.
pub fn map_page() {
    PAGE.with(|held| held.get_or_init(open_in_runtime_dir).is_some());
}

fn open_in_runtime_dir() -> Option<SharedWords> {
    let opened = super::runtime_dir().and_then(|directory| open_page(&directory, true));
    opened.inspect_err(|error| log::debug!("not counted: {error}")).ok()
}

/// A read-only view of the counters, which reads current values.
#[derive(Debug)]
pub struct CounterPage(Option<SharedWords>);

impl CounterPage {
    /// Opens the counters of this user; all are 0 before the first count.
    ///
    /// # Errors
    /// As [`super::check_private_directory`]; [`Code::Invalid`] for a file of another version; [`Code::System`].
    pub fn read() -> Result<Self> {
        let directory = super::runtime_path();
        if directory.join(FILE_NAME).symlink_metadata().is_err() {
            return Ok(CounterPage(None));
        }
        super::check_private_directory(&directory)?;
        open_page(&directory, false).map(Some).map(CounterPage)
    }

    /// Reads one counter.
    pub fn get(&self, counter: Counter) -> u64 {
        self.0.as_ref().map_or(0, |shared| shared.words()[counter.index()].load(Ordering::Relaxed))
    }
}

/// Opens the page in this directory, which only this user can write.
fn open_page(directory: &Path, make: bool) -> Result<SharedWords> {
    let path = directory.join(FILE_NAME);
    let fail = |what: &str, why: &dyn std::fmt::Display| {
        Error::system(format_args!("{what} the counters {}", path.display()), why)
    };
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(make).mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file: File = options.open(&path).map_err(|e| fail("open", &e))?;
    if !file.metadata().is_ok_and(|meta| meta.is_file()) {
        return Err(fail("open", &"it is not a regular file"));
    }
    let shared = SharedWords::map(file.as_fd()).map_err(|errno| fail("map", &errno.desc()))?;
    let mark = &shared.words()[0];
    // The first process writes the magic number; all later ones find it.
    match mark.compare_exchange(0, MAGIC, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) | Err(MAGIC) => Ok(shared),
        Err(_) => Err(Error::new(Code::Invalid, format!("{} is not one of this version", path.display()))
            .hint("remove it: counting begins anew")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn all() -> Vec<Counter> {
        let of_kind = StartKind::ALL.into_iter().flat_map(|kind| {
            let refusals = Code::ALL.into_iter().map(move |code| Counter::StartFailures(kind, code));
            refusals.chain([Counter::Starts(kind)])
        });
        of_kind.chain([Counter::OomKills]).collect()
    }

    #[test]
    fn every_counter_has_a_word_of_its_own() {
        let words: BTreeSet<usize> = all().into_iter().map(Counter::index).collect();
        assert_eq!(words.len(), all().len());
        assert!(!words.contains(&0) && words.iter().all(|word| *word < saggar_sys::shared_words::WORDS));
    }

    #[test]
    fn many_add_at_once_and_nothing_is_lost() {
        let scratch = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let shared = open_page(scratch.path(), true).unwrap();
                        shared.words()[1].fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        let counters = CounterPage(Some(open_page(scratch.path(), false).unwrap()));
        assert_eq!(counters.get(Counter::OomKills), 4000);
    }

    #[test]
    fn what_is_not_the_page_is_refused_by_name() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join(FILE_NAME);
        let refusal = || open_page(scratch.path(), false).unwrap_err().to_string();
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
