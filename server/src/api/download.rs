//! Responses with a file to save: no browser renders it, whatever an agent or a client wrote. The number of those that
//! need a process and buffers for their client is limited.

use super::error::ApiError;
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The characters of RFC 8187 that need no encoding in a file name.
const FILE_NAME: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// The media type of a file whose own is unknown or invalid.
pub(super) const UNKNOWN_TYPE: &str = "application/octet-stream";

/// A client that accepts nothing for this time loses its download.
pub(super) const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of downloads at the same time.
const MAX_DOWNLOADS: usize = 32;

/// Returns the response with a file of this name. A media type that is invalid or has parameters is not sent.
pub(super) fn download(name: &str, media_type: &str, body: Body) -> Response {
    let disposition = format!("attachment; filename*=UTF-8''{}", utf8_percent_encode(name, FILE_NAME));
    let disposition = HeaderValue::from_str(&disposition).unwrap_or(HeaderValue::from_static("attachment"));
    let media_type = if is_media_type(media_type) { media_type } else { UNKNOWN_TYPE };
    let media_type = HeaderValue::from_str(media_type).unwrap_or(HeaderValue::from_static(UNKNOWN_TYPE));
    let headers = [
        (header::CONTENT_TYPE, media_type),
        (header::CONTENT_DISPOSITION, disposition),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ];
    (headers, body).into_response()
}

/// The downloads that are in progress.
#[derive(Debug)]
pub struct Downloads(Arc<Semaphore>);

impl Default for Downloads {
    fn default() -> Self {
        Downloads(Arc::new(Semaphore::new(MAX_DOWNLOADS)))
    }
}

impl Downloads {
    /// Begins a download, which ends when the permit is dropped.
    ///
    /// # Errors
    /// 503 if there are too many.
    pub(super) fn begin(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        Arc::clone(&self.0).try_acquire_owned().map_err(|_| {
            let text = format!("{MAX_DOWNLOADS} downloads are in progress; try again later");
            ApiError::with_status(StatusCode::SERVICE_UNAVAILABLE, text)
        })
    }
}

/// Whether a text is a type and a subtype as in RFC 6838, 4.2, without parameters.
fn is_media_type(text: &str) -> bool {
    let is_name = |name: &str| {
        (1..=127).contains(&name.len())
            && name.starts_with(|first: char| first.is_ascii_alphanumeric())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte))
    };
    text.split_once('/').is_some_and(|(kind, subtype)| is_name(kind) && is_name(subtype))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_media_types_are_sent() {
        for valid in ["text/plain", "image/svg+xml", "application/vnd.a.b-c"] {
            assert!(is_media_type(valid), "{valid}");
        }
        for invalid in
            ["", "text", "text/", "/plain", "text/plain; charset=x", "a/b/c", "text/a\r\nb: c", "ä/b"]
        {
            let response = download("a", invalid, Body::empty());
            assert_eq!(response.headers()[header::CONTENT_TYPE], UNKNOWN_TYPE, "{invalid}");
        }
    }

    #[test]
    fn file_name_is_encoded() {
        let response = download("a\r\n\"ä.txt", "text/plain", Body::empty());
        let disposition = &response.headers()[header::CONTENT_DISPOSITION];
        assert_eq!(disposition, "attachment; filename*=UTF-8''a%0D%0A%22%C3%A4.txt");
    }
}
