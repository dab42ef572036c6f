//! The methods `files.*` (KC-31), with checked parameters.

use super::rpc::{RpcError, RpcErrorKind, RpcRequest};
use crate::content::{Encoding, from_base64, to_base64};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Most names in one response.
const MAX_NAMES: usize = 1000;
/// Longest name of a transfer in bytes.
const MAX_UPLOAD_NAME: usize = 64;
/// Most names that a call excludes.
const MAX_EXCLUDED: usize = 64;
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
    /// `files.walk`: the names in a directory and below it.
    Walk {
        /// Path of the directory.
        path: String,
        /// Cursor: `next` of the previous response, `None` for the first call.
        after: Option<String>,
        /// Most names to return.
        limit: usize,
        /// Names that are left out, with everything below them.
        exclude: Vec<String>,
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
        /// Creates the missing directories above it.
        parents: bool,
        /// The content is a part of the file.
        part: Option<FilePart>,
    },
    /// `files.remove`: removes a file or a directory.
    Remove {
        /// Path of the file.
        path: String,
        /// Also a directory that is not empty.
        recursive: bool,
    },
}

/// A part of a file that is longer than one call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePart {
    /// Name of the transfer: letters and digits.
    pub upload: String,
    /// First byte of the part.
    pub offset: u64,
    /// Whether it is the last part.
    pub is_last: bool,
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
struct WalkParams {
    #[serde(default)]
    path: String,
    #[serde(default)]
    after: Option<String>,
    #[serde(default)]
    limit: Option<usize>,
    #[serde(default)]
    exclude: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RemoveParams {
    path: String,
    #[serde(default)]
    recursive: bool,
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
    #[serde(default)]
    parents: bool,
    #[serde(default)]
    upload: Option<String>,
    #[serde(default)]
    offset: u64,
    #[serde(default = "default_last")]
    last: bool,
}

fn default_last() -> bool {
    true
}

impl FileRequest {
    /// The method and the parameters of this request.
    pub fn to_call(&self) -> (&'static str, Value) {
        match self {
            FileRequest::List { path, after, limit } => {
                ("files.list", json!({ "path": path, "after": after.to_string(), "limit": limit }))
            }
            FileRequest::Walk { path, after, limit, exclude } => {
                ("files.walk", json!({ "path": path, "after": after, "limit": limit, "exclude": exclude }))
            }
            FileRequest::Read { path, offset, limit, encoding } => {
                let params = json!({ "path": path, "offset": offset, "limit": limit, "encoding": encoding });
                ("files.read", params)
            }
            FileRequest::Write { path, content, parents, part } => {
                let mut params = json!({
                    "path": path, "content": to_base64(content), "encoding": Encoding::Base64, "parents": parents,
                });
                if let Some(part) = part {
                    params["upload"] = json!(part.upload);
                    params["offset"] = json!(part.offset);
                    params["last"] = json!(part.is_last);
                }
                ("files.write", params)
            }
            FileRequest::Remove { path, recursive } => {
                ("files.remove", json!({ "path": path, "recursive": recursive }))
            }
        }
    }

    /// Whether it changes files.
    pub fn changes_files(&self) -> bool {
        matches!(self, FileRequest::Write { .. } | FileRequest::Remove { .. })
    }

    /// Parses the parameters of a `files.*` method.
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
            "files.walk" => {
                let WalkParams { path, after, limit, exclude } = super::method::parse_params(call)?;
                if exclude.len() > MAX_EXCLUDED {
                    return wrong(&format!("exclude has more than {MAX_EXCLUDED} names"));
                }
                let limit = limit.unwrap_or(MAX_NAMES).clamp(1, MAX_NAMES);
                Ok(FileRequest::Walk { path, after, limit, exclude })
            }
            "files.remove" => {
                let RemoveParams { path, recursive } = super::method::parse_params(call)?;
                Ok(FileRequest::Remove { path, recursive })
            }
            "files.read" => {
                let ReadParams { path, offset, limit, encoding } = super::method::parse_params(call)?;
                // A UTF-8 character has at most four bytes, so a range of text is never empty before the end of the
                // file.
                let limit = limit.unwrap_or(MAX_BYTES).clamp(4, MAX_BYTES);
                Ok(FileRequest::Read { path, offset, limit, encoding })
            }
            _ => {
                let mut params: WriteParams = super::method::parse_params(call)?;
                let part = match params.upload.take() {
                    Some(upload) if !is_upload_name(&upload) => {
                        return wrong(&format!("upload is not 1 to {MAX_UPLOAD_NAME} letters and digits"));
                    }
                    None if params.offset > 0 || !params.last => {
                        return wrong("offset and last require upload");
                    }
                    upload => {
                        upload.map(|upload| FilePart { upload, offset: params.offset, is_last: params.last })
                    }
                };
                let WriteParams { path, content, encoding, parents, .. } = params;
                let content = match encoding {
                    Encoding::Utf8 => Some(content.into_bytes()),
                    Encoding::Base64 => from_base64(&content),
                };
                let Some(content) = content else { return wrong("content is not base64") };
                Ok(FileRequest::Write { path, content, parents, part })
            }
        }
    }
}

fn is_upload_name(name: &str) -> bool {
    (1..=MAX_UPLOAD_NAME).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(method: &str, params: &Value) -> Result<FileRequest, RpcError> {
        let (method, params) = (method.to_owned(), Some(params.to_string()));
        FileRequest::parse(&RpcRequest { id: None, method, params })
    }

    #[test]
    fn request_is_the_call_that_it_came_from() {
        let part = |offset, is_last| Some(FilePart { upload: "a1".into(), offset, is_last });
        for request in [
            FileRequest::List { path: "a".into(), after: 7, limit: 3 },
            FileRequest::Walk {
                path: String::new(),
                after: Some("YQ==".into()),
                limit: 3,
                exclude: vec!["x".into()],
            },
            FileRequest::Walk { path: "a".into(), after: None, limit: 1000, exclude: Vec::new() },
            FileRequest::Read { path: "a".into(), offset: 5, limit: 9, encoding: Encoding::Base64 },
            FileRequest::Write { path: "a".into(), content: b"\xff".into(), parents: true, part: None },
            FileRequest::Write {
                path: "a".into(),
                content: b"x".into(),
                parents: false,
                part: part(9, false),
            },
            FileRequest::Remove { path: "a".into(), recursive: true },
        ] {
            let (method, params) = request.to_call();
            assert_eq!(parse(method, &params).unwrap(), request);
            assert_eq!(request.changes_files(), matches!(method, "files.write" | "files.remove"));
        }
    }

    #[test]
    fn invalid_parts_are_refused() {
        for params in [
            json!({ "path": "a", "content": "", "offset": 1 }),
            json!({ "path": "a", "content": "", "last": false }),
            json!({ "path": "a", "content": "", "upload": "../x" }),
            json!({ "path": "a", "content": "", "upload": "" }),
            json!({ "path": "a", "content": "!", "encoding": "base64" }),
        ] {
            assert!(parse("files.write", &params).is_err(), "{params}");
        }
        assert!(parse("files.walk", &json!({ "exclude": vec!["x"; 65] })).is_err());
    }
}
