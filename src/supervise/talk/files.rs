//! Calls for files of the workspace that are being done, each by a worker.

use super::control::failure;
use super::process::watched;
use crate::control::clients::Ticket;
use crate::control::files::FileCall;
use crate::control::rpc::{Failure, Kind};
use crate::stage::launcher::Launcher;
use crate::supervise::worker::{call, files};
use mio::unix::SourceFd;
use mio::{Registry, Token};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Tokens: one for each call, from this one on.
const FIRST: usize = 1 << 18;
/// How many calls are done at once.
const AT_ONCE: usize = 16;

/// What a call came to.
pub(in crate::supervise) type Answer = (Ticket, Result<Value, Failure>);

/// The calls.
#[derive(Debug, Default)]
pub(in crate::supervise) struct FileCalls {
    open: BTreeMap<usize, Open>,
}

#[derive(Debug)]
struct Open {
    ticket: Ticket,
    answer: File,
    said: Vec<u8>,
}

impl FileCalls {
    /// Begins a call; its answer when it cannot.
    pub(in crate::supervise) fn begin(
        &mut self,
        launcher: &Launcher,
        call: &FileCall,
        ticket: Ticket,
        workspace: BorrowedFd<'_>,
        registry: &Registry,
    ) -> Option<Answer> {
        let Some(free) = (0..AT_ONCE).find(|number| !self.open.contains_key(number)) else {
            let failure = Failure::new(Kind::Busy, format!("{AT_ONCE} calls for files are at work already"));
            return Some((ticket, Err(failure)));
        };
        let begun = files::begin(launcher, call, workspace)
            .and_then(|answer| watched(answer.into(), registry, Token(FIRST + free)));
        match begun {
            Ok(answer) => {
                self.open.insert(free, Open { ticket, answer, said: Vec::new() });
                None
            }
            Err(error) => Some((ticket, Err(failure(&error)))),
        }
    }

    /// Handles an event; what a call came to, when that is all of it.
    pub(in crate::supervise) fn ready(&mut self, registry: &Registry, token: Token) -> Option<Answer> {
        let number = token.0.checked_sub(FIRST)?;
        let open = self.open.get_mut(&number)?;
        if !call::hear(&open.answer, &mut open.said) {
            return None;
        }
        let Open { ticket, answer, said } = self.open.remove(&number)?;
        let _ = registry.deregister(&mut SourceFd(&answer.as_raw_fd()));
        Some((ticket, call::parse(&said).map_err(|error| failure(&error))))
    }
}
