//! What a supervisor and its process for the model API say to each other: a message each on a seqpacket socket, as
//! JSON. The errand comes first, with the file of the key beside it; then sockets come, each beside one byte.

use crate::error::Error;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The longest message.
pub const LONGEST: usize = 16 << 10;
/// The message beside a socket that hears requests.
pub const SOCKET: &[u8] = b"s";

/// What the process is to do.
#[derive(Debug, Serialize, Deserialize)]
pub struct Errand {
    /// The process of the supervisor, with which it ends.
    pub supervisor: i32,
    /// Where requests go.
    pub upstream: String,
    /// The header field of the key.
    pub header: String,
    /// What the upstream's certificate is held to, if not to what this host trusts.
    pub ca_file: Option<PathBuf>,
}

/// What the process has to say.
#[derive(Debug, Serialize, Deserialize)]
pub enum Said {
    /// It has the key, and serves.
    Ready,
    /// It does not, and ends.
    Failed(Error),
    /// The upstream could not be reached.
    Trouble(String),
}

impl Errand {
    /// The message as bytes.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// The message in `bytes`, if it is one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }
}

impl Said {
    /// The message as bytes.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// The message in `bytes`, if it is one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }
}
