//! The connections of clients. Each has a time limit for the head of a request, also between two requests, and their
//! number is limited: a client without a key must not be able to use up the descriptors of the server.

use crate::api::Connection;
use crate::error::{Context, Result};
use axum::Router;
use axum::extract::ConnectInfo;
use futures_util::future::Either;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tracing::{debug, warn};

/// [`ConnectionLimits::head_timeout`] of a server.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Delay before the next attempt after the kernel refused a connection, for example for want of descriptors.
const ACCEPT_DELAY: Duration = Duration::from_millis(100);
/// Maximum number of connections.
const MAX_CONNECTIONS: u64 = 10_000;
/// Descriptors for each connection: a stream also has one of a bridge, and a download those of a process.
const DESCRIPTORS: u64 = 4;

/// The limits of connections.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionLimits {
    /// Maximum number of connections; others wait.
    pub connections: usize,
    /// Maximum time for the head of a request, and between two requests of a connection.
    pub head_timeout: Duration,
    /// Maximum time for requests that are in progress at the shutdown.
    pub grace: Duration,
    /// Whether a handler can take a connection over. Such a server closes all connections at its shutdown.
    pub upgrades: bool,
}

impl ConnectionLimits {
    /// The limits of a server that may open this number of files.
    pub fn for_server(open_files: u64, grace: Duration) -> Self {
        let connections = (open_files / DESCRIPTORS).clamp(16, MAX_CONNECTIONS);
        let connections = usize::try_from(connections).unwrap_or(16);
        ConnectionLimits { connections, head_timeout: HEAD_TIMEOUT, grace, upgrades: false }
    }
}

/// An accepted connection.
#[derive(Debug)]
struct Accepted<S> {
    stream: S,
    connection: Connection,
    /// Held until the connection ends.
    permit: Option<OwnedSemaphorePermit>,
}

/// Listens on an address, and returns the one that the kernel has chosen if the port is 0.
///
/// # Errors
/// Fails if the address cannot be used.
pub async fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address)
        .await
        .context(|| format!("cannot listen on {address} (choose another address with --listen)"))?;
    let address = listener.local_addr().context(|| "cannot read the listening address")?;
    Ok((listener, address))
}

/// Returns a future that completes at the first SIGTERM or SIGINT.
///
/// # Errors
/// Fails if the signals cannot be handled.
pub fn end_requested() -> Result<impl Future<Output = ()> + Send + 'static> {
    let mut terminate = signal(SignalKind::terminate()).context(|| "cannot handle SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context(|| "cannot handle SIGINT")?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Serves requests until `shutdown` completes, and then those that are in progress.
pub async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    router: Router,
    shutdown: impl Future<Output = ()>,
    limits: ConnectionLimits,
) {
    let permits = Arc::new(Semaphore::new(limits.connections));
    let graceful = GracefulShutdown::new();
    // A connection is watched after its handshake: the shutdown does not wait for a silent client.
    let (handshake_done, mut handshakes) = mpsc::channel(1);
    let accept_all = async {
        loop {
            tokio::select! {
                accepted = accept(&listener, &permits) => match &tls {
                    Some(tls) => spawn_handshake(tls.clone(), accepted, limits.head_timeout, handshake_done.clone()),
                    None => spawn_connection(accepted, router.clone(), limits, &graceful),
                },
                Some(accepted) = handshakes.recv() => {
                    spawn_connection(accepted, router.clone(), limits, &graceful);
                }
            }
        }
    };
    tokio::select! {
        () = accept_all => {}
        () = shutdown => {}
    }
    drop(listener);
    drop(handshakes);
    // Streams end at once; of the others one may belong to a client that does not end its request.
    if timeout(limits.grace, graceful.shutdown()).await.is_err() {
        warn!("closing connections although requests are in progress");
    }
}

/// Waits until there are fewer connections than the limit, and for the next one. Cancel-safe.
async fn accept(listener: &TcpListener, permits: &Arc<Semaphore>) -> Accepted<TcpStream> {
    // The semaphore is never closed.
    let permit = Arc::clone(permits).acquire_owned().await.ok();
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let _ = stream.set_nodelay(true);
                let connection = Connection { local: stream.local_addr().ok(), peer };
                return Accepted { stream, connection, permit };
            }
            Err(error) => {
                warn!("cannot accept a connection: {error}");
                sleep(ACCEPT_DELAY).await;
            }
        }
    }
}

/// Negotiates TLS, and hands the connection over.
fn spawn_handshake(
    tls: TlsAcceptor,
    accepted: Accepted<TcpStream>,
    time_limit: Duration,
    done: mpsc::Sender<Accepted<TlsStream<TcpStream>>>,
) {
    let Accepted { stream, connection, permit } = accepted;
    tokio::spawn(async move {
        match timeout(time_limit, tls.accept(stream)).await {
            // The server may have begun its shutdown.
            Ok(Ok(stream)) => drop(done.send(Accepted { stream, connection, permit }).await),
            Ok(Err(error)) => debug!("handshake of {}: {error}", connection.peer),
            Err(_) => debug!("handshake of {}: timed out", connection.peer),
        }
    });
}

fn spawn_connection<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    accepted: Accepted<S>,
    router: Router,
    limits: ConnectionLimits,
    graceful: &GracefulShutdown,
) {
    let Accepted { stream, connection, permit } = accepted;
    let service = TowerToHyperService::new(router.into_service());
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(connection));
        service.call(request)
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(limits.head_timeout);
    let serving = builder.serve_connection(TokioIo::new(stream), service);
    let serving = match limits.upgrades {
        true => Either::Left(serving.with_upgrades()),
        false => Either::Right(graceful.watch(serving)),
    };
    tokio::spawn(async move {
        let _permit = permit;
        if let Err(error) = serving.await {
            debug!("connection of {}: {error}", connection.peer);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn silent_clients_lose_their_connections_to_others() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let limits = ConnectionLimits {
            connections: 2,
            head_timeout: Duration::from_millis(50),
            grace: Duration::from_secs(60),
            upgrades: false,
        };
        let router = Router::new()
            .route("/", get(async |ConnectInfo(of): ConnectInfo<Connection>| of.peer.to_string()));
        let server = tokio::spawn(serve(listener, None, router, async { drop(stopped.await) }, limits));
        let mut silent = Vec::new();
        for head in [&b""[..], b"GET / HTTP/1.1\r\nX: "] {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(head).await.unwrap();
            silent.push(stream);
        }
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        // This connection is closed too, as no other request follows.
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with(&stream.local_addr().unwrap().to_string()), "{answer}");
        for mut stream in silent {
            let mut rest = Vec::new();
            // Closed, or reset.
            let _ = stream.read_to_end(&mut rest).await;
        }
        stop.send(()).unwrap();
        server.await.unwrap();
    }
}
