//! A client of the relays on the nodes (crate::relay).

use super::settings::RelaySettings;
use crate::error::{Context, Result};
use crate::relay::{BRIDGE, CONTROL, EVENTS, PROTOCOL};
use crate::saggar::{SocketReader, SocketWriter};
use axum::http::header::{CONNECTION, HOST, UPGRADE};
use axum::http::{Method, StatusCode};
use http_body_util::Empty;
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::fmt::Display;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// How long a relay may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// What is needed to use the relays of all nodes.
#[derive(Debug, Clone)]
pub(super) struct RelayClient(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    settings: RelaySettings,
    tls: Arc<ClientConfig>,
    /// The name in the certificates of all relays: their addresses are those of nodes, which come and go.
    name: ServerName<'static>,
}

/// The relay of one node.
#[derive(Debug, Clone)]
pub(super) struct NodeRelay {
    client: RelayClient,
    /// The address of the node.
    node: String,
}

/// A socket behind a relay.
#[derive(Debug, Clone)]
pub struct RelayedSocket {
    relay: NodeRelay,
    /// The name of the pod, and which of its sockets.
    path: String,
}

impl RelayClient {
    /// # Errors
    /// Fails if the certificates cannot be used.
    pub(super) fn new(settings: &RelaySettings) -> Result<Self> {
        let name = ServerName::try_from(settings.name.clone());
        let name = name.context(|| format!("invalid kubernetes.relay.name {:?}", settings.name))?;
        let identity = Some((settings.certificate.as_path(), settings.key.as_path()));
        let tls = crate::http_client::trusting(&settings.certificate_authority, identity)?;
        Ok(RelayClient(Arc::new(Shared { settings: settings.clone(), tls, name })))
    }

    /// The relay of the node with this address.
    pub(super) fn at(&self, node: &str) -> NodeRelay {
        NodeRelay { client: self.clone(), node: node.to_owned() }
    }
}

impl NodeRelay {
    /// The socket of the bridge of a pod.
    pub(super) fn bridge(&self, pod: &str) -> RelayedSocket {
        RelayedSocket { relay: self.clone(), path: format!("{pod}/{BRIDGE}") }
    }

    /// The control socket of a pod.
    pub(super) fn control(&self, pod: &str) -> RelayedSocket {
        RelayedSocket { relay: self.clone(), path: format!("{pod}/{CONTROL}") }
    }

    /// Reads the stored events of a pod after this number; `None` if there are none.
    ///
    /// # Errors
    /// Fails if the relay does not answer.
    pub(super) async fn events(&self, pod: &str, after: u64) -> Result<Option<BodyReader>> {
        let answer = self.request(Method::GET, &format!("{pod}/{EVENTS}?after={after}"), false).await;
        Ok(answer.context(|| "cannot read events")?.map(|response| BodyReader::new(response.into_body())))
    }

    /// Whether events of a pod are stored.
    ///
    /// # Errors
    /// Fails if the relay does not answer.
    pub(super) async fn has_events(&self, pod: &str) -> io::Result<bool> {
        Ok(self.request(Method::HEAD, &format!("{pod}/{EVENTS}"), false).await?.is_some())
    }

    /// Removes the stored events of a pod.
    ///
    /// # Errors
    /// Fails if the relay does not answer, or cannot remove them.
    pub(super) async fn remove_events(&self, pod: &str) -> Result<()> {
        let answer = self.request(Method::DELETE, &format!("{pod}/{EVENTS}"), false).await;
        answer.context(|| "cannot remove events").map(drop)
    }

    fn error(&self, path: &str, kind: io::ErrorKind, cause: impl Display) -> io::Error {
        io::Error::new(kind, format!("the relay of the node {}, {path}: {cause}", self.node))
    }

    /// Sends a request. Returns `None` if the relay does not have what it names. An error names the node.
    async fn request(
        &self,
        method: Method,
        path: &str,
        upgrades: bool,
    ) -> io::Result<Option<Response<Incoming>>> {
        match timeout(ANSWER_TIMEOUT, self.send(method, path, upgrades)).await {
            Ok(answer) => answer.map_err(|error| self.error(path, error.kind(), error)),
            Err(_) => {
                let cause = format!("it did not answer within {ANSWER_TIMEOUT:?}");
                Err(self.error(path, io::ErrorKind::TimedOut, cause))
            }
        }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        upgrades: bool,
    ) -> io::Result<Option<Response<Incoming>>> {
        let Shared { settings, tls, name } = &*self.client.0;
        let stream = TcpStream::connect((self.node.as_str(), settings.port)).await?;
        stream.set_nodelay(true)?;
        let stream = TlsConnector::from(Arc::clone(tls)).connect(name.clone(), stream).await?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        // It ends when the response has been read or dropped, or the upgraded connection has been closed.
        tokio::spawn(connection.with_upgrades());
        let mut request =
            Request::builder().method(method).uri(format!("/v1/{path}")).header(HOST, settings.name.as_str());
        if upgrades {
            request = request.header(CONNECTION, "upgrade").header(UPGRADE, PROTOCOL);
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(io::Error::other)?;
        let response = sender.send_request(request).await.map_err(io::Error::other)?;
        match response.status() {
            StatusCode::NOT_FOUND => Ok(None),
            StatusCode::SWITCHING_PROTOCOLS if upgrades => Ok(Some(response)),
            StatusCode::OK | StatusCode::NO_CONTENT if !upgrades => Ok(Some(response)),
            status => Err(io::Error::other(format!("it answered {status}"))),
        }
    }
}

impl RelayedSocket {
    /// Connects to the socket.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if nobody serves it; others if the relay does not answer.
    pub(crate) async fn connect(&self) -> io::Result<(SocketReader, SocketWriter)> {
        let failed = |kind, cause: &dyn Display| self.relay.error(&self.path, kind, cause);
        let response = self.relay.request(Method::GET, &self.path, true).await?;
        let response =
            response.ok_or_else(|| failed(io::ErrorKind::NotFound, &"no process serves the socket"))?;
        let other = |cause: &dyn Display| failed(io::ErrorKind::Other, cause);
        let upgraded = hyper::upgrade::on(response).await.map_err(|error| other(&error))?;
        let parts = upgraded.downcast::<TokioIo<TlsStream<TcpStream>>>();
        let parts = parts.map_err(|_| other(&"the connection is of another type"))?;
        let (reader, writer) = tokio::io::split(parts.io.into_inner());
        // What the socket has sent together with the head of the response.
        let reader = io::Cursor::new(parts.read_buf).chain(reader);
        Ok((Box::new(reader), Box::new(writer)))
    }
}

/// The body of a response as a stream of bytes.
#[derive(Debug)]
pub(super) struct BodyReader {
    body: Incoming,
    chunk: Bytes,
}

impl BodyReader {
    fn new(body: Incoming) -> Self {
        BodyReader { body, chunk: Bytes::new() }
    }
}

impl AsyncRead for BodyReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut TaskContext<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.chunk.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                None => return Poll::Ready(Ok(())),
                // Frames of trailers have no bytes.
                Some(Ok(frame)) => self.chunk = frame.into_data().unwrap_or_default(),
                Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
            }
        }
        let count = self.chunk.len().min(buffer.remaining());
        buffer.put_slice(&self.chunk.split_to(count));
        Poll::Ready(Ok(()))
    }
}
