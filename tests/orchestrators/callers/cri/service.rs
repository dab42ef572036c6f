//! A client of the container runtime interface: gRPC on the socket of containerd.

use tokio::runtime::{Builder, Runtime};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use super::messages::Method;
use crate::output::patience;

/// A connection.
#[derive(Debug)]
pub(super) struct Service {
    runtime: Runtime,
    channel: Channel,
}

impl Service {
    /// Connects to the socket, on which somebody listens.
    pub(super) fn connect(socket: &str) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let endpoint = Endpoint::try_from(format!("unix://{socket}")).unwrap().timeout(patience());
        let channel = runtime.block_on(endpoint.connect()).unwrap();
        Service { runtime, channel }
    }

    /// Calls a method; the text of its error.
    pub(super) fn call<M: Method>(&self, request: M) -> Result<M::Response, String> {
        let mut client = Grpc::new(self.channel.clone());
        self.runtime.block_on(async {
            client.ready().await.map_err(|error| error.to_string())?;
            let (path, codec) = (PathAndQuery::from_static(M::PATH), ProstCodec::<M, M::Response>::default());
            let answer = client.unary(tonic::Request::new(request), path, codec).await;
            answer.map(tonic::Response::into_inner).map_err(|status| status.message().to_owned())
        })
    }
}
