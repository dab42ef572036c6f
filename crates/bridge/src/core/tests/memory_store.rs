//! An event store in memory, which several bridges use one after the other.

use crate::proto::spool::{
    SavedSpool, SpoolError, SpoolPosition, SpoolReadResult, SpoolRecord, SpoolRecordKind, SpoolStore,
    UnfinishedCommand,
};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// The state that outlives a bridge.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// Stored events with their numbers.
    events: VecDeque<(u64, Vec<u8>)>,
    /// Every event ever stored, including dropped and rejected ones.
    pub(super) history: BTreeMap<u64, Vec<u8>>,
    /// Commands that were started and have not ended.
    begun: BTreeMap<u64, String>,
    /// Records that are not flushed yet.
    waiting: Vec<(SpoolRecordKind, u64, u64, Vec<u8>)>,
    newest: u64,
    newest_command: u64,
    pub(super) told: Vec<String>,
    pub(super) taken: Vec<String>,
    /// Maximum number of stored events.
    pub(super) bound: usize,
    /// Writes fail.
    pub(super) fails: bool,
    /// Writes fail, and so does the reservation of numbers.
    pub(super) fails_whole: bool,
    pub(super) closed: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Shelf(pub(super) Rc<RefCell<Kept>>);

impl Shelf {
    pub(super) fn new(bound: usize) -> Shelf {
        Shelf(Rc::new(RefCell::new(Kept { bound, ..Kept::default() })))
    }

    /// The state that the next bridge restores. Records that were not flushed are lost.
    pub(super) fn left(&self) -> SavedSpool {
        let mut kept = self.0.borrow_mut();
        kept.waiting.clear();
        let unended =
            |(command, id): (&u64, &String)| UnfinishedCommand { command: *command, id: id.clone() };
        SavedSpool {
            next_event: kept.newest + 1,
            next_command: kept.newest_command + 1,
            unfinished: kept.begun.iter().map(unended).collect(),
            sent_messages: kept.told.clone(),
            received_messages: kept.taken.clone(),
        }
    }
}

impl SpoolStore for Shelf {
    fn append(&mut self, records: &[SpoolRecord<'_>]) -> SpoolPosition {
        let mut kept = self.0.borrow_mut();
        let first = records.iter().find(|record| record.kind.is_event()).map_or(0, |record| record.number);
        for record in records {
            kept.waiting.push((record.kind, record.number, record.command, record.body.to_vec()));
        }
        SpoolPosition { segment: 0, offset: first }
    }

    fn flush(&mut self) -> Result<(), SpoolError> {
        let mut kept = self.0.borrow_mut();
        let is_lost = kept.fails && !kept.waiting.is_empty();
        for (kind, number, command, body) in std::mem::take(&mut kept.waiting) {
            match kind {
                SpoolRecordKind::CommandStarted => {
                    drop(kept.begun.insert(command, String::from_utf8(body.clone()).unwrap()))
                }
                SpoolRecordKind::LastEvent | SpoolRecordKind::CommandEnded => {
                    drop(kept.begun.remove(&command))
                }
                SpoolRecordKind::Event | SpoolRecordKind::RunClosed => {}
            }
            kept.newest_command = kept.newest_command.max(command);
            if kind.is_event() {
                assert_eq!(number, kept.newest + 1, "numbers grow by one");
                kept.newest = number;
                assert!(kept.history.insert(number, body.clone()).is_none());
                if !is_lost {
                    kept.events.push_back((number, body));
                }
            }
        }
        while kept.events.len() > kept.bound {
            kept.events.pop_front();
        }
        let numbers_hold = !kept.fails_whole;
        if is_lost {
            Err(SpoolError { why: "no room".into(), numbers_reserved: numbers_hold })
        } else {
            Ok(())
        }
    }

    fn find(&self, number: u64) -> SpoolPosition {
        SpoolPosition { segment: 0, offset: number }
    }

    fn read(&mut self, place: &mut SpoolPosition, number: u64, room: usize) -> SpoolReadResult {
        let kept = self.0.borrow();
        assert!(kept.waiting.is_empty(), "read before it is flushed");
        let from = place.offset.max(number);
        let Some((number, line)) = kept.events.iter().find(|(number, _)| *number >= from) else {
            return SpoolReadResult::End;
        };
        if line.len() > room {
            return SpoolReadResult::TooLarge(line.len());
        }
        place.offset = number + 1;
        SpoolReadResult::Event { number: *number, line: line.clone() }
    }

    fn store_uuid(&mut self, told: bool, uuid: &str) {
        let mut kept = self.0.borrow_mut();
        if told { kept.told.push(uuid.into()) } else { kept.taken.push(uuid.into()) }
    }

    fn close(&mut self) {
        self.0.borrow_mut().closed = true;
    }
}
