//! Closes a connection so that the client can read the last response although it still sends.
//!
//! A socket that is closed with unread input resets the connection (RFC 1122, section 4.2.2.13); the client then fails to
//! send, and may never read the response. So the server ends its sending side, then reads and discards until the
//! client closes, for a bounded time (RFC 9112, section 9.6).

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::timeout;

/// Time limit for the client to close, and for the next bytes from it.
const LINGER_TIMEOUT: Duration = Duration::from_secs(30);
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);
/// Size of one read, in bytes.
const CHUNK: usize = 16 << 10;

/// The stream of a connection from the sandbox.
pub(super) trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for S {}

/// A stream that is still there when the HTTP server has dropped its handle of it.
#[derive(Clone)]
pub(super) struct LingeringStream(Arc<Mutex<Box<dyn ByteStream>>>);

impl LingeringStream {
    pub(super) fn new(stream: Box<dyn ByteStream>) -> Self {
        LingeringStream(Arc::new(Mutex::new(stream)))
    }

    /// Ends the sending side and discards input until the client closes or a time limit is exceeded.
    pub(super) async fn close(mut self) {
        let discard = async {
            self.shutdown().await?;
            let mut chunk = [0; CHUNK];
            while timeout(IDLE_TIMEOUT, self.read(&mut chunk)).await?? > 0 {}
            Ok::<_, io::Error>(())
        };
        // The connection is closed whatever the result is.
        let _ = timeout(LINGER_TIMEOUT, discard).await;
    }

    fn lock(&self) -> MutexGuard<'_, Box<dyn ByteStream>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsyncRead for LingeringStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut **self.lock()).poll_read(context, buffer)
    }
}

impl AsyncWrite for LingeringStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut **self.lock()).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut **self.lock()).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut **self.lock()).poll_shutdown(context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut **self.lock()).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.lock().is_write_vectored()
    }
}
