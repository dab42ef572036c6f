//! Calls that ask for files of the workspace (KC-31), with checked parameters.

use super::rpc::{Call, Failure, Kind};
use crate::session::files::content::{Encoding, from_base64};
use serde::{Deserialize, Serialize};

/// How many names one answer has at most.
const NAMES_MOST: usize = 1000;
/// How many bytes of a file one answer has at most.
const BYTES_MOST: usize = 512 << 10;

/// A call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileCall {
    /// The names of a directory.
    List {
        /// Which.
        path: String,
        /// Where an earlier answer says that the next ones begin.
        after: u64,
        /// At most so many.
        limit: usize,
    },
    /// A piece of a file.
    Read {
        /// Which.
        path: String,
        /// Where it begins.
        offset: u64,
        /// How long it is at most.
        limit: usize,
        /// How it comes.
        encoding: Encoding,
    },
    /// A whole file.
    Write {
        /// Which.
        path: String,
        /// Its bytes.
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

impl FileCall {
    /// Reads a call of `files.list`, `files.read` or `files.write`.
    ///
    /// # Errors
    /// [`Kind::Params`].
    pub(super) fn of(call: &Call) -> Result<Self, Failure> {
        let wrong = |why: &str| Err(Failure::new(Kind::Params, format!("{}: {why}", call.method)));
        match call.method.as_str() {
            "files.list" => {
                let ListParams { path, after, limit } = super::method::params(call)?;
                let Ok(after) = after.as_deref().unwrap_or("0").parse() else {
                    return wrong("after is not what next was in an earlier answer");
                };
                let limit = limit.unwrap_or(NAMES_MOST).clamp(1, NAMES_MOST);
                Ok(FileCall::List { path, after, limit })
            }
            "files.read" => {
                let ReadParams { path, offset, limit, encoding } = super::method::params(call)?;
                // A character has four bytes at most: a piece of text is never empty before the end.
                let limit = limit.unwrap_or(BYTES_MOST).clamp(4, BYTES_MOST);
                Ok(FileCall::Read { path, offset, limit, encoding })
            }
            _ => {
                let WriteParams { path, content, encoding } = super::method::params(call)?;
                let content = match encoding {
                    Encoding::Utf8 => Some(content.into_bytes()),
                    Encoding::Base64 => from_base64(&content),
                };
                let Some(content) = content else { return wrong("content is not base64") };
                Ok(FileCall::Write { path, content })
            }
        }
    }
}
