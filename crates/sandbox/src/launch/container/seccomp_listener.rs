//! Sends the seccomp notify descriptor and the state of the container to the filter's listener (runtime-spec,
//! config-linux.md, "The Container Process State").

use super::console::connect_to;
use crate::plan::container::SeccompListener;
use saggar_sys::error::{Error, Result};
use saggar_sys::scm;
use serde_json::json;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// The connection, made before the filter is loaded: without a listener the program would hang.
#[derive(Debug)]
pub(super) struct ListenerSocket(Option<(OwnedFd, Option<String>)>);

impl ListenerSocket {
    pub(super) fn connect(listener: Option<&SeccompListener>) -> Result<Self> {
        let Some(listener) = listener else { return Ok(ListenerSocket(None)) };
        let socket = connect_to(&listener.path, "linux.seccomp.listenerPath")?;
        Ok(ListenerSocket(Some((socket, listener.metadata.clone()))))
    }

    /// Sends the descriptor, and closes the connection: the listener may wait for end of file, and the program blocks
    /// until the listener answers. `state` is the OCI state of the container.
    pub(super) fn send(&mut self, fd: &OwnedFd, pid: i32, state: &str) -> Result<()> {
        let Some((socket, metadata)) = self.0.take() else { return Ok(()) };
        let fail = |cause: &dyn std::fmt::Display| {
            Error::system("send the filter's descriptor to linux.seccomp.listenerPath", cause)
        };
        let state: serde_json::Value = serde_json::from_str(state).map_err(|e| fail(&e))?;
        let mut message = json!({
            "ociVersion": state["ociVersion"],
            "fds": ["seccompFd"],
            "pid": pid,
            "state": state,
        });
        if let Some(metadata) = metadata {
            message["metadata"] = json!(metadata);
        }
        let text = message.to_string();
        // In one call: listeners receive it with one, too.
        scm::send_all(socket.as_fd(), text.as_bytes(), &[fd.as_raw_fd()]).map_err(|e| fail(&e.desc()))
    }
}
