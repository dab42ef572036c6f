//! The routes of the relay.

use super::{BRIDGE, CONTROL, EVENTS, PROTOCOL};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path as PathParameters, Query, Request, State};
use axum::http::StatusCode;
use axum::http::header::{CONNECTION, UPGRADE};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::stream;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, copy_bidirectional};
use tokio::net::UnixStream;
use tokio::process::{Child, ChildStdout, Command};
use tokio::task::spawn_blocking;
use tracing::{debug, warn};

/// Size of the parts in which stored events are sent, in bytes.
const PART_SIZE: usize = 64 << 10;
/// Maximum length of the name of a socket, in bytes (saggar-oci(8)).
const MAX_NAME: usize = 64;

/// What the relay gives access to.
#[derive(Debug)]
pub(super) struct Relay {
    /// The directory of the sockets, an absolute path.
    pub(super) sockets: PathBuf,
    /// The program that reads stored events.
    pub(super) saggar: PathBuf,
}

type RouteResult = Result<Response, (StatusCode, String)>;

pub(super) fn router(relay: Relay) -> Router {
    Router::new()
        .route(&format!("/v1/{{name}}/{BRIDGE}"), get(bridge))
        .route(&format!("/v1/{{name}}/{CONTROL}"), get(control))
        .route(&format!("/v1/{{name}}/{EVENTS}"), get(events).head(has_events).delete(remove_events))
        .with_state(Arc::new(relay))
}

async fn bridge(state: State<Arc<Relay>>, name: PathParameters<String>, request: Request) -> RouteResult {
    relay_socket(state, name, "", request).await
}

async fn control(state: State<Arc<Relay>>, name: PathParameters<String>, request: Request) -> RouteResult {
    relay_socket(state, name, ".control", request).await
}

/// Connects the client with a socket.
async fn relay_socket(
    State(relay): State<Arc<Relay>>,
    PathParameters(name): PathParameters<String>,
    suffix: &str,
    request: Request,
) -> RouteResult {
    let socket = relay.file(&name, suffix)?;
    if request.headers().get(UPGRADE).is_none_or(|protocol| protocol != PROTOCOL) {
        return Err((StatusCode::UPGRADE_REQUIRED, format!("upgrade to {PROTOCOL}")));
    }
    let mut stream = match UnixStream::connect(&socket).await {
        Ok(stream) => stream,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            return Err((StatusCode::NOT_FOUND, "no process serves the socket".into()));
        }
        Err(error) => return Err(internal(format!("cannot connect to {}: {error}", socket.display()))),
    };
    tokio::spawn(async move {
        let relayed = async {
            let mut client = TokioIo::new(hyper::upgrade::on(request).await.map_err(io::Error::other)?);
            copy_bidirectional(&mut client, &mut stream).await
        };
        if let Err(error) = relayed.await {
            debug!("{}: {error}", socket.display());
        }
    });
    Ok((StatusCode::SWITCHING_PROTOCOLS, [(CONNECTION, "upgrade"), (UPGRADE, PROTOCOL)]).into_response())
}

#[derive(Debug, Deserialize)]
struct EventsQuery {
    #[serde(default)]
    after: u64,
}

/// Sends the stored events of a pod.
async fn events(
    State(relay): State<Arc<Relay>>,
    PathParameters(name): PathParameters<String>,
    Query(query): Query<EventsQuery>,
) -> RouteResult {
    let directory = relay.events_directory(&name).await?;
    let mut command = Command::new(&relay.saggar);
    command.args(["session", "events", "--after", &query.after.to_string(), "--spool"]).arg(&directory);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).kill_on_drop(true);
    let started = command.spawn().and_then(|mut process| {
        let output = process.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok((process, output))
    });
    let started =
        started.map_err(|error| internal(format!("cannot start {}: {error}", relay.saggar.display())))?;
    Ok(Body::from_stream(stream::try_unfold(Some(started), next_part)).into_response())
}

/// Answers whether events of a pod are stored, without a process that reads them.
async fn has_events(
    State(relay): State<Arc<Relay>>,
    PathParameters(name): PathParameters<String>,
) -> RouteResult {
    relay.events_directory(&name).await.map(|_| StatusCode::OK.into_response())
}

/// The next part of the output of a process. If the process fails, so does the response: the client must not take a part of
/// the events for all.
async fn next_part(
    state: Option<(Child, ChildStdout)>,
) -> io::Result<Option<(Bytes, Option<(Child, ChildStdout)>)>> {
    let Some((mut process, mut output)) = state else { return Ok(None) };
    let mut part = vec![0; PART_SIZE];
    let count = output.read(&mut part).await?;
    if count > 0 {
        part.truncate(count);
        return Ok(Some((part.into(), Some((process, output)))));
    }
    match process.wait().await? {
        status if status.success() => Ok(None),
        status => {
            warn!("saggar session events exited with {status}");
            Err(io::Error::other("the events cannot be read"))
        }
    }
}

/// Removes the stored events of a pod.
async fn remove_events(
    State(relay): State<Arc<Relay>>,
    PathParameters(name): PathParameters<String>,
) -> RouteResult {
    let directory = relay.file(&name, ".events")?;
    let shown = directory.display().to_string();
    match spawn_blocking(move || fs::remove_dir_all(directory)).await {
        Ok(Ok(())) => Ok(StatusCode::NO_CONTENT.into_response()),
        Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => {
            Err((StatusCode::NOT_FOUND, "no events are stored".into()))
        }
        Ok(Err(error)) => Err(internal(format!("cannot remove {shown}: {error}"))),
        Err(error) => Err(internal(format!("cannot remove {shown}: {error}"))),
    }
}

impl Relay {
    /// The directory of the stored events of a pod, if there is one.
    async fn events_directory(&self, name: &str) -> Result<PathBuf, (StatusCode, String)> {
        let directory = self.file(name, ".events")?;
        match tokio::fs::try_exists(&directory).await {
            Ok(true) => Ok(directory),
            _ => Err((StatusCode::NOT_FOUND, "no events are stored".into())),
        }
    }

    /// The file with this suffix of the pod with this name.
    fn file(&self, name: &str, suffix: &str) -> Result<PathBuf, (StatusCode, String)> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        match (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(is_plain) {
            true => Ok(self.sockets.join(format!("{name}{suffix}"))),
            false => Err((StatusCode::NOT_FOUND, "this is no name of a pod".into())),
        }
    }
}

fn internal(text: String) -> (StatusCode, String) {
    warn!("{text}");
    (StatusCode::INTERNAL_SERVER_ERROR, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_in_the_directory() {
        let relay = Relay { sockets: "/sockets".into(), saggar: "saggar".into() };
        let file = relay.file("saggar-1", ".events").unwrap();
        assert_eq!(file, std::path::Path::new("/sockets/saggar-1.events"));
        for name in ["", ".", "..", "a/b", "a.control", "a b", "a\0", &"a".repeat(65)] {
            assert!(relay.file(name, "").is_err(), "{name:?}");
        }
    }
}
