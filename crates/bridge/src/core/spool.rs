//! Stored events of the session, and the connections that follow them (`replay`).
//!
//! ```text
//!   plain ──replay──> lagging ──all stored events were sent──> live
//!                        ▲                                       │
//!                        └──── the client reads too slowly ──────┘
//! ```
//! An event of a turn is numbered and stored before it is sent. A follower receives every event with its number, in
//! order: live events from memory while it reads fast enough, else from the store, one chunk at a time as its backlog
//! drains. The sequence has no gaps at the transition, and a slow client delays no turn and holds no memory.

use super::action::{BridgeAction, ConnId};
use super::connection::CommandReply;
use super::{Bridge, DisconnectPolicy};
use crate::proto::sdk_dialect::classify_line;
use crate::proto::spool::{
    SavedSpool, SpoolPosition, SpoolReadResult, SpoolRecord, SpoolRecordKind, SpoolStore,
    with_sequence_number,
};
use crate::proto::{BridgeEvent, CommandId, LogLevel, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// Upper bound of the bytes that the number adds to a line.
const SEQ_FIELD_SIZE: usize = 32;

/// The error for a command that an earlier run did not finish.
const INTERRUPTED_ERROR: &str = "the bridge ended before this command did";

/// The event store and its followers.
#[derive(Debug)]
pub(super) struct BridgeSpool {
    store: Box<dyn SpoolStore>,
    /// The number of the next event.
    next_event: u64,
    /// The store's number of the next command.
    next_command: u64,
    /// Records were appended since the last flush.
    is_dirty: bool,
    /// Connections that sent `replay`.
    followers: BTreeSet<ConnId>,
    /// Followers that have not received all stored events.
    lagging: BTreeSet<ConnId>,
    /// Why records could not be stored, since the last check.
    failure: Option<String>,
    /// Numbers could not be reserved either, so no event is sent with a number.
    has_lost_numbers: bool,
}

/// The replay position of a follower.
#[derive(Debug)]
pub(super) struct ReplayCursor {
    /// The number of the next event to send.
    next: u64,
    /// The position of that event in the store.
    position: SpoolPosition,
    /// Free buffer bytes that the next event needs.
    needed_bytes: usize,
    /// The `replay` command, until the event with this number has been sent.
    replay: Option<(CommandReply, u64)>,
}

impl Bridge {
    /// Stores events from now on, so that a server can reconnect and request them; turns outlive their connections.
    /// Commands that an earlier run did not finish end in an `error`.
    pub fn enable_spool(&mut self, store: Box<dyn SpoolStore>, saved: SavedSpool) {
        self.config.disconnect = DisconnectPolicy::Detach;
        self.restore_seen_messages(saved.sent_messages, saved.received_messages);
        self.spool = Some(BridgeSpool {
            store,
            next_event: saved.next_event,
            next_command: saved.next_command,
            is_dirty: false,
            followers: BTreeSet::new(),
            lagging: BTreeSet::new(),
            failure: None,
            has_lost_numbers: false,
        });
        for unended in saved.unfinished {
            let id = CommandId::from_json(&unended.id);
            let line = BridgeEvent::Error { text: INTERRUPTED_ERROR }.encode(id.as_ref());
            self.store_events(unended.command, &line, None);
        }
        self.flush_spool();
    }

    /// Closes the store cleanly. No call may follow.
    pub fn close_spool(&mut self) {
        self.flush_spool();
        if let Some(spool) = &mut self.spool {
            spool.store.close();
        }
    }

    pub(super) fn is_spooling(&self) -> bool {
        self.spool.is_some()
    }

    /// Whether the connection receives stored events, and so needs no direct copy.
    pub(super) fn is_follower(&self, conn: ConnId) -> bool {
        self.spool.as_ref().is_some_and(|spool| spool.followers.contains(&conn))
    }

    /// Whether the connection has not received all stored events.
    pub(super) fn is_lagging(&self, conn: ConnId) -> bool {
        self.spool.as_ref().is_some_and(|spool| spool.lagging.contains(&conn))
    }

    /// Records the start of a command and returns its number in the store; 0 without a store.
    pub(super) fn record_command_start(&mut self, id: Option<&CommandId>) -> u64 {
        let Some(spool) = &mut self.spool else { return 0 };
        let command = spool.next_command;
        spool.next_command += 1;
        spool.is_dirty = true;
        let body = id.map_or("", CommandId::as_json).as_bytes();
        spool.store.append(&[SpoolRecord {
            kind: SpoolRecordKind::CommandStarted,
            number: spool.next_event - 1,
            command,
            body,
        }]);
        command
    }

    /// Stores the events in these lines and sends them to followers. The last one ends `command`, unless that is 0.
    /// `data` is the data of a message, for connections that filter.
    pub(super) fn store_events(&mut self, command: u64, lines: &[u8], data: Option<&str>) {
        let Some(spool) = &mut self.spool else { return };
        let first = spool.next_event;
        let all: Vec<&[u8]> = match data {
            Some(_) => vec![lines],
            None => lines.split_inclusive(|byte| *byte == b'\n').collect(),
        };
        let numbers = first..;
        let records: Vec<SpoolRecord<'_>> = all
            .iter()
            .zip(numbers)
            .enumerate()
            .map(|(at, (body, number))| {
                let ends = command != 0 && at + 1 == all.len();
                let kind = if ends { SpoolRecordKind::LastEvent } else { SpoolRecordKind::Event };
                SpoolRecord { kind, number, command: if ends { command } else { 0 }, body }
            })
            .collect();
        spool.next_event += records.len() as u64;
        spool.is_dirty = true;
        let place = spool.store.append(&records);
        if spool.followers.is_empty() {
            return;
        }
        let told: Vec<u8> = records
            .iter()
            .filter_map(|record| with_sequence_number(record.body, record.number))
            .flatten()
            .collect();
        for conn in spool.followers.clone() {
            self.send_to_follower(conn, first, place, &told, data);
        }
    }

    /// Stores a line of the agent and sends it to its connection.
    pub(super) fn store_and_forward(&mut self, conn: ConnId, id: Option<&CommandId>, data: &str) {
        let line = BridgeEvent::Message { data }.encode(id);
        self.store_events(0, &line, Some(data));
        match self.connections.get(&conn) {
            Some(_) if self.is_follower(conn) => {}
            Some(to) if to.speaks_sdk() || to.is_filtered() => self.send_classified(conn, id, data),
            Some(_) => self.send(conn, line),
            None => {}
        }
    }

    fn send_to_follower(
        &mut self,
        conn: ConnId,
        first: u64,
        position: SpoolPosition,
        bytes: &[u8],
        data: Option<&str>,
    ) {
        let has_room = bytes.len() <= self.budget.free_for_replays();
        let keeps_up = has_room && !self.is_backlogged(conn);
        let (Some(spool), Some(to)) = (&mut self.spool, self.connections.get_mut(&conn)) else { return };
        let filters = to.is_filtered();
        let Some(follow) = to.replay_cursor.as_mut().filter(|follow| follow.next == first) else { return };
        if spool.lagging.contains(&conn) {
            // The cursor is at the end; the next feed notices it.
            return;
        }
        if !keeps_up {
            follow.position = position;
            follow.needed_bytes = bytes.len();
            spool.lagging.insert(conn);
            return;
        }
        follow.next = spool.next_event;
        if !(filters && data.is_some_and(is_filtered_out)) {
            self.send(conn, bytes.to_vec());
        }
    }

    /// Flushes the store; must be called before anything is sent.
    pub(super) fn flush_spool(&mut self) {
        let Some(spool) = self.spool.as_mut().filter(|spool| spool.is_dirty) else { return };
        spool.is_dirty = false;
        match spool.store.flush() {
            Ok(()) => {
                spool.has_lost_numbers = false;
                if let Some(why) = spool.failure.take() {
                    self.log(LogLevel::Warn, &format!("events are kept again; it was: {why}"));
                }
            }
            Err(trouble) => {
                let is_new = spool.failure.replace(trouble.why.clone()).is_none();
                if !trouble.numbers_reserved && !std::mem::replace(&mut spool.has_lost_numbers, true) {
                    self.evict_followers();
                }
                if is_new {
                    let why = &trouble.why;
                    self.log(LogLevel::Warn, &format!("events are not kept, and will be missing: {why}"));
                }
            }
        }
    }

    /// Evicts all followers, because the numbers of recent events may be assigned again. None of them may be sent.
    fn evict_followers(&mut self) {
        let followers = self.spool.as_ref().map(|spool| spool.followers.clone()).unwrap_or_default();
        for conn in followers {
            self.actions
                .retain(|action| !matches!(action, BridgeAction::Send { conn: to, .. } if *to == conn));
            self.evict(conn);
        }
    }

    /// Removes a closed connection.
    pub(super) fn forget_follower(&mut self, conn: ConnId) {
        if let Some(spool) = &mut self.spool {
            spool.followers.remove(&conn);
            spool.lagging.remove(&conn);
        }
    }

    pub(super) fn start_replay(&mut self, reply: CommandReply, after: u64) {
        let conn = reply.conn;
        let Some(spool) = &mut self.spool else {
            return self
                .fail_command(reply, "replay: this bridge keeps no events; saggar agent --spool does");
        };
        let newest = spool.next_event - 1;
        if after > newest {
            let text = format!("replay: there is no event {after} yet; the newest is {newest}");
            return self.fail_command(reply, &text);
        }
        if spool.has_lost_numbers {
            let why = spool.failure.clone().unwrap_or_default();
            return self.fail_command(reply, &format!("replay: events cannot be kept now: {why}"));
        }
        if spool.followers.contains(&conn) {
            return self.fail_command(reply, "replay: this connection receives all events already");
        }
        let Some(to) = self.connections.get_mut(&conn) else { return };
        let next = after + 1;
        let place = spool.store.find(next);
        to.replay_cursor =
            Some(ReplayCursor { next, position: place, needed_bytes: 0, replay: Some((reply, newest)) });
        spool.followers.insert(conn);
        spool.lagging.insert(conn);
        self.feed(conn);
    }

    /// When the next follower can receive more stored events.
    pub(super) fn feed_deadline(&self) -> Option<Duration> {
        let spool = self.spool.as_ref()?;
        spool.lagging.iter().any(|conn| self.can_feed(*conn)).then_some(self.now)
    }

    /// Sends stored events to followers, one chunk each, so that none delays another.
    pub(super) fn feed_followers(&mut self) {
        let behind = self.spool.as_ref().map(|spool| spool.lagging.clone()).unwrap_or_default();
        for conn in behind {
            if self.can_feed(conn) {
                self.feed(conn);
            }
        }
    }

    /// Whether the connection is not backlogged and the buffers have space for its next event.
    fn can_feed(&self, conn: ConnId) -> bool {
        let wants = self
            .connections
            .get(&conn)
            .and_then(|to| to.replay_cursor.as_ref())
            .map_or(0, |follow| follow.needed_bytes);
        !self.is_backlogged(conn) && self.budget.free_for_replays() >= wants
    }

    /// Sends stored events to a connection, until it is backlogged or has received all.
    fn feed(&mut self, conn: ConnId) {
        self.flush_spool();
        while !self.is_backlogged(conn) {
            let room = self.budget.free_for_replays().saturating_sub(SEQ_FIELD_SIZE);
            let (Some(spool), Some(to)) = (&mut self.spool, self.connections.get_mut(&conn)) else { return };
            let filters = to.is_filtered();
            let Some(follow) = &mut to.replay_cursor else { return };
            let found = match follow.next == spool.next_event {
                true => SpoolReadResult::End,
                false => spool.store.read(&mut follow.position, follow.next, room),
            };
            match found {
                SpoolReadResult::Event { number, line } => {
                    self.report_gap(conn, number);
                    let hidden = filters && is_line_filtered_out(&line);
                    if let Some(line) = with_sequence_number(&line, number).filter(|_| !hidden) {
                        self.send(conn, line);
                    }
                    self.mark_delivered(conn, number);
                }
                SpoolReadResult::TooLarge(size) => {
                    follow.needed_bytes = size.saturating_add(SEQ_FIELD_SIZE);
                    return;
                }
                SpoolReadResult::End => {
                    let next = spool.next_event;
                    self.report_gap(conn, next);
                    if let Some(spool) = &mut self.spool {
                        spool.lagging.remove(&conn);
                    }
                    return self.end_replay(conn);
                }
            }
        }
    }

    /// Sends a `gap` for the missing events before this number.
    fn report_gap(&mut self, conn: ConnId, number: u64) {
        loop {
            let Some(follow) = self.connections.get(&conn).and_then(|to| to.replay_cursor.as_ref()) else {
                return;
            };
            let from = follow.next;
            if from >= number {
                return;
            }
            // The gap must not span the `done` of the replay.
            let target = follow.replay.as_ref().map(|(_, target)| *target).filter(|target| *target >= from);
            let to = target.unwrap_or(u64::MAX).min(number - 1);
            self.send(conn, BridgeEvent::Gap { from, to }.encode(None));
            self.mark_delivered(conn, to);
        }
    }

    fn mark_delivered(&mut self, conn: ConnId, number: u64) {
        let Some(follow) = self.connections.get_mut(&conn).and_then(|to| to.replay_cursor.as_mut()) else {
            return;
        };
        (follow.next, follow.needed_bytes) = (number + 1, 0);
        if follow.replay.as_ref().is_some_and(|(_, target)| *target <= number) {
            self.end_replay(conn);
        }
    }

    /// Ends the `replay` command: all events stored when it began have been sent.
    fn end_replay(&mut self, conn: ConnId) {
        let follow = self.connections.get_mut(&conn).and_then(|to| to.replay_cursor.as_mut());
        let Some((reply, newest)) = follow.and_then(|follow| follow.replay.take()) else { return };
        let session = self.session.clone().unwrap_or_default();
        let done = BridgeEvent::Done { session: &session }.encode(reply.id.as_ref());
        let done = with_sequence_number(&done, newest).unwrap_or(done);
        self.finish_command(reply, done, None);
    }

    /// Ends running replays with an error at shutdown. Their events remain in the store.
    pub(super) fn fail_replays(&mut self, text: &str) {
        let followers = self.spool.as_ref().map(|spool| spool.followers.clone()).unwrap_or_default();
        for conn in followers {
            let follow = self.connections.get_mut(&conn).and_then(|to| to.replay_cursor.as_mut());
            if let Some((reply, _)) = follow.and_then(|follow| follow.replay.take()) {
                self.fail_command(reply, text);
            }
        }
    }

    /// Stores the uuid of a sent or a received message (RB-39).
    pub(super) fn store_uuid(&mut self, is_sent: bool, uuid: &str) {
        if let Some(spool) = &mut self.spool {
            spool.is_dirty = true;
            spool.store.store_uuid(is_sent, uuid);
        }
    }
}

/// Whether a stored line is a message that a filtering connection does not receive.
fn is_line_filtered_out(line: &[u8]) -> bool {
    let text = std::str::from_utf8(line).unwrap_or_default();
    let data = json::scan(text.trim_end(), &["data"]).ok().and_then(|scan| scan.fields[0]);
    data.is_some_and(is_filtered_out)
}

/// Whether this data is hidden from a filtering connection. Questions of the agent are always sent.
fn is_filtered_out(data: &str) -> bool {
    let kind =
        || json::scan(data, &["type"]).ok().and_then(|scan| scan.fields[0].and_then(json::parse_string));
    !classify_line(data).is_eligible && !kind().is_some_and(|kind| kind.starts_with("control_"))
}
