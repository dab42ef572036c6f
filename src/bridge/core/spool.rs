//! What is kept of the conversation, and the connections that asked for it (`replay`).
//!
//! ```text
//!   plain ──replay──> behind ──all that is kept has been sent──> live
//!                       ▲                                         │
//!                       └───────── it does not keep up ───────────┘
//! ```
//! An event of a turn gets its number and is kept before it is sent to anybody. A connection that follows hears
//! every event with its number, in order: live ones from memory as long as it keeps up, else from the store, a piece
//! at a time as it drains. So what it hears has no seam, and a slow one costs neither the turn nor memory.

use super::action::{Action, ConnId};
use super::conn::Reply;
use super::{Bridge, Disconnect};
use crate::bridge::proto::second::look;
use crate::bridge::proto::spool::{Found, Kind, Left, Place, Record, Store, numbered};
use crate::bridge::proto::{Event, Id, LogLevel, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// As much of all buffers as a replay may fill: what happens now goes before what has happened.
const SHARE: usize = super::budget::TOTAL / 2;
/// More than the number adds to a line.
const NUMBER: usize = 32;

/// What an earlier run left undone is told so.
const ENDED_BEFORE: &str = "the bridge ended before this command did";

/// The store of a bridge that has one.
#[derive(Debug)]
pub(super) struct Spool {
    store: Box<dyn Store>,
    /// The number of the next event.
    next: u64,
    /// The name of the next command.
    next_command: u64,
    /// Something was given to the store since it was flushed.
    is_dirty: bool,
    /// Connections that asked.
    followers: BTreeSet<ConnId>,
    /// Those of them that have more to hear from the store.
    behind: BTreeSet<ConnId>,
    /// Why nothing can be kept, since the last look.
    trouble: Option<String>,
    /// Numbers cannot even be reserved: nobody is told any.
    has_no_numbers: bool,
}

/// How far a connection that asked has come.
#[derive(Debug)]
pub(super) struct Follow {
    /// The number of the next event that it is to hear.
    next: u64,
    /// Where that is.
    place: Place,
    /// Bytes that it waits for room for.
    wants: usize,
    /// The `replay` itself, until the event of this number has been sent.
    replay: Option<(Reply, u64)>,
}

impl Bridge {
    /// Keeps events from here on, so that a server that comes back can ask for them: turns outlive their
    /// connections. What an earlier run left undone ends in an `error`.
    pub fn keep_events(&mut self, store: Box<dyn Store>, left: Left) {
        self.config.disconnect = Disconnect::Detach;
        self.remember(left.told, left.taken);
        self.spool = Some(Spool {
            store,
            next: left.next,
            next_command: left.next_command,
            is_dirty: false,
            followers: BTreeSet::new(),
            behind: BTreeSet::new(),
            trouble: None,
            has_no_numbers: false,
        });
        for unended in left.unended {
            let id = Id::of_json(&unended.id);
            let line = Event::Error { text: ENDED_BEFORE }.encode(id.as_ref());
            self.keep(unended.command, &line, None);
        }
        self.flush_spool();
    }

    /// The end in good order. Nothing happens afterwards.
    pub fn close_spool(&mut self) {
        self.flush_spool();
        if let Some(spool) = &mut self.spool {
            spool.store.close();
        }
    }

    /// The number of the newest event, where events are kept.
    pub fn newest_event(&self) -> Option<u64> {
        self.spool.as_ref().map(|spool| spool.next - 1)
    }

    pub(super) fn keeps(&self) -> bool {
        self.spool.is_some()
    }

    /// Whether the connection hears what is kept, and so needs not be told of it.
    pub(super) fn follows(&self, conn: ConnId) -> bool {
        self.spool.as_ref().is_some_and(|spool| spool.followers.contains(&conn))
    }

    /// Whether there is more for it in the store.
    pub(super) fn is_behind(&self, conn: ConnId) -> bool {
        self.spool.as_ref().is_some_and(|spool| spool.behind.contains(&conn))
    }

    /// Gives a command that was taken its name in the store; 0 where there is none.
    pub(super) fn begin_command(&mut self, id: Option<&Id>) -> u64 {
        let Some(spool) = &mut self.spool else { return 0 };
        let command = spool.next_command;
        spool.next_command += 1;
        spool.is_dirty = true;
        let body = id.map_or("", Id::as_json).as_bytes();
        spool.store.append(&[Record { kind: Kind::Begun, number: spool.next - 1, command, body }]);
        command
    }

    /// Keeps the events of these lines, and tells those who follow. The last one ends `command`, unless that is 0;
    /// `data` is that of a message, for those who filter.
    pub(super) fn keep(&mut self, command: u64, lines: &[u8], data: Option<&str>) {
        let Some(spool) = &mut self.spool else { return };
        let first = spool.next;
        let all: Vec<&[u8]> = match data {
            Some(_) => vec![lines],
            None => lines.split_inclusive(|byte| *byte == b'\n').collect(),
        };
        let numbers = first..;
        let records: Vec<Record<'_>> = all
            .iter()
            .zip(numbers)
            .enumerate()
            .map(|(at, (body, number))| {
                let ends = command != 0 && at + 1 == all.len();
                let kind = if ends { Kind::Last } else { Kind::Event };
                Record { kind, number, command: if ends { command } else { 0 }, body }
            })
            .collect();
        spool.next += records.len() as u64;
        spool.is_dirty = true;
        let place = spool.store.append(&records);
        if spool.followers.is_empty() {
            return;
        }
        let told: Vec<u8> =
            records.iter().filter_map(|record| numbered(record.body, record.number)).flatten().collect();
        for conn in spool.followers.clone() {
            self.tell_follower(conn, first, place, &told, data);
        }
    }

    /// A line of the agent: it is kept, and its connection hears it as it hears others.
    pub(super) fn pass_kept(&mut self, conn: ConnId, id: Option<&Id>, data: &str) {
        let line = Event::Message { data }.encode(id);
        self.keep(0, &line, Some(data));
        match self.conns.get(&conn) {
            Some(_) if self.follows(conn) => {}
            Some(to) if to.is_second() || to.filters() => self.tell_looked_at(conn, id, data),
            Some(_) => self.send(conn, line),
            None => {}
        }
    }

    fn tell_follower(&mut self, conn: ConnId, first: u64, place: Place, told: &[u8], data: Option<&str>) {
        let has_room = self.budget.used().saturating_add(told.len()) <= SHARE;
        let keeps_up = has_room && !self.is_full(conn);
        let (Some(spool), Some(to)) = (&mut self.spool, self.conns.get_mut(&conn)) else { return };
        let filters = to.filters();
        let Some(follow) = to.follow.as_mut().filter(|follow| follow.next == first) else { return };
        if spool.behind.contains(&conn) {
            // It has heard all before, and does not know it yet.
            return;
        }
        if !keeps_up {
            follow.place = place;
            follow.wants = told.len();
            spool.behind.insert(conn);
            return;
        }
        follow.next = spool.next;
        if !(filters && data.is_some_and(hides)) {
            self.send(conn, told.to_vec());
        }
    }

    /// What was kept so far outlives us: to be called before anything leaves.
    pub(super) fn flush_spool(&mut self) {
        let Some(spool) = self.spool.as_mut().filter(|spool| spool.is_dirty) else { return };
        spool.is_dirty = false;
        match spool.store.flush() {
            Ok(()) => {
                spool.has_no_numbers = false;
                if let Some(why) = spool.trouble.take() {
                    self.log(LogLevel::Warn, &format!("events are kept again; it was: {why}"));
                }
            }
            Err(trouble) => {
                let is_new = spool.trouble.replace(trouble.why.clone()).is_none();
                if !trouble.numbers_hold && !std::mem::replace(&mut spool.has_no_numbers, true) {
                    self.drop_followers();
                }
                if is_new {
                    let why = &trouble.why;
                    self.log(LogLevel::Warn, &format!("events are not kept, and will be missing: {why}"));
                }
            }
        }
    }

    /// The numbers of what was just told may be given again: they leave on no connection.
    fn drop_followers(&mut self) {
        let followers = self.spool.as_ref().map(|spool| spool.followers.clone()).unwrap_or_default();
        for conn in followers {
            self.actions.retain(|action| !matches!(action, Action::Send { conn: to, .. } if *to == conn));
            self.doom(conn);
        }
    }

    /// A connection is gone.
    pub(super) fn forget_follower(&mut self, conn: ConnId) {
        if let Some(spool) = &mut self.spool {
            spool.followers.remove(&conn);
            spool.behind.remove(&conn);
        }
    }

    pub(super) fn begin_replay(&mut self, reply: Reply, after: u64) {
        let conn = reply.conn;
        let Some(spool) = &mut self.spool else {
            return self.fail(reply, "replay: this bridge keeps no events; saggar agent --spool does");
        };
        let newest = spool.next - 1;
        if after > newest {
            let text = format!("replay: there is no event {after} yet; the newest is {newest}");
            return self.fail(reply, &text);
        }
        if spool.has_no_numbers {
            let why = spool.trouble.clone().unwrap_or_default();
            return self.fail(reply, &format!("replay: events cannot be kept now: {why}"));
        }
        if spool.followers.contains(&conn) {
            return self.fail(reply, "replay: this connection is told of all events already");
        }
        let Some(to) = self.conns.get_mut(&conn) else { return };
        let next = after + 1;
        let place = spool.store.find(next);
        to.follow = Some(Follow { next, place, wants: 0, replay: Some((reply, newest)) });
        spool.followers.insert(conn);
        spool.behind.insert(conn);
        self.feed(conn);
    }

    /// When the next connection can be told more of what is kept.
    pub(super) fn feed_deadline(&self) -> Option<Duration> {
        let spool = self.spool.as_ref()?;
        spool.behind.iter().any(|conn| self.can_feed(*conn)).then_some(self.now)
    }

    /// Tells connections more of what is kept: a piece for each, so that no other has to wait.
    pub(super) fn feed_all(&mut self) {
        let behind = self.spool.as_ref().map(|spool| spool.behind.clone()).unwrap_or_default();
        for conn in behind {
            if self.can_feed(conn) {
                self.feed(conn);
            }
        }
    }

    /// Whether it keeps up, and there is room for what it is to hear next.
    fn can_feed(&self, conn: ConnId) -> bool {
        let wants = self.conns.get(&conn).and_then(|to| to.follow.as_ref()).map_or(0, |follow| follow.wants);
        !self.is_full(conn) && self.room() >= wants
    }

    fn room(&self) -> usize {
        SHARE.saturating_sub(self.budget.used())
    }

    /// Tells a connection what is kept, until it is full or has all.
    fn feed(&mut self, conn: ConnId) {
        self.flush_spool();
        while !self.is_full(conn) {
            let room = self.room().saturating_sub(NUMBER);
            let (Some(spool), Some(to)) = (&mut self.spool, self.conns.get_mut(&conn)) else { return };
            let filters = to.filters();
            let Some(follow) = &mut to.follow else { return };
            let found = match follow.next == spool.next {
                true => Found::End,
                false => spool.store.read(&mut follow.place, follow.next, room),
            };
            match found {
                Found::Event { number, line } => {
                    self.skip_to(conn, number);
                    let hidden = filters && is_hidden(&line);
                    if let Some(line) = numbered(&line, number).filter(|_| !hidden) {
                        self.send(conn, line);
                    }
                    self.has_heard(conn, number);
                }
                Found::Large(size) => {
                    follow.wants = size.saturating_add(NUMBER);
                    return;
                }
                Found::End => {
                    let next = spool.next;
                    self.skip_to(conn, next);
                    if let Some(spool) = &mut self.spool {
                        spool.behind.remove(&conn);
                    }
                    return self.end_replay(conn);
                }
            }
        }
    }

    /// What is missing before this number is told to be missing.
    fn skip_to(&mut self, conn: ConnId, number: u64) {
        loop {
            let Some(follow) = self.conns.get(&conn).and_then(|to| to.follow.as_ref()) else { return };
            let from = follow.next;
            if from >= number {
                return;
            }
            // Not across the answer to the replay.
            let target = follow.replay.as_ref().map(|(_, target)| *target).filter(|target| *target >= from);
            let to = target.unwrap_or(u64::MAX).min(number - 1);
            self.send(conn, Event::Gap { from, to }.encode(None));
            self.has_heard(conn, to);
        }
    }

    fn has_heard(&mut self, conn: ConnId, number: u64) {
        let Some(follow) = self.conns.get_mut(&conn).and_then(|to| to.follow.as_mut()) else { return };
        (follow.next, follow.wants) = (number + 1, 0);
        if follow.replay.as_ref().is_some_and(|(_, target)| *target <= number) {
            self.end_replay(conn);
        }
    }

    /// Everything that was there when it was asked for has been told.
    fn end_replay(&mut self, conn: ConnId) {
        let follow = self.conns.get_mut(&conn).and_then(|to| to.follow.as_mut());
        let Some((reply, newest)) = follow.and_then(|follow| follow.replay.take()) else { return };
        let session = self.session.clone().unwrap_or_default();
        let done = Event::Done { session: &session }.encode(reply.id.as_ref());
        let done = numbered(&done, newest).unwrap_or(done);
        self.close_command(reply, done, None);
    }

    /// The bridge ends: what is still being told is in the store for whoever comes next.
    pub(super) fn fail_replays(&mut self, text: &str) {
        let followers = self.spool.as_ref().map(|spool| spool.followers.clone()).unwrap_or_default();
        for conn in followers {
            let follow = self.conns.get_mut(&conn).and_then(|to| to.follow.as_mut());
            if let Some((reply, _)) = follow.and_then(|follow| follow.replay.take()) {
                self.fail(reply, text);
            }
        }
    }

    /// Writes down that a message was told, or taken (RB-39).
    pub(super) fn note(&mut self, told: bool, uuid: &str) {
        if let Some(spool) = &mut self.spool {
            spool.is_dirty = true;
            spool.store.note(told, uuid);
        }
    }
}

/// Whether a kept line is a message that a connection that filters does not hear.
fn is_hidden(line: &[u8]) -> bool {
    let text = std::str::from_utf8(line).unwrap_or_default();
    let data = json::scan(text.trim_end(), &["data"]).ok().and_then(|scan| scan.fields[0]);
    data.is_some_and(hides)
}

/// The same of its data. Questions of the agent are for everybody.
fn hides(data: &str) -> bool {
    let kind = || json::scan(data, &["type"]).ok().and_then(|scan| scan.fields[0].and_then(json::string));
    !look(data).eligible && !kind().is_some_and(|kind| kind.starts_with("control_"))
}
