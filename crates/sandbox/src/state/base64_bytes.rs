//! Bytes in JSON records: paths that need not be UTF-8, and content of files.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Bytes that need not be UTF-8, such as a path or file content. They are base64 in JSON.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Base64Bytes(pub Vec<u8>);

impl Base64Bytes {
    /// The bytes of a path.
    pub fn from_path(path: &Path) -> Self {
        Base64Bytes(path.as_os_str().as_bytes().to_vec())
    }

    /// The bytes as a path.
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }

    /// The bytes as an owned path.
    pub fn into_path(self) -> PathBuf {
        PathBuf::from(OsString::from_vec(self.0))
    }
}

impl Serialize for Base64Bytes {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&BASE64.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Base64Bytes {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(from)?;
        BASE64.decode(text.as_bytes()).map(Base64Bytes).map_err(serde::de::Error::custom)
    }
}
