//! The listener of a filter (runtime-spec, config-linux.md, "The Container Process State"): it gets the descriptor
//! on which it answers, and the state of the container.

use super::console::connect_to;
use crate::error::{Error, Result};
use crate::plan::container::Listener;
use crate::sys::{file, scm};
use serde_json::json;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// The connection, made before the filter is loaded: without somebody who answers, the program would hang.
#[derive(Debug)]
pub(super) struct Receiver(Option<(OwnedFd, Option<String>)>);

impl Receiver {
    pub(super) fn connect(listener: Option<&Listener>) -> Result<Self> {
        let Some(listener) = listener else { return Ok(Receiver(None)) };
        let socket = connect_to(&listener.path, "linux.seccomp.listenerPath")?;
        Ok(Receiver(Some((socket, listener.metadata.clone()))))
    }

    /// Hands the descriptor over, and closes the connection: its end may be what the other side waits for, and until
    /// that answers the program stands still. `state` is the OCI state of the container.
    pub(super) fn send(&mut self, fd: &OwnedFd, pid: i32, state: &str) -> Result<()> {
        let Some((socket, metadata)) = self.0.take() else { return Ok(()) };
        let fail = |cause: &dyn std::fmt::Display| {
            Error::system("send the filter's descriptor to linux.seccomp.listenerPath", cause)
        };
        let state: serde_json::Value = serde_json::from_str(state).map_err(|e| fail(&e))?;
        let mut told = json!({
            "ociVersion": state["ociVersion"],
            "fds": ["seccompFd"],
            "pid": pid,
            "state": state,
        });
        if let Some(metadata) = metadata {
            told["metadata"] = json!(metadata);
        }
        let text = told.to_string();
        let (first, rest) = text.as_bytes().split_at(text.len().min(1024));
        // The descriptor comes beside the first bytes of the stream.
        scm::send(socket.as_fd(), first, &[fd.as_raw_fd()]).map_err(|e| fail(&e.desc()))?;
        file::write_all(socket.as_fd(), rest).map_err(|e| fail(&e.desc()))
    }
}
