//! A store in memory, which many bridges have one after the other.

use crate::bridge::proto::spool::{Found, Kind, Left, Place, Record, Store, Trouble, Unended};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// What outlives a bridge.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// What is on the shelf: events with their numbers.
    events: VecDeque<(u64, Vec<u8>)>,
    /// Everything that was ever kept, also what had to go or found no room.
    pub(super) history: BTreeMap<u64, Vec<u8>>,
    /// Commands that have begun and not ended.
    begun: BTreeMap<u64, String>,
    /// Not yet flushed.
    waiting: Vec<(Kind, u64, u64, Vec<u8>)>,
    newest: u64,
    newest_command: u64,
    pub(super) told: Vec<String>,
    pub(super) taken: Vec<String>,
    /// How many events have room.
    pub(super) bound: usize,
    /// Nothing can be written.
    pub(super) fails: bool,
    /// Not even which numbers were given.
    pub(super) fails_whole: bool,
    pub(super) closed: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Shelf(pub(super) Rc<RefCell<Kept>>);

impl Shelf {
    pub(super) fn new(bound: usize) -> Shelf {
        Shelf(Rc::new(RefCell::new(Kept { bound, ..Kept::default() })))
    }

    /// What the next bridge finds: what was not flushed is not there.
    pub(super) fn left(&self) -> Left {
        let mut kept = self.0.borrow_mut();
        kept.waiting.clear();
        let unended = |(command, id): (&u64, &String)| Unended { command: *command, id: id.clone() };
        Left {
            next: kept.newest + 1,
            next_command: kept.newest_command + 1,
            unended: kept.begun.iter().map(unended).collect(),
            told: kept.told.clone(),
            taken: kept.taken.clone(),
        }
    }
}

impl Store for Shelf {
    fn append(&mut self, records: &[Record<'_>]) -> Place {
        let mut kept = self.0.borrow_mut();
        let first = records.iter().find(|record| record.kind.is_event()).map_or(0, |record| record.number);
        for record in records {
            kept.waiting.push((record.kind, record.number, record.command, record.body.to_vec()));
        }
        Place { segment: 0, offset: first }
    }

    fn flush(&mut self) -> Result<(), Trouble> {
        let mut kept = self.0.borrow_mut();
        let is_lost = kept.fails && !kept.waiting.is_empty();
        for (kind, number, command, body) in std::mem::take(&mut kept.waiting) {
            match kind {
                Kind::Begun => drop(kept.begun.insert(command, String::from_utf8(body.clone()).unwrap())),
                Kind::Last | Kind::Ended => drop(kept.begun.remove(&command)),
                Kind::Event | Kind::Closed => {}
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
        if is_lost { Err(Trouble { why: "no room".into(), numbers_hold }) } else { Ok(()) }
    }

    fn find(&self, number: u64) -> Place {
        Place { segment: 0, offset: number }
    }

    fn read(&mut self, place: &mut Place, number: u64, room: usize) -> Found {
        let kept = self.0.borrow();
        assert!(kept.waiting.is_empty(), "read before it is flushed");
        let from = place.offset.max(number);
        let Some((number, line)) = kept.events.iter().find(|(number, _)| *number >= from) else {
            return Found::End;
        };
        if line.len() > room {
            return Found::Large(line.len());
        }
        place.offset = number + 1;
        Found::Event { number: *number, line: line.clone() }
    }

    fn note(&mut self, told: bool, uuid: &str) {
        let mut kept = self.0.borrow_mut();
        if told { kept.told.push(uuid.into()) } else { kept.taken.push(uuid.into()) }
    }

    fn close(&mut self) {
        self.0.borrow_mut().closed = true;
    }
}
