//! Connections from the sandbox. Each is a task and keeps at most one connection to the upstream.

use super::key::ApiKey;
use super::linger::{ByteStream, LingeringStream};
use super::request::{self, RejectedRequest};
use super::upstream::{UpstreamError, UpstreamRoute, UpstreamSender};
use crate::service::{ServiceEvent, SupervisorSocket};
use http_body_util::{Either, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use nix::sys::socket::{AddressFamily, SockaddrLike, SockaddrStorage, getsockname};
use std::convert::Infallible;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;

/// Maximum number of connections at a time. More wait until one ends.
const MAX_CONNECTIONS: usize = 256;
/// Maximum size of a request head, in bytes.
const MAX_HEAD_SIZE: usize = 64 << 10;
/// Time limit for a connection to send a whole request head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(300);
/// Interval in which the same error is reported once.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);
/// Delay before the next accept after an error, for instance for want of descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

type ResponseBody = Either<Incoming, Full<Bytes>>;

/// State that all connections share.
pub(super) struct ApiServer {
    route: UpstreamRoute,
    key: ApiKey,
    supervisor: SupervisorSocket,
    connection_slots: Semaphore,
    /// The last reported error and its time.
    last_report: Mutex<Option<(String, Instant)>>,
}

/// Serves requests until the supervisor closes its socket.
///
/// # Errors
/// The error that prevented the event loop from running.
pub(super) fn serve_requests(way: UpstreamRoute, key: ApiKey, supervisor: OwnedFd) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let supervisor = SupervisorSocket::new(supervisor)?;
        let room = Semaphore::new(MAX_CONNECTIONS);
        let door = Arc::new(ApiServer {
            route: way,
            key,
            supervisor,
            connection_slots: room,
            last_report: Mutex::new(None),
        });
        while let Some(socket) = door.supervisor.next_listener().await? {
            tokio::spawn(accept_connections(RequestListener::from_fd(socket)?, Arc::clone(&door)));
        }
        Ok(())
    })
}

impl ApiServer {
    /// Reports an error to the supervisor, the same error once per interval. The result of the send is ignored.
    fn report(&self, trouble: &UpstreamError) {
        let mut told = self.last_report.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known =
            |(text, at): &(String, Instant)| *text == trouble.message && at.elapsed() < REPORT_INTERVAL;
        if !told.as_ref().is_some_and(is_known) {
            *told = Some((trouble.message.clone(), Instant::now()));
            self.supervisor.report(&ServiceEvent::Unavailable(trouble.message.clone()));
        }
    }
}

/// A listening socket that accepts connections from the sandbox.
enum RequestListener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl RequestListener {
    fn from_fd(socket: OwnedFd) -> io::Result<Self> {
        let address: SockaddrStorage = getsockname(socket.as_raw_fd())?;
        Ok(match address.family() {
            Some(AddressFamily::Unix) => RequestListener::Unix(UnixListener::from_std(socket.into())?),
            _ => RequestListener::Tcp(TcpListener::from_std(socket.into())?),
        })
    }

    async fn accept(&self) -> io::Result<Box<dyn ByteStream>> {
        match self {
            RequestListener::Unix(listener) => Ok(Box::new(listener.accept().await?.0)),
            RequestListener::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok(Box::new(stream))
            }
        }
    }
}

/// Accepts connections while the connection limit allows it.
async fn accept_connections(listener: RequestListener, door: Arc<ApiServer>) {
    while let Ok(room) = door.connection_slots.acquire().await {
        match listener.accept().await {
            Ok(stream) => {
                room.forget();
                tokio::spawn(serve_connection(stream, Arc::clone(&door)));
            }
            Err(_) => tokio::time::sleep(ACCEPT_RETRY_DELAY).await,
        }
    }
}

/// Serves one connection to its end.
async fn serve_connection(stream: Box<dyn ByteStream>, door: Arc<ApiServer>) {
    let kept: Arc<Mutex<Option<UpstreamSender>>> = Arc::default();
    let service = service_fn(|request| {
        let (door, kept) = (Arc::clone(&door), Arc::clone(&kept));
        async move { Ok::<_, Infallible>(respond(request, &door, &kept).await) }
    });
    let stream = LingeringStream::new(stream);
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD_SIZE)
        .serve_connection(TokioIo::new(stream.clone()), service)
        .await;
    // The client has been sent any error.
    drop(served);
    stream.close().await;
    door.connection_slots.add_permits(1);
}

/// Responds to one request. The connection to the upstream is kept for the next one.
async fn respond(
    request: Request<Incoming>,
    door: &ApiServer,
    kept: &Mutex<Option<UpstreamSender>>,
) -> Response<ResponseBody> {
    let request = match request::to_upstream(request, door.route.upstream(), &door.key) {
        Ok(request) => request,
        Err(refused) => return rejection_response(refused),
    };
    let sender = kept.lock().unwrap_or_else(PoisonError::into_inner).take();
    let answered = match send_upstream(request, door, sender).await {
        Ok((response, sender)) => {
            *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
            request::from_upstream(response)
        }
        Err(trouble) => {
            door.report(&trouble);
            return upstream_error_response(&trouble);
        }
    };
    answered.map_or_else(rejection_response, |response| response.map(Either::Left))
}

/// Sends a request on the kept connection, or on a new one, because the upstream may close a kept connection at any
/// time.
async fn send_upstream(
    mut request: Request<Incoming>,
    door: &ApiServer,
    kept: Option<UpstreamSender>,
) -> Result<(Response<Incoming>, UpstreamSender), UpstreamError> {
    if let Some(mut sender) = kept
        && sender.ready().await.is_ok()
    {
        match sender.try_send_request(request).await {
            Ok(response) => return Ok((response, sender)),
            // Nothing was sent, so the request is not repeated.
            Err(mut failure) => match failure.take_message() {
                Some(unsent) => request = unsent,
                None => return Err(door.route.error(failure.into_error())),
            },
        }
    }
    let mut sender = door.route.connect().await?;
    match sender.send_request(request).await {
        Ok(response) => Ok((response, sender)),
        Err(failure) => Err(door.route.error(failure)),
    }
}

fn rejection_response(refused: RejectedRequest) -> Response<ResponseBody> {
    let mut response = api_error_response(refused.status, "invalid_request_error", refused.why);
    // The rest of the client's input is not parsed.
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

fn upstream_error_response(trouble: &UpstreamError) -> Response<ResponseBody> {
    let mut response = api_error_response(StatusCode::BAD_GATEWAY, "api_error", &trouble.message);
    if trouble.is_permanent {
        // Without this field, clients of this API retry for a long time.
        response.headers_mut().insert("x-should-retry", HeaderValue::from_static("false"));
    }
    response
}

/// A response of this process in the format of the API's errors, so that agents show its text.
fn api_error_response(status: StatusCode, kind: &str, why: &str) -> Response<ResponseBody> {
    let error = serde_json::json!({
        "type": "error",
        "error": { "type": kind, "message": format!("saggar: {why}") },
    });
    let mut response = Response::new(Either::Right(Full::from(error.to_string())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
