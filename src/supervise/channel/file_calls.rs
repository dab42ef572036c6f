//! Calls for files of the workspace that are in progress, each in a worker.

use super::agent_process::register_stream;
use super::control::to_rpc_error;
use crate::control::files::FileRequest;
use crate::control::rpc::{RpcError, RpcErrorKind};
use crate::control::server::ResponseTicket;
use crate::stage::agent::launcher::Launcher;
use crate::supervise::worker::{files, request};
use mio::unix::SourceFd;
use mio::{Registry, Token};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd};

/// First token: one for each call.
const FIRST_TOKEN: usize = 1 << 18;
/// Most calls in progress at once.
const MAX_CONCURRENT_CALLS: usize = 16;

/// The result of a call, and where to send it.
pub(in crate::supervise) type FileCallResult = (ResponseTicket, Result<Value, RpcError>);

/// The calls in progress.
#[derive(Debug, Default)]
pub(in crate::supervise) struct FileCalls {
    calls: BTreeMap<usize, OpenFileCall>,
}

#[derive(Debug)]
struct OpenFileCall {
    ticket: ResponseTicket,
    response: File,
    received: Vec<u8>,
}

impl FileCalls {
    /// Whether no call is in progress.
    pub(in crate::supervise) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Starts a call; returns its result if that fails.
    pub(in crate::supervise) fn start(
        &mut self,
        launcher: &Launcher,
        call: &FileRequest,
        ticket: ResponseTicket,
        workspace: BorrowedFd<'_>,
        registry: &Registry,
    ) -> Option<FileCallResult> {
        let Some(free) = (0..MAX_CONCURRENT_CALLS).find(|number| !self.calls.contains_key(number)) else {
            let failure = RpcError::new(
                RpcErrorKind::Busy,
                format!("{MAX_CONCURRENT_CALLS} calls for files are at work already"),
            );
            return Some((ticket, Err(failure)));
        };
        let begun = files::start_call(launcher, call, workspace)
            .and_then(|answer| register_stream(answer.into(), registry, Token(FIRST_TOKEN + free)));
        match begun {
            Ok(answer) => {
                self.calls.insert(free, OpenFileCall { ticket, response: answer, received: Vec::new() });
                None
            }
            Err(error) => Some((ticket, Err(to_rpc_error(&error)))),
        }
    }

    /// Handles an event; returns the result of a call when it is complete.
    pub(in crate::supervise) fn on_event(
        &mut self,
        registry: &Registry,
        token: Token,
    ) -> Option<FileCallResult> {
        let number = token.0.checked_sub(FIRST_TOKEN)?;
        let open = self.calls.get_mut(&number)?;
        if !request::receive(&open.response, &mut open.received) {
            return None;
        }
        let OpenFileCall { ticket, response: answer, received: said } = self.calls.remove(&number)?;
        let _ = registry.deregister(&mut SourceFd(&answer.as_raw_fd()));
        Some((ticket, request::parse_response(&said).map_err(|error| to_rpc_error(&error))))
    }
}
