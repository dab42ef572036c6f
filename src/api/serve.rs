//! Connections from inside: each is a task, and has at most one connection to the upstream, which it keeps.

use super::key::Key;
use super::request::{self, Refused};
use super::upstream::{Sender, Trouble, Way};
use super::wire::{LONGEST, SOCKET, Said};
use crate::sys::scm;
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
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, Interest};
use tokio::net::{TcpListener, UnixDatagram, UnixListener};
use tokio::sync::Semaphore;

/// Connections at once; more wait until one ends.
const CONNECTIONS: usize = 256;
/// The longest head of a request.
const HEAD: usize = 64 << 10;
/// How long a connection may go without a whole head.
const IDLE: Duration = Duration::from_secs(300);
/// How long the same trouble is told once.
const TOLD: Duration = Duration::from_secs(60);
/// How long is waited when no connection can be taken, as when there are no descriptors left.
const PAUSE: Duration = Duration::from_millis(100);

type Body = Either<Incoming, Full<Bytes>>;

/// A connection from inside.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// What all connections share.
pub(super) struct Door {
    way: Way,
    key: Key,
    supervisor: UnixDatagram,
    room: Semaphore,
    /// The last trouble that was told.
    told: Mutex<Option<(String, Instant)>>,
}

/// Serves until the supervisor is gone.
///
/// # Errors
/// What kept the loop from running.
pub(super) fn serve(way: Way, key: Key, supervisor: OwnedFd) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // Not of datagrams, but of whole messages all the same.
        let supervisor = UnixDatagram::from_std(supervisor.into())?;
        let room = Semaphore::new(CONNECTIONS);
        let door = Arc::new(Door { way, key, supervisor, room, told: Mutex::new(None) });
        while let Some(socket) = door.next_socket().await? {
            tokio::spawn(listen(Listener::of(socket)?, Arc::clone(&door)));
        }
        Ok(())
    })
}

impl Door {
    /// The next socket that the supervisor passes; `None` when it is gone.
    async fn next_socket(&self) -> io::Result<Option<OwnedFd>> {
        loop {
            self.supervisor.readable().await?;
            let mut buffer = [0; LONGEST];
            let heard = self
                .supervisor
                .try_io(Interest::READABLE, || Ok(scm::receive(self.supervisor.as_fd(), &mut buffer)?));
            match heard {
                Ok(received) if received.len == 0 => return Ok(None),
                Ok(mut received) => {
                    let is_socket = buffer.get(..received.len) == Some(SOCKET);
                    if let Some(socket) = received.fds[0].take().filter(|_| is_socket) {
                        return Ok(Some(socket));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Tells the supervisor of trouble, the same once in a while. Who does not listen misses it.
    fn tell(&self, trouble: &Trouble) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = |(text, at): &(String, Instant)| *text == trouble.text && at.elapsed() < TOLD;
        if !told.as_ref().is_some_and(is_known) {
            *told = Some((trouble.text.clone(), Instant::now()));
            let said = Said::Trouble(trouble.text.clone());
            let _ = scm::send(self.supervisor.as_fd(), &said.encode(), &[]);
        }
    }
}

/// Who hears connections.
enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    fn of(socket: OwnedFd) -> io::Result<Self> {
        let address: SockaddrStorage = getsockname(socket.as_raw_fd())?;
        Ok(match address.family() {
            Some(AddressFamily::Unix) => Listener::Unix(UnixListener::from_std(socket.into())?),
            _ => Listener::Tcp(TcpListener::from_std(socket.into())?),
        })
    }

    async fn accept(&self) -> io::Result<Box<dyn Stream>> {
        match self {
            Listener::Unix(listener) => Ok(Box::new(listener.accept().await?.0)),
            Listener::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok(Box::new(stream))
            }
        }
    }
}

/// Takes connections for as long as there is room for them.
async fn listen(listener: Listener, door: Arc<Door>) {
    while let Ok(room) = door.room.acquire().await {
        match listener.accept().await {
            Ok(stream) => {
                room.forget();
                tokio::spawn(converse(stream, Arc::clone(&door)));
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// One connection, to its end.
async fn converse(stream: Box<dyn Stream>, door: Arc<Door>) {
    let kept: Arc<Mutex<Option<Sender>>> = Arc::default();
    let service = service_fn(|request| {
        let (door, kept) = (Arc::clone(&door), Arc::clone(&kept));
        async move { Ok::<_, Infallible>(answer(request, &door, &kept).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE)
        .max_buf_size(HEAD)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    // What was wrong with it the client has heard.
    drop(served);
    door.room.add_permits(1);
}

/// The answer to one request; the connection to the upstream is kept for the next.
async fn answer(request: Request<Incoming>, door: &Door, kept: &Mutex<Option<Sender>>) -> Response<Body> {
    let request = match request::outgoing(request, door.way.upstream(), &door.key) {
        Ok(request) => request,
        Err(refused) => return refusal(refused),
    };
    let sender = kept.lock().unwrap_or_else(PoisonError::into_inner).take();
    let answered = match send(request, door, sender).await {
        Ok((response, sender)) => {
            *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
            request::incoming(response)
        }
        Err(trouble) => {
            door.tell(&trouble);
            return no_upstream(&trouble);
        }
    };
    answered.map_or_else(refusal, |response| response.map(Either::Left))
}

/// Sends a request on the connection that is there, or on a new one: an old one may end just as it is used.
async fn send(
    mut request: Request<Incoming>,
    door: &Door,
    kept: Option<Sender>,
) -> Result<(Response<Incoming>, Sender), Trouble> {
    if let Some(mut sender) = kept
        && sender.ready().await.is_ok()
    {
        match sender.try_send_request(request).await {
            Ok(response) => return Ok((response, sender)),
            // Nothing of it was sent: nobody has heard it twice.
            Err(mut failure) => match failure.take_message() {
                Some(unsent) => request = unsent,
                None => return Err(door.way.trouble(failure.into_error())),
            },
        }
    }
    let mut sender = door.way.connect().await?;
    match sender.send_request(request).await {
        Ok(response) => Ok((response, sender)),
        Err(failure) => Err(door.way.trouble(failure)),
    }
}

fn refusal(refused: Refused) -> Response<Body> {
    let mut response = own(refused.status, "invalid_request_error", refused.why);
    // Whatever else the client has sent is not worth reading.
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

fn no_upstream(trouble: &Trouble) -> Response<Body> {
    let mut response = own(StatusCode::BAD_GATEWAY, "api_error", &trouble.text);
    if trouble.lasts {
        // Clients of this API ask again for a long time otherwise.
        response.headers_mut().insert("x-should-retry", HeaderValue::from_static("false"));
    }
    response
}

/// An answer of our own, in the form of the API's errors, so that agents show its text.
fn own(status: StatusCode, kind: &str, why: &str) -> Response<Body> {
    let error = serde_json::json!({
        "type": "error",
        "error": { "type": kind, "message": format!("saggar: {why}") },
    });
    let mut response = Response::new(Either::Right(Full::from(error.to_string())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
