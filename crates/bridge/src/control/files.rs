//! The methods `files.list`, `files.read` and `files.write` (KC-31), with checked parameters.

use super::rpc::{RpcError, RpcErrorKind, RpcRequest};
use crate::content::{Encoding, from_base64};
use serde::{Deserialize, Serialize};

/// Most names in one response.
const MAX_NAMES: usize = 1000;
/// Most bytes of a file in one response.
const MAX_BYTES: usize = 512 << 10;

/// A call of a `files.*` method.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileRequest {
    /// `files.list`: the names in a directory.
    List {
        /// Path of the directory.
        path: String,
        /// Cursor: the position that the previous response returned, 0 for the first call.
        after: u64,
        /// Most names to return.
        limit: usize,
    },
    /// `files.read`: a range of a file.
    Read {
        /// Path of the file.
        path: String,
        /// First byte of the range.
        offset: u64,
        /// Most bytes to return.
        limit: usize,
        /// How the response encodes the bytes.
        encoding: Encoding,
    },
    /// `files.write`: replaces a whole file.
    Write {
        /// Path of the file.
        path: String,
        /// The new content, decoded.
        content: Vec<u8>,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListParams {
    #[serde(default)]
    path: String,
    #[serde(default)]
    after: Option<String>,
    #[serde(default)]
    limit: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadParams {
    path: String,
    #[serde(default)]
    offset: u64,
    #[serde(default)]
    limit: Option<usize>,
    #[serde(default)]
    encoding: Encoding,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WriteParams {
    path: String,
    content: String,
    #[serde(default)]
    encoding: Encoding,
}

impl FileRequest {
    /// Parses the parameters of `files.list`, `files.read` or `files.write`.
    ///
    /// # Errors
    /// [`RpcErrorKind::Params`].
    pub(super) fn parse(call: &RpcRequest) -> Result<Self, RpcError> {
        let wrong = |why: &str| Err(RpcError::new(RpcErrorKind::Params, format!("{}: {why}", call.method)));
        match call.method.as_str() {
            "files.list" => {
                let ListParams { path, after, limit } = super::method::parse_params(call)?;
                let Ok(after) = after.as_deref().unwrap_or("0").parse() else {
                    return wrong("after is not what next was in an earlier answer");
                };
                let limit = limit.unwrap_or(MAX_NAMES).clamp(1, MAX_NAMES);
                Ok(FileRequest::List { path, after, limit })
            }
            "files.read" => {
                let ReadParams { path, offset, limit, encoding } = super::method::parse_params(call)?;
                // A UTF-8 character has at most four bytes, so a range of text is never empty before the end of the
                // file.
                let limit = limit.unwrap_or(MAX_BYTES).clamp(4, MAX_BYTES);
                Ok(FileRequest::Read { path, offset, limit, encoding })
            }
            _ => {
                let WriteParams { path, content, encoding } = super::method::parse_params(call)?;
                let content = match encoding {
                    Encoding::Utf8 => Some(content.into_bytes()),
                    Encoding::Base64 => from_base64(&content),
                };
                let Some(content) = content else { return wrong("content is not base64") };
                Ok(FileRequest::Write { path, content })
            }
        }
    }
}
