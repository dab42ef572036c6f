//! A path of any bytes in JSON: a string where it is UTF-8, and otherwise `{"bytes": HEX}`.

use crate::hash::{hex, parse_hex};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum RecordedPath {
    Text(String),
    Bytes { bytes: String },
}

pub(super) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    let recorded = match path.to_str() {
        Some(text) => RecordedPath::Text(text.to_owned()),
        None => RecordedPath::Bytes { bytes: hex(path.as_os_str().as_bytes()) },
    };
    recorded.serialize(serializer)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    match RecordedPath::deserialize(deserializer)? {
        RecordedPath::Text(text) => Ok(text.into()),
        RecordedPath::Bytes { bytes } => parse_hex(&bytes)
            .map(|bytes| OsString::from_vec(bytes).into())
            .ok_or_else(|| D::Error::custom("the bytes of the path are not hexadecimal")),
    }
}
