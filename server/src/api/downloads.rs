//! Downloads of files: each keeps a process and buffers for its client.

use super::error::ApiError;
use axum::http::StatusCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A client that accepts nothing for this time loses its download.
pub(super) const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of downloads at the same time.
const MAX_DOWNLOADS: usize = 32;

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
