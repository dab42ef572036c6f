//! A client of the container runtime interface: gRPC over HTTP/2 on the socket of containerd, one connection for each call.

use std::error::Error;
use std::io;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use h2::RecvStream;
use http::{HeaderMap, Request};
use percent_encoding::percent_decode_str;
use prost::Message;
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use super::messages::Method;
use crate::output::patience;

/// A byte for compression, and four for the length of the message.
const PREFIX: usize = 5;

/// The service at a socket.
#[derive(Debug)]
pub(super) struct Service {
    runtime: Runtime,
    socket: String,
}

impl Service {
    /// The service at this socket, on which somebody listens.
    pub(super) fn new(socket: String) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        Service { runtime, socket }
    }

    /// Calls a method; the text of its error.
    pub(super) fn call<M: Method>(&self, request: &M) -> Result<M::Response, String> {
        let answer = self.runtime.block_on(async { timeout(patience(), self.exchange(request)).await });
        answer.map_err(|_| format!("{}: no answer", M::PATH))?.map_err(|error| error.to_string())
    }

    async fn exchange<M: Method>(&self, request: &M) -> Result<M::Response, Box<dyn Error>> {
        let stream = UnixStream::connect(&self.socket).await?;
        let (mut client, connection) = h2::client::handshake(stream).await?;
        tokio::spawn(connection);
        let head = Request::post(format!("http://localhost{}", M::PATH))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())?;
        let (response, mut body) = client.send_request(head, false)?;
        body.send_data(frame(request), true)?;
        let (head, mut body) = response.await?.into_parts();
        check_status(&head.headers)?;
        let message = read(&mut body).await?;
        if let Some(trailers) = body.trailers().await? {
            check_status(&trailers)?;
        }
        Ok(M::Response::decode(message.get(PREFIX..).ok_or("an incomplete message")?)?)
    }
}

fn frame(message: &impl Message) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(message.encoded_len().try_into().unwrap());
    frame.put_slice(&message.encode_to_vec());
    frame.freeze()
}

async fn read(body: &mut RecvStream) -> Result<Vec<u8>, h2::Error> {
    let mut bytes = Vec::new();
    while let Some(chunk) = body.data().await {
        let chunk = chunk?;
        body.flow_control().release_capacity(chunk.remaining())?;
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

/// A failure is in the trailers, or without a body in the head.
fn check_status(headers: &HeaderMap) -> Result<(), Box<dyn Error>> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    match text("grpc-status") {
        None | Some("0") => Ok(()),
        Some(status) => {
            let message = percent_decode_str(text("grpc-message").unwrap_or_default()).decode_utf8_lossy();
            Err(io::Error::other(format!("{message} (status {status})")).into())
        }
    }
}
