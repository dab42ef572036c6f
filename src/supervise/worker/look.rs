//! Looks for what appeared under protected names: the quick one after each command, and the last one.
//!
//! What a worker finds it says line by line, each a JSON value of [`Line`]; what it would say to the log or to the
//! status goes that way too, and is said by the loop.

use super::super::status::Status;
use super::{LOOK, Workers};
use crate::session::meter::Meter;
use crate::stage::launcher::Launcher;
use nix::fcntl::OFlag;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;

/// The most that is read of what a worker says.
const SAID: u64 = 16 << 20;
/// How many reports are remembered, so that they are made once.
const REMEMBERED: usize = 1024;
/// The lowest bit of the argument: at the names alone. The others say how many were moved before.
const NAMES: u64 = 1;

/// What a worker tells.
#[derive(Debug, Serialize, Deserialize)]
enum Line {
    /// An event of the status.
    Event(String),
    /// A warning.
    Warn(String),
    /// Something of less weight.
    Info(String),
    /// How many were moved to quarantine by now.
    Moved(usize),
    /// Whether there is no room left on disk.
    DiskIsFull(bool),
    /// Whether there are changes in an overlay that is kept.
    HasChanges(bool),
}

/// What the last look came to, beside what was said of it.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::supervise) struct Seen {
    /// There is no room left on disk.
    pub(in crate::supervise) disk_is_full: bool,
    /// There are changes in an overlay that is kept, where one is.
    pub(in crate::supervise) has_changes: Option<bool>,
}

impl Workers<'_> {
    pub(super) fn look(&mut self, argument: u64, to: File) {
        let (Ok(events), Ok(log)) = (to.try_clone(), to.try_clone()) else { return };
        crate::log::relay(Box::new(move |level, text| {
            let line =
                if level <= log::Level::Warn { Line::Warn(text.into()) } else { Line::Info(text.into()) };
            tell(&log, &line);
        }));
        let mut status = Status::of_worker(move |event| tell(&events, &Line::Event(event)));
        self.warden.goes_on_from(usize::try_from(argument >> 1).unwrap_or(usize::MAX));
        if argument & NAMES != 0 {
            self.warden.look(&mut status);
            return tell(&to, &Line::Moved(self.warden.moved()));
        }
        self.warden.look_everywhere(&mut status);
        tell(&to, &Line::DiskIsFull(self.disk_is_full()));
        if let Some(has) = self.has_changes() {
            tell(&to, &Line::HasChanges(has));
        }
    }

    /// Whether the last look can come to anything.
    fn have_work(&self, status: &Status) -> bool {
        self.warden.workspace().is_some() || self.kept.is_some() || (self.meter.is_some() && status.is_read())
    }

    fn disk_is_full(&self) -> bool {
        self.meter.as_ref().is_some_and(Meter::is_met)
    }

    fn has_changes(&self) -> Option<bool> {
        self.kept.map(|kept| kept.changes().is_some())
    }
}

fn tell(mut to: &File, line: &Line) {
    if let Ok(mut text) = serde_json::to_vec(line) {
        text.push(b'\n');
        // Nobody hears it any more: the work is done all the same.
        let _ = to.write_all(&text);
    }
}

/// The loop's side: has workers look, and says what they found.
#[derive(Debug, Default)]
pub(in crate::supervise) struct Looks {
    told: BTreeSet<String>,
    /// How many were moved by quick looks.
    moved: usize,
}

impl Looks {
    /// A quick look, while programs run. Without a launcher nothing runs yet.
    pub(in crate::supervise) fn quick(&mut self, launcher: Option<&Launcher>, status: &mut Status) {
        if let Some(launcher) = launcher {
            self.have(launcher, NAMES, status);
        }
    }

    /// The last look, when all programs are dead; by this process, where it never had a launcher.
    pub(in crate::supervise) fn everywhere(
        &mut self,
        launcher: Option<&Launcher>,
        workers: &mut Workers<'_>,
        status: &mut Status,
    ) -> Seen {
        match launcher {
            // Each costs a fork.
            Some(launcher) if workers.have_work(status) => self.have(launcher, 0, status),
            Some(_) => Seen::default(),
            None => {
                workers.warden.look_everywhere(status);
                Seen { disk_is_full: workers.disk_is_full(), has_changes: workers.has_changes() }
            }
        }
    }

    fn have(&mut self, launcher: &Launcher, argument: u64, status: &mut Status) -> Seen {
        let mut seen = Seen::default();
        let Ok((read, write)) = nix::unistd::pipe2(OFlag::O_CLOEXEC) else { return seen };
        if let Err(error) = launcher.work(LOOK, argument | (self.moved as u64) << 1, &[write.as_raw_fd()]) {
            log::warn!("nobody looks for what appeared under protected names: {}", error.desc());
            return seen;
        }
        drop(write);
        for line in BufReader::new(File::from(read).take(SAID)).lines().map_while(Result::ok) {
            let Ok(parsed) = serde_json::from_str(&line) else { continue };
            match parsed {
                Line::Moved(count) => self.moved = count,
                Line::DiskIsFull(is) => seen.disk_is_full = is,
                Line::HasChanges(has) => seen.has_changes = Some(has),
                // A worker does not know what others have said.
                _ if self.told.contains(&line) => {}
                Line::Event(event) => status.pass_on(&event),
                Line::Warn(text) => log::warn!("{text}"),
                Line::Info(text) => log::info!("{text}"),
            }
            if self.told.len() < REMEMBERED {
                self.told.insert(line);
            }
        }
        seen
    }
}
