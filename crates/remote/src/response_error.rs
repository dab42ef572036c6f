//! Requests that fail: without a response, and with one that is an error (saggar-server(8), ERROR RESPONSES).

use crate::address::ServerAddress;
use saggar_sys::error::{Code, Error};
use saggar_sys::text;
use serde_json::Value;
use std::io;
use std::time::Duration;

/// A request that has failed.
#[derive(Debug)]
pub(crate) enum RequestFailure {
    /// There is no response, or it was cut off. The server may have received the request.
    Connection(ureq::Error),
    /// The server has refused the request.
    Response(ErrorResponse),
    /// The response is no JSON.
    NotJson,
    /// A name or an id that no address can contain; nothing was sent.
    Name(String),
}

/// A response that is an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ErrorResponse {
    status: u16,
    message: String,
    /// The header `Retry-After`, in seconds.
    retry_after: Option<u64>,
}

impl ErrorResponse {
    /// Reads the message of the body: `message` if it has one, else `error`, else the status.
    pub(crate) fn new(status: u16, body: &[u8], retry_after: Option<u64>) -> Self {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let told = body["message"].as_str().or_else(|| body["error"].as_str());
        let message = told.map_or_else(|| format!("HTTP status {status}"), text::summary);
        ErrorResponse { status, message, retry_after }
    }

    /// The error for the user.
    fn into_error(self) -> Error {
        let code = match self.status {
            401 | 403 => Code::Refused,
            410 => Code::Ended,
            409 => Code::State,
            400..500 => Code::Invalid,
            _ => Code::System,
        };
        let error = Error::new(code, format!("the server answers: {}", self.message));
        match (self.status, self.retry_after) {
            (401, _) => error.hint("log in with a valid key: saggar remote login URL"),
            (403, _) => error.hint("the scope of the key does not include this; log in with another key"),
            (_, Some(seconds)) => error.hint(format!("try again in {seconds} seconds")),
            _ => error,
        }
    }
}

impl RequestFailure {
    /// Whether another attempt can succeed, if a connection was made before.
    pub(crate) fn is_temporary(&self) -> bool {
        match self {
            RequestFailure::Connection(error) => {
                matches!(error, ureq::Error::Io(_) | ureq::Error::Timeout(_) | ureq::Error::HostNotFound)
            }
            RequestFailure::Response(response) => matches!(response.status, 429 | 502 | 503 | 504),
            RequestFailure::NotJson | RequestFailure::Name(_) => false,
        }
    }

    /// Whether no server has received the request.
    pub(crate) fn is_unreachable(&self) -> bool {
        use io::ErrorKind::{AddrNotAvailable, ConnectionRefused, HostUnreachable, NetworkUnreachable};
        let kinds = [AddrNotAvailable, ConnectionRefused, HostUnreachable, NetworkUnreachable];
        match self {
            RequestFailure::Connection(ureq::Error::Io(error)) if kinds.contains(&error.kind()) => true,
            RequestFailure::Connection(error) => {
                let is_early = matches!(
                    error,
                    ureq::Error::HostNotFound
                        | ureq::Error::ConnectionFailed
                        | ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve)
                );
                is_early || is_of_tls(error)
            }
            _ => false,
        }
    }

    /// The delay that the server asks for.
    pub(crate) fn retry_after(&self) -> Duration {
        match self {
            RequestFailure::Response(response) => Duration::from_secs(response.retry_after.unwrap_or(0)),
            _ => Duration::ZERO,
        }
    }

    /// The error for the user.
    pub(crate) fn into_error(self, address: &ServerAddress) -> Error {
        match self {
            RequestFailure::Response(response) => response.into_error(),
            RequestFailure::NotJson => {
                Error::new(Code::Invalid, format!("{address} did not answer with JSON"))
                    .hint("is saggar-server running there, and is the address right?")
            }
            RequestFailure::Name(name) => {
                Error::new(Code::Usage, format!("invalid name or path component {name:?}"))
            }
            RequestFailure::Connection(error) => {
                let hint = match is_of_certificate(&error) {
                    true => "--ca-file names the certificates of an authority that this host does not trust",
                    false => "is saggar-server running there, and is the address right?",
                };
                Error::system(format_args!("send a request to {address}"), reason(&error)).hint(hint)
            }
        }
    }
}

/// Whether TLS has failed.
fn is_of_tls(error: &ureq::Error) -> bool {
    matches!(error, ureq::Error::Tls(_)) || error_of_tls(error).is_some()
}

/// Whether the certificate of the server was refused.
fn is_of_certificate(error: &ureq::Error) -> bool {
    matches!(error_of_tls(error), Some(rustls::Error::InvalidCertificate(_)))
}

/// The error of TLS; that of a handshake is in an error of the connection.
fn error_of_tls(error: &ureq::Error) -> Option<&rustls::Error> {
    match error {
        ureq::Error::Rustls(error) => Some(error),
        ureq::Error::Io(error) => error.get_ref()?.downcast_ref(),
        _ => None,
    }
}

/// The reason without the details of the library.
fn reason(error: &ureq::Error) -> String {
    match error {
        ureq::Error::Io(error) => error.to_string(),
        ureq::Error::HostNotFound => "the name of the host is unknown".into(),
        ureq::Error::Timeout(_) => "the server did not answer in time".into(),
        other => text::summary(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_each_shape_of_errors_is_told() {
        for (body, message) in [
            (r#"{"error":"Session not found","statusCode":404}"#, "Session not found"),
            (
                r#"{"error":"Bad Request","message":"prompt is missing","statusCode":400}"#,
                "prompt is missing",
            ),
            ("<html>", "HTTP status 404"),
            ("{\"error\":\"a\\u001b[2Jb\"}", "a\\u{1b}[2Jb"),
        ] {
            let response = ErrorResponse::new(404, body.as_bytes(), None);
            assert_eq!(response.into_error().to_string(), format!("the server answers: {message}"));
        }
    }

    #[test]
    fn the_hint_names_the_remedy() {
        for (status, retry_after, word) in [
            (401, None, "login"),
            (403, None, "scope"),
            (429, Some(7), "7 seconds"),
            (503, Some(2), "2 seconds"),
        ] {
            let error = ErrorResponse::new(status, b"{}", retry_after).into_error();
            assert!(error.hint_text().unwrap().contains(word), "{status}: {error:?}");
        }
    }
}
