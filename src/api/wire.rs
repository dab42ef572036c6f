//! Messages between a supervisor and its API process: one JSON message per packet on a seqpacket socket. The
//! configuration comes first, with the descriptor of the key file. Then each socket comes with a one-byte message.

use crate::error::Error;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Maximum size of a message, in bytes.
pub const MAX_MESSAGE_SIZE: usize = 16 << 10;
/// The message that accompanies a listening socket.
pub const SOCKET_MESSAGE: &[u8] = b"s";

/// The configuration of the API process.
#[derive(Debug, Serialize, Deserialize)]
pub struct ApiProcessConfig {
    /// The pid of the supervisor. The process exits with it.
    pub supervisor: i32,
    /// The URL of the upstream.
    pub upstream: String,
    /// The name of the header field for the key.
    pub header: String,
    /// The file of trusted certificates; `None` for those that this host trusts.
    pub ca_file: Option<PathBuf>,
}

/// A message from the API process.
#[derive(Debug, Serialize, Deserialize)]
pub enum ApiProcessEvent {
    /// The process has read the key and serves requests.
    Ready,
    /// The process failed to start and exits.
    Failed(Error),
    /// The upstream could not be reached; the error text.
    UpstreamUnreachable(String),
}

impl ApiProcessConfig {
    /// Encodes the message.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Decodes a message; `None` if it is not valid.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }
}

impl ApiProcessEvent {
    /// Encodes the message.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Decodes a message; `None` if it is not valid.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }
}
