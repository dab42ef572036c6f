//! The URL of the snapshot store.

use crate::error::{Error, Result};
use percent_encoding::percent_decode_str;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::str::FromStr;

/// Where copies of sessions are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SnapshotUrl {
    /// `file:///DIRECTORY`: an absolute path.
    Directory(PathBuf),
    /// `s3://BUCKET/PREFIX`.
    S3 {
        /// The name of the bucket.
        bucket: String,
        /// The beginning of all keys, without slashes at its ends; can be empty.
        prefix: String,
    },
}

impl FromStr for SnapshotUrl {
    type Err = Error;

    /// Parses a URL. Errors do not contain it: it can contain a key by mistake.
    fn from_str(url: &str) -> Result<Self> {
        let invalid = |cause: &str| {
            Error::new(format!(
                "invalid URL of the snapshot store: {cause}; use file:///DIRECTORY or s3://BUCKET/PREFIX"
            ))
        };
        let (scheme, rest) = url.split_once("://").ok_or_else(|| invalid("it has no scheme"))?;
        if rest.contains(['?', '#']) {
            return Err(invalid("it has a query or a fragment"));
        }
        match scheme {
            "file" => {
                let path = PathBuf::from(OsString::from_vec(percent_decode_str(rest).collect()));
                let is_plain = path.is_absolute() && path.parent().is_some();
                is_plain
                    .then_some(SnapshotUrl::Directory(path))
                    .ok_or_else(|| invalid("the path is not absolute"))
            }
            "s3" => {
                let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
                let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
                if bucket.is_empty() || !bucket.bytes().all(is_valid) {
                    return Err(invalid("the name of the bucket is invalid"));
                }
                Ok(SnapshotUrl::S3 { bucket: bucket.to_owned(), prefix: prefix.trim_matches('/').to_owned() })
            }
            _ => Err(invalid("its scheme is not supported")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_and_buckets_are_parsed() {
        assert_eq!("file:///a%20b".parse::<SnapshotUrl>().unwrap(), SnapshotUrl::Directory("/a b".into()));
        let bucket = |prefix: &str| SnapshotUrl::S3 { bucket: "b".into(), prefix: prefix.into() };
        for (url, prefix) in [("s3://b", ""), ("s3://b/", ""), ("s3://b/p/q/", "p/q")] {
            assert_eq!(url.parse::<SnapshotUrl>().unwrap(), bucket(prefix));
        }
    }

    #[test]
    fn other_urls_are_refused_without_being_shown() {
        for url in [
            "",
            "/dir",
            "file://dir",
            "file:///",
            "gs://b",
            "s3://",
            "s3://KEY:SECRET@b/p",
            "s3://b/p?x=SECRET",
        ] {
            let error = url.parse::<SnapshotUrl>().unwrap_err().to_string();
            assert!(error.contains("s3://BUCKET/PREFIX") && !error.contains("SECRET"), "{url}: {error}");
        }
    }
}
