//! Pages and statistics, read through the index: of the messages' files, only the lines of the result are read.

use super::record::{LineKind, name_hash};
use super::segments::Segments;
use crate::error::Result;
use crate::store::{PAGE_BYTES, PAGE_MESSAGES, PAGE_UNREADABLE, Page, Position, Statistics, UnreadableLine};
use std::collections::HashMap;

/// The messages after a position that are for `agent`, or those for all.
pub(super) fn read_page(segments: &Segments, after: Option<Position>, agent: Option<&str>) -> Result<Page> {
    let recipient = agent.map(name_hash);
    let broadcast = name_hash("");
    let mut page = Page::default();
    let mut size: u64 = 0;
    segments.visit(after, |segment, position, record| {
        match record.kind {
            LineKind::Blank => {}
            LineKind::Unreadable => {
                page.unreadable_count += 1;
                if page.unreadable.len() < PAGE_UNREADABLE {
                    page.unreadable.push(UnreadableLine {
                        file: segment.log_name.clone(),
                        line: u64::from(position.line) + 1,
                        reason: segment.reason_unreadable(record)?,
                    });
                }
            }
            LineKind::Message { from, to, .. } => {
                let may_be_for = |agent: u64| (to == agent || to == broadcast) && from != agent;
                if recipient.is_some_and(|agent| !may_be_for(agent)) {
                    return Ok(true);
                }
                let is_full =
                    page.messages.len() >= PAGE_MESSAGES || size.saturating_add(record.length) > PAGE_BYTES;
                if is_full && !page.messages.is_empty() {
                    page.more = true;
                    return Ok(false);
                }
                let message = segment.read_message(record)?;
                // The names decide; their hashes in the index only spare reading.
                if agent.is_none_or(|agent| message.is_for(agent)) {
                    size = size.saturating_add(record.length);
                    page.messages.push(message);
                    page.last = Some(position);
                }
            }
        }
        Ok(true)
    })?;
    Ok(page)
}

/// Counts all messages in one pass over the index. One line is read for each sender, for its name.
pub(super) fn read_statistics(segments: &Segments) -> Result<Statistics> {
    let mut statistics = Statistics::default();
    let mut names: HashMap<u64, String> = HashMap::new();
    segments.visit(None, |segment, _, record| {
        match record.kind {
            LineKind::Blank => {}
            LineKind::Unreadable => statistics.unreadable += 1,
            LineKind::Message { from, message_type, signal, .. } => {
                if let Some(name) = names.get(&from) {
                    statistics.add(name, message_type, signal);
                } else {
                    let name = segment.read_message(record)?.from;
                    statistics.add(&name, message_type, signal);
                    names.insert(from, name);
                }
            }
        }
        Ok(true)
    })?;
    Ok(statistics)
}
